//! What ends the daemon, and what makes it read its configuration again.

use std::future::Future;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::warn;

pub(super) struct Signals {
    pub(super) hangup: Signal,
    pub(super) stop: StopSignals,
}

pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            stop: StopSignals {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
            },
        })
    }
}

impl StopSignals {
    pub(super) async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for the end of the work, or for another signal.
pub(super) async fn or_stop(work: impl Future<Output = ()>, signals: &mut StopSignals) {
    tokio::select! {
        () = work => {}
        () = signals.recv() => warn!("second signal: ending without waiting for unsent ticks"),
    }
}
