//! The live tests: the program against a real slurmctld and a real Carbon, each test in a separate sandbox.
//!
//! They spend most of their time waiting, so `make test` runs many at once. Tests that measure time or keep the cores
//! busy run alone afterwards (tests/stages.sh lists them).

#![cfg(test)]

mod cluster;
mod commands;
mod dashboards;
mod documentation;
mod expected_start;
mod failover;
mod faults_reader;
mod faults_slurm;
mod figures;
mod finished;
mod follow;
mod install;
mod leaks;
mod loss;
mod native;
mod node_events;
mod one_thread;
mod packages_chroot;
mod releases;
mod rest;
mod sandbox_itself;
mod service;
mod status;
mod survey;
mod tags;
mod unchanged;
