//! Where batches go, and how: what the configuration says of one receiver.

use std::time::Duration;

use crate::address::Address;
use crate::tls::Tls;
use crate::wire::{MetricNames, Protocol};

/// Where batches go, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// What it is called in logs and metrics, and where its place in the queue is kept.
    pub name: String,
    /// Looked up when a connection is lost or cannot be made.
    pub address: Address,
    /// What the peer reads.
    pub protocol: Protocol,
    /// What the points are called there.
    pub names: MetricNames,
    /// Of the connection.
    pub timeouts: Timeouts,
    /// `None`: bytes go over TCP as they are.
    pub tls: Option<Tls>,
    /// Points a second that resends and backlog may take; `None`: the larger of 5,000 and ten times the live rate.
    pub replay_rate: Option<u32>,
    /// The name is looked up again at this age, for load balancers; `None`: only after a failed connection.
    pub reconnect_every: Option<Duration>,
}

impl Destination {
    /// One that speaks pickle over TCP, with everything else as it is by default.
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
            reconnect_every: None,
        }
    }
}

/// How long each step may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Looking the name up, and then connecting to each of its addresses.
    pub connect: Duration,
    /// How soon the peer must answer a half-close.
    pub stall: Duration,
    /// How long a peer may read nothing, or not answer a half-close, before its connection is given up.
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
