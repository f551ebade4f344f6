//! The only code that uses libslurm: one RPC per request, whose reply is copied into plain types and freed at once.
//!
//! All the hand-written unsafe code of the workspace is here: `raw` owns C replies, [`client`] makes calls, and
//! `stats`, `rpc`, `jobs` and similar modules copy or count. libslurm exits the process if its configuration is bad,
//! may hang for ever, keeps static state and supports one configuration per process. Nothing here tries to survive
//! that, because the daemon does.

mod accounting;
mod advice;
pub mod args;
mod associations;
pub mod client;
pub mod conf;
mod conf_cache;
mod dbd_statistics;
mod finished;
mod finished_ctld;
mod fold;
mod job;
mod jobs;
mod listed_controllers;
mod lists;
mod long_double;
mod names;
mod nodes;
mod operator;
mod own_host;
mod partitions;
mod raw;
mod rpc;
pub mod rpcs;
pub mod serve;
mod slurm_names;
mod stats;
mod survey_calls;
pub mod version;
mod waits;
