//! slurmctld's own protocol, without libslurm: the statistics, on the caller's runtime.
//!
//! No step waits without a deadline. What may wait for a file system or a name service has a
//! thread, and the rest is non-blocking sockets. Whatever a peer sends is a reading or a failure
//! and never a panic, because the caller has the backlog of ticks in its memory.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::string_slice))]

mod cluster;
mod conf_lines;
mod credential;
mod exchange;
mod hosts;
mod known_numbers;
mod local_socket;
mod message;
mod moment;
mod munge;
mod number;
mod pack;
mod problem;
mod reader;
mod sackd;
mod slurm_conf;
mod statistics;
mod timed;

pub use self::moment::{Moments, Step};
pub use self::problem::INSTALL_LIBSLURM;
pub use self::reader::NativeReader;
pub use self::slurm_conf::{MUNGE_SOCKET, USUAL_CONFS, munge_socket};
