//! The log: lines on stderr, readable on a terminal; under journald without timestamps and with
//! priorities; or JSON.

mod writer;

use std::ffi::OsStr;
use std::fmt;
use std::io::IsTerminal;
use std::os::linux::fs::MetadataExt;

use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::Filtered;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, format};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use self::writer::LogWriter;
use crate::clock;
use crate::config::{LogFormat, LogSettings};
use crate::printable::{printable, printable_json, quoted};

pub(crate) use self::writer::finish;

type Boxed = Box<dyn Layer<Registry> + Send + Sync>;

/// The running log, which can be changed.
pub(crate) struct Logging {
    handle: reload::Handle<Filtered<Boxed, LevelFilter, Registry>, Registry>,
    stderr: StderrKind,
}

impl Logging {
    /// Starts the log, which a process does once.
    pub(crate) fn start(log: LogSettings) -> Self {
        let stderr =
            StderrKind { is_journal: is_journal(), has_colours: has_colours(&std::io::stderr()) };
        let (layer, handle) = reload::Layer::new(layer(log, stderr).with_filter(log.level));
        tracing_subscriber::registry().with(layer).init();
        clock::read_zone();
        Self { handle, stderr }
    }

    /// Continues the log with other settings.
    pub(crate) fn change(&self, log: LogSettings) {
        // It fails only when the subscriber is gone, and nobody is there to be told.
        let _ = self.handle.modify(|filtered| {
            // Not another Filtered: only the first one was given an id by the registry, and without
            // one it panics.
            *filtered.inner_mut() = layer(log, self.stderr);
            *filtered.filter_mut() = log.level;
        });
    }
}

/// The kind of stderr, which is found out at the start, because its file system may hang later.
#[derive(Clone, Copy)]
struct StderrKind {
    is_journal: bool,
    has_colours: bool,
}

fn layer(log: LogSettings, stderr: StderrKind) -> Boxed {
    let base = || tracing_subscriber::fmt::layer().with_writer(LogWriter::default());
    let json = || base().json().flatten_event(true);
    let fields = || format::debug_fn(write_field).delimited(" ");
    let text = || base().with_ansi(stderr.has_colours).with_target(false).fmt_fields(fields());
    match (log.format, stderr.is_journal) {
        (LogFormat::Json, false) => json().map_event_format(Visible).boxed(),
        (LogFormat::Json, true) => {
            json().map_event_format(|json| Prioritized(Visible(json))).boxed()
        }
        (LogFormat::Text, false) => text().with_timer(LocalTime).boxed(),
        (LogFormat::Text, true) => text().without_time().map_event_format(Prioritized).boxed(),
    }
}

struct LocalTime;

impl FormatTime for LocalTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&clock::local(clock::unix_now(), "%Y-%m-%dT%H:%M:%S%:z"))
    }
}

/// Writes a field of a log line so that its value stays one value, whatever it is: no line, no
/// field and no terminal's command begins within it. Only the daemon's own messages have several
/// lines.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    if field.name() == "message" {
        let lines: Vec<_> = text.split('\n').map(printable).collect();
        return write!(writer, "{}", lines.join("\n"));
    }
    write!(writer, "{}={}", field.name(), quoted(&text))
}

/// Whether `stream` is a terminal that may get colours: NO_COLOR is not set, and TERM is not
/// `dumb`.
pub(crate) fn has_colours(stream: &impl IsTerminal) -> bool {
    let is_set =
        |name, is: fn(&OsStr) -> bool| std::env::var_os(name).is_some_and(|text| is(&text));
    stream.is_terminal()
        && !is_set("NO_COLOR", |value| !value.is_empty())
        && !is_set("TERM", |kind| kind == "dumb")
}

/// Formats JSON in which no text of other programs can be taken for a terminal's command.
struct Visible<F>(F);

impl<S, N, F> FormatEvent<S, N> for Visible<F>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        text.lines().try_for_each(|line| writeln!(writer, "{}", printable_json(line)))
    }
}

/// Puts the priority at the start of each line, where journald reads it (sd-daemon(3)).
struct Prioritized<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritized<F>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        text.lines().try_for_each(|line| writeln!(writer, "<{priority}>{line}"))
    }
}

/// Whether stderr is journald's socket: `JOURNAL_STREAM` names its device and inode
/// (systemd.exec(5)).
#[expect(clippy::disallowed_methods, reason = "at the start")]
fn is_journal() -> bool {
    let Some(journal) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|stderr| journal == format!("{}:{}", stderr.st_dev(), stderr.st_ino()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// serde_json escapes control characters of ASCII alone.
    #[test]
    fn a_line_of_json_has_nothing_that_a_terminal_obeys_and_is_the_same_document() {
        let lines = Lines::default();
        let writer = lines.clone();
        let json = tracing_subscriber::fmt::layer().json().flatten_event(true);
        let layer = json.map_event_format(Visible).with_writer(move || writer.clone());
        let cluster = "a\u{9b}31m\u{202e}\u{1b}b\nc\"d";
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::info!(cluster, "slurmctld answers");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let line = text.strip_suffix('\n').unwrap();
        assert!(line.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{line:?}");
        let document: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(document["cluster"], cluster);
    }
}
