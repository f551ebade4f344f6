//! Free ports on the loopback address.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{LazyLock, Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::proc;

/// Below the kernel's range for outgoing connections, one of which could take a port before its
/// owner listens.
const BLOCKS: [u16; 4] = [10_000, 15_000, 20_000, 25_000];

/// Each process of tests has a block of its own, as long as there is one: it holds the UDP port of
/// that number. Two could take the same port otherwise, before its owner listens.
static BLOCK: LazyLock<Option<(u16, UdpSocket)>> = LazyLock::new(|| {
    BLOCKS
        .into_iter()
        .find_map(|block| Some((block, UdpSocket::bind((Ipv4Addr::LOCALHOST, block)).ok()?)))
});

static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A TCP port on which nobody listens; never the same port twice in one process.
pub fn free_port() -> Result<u16> {
    free_ports(1)
}

/// The first of so many in a row.
pub(crate) fn free_ports(count: u16) -> Result<u16> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let ports = BLOCK.as_ref().map_or(10_000..30_000, |(block, _)| *block..*block + 5000);
    let first = std::iter::repeat_with(|| fastrand::u16(ports.start..ports.end - count))
        .take(1000)
        // The check does not bind the port: a child that another thread forks at that moment would
        // keep the socket until exec.
        .find(|&first| {
            (first..first + count).all(|port| !taken.contains(&port) && !proc::listening(port))
        })
        .context("no free port on 127.0.0.1")?;
    taken.extend(first..first + count);
    Ok(first)
}
