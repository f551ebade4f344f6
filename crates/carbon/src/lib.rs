//! Datapoints to Carbon without loss: legal paths, batches of points, frames, the queue, the sender.
//!
//! Carbon acknowledges nothing. The only thing that its program ever does is to close a connection after it has read everything
//! on it; ledger.rs holds the rule that follows from it. Nothing here knows Slurm.

#![deny(unsafe_code)]

mod address;
mod backoff;
mod budget;
mod connection;
mod ledger;
pub mod path;
mod point;
mod queue;
mod rate;
mod sender;
mod store;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod wire;

pub use address::{Address, AddressError};
pub use backoff::Backoff;
pub use connection::{Connection, ConnectionError, Stream, Timeouts};
pub use point::{Batch, Point};
pub use queue::{Dropped, LEAST_FILE_BYTES, Limits, Queue, QueueLocked, QueueStatus, Status};
pub use sender::{Destination, Sender};
pub use tls::Tls;
#[cfg(feature = "tls")]
pub use tls::{Certificate, TlsConnection, TlsNameError, TlsSettings, certificates, speaks_tls};
pub use wire::{Frame, MAX_FRAME_BYTES, MAX_FRAME_POINTS, Names, Protocol, WireError, frames, lines};
