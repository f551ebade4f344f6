//! One receiver as configured: where batches are sent, and how.

use std::time::Duration;

use crate::address::Address;
use crate::tls::Tls;
use carbon_wire::{MetricNames, Protocol};

/// A receiver of batches, and the settings for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The destination's name in logs and metrics, and its key in the queue.
    pub name: String,
    /// The receiver's address. A name in it is looked up again when a connection is lost or cannot
    /// be made.
    pub address: Address,
    /// The protocol that the peer reads.
    pub protocol: Protocol,
    /// The names that points get there: their paths, or names with tags.
    pub names: MetricNames,
    /// The connection's time-outs.
    pub timeouts: Timeouts,
    /// The TLS settings; `None`: plain TCP.
    pub tls: Option<Tls>,
    /// Points a second that resends and backlog may take; `None`: the larger of 5,000 and ten times
    /// the live rate.
    pub replay_rate: Option<u32>,
    /// Whether ticks are written strictly by their timestamps, for a store that refuses a point
    /// older than the newest one of its series. If not, the newest tick goes first.
    pub by_time: bool,
    /// Time after which the receiver's name is looked up again, for load balancers; `None`: only
    /// after a failed connection.
    pub reconnect_every: Option<Duration>,
}

impl Destination {
    /// A destination that reads pickle over TCP, with defaults for everything else.
    #[must_use]
    pub fn new(name: impl Into<String>, address: Address) -> Self {
        Self {
            name: name.into(),
            address,
            protocol: Protocol::default(),
            names: MetricNames::default(),
            timeouts: Timeouts::default(),
            tls: None,
            replay_rate: None,
            by_time: false,
            reconnect_every: None,
        }
    }
}

/// The times that the steps of a connection may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time for looking the name up, and again for connecting to its addresses, all of them
    /// together.
    pub connect: Duration,
    /// Time without a sign of reading, or without an answer to a half-close, after which the peer
    /// is in doubt.
    pub stall: Duration,
    /// Time without a sign of reading, or without an answer to a half-close, after which a
    /// connection is closed.
    pub pause: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            pause: Duration::from_secs(600),
        }
    }
}
