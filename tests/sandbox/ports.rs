//! Free ports on the loopback address.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::proc;

static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A TCP port that no socket of this machine uses; never the same port twice in one process.
pub fn free_port() -> Result<u16> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    // Below the kernel's range for outgoing connections, one of which could take it before its owner listens.
    std::iter::repeat_with(|| fastrand::u16(10_000..30_000))
        .take(1000)
        // The check does not bind the port: a child that another thread forks at that moment would keep the socket
        // until exec.
        .find(|&port| !proc::in_use(port) && taken.insert(port))
        .context("no free port on 127.0.0.1")
}
