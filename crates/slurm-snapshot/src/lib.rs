//! Reports of a reader to the daemon: plain types in Slurm's own words, and their line format.
//!
//! The types are the same for every Slurm release. What a release lacks is `None`, and what is
//! `None` is never published. Nothing here knows libslurm, Graphite, a clock or a file.

#![forbid(unsafe_code)]

/// Declares a struct of which a reply has thousands. It is written as a JSON array of its members,
/// in their order, and serde reads such an array as the struct.
macro_rules! as_array {
    ($(#[$meta:meta])* pub struct $struct:ident {
        $($(#[$about:meta])* pub $member:ident: $of:ty,)+ }) => {
        $(#[$meta])*
        pub struct $struct {
            $($(#[$about])* pub $member: $of,)+
        }

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

#[macro_use]
mod sums;

pub mod array;
mod associations;
mod dbd_rpc;
mod dbd_statistics;
mod endpoint;
#[expect(missing_docs, reason = "the names are those of slurm_errno.h")]
pub mod errno;
mod exit;
mod features;
mod finished;
pub mod gres;
mod jobs;
mod known;
mod line;
mod lists;
mod names;
mod node_state;
mod nodes;
mod release;
mod replies;
mod rpc;
mod shards;
mod shares;
mod statistics;
pub mod tres;

pub use associations::*;
pub use dbd_rpc::*;
pub use dbd_statistics::*;
pub use endpoint::*;
pub use exit::*;
pub use features::*;
pub use finished::*;
pub use jobs::*;
pub use known::*;
pub use line::*;
pub use lists::*;
pub use names::*;
pub use node_state::service::*;
pub use node_state::*;
pub use nodes::*;
pub use release::*;
pub use replies::*;
pub use rpc::*;
pub use shards::*;
pub use shares::*;
pub use statistics::*;
pub use sums::*;
