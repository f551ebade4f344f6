//! What a reader of libslurm tells the daemon: plain types in Slurm's own words, and their line format.
//!
//! The types are the same for every Slurm release. What a release lacks is `None`, and what is `None` is never
//! published. Nothing here knows libslurm, Graphite, a clock or a file.

#![forbid(unsafe_code)]

mod exit;
mod line;
mod release;
mod rpc;
mod statistics;

pub use exit::{bf_exit_name, bf_exit_text, schedule_exit_name, schedule_exit_text};
pub use line::{Answer, Failure, Hello, LineError, PROTOCOL, Reading, Request};
pub use release::{Release, ReleaseError};
pub use rpc::rpc_name;
pub use statistics::{DumpedRpcs, PendingRpc, RpcQueue, RpcTables, RpcType, RpcUser, Statistics};
