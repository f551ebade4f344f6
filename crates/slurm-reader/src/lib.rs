//! The only code that uses libslurm: it makes one RPC per request, copies the reply into plain
//! types and frees it at once.
//!
//! Only two files are unsafe: [`calls`] makes calls and owns the replies that they leave, and
//! `unpacked` follows the pointers in these replies. `stats`, `rpc`, `jobs` and similar modules
//! copy or count. libslurm exits the process if its configuration is bad, may hang for ever, keeps
//! static state and supports one configuration per process. Nothing here tries to survive that: the
//! reader is a process by itself, and the daemon starts another one.

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
