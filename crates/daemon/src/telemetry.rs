//! The log: lines on stderr, readable on a terminal, without timestamps under journald, JSON where it is wanted.

use std::io::IsTerminal;
use std::os::linux::fs::MetadataExt;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Filtered;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogFormat, LogSettings};

type Boxed = Box<dyn Layer<Registry> + Send + Sync>;

/// The running log, which can be changed.
pub(crate) struct Logging(reload::Handle<Filtered<Boxed, LevelFilter, Registry>, Registry>);

impl Logging {
    /// Starts logging; once a process.
    pub(crate) fn start(log: LogSettings) -> Self {
        let (layer, handle) = reload::Layer::new(layer(log).with_filter(log.level));
        tracing_subscriber::registry().with(layer).init();
        Self(handle)
    }

    /// Goes on with other settings.
    pub(crate) fn change(&self, log: LogSettings) {
        // It fails only when the subscriber is gone, and nobody is there to be told.
        let _ = self.0.modify(|filtered| {
            // Not another Filtered: only the first one was given an id by the registry, and without one it panics.
            *filtered.inner_mut() = layer(log);
            *filtered.filter_mut() = log.level;
        });
    }
}

fn layer(log: LogSettings) -> Boxed {
    let base = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match log.format {
        LogFormat::Json => base.json().flatten_event(true).boxed(),
        LogFormat::Text => {
            let text = base.with_ansi(std::io::stderr().is_terminal()).with_target(false);
            if is_journal() { text.without_time().boxed() } else { text.boxed() }
        }
    }
}

/// Whether stderr is journald's socket: `JOURNAL_STREAM` names its device and inode (systemd.exec(5)).
fn is_journal() -> bool {
    let Some(journal) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|stderr| journal == format!("{}:{}", stderr.st_dev(), stderr.st_ino()))
}
