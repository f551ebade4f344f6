//! The only code that uses libslurm: one RPC per request, whose reply is copied into plain types
//! and freed at once.
//!
//! Only two files are unsafe: [`calls`] makes calls and owns what they leave, and `unpacked`
//! follows the pointers in that. `stats`, `rpc`, `jobs` and similar modules copy or count. libslurm
//! exits the process if its configuration is bad, may hang for ever, keeps static state and
//! supports one configuration per process. Nothing here tries to survive that, because the daemon
//! does.

#![deny(unsafe_code)]

#[cfg(test)]
mod absent;
mod accounting;
mod advice;
pub mod args;
mod associations;
#[expect(unsafe_code, reason = "it calls libslurm")]
pub mod calls;
pub mod client;
pub mod conf;
mod conf_cache;
mod dbd_statistics;
mod finished;
mod fold;
mod job;
mod jobs;
mod listeners;
mod lists;
mod long_double;
mod nodes;
mod operator;
mod own_host;
mod partitions;
mod proofs;
mod rpc;
pub mod rpcs;
pub mod serve;
mod slurm_names;
mod stats;
#[expect(unsafe_code, reason = "it follows libslurm's pointers")]
mod unpacked;
mod values;
pub mod version;
mod waits;
