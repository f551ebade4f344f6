//! The live tests: the program against a real slurmctld and a real Carbon, each test in a sandbox of its own.
//!
//! Most of their time is waiting, so `make test` runs many at once; what looks at clocks, or keeps the cores busy, runs
//! alone afterwards (tests/stages.sh says which).

#![cfg(test)]

mod cluster;
mod commands;
mod dashboards;
mod documentation;
mod failover;
mod faults_carbon;
mod faults_reader;
mod faults_slurm;
mod figures;
mod finished;
mod follow;
mod install;
mod leaks;
mod loss;
mod packages_chroot;
mod releases;
mod rest;
mod sandbox_itself;
mod service;
mod status;
mod survey;
mod tags;
