//! What a reader reports to the daemon: plain types in Slurm's own words, and their line format.
//!
//! The types are the same for every Slurm release. What a release lacks is `None`, and what is `None` is never
//! published. Nothing here knows libslurm, Graphite, a clock or a file.

#![forbid(unsafe_code)]

/// Writes a struct that is there thousands of times as an array of its members, in their order. serde reads it as the struct.
macro_rules! as_array {
    ($struct:ident: $($member:ident)+) => {
        impl serde::Serialize for $struct {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeSeq as _;

                let mut array = serializer.serialize_seq(None)?;
                $(array.serialize_element(&self.$member)?;)+
                array.end()
            }
        }
    };
}

pub mod array;
mod associations;
mod dbd_rpc;
mod dbd_statistics;
mod endpoint;
mod exit;
mod finished;
pub mod gres;
mod jobs;
mod line;
mod lists;
mod node_state;
mod nodes;
mod release;
mod replies;
mod rpc;
mod shares;
mod statistics;
pub mod tres;

pub use associations::{
    Association, AssociationUser, Associations, QosUse, SharesRaw, TresUse, UseAndLimits,
};
pub use dbd_rpc::dbd_rpc_name;
pub use dbd_statistics::{DbdRollup, DbdStatistics};
pub use endpoint::{Endpoint, EndpointError};
pub use exit::{BACKFILL_EXITS, ExitReasons, MAIN_EXITS};
pub use finished::{FINAL_STATES, Finished, FinishedJob, NameNumbers, RESIZING, Used};
pub use jobs::{
    AccountJobs, Expected, Expecting, JOB_STATES, JobTallies, JobTally, Jobs, Moments, PartitionJobs,
    Started, Starts, UserJobs, Waiting, running,
};
pub use line::{
    Answer, Failure, Hello, LineError, PROTOCOL, Reading, Request, Rest, Stage, Token, WRONG_LIBRARY,
};
pub use lists::*;
pub use node_state::service::{OutageClass, Service, changes_power, service};
pub use node_state::{FoundNode, NODE_STATES, NodeState, flag_words, node_flag, numbered_word};
pub use nodes::{Memory, NodeMark, NodeRow, NodeTallies, NodeTally, Nodes, Partition, Partitions};
pub use release::{LIBRARIES, Release, ReleaseError};
pub use replies::*;
pub use rpc::rpc_name;
pub use shares::Shares;
pub use statistics::{DumpedRpcs, Means, PendingRpc, RpcQueue, RpcTables, RpcType, RpcUser, Statistics};
