//! Notifications for systemd: READY, STATUS in words, WATCHDOG, STOPPING. Without systemd they do nothing.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::debug;

/// The connection to systemd, and the last status that was sent.
#[derive(Debug)]
pub(crate) struct Notify {
    watched: bool,
    watchdog: Option<Duration>,
    status: String,
}

impl Notify {
    /// From the environment that systemd made.
    pub(crate) fn from_env() -> Self {
        let watched = std::env::var_os("NOTIFY_SOCKET").is_some();
        Self { watched, watchdog: sd_notify::watchdog_enabled(), status: String::new() }
    }

    /// How often the watchdog must be fed; a third of its patience.
    pub(crate) fn feed_every(&self) -> Option<Duration> {
        self.watchdog.map(|patience| patience / 3)
    }

    /// Tells systemd that the daemon has started.
    pub(crate) fn ready(&self) {
        self.send(NotifyState::Ready);
    }

    /// Tells systemd that the daemon is stopping.
    pub(crate) fn stopping(&self) {
        self.send(NotifyState::Stopping);
    }

    /// Feeds the watchdog: the tick loop is alive.
    pub(crate) fn feed(&self) {
        if self.watchdog.is_some() {
            self.send(NotifyState::Watchdog);
        }
    }

    /// The status in words, sent when it has changed.
    pub(crate) fn status(&mut self, words: impl FnOnce() -> String) {
        if !self.watched {
            return;
        }
        let words = words();
        if words != self.status {
            self.send(NotifyState::Status(&words));
            self.status = words;
        }
    }

    fn send(&self, state: NotifyState<'_>) {
        if let (true, Err(error)) = (self.watched, sd_notify::notify(&[state])) {
            debug!(%error, "systemd does not listen");
        }
    }
}
