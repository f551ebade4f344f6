//! Sends datapoints to Carbon without loss: the queue, the sender. The points and their bytes are
//! in carbon-wire.
//!
//! Carbon acknowledges nothing. The only sign of life from its program is that it closes a
//! connection after it has read everything on it. The rule that follows from this is in ledger.rs.
//! Nothing here knows Slurm.

#![deny(unsafe_code)]
// Two variables of one name once hid a wrong number of a record.
#![cfg_attr(not(test), warn(clippy::shadow_unrelated))]
#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests may wait"))]

mod acks;
mod address;
mod backoff;
mod clock;
mod connection;
mod connection_error;
mod destination;
mod duration;
mod idle;
mod ledger;
mod queue;
mod sender;
mod store;
mod throttle;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
#[cfg(feature = "tls")]
mod tls_connection;

pub use carbon_wire::{
    Batch, Frame, MAX_FRAME_BYTES, MAX_FRAME_POINTS, MetricNames, Point, Protocol, WireError,
    frames, lines, path,
};

pub use acks::Acks;
pub use address::{Address, AddressError};
pub use backoff::Backoff;
#[cfg(feature = "tls")]
pub use connection::speaks_tls;
pub use connection::{Connection, LastTried, Stream, look_up};
pub use connection_error::ConnectionError;
pub use destination::{Destination, Timeouts};
pub use duration::in_words;
pub use ledger::Ticks;
pub use queue::{Dropped, Limits, Queue, QueueLocked, QueueStatus, Status};
pub use sender::Sender;
pub use store::LEAST_FILE_BYTES;
pub use tls::Tls;
#[cfg(feature = "tls")]
pub use tls::{Certificate, TlsNameError, TlsSettings, certificates};
#[cfg(feature = "tls")]
pub use tls_connection::TlsConnection;
