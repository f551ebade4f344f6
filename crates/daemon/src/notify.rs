//! Notifications for systemd: READY, STATUS in words, WATCHDOG, STOPPING. Without systemd they do
//! nothing.
//!
//! systemd may not read: then its socket is full, and a send would wait for it. Here none waits.
//! READY and STOPPING must arrive, so they are sent again until the socket accepts them. A WATCHDOG
//! may be lost, and a STATUS comes with the next tick.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::sleep;
use tracing::debug;

/// Time after which a message that systemd has not accepted is sent again.
const AGAIN: Duration = Duration::from_millis(100);

/// The way to systemd, what it must still be told, and the last status that it has accepted.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    systemd: Option<(UnixDatagram, SocketAddr)>,
    /// Time for which systemd's watchdog waits to be fed; `None`: it does not watch this process.
    patience: Option<Duration>,
    /// Moment at which the watchdog must be fed at the latest, Unix time.
    feed_at: Duration,
    pending: VecDeque<&'static str>,
    status: String,
}

impl Notify {
    /// Opens the socket that systemd names in the environment.
    pub(crate) fn from_env() -> Self {
        let named = std::env::var_os("NOTIFY_SOCKET");
        let systemd = named.and_then(|name| {
            let opened = open(&name);
            opened.inspect_err(|error| debug!(%error, "systemd cannot be notified")).ok()
        });
        Self { systemd, patience: patience(), ..Self::default() }
    }

    /// Moment at which the watchdog must be fed at the latest, Unix time.
    pub(crate) fn feed_at(&self) -> Option<Duration> {
        self.patience.map(|_| self.feed_at)
    }

    /// Feeds the watchdog at `now`, Unix time, because the loop of ticks is alive. It is fed again
    /// after a third of its patience at the latest.
    pub(crate) fn feed(&mut self, now: Duration) {
        if let Some(patience) = self.patience {
            self.feed_at = now.saturating_add(patience / 3);
            self.send("WATCHDOG=1");
        }
    }

    /// Sends the status in words, if it is another than the one that systemd has accepted last.
    pub(crate) fn status(&mut self, words: impl FnOnce() -> String) {
        if self.systemd.is_none() {
            return;
        }
        let words = words();
        if words != self.status && self.send(&format!("STATUS={words}")) {
            self.status = words;
        }
    }

    /// Sends what systemd must still be told until it has accepted it, and then waits for ever.
    /// Safe to cancel.
    pub(crate) async fn insisting(&mut self) -> Infallible {
        while self.flush() {
            sleep(AGAIN).await;
        }
        std::future::pending().await
    }

    /// Tells systemd what it must know: READY=1 or STOPPING=1.
    pub(crate) fn insist(&mut self, message: &'static str) {
        if self.systemd.is_some() {
            self.pending.push_back(message);
            self.flush();
        }
    }

    /// Sends what systemd must still be told. Returns whether something of it is left.
    fn flush(&mut self) -> bool {
        while let Some(message) = self.pending.front() {
            if !self.send(message) {
                return true;
            }
            self.pending.pop_front();
        }
        false
    }

    /// Sends a message without waiting. Returns whether systemd has it, or will never have it.
    fn send(&self, message: &str) -> bool {
        let Some((socket, address)) = &self.systemd else { return true };
        match socket.send_to_addr(message.as_bytes(), address) {
            Ok(_) => true,
            Err(error) => {
                debug!(%error, message, "systemd does not accept this now");
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        }
    }
}

/// Opens a socket, and returns it with the address of systemd's: a path, or an abstract name behind
/// an @.
fn open(name: &OsString) -> io::Result<(UnixDatagram, SocketAddr)> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    Ok((socket, address))
}

/// Time for which systemd's watchdog waits to be fed; `None`: it does not watch this process.
fn patience() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_for_us = std::env::var_os("WATCHDOG_PID").is_none()
        || number("WATCHDOG_PID") == Some(std::process::id().into());
    number("WATCHDOG_USEC").filter(|&patience| is_for_us && patience > 0).map(Duration::from_micros)
}
