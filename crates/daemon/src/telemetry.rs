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
use crate::printable::{printable, quoted};

pub(crate) use self::writer::finish;

type Boxed = Box<dyn Layer<Registry> + Send + Sync>;

/// The running log, which can be changed.
pub(crate) struct Logging {
    handle: reload::Handle<Filtered<Boxed, LevelFilter, Registry>, Registry>,
    stderr: StderrKind,
}

impl Logging {
    /// Starts logging; once a process.
    pub(crate) fn start(log: LogSettings) -> Self {
        let stderr =
            StderrKind { is_journal: is_journal(), has_colours: has_colours(&std::io::stderr()) };
        let (layer, handle) = reload::Layer::new(layer(log, stderr).with_filter(log.level));
        tracing_subscriber::registry().with(layer).init();
        clock::read_zone();
        Self { handle, stderr }
    }

    /// Goes on with other settings.
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

/// Known from the start on: its file system may hang later.
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
        (LogFormat::Json, false) => json().boxed(),
        (LogFormat::Json, true) => json().map_event_format(Prioritized).boxed(),
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

/// Whatever a value is, it stays one value: no line, no field and no terminal's command begins
/// within it. Only our own messages have several lines.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    if field.name() == "message" {
        let lines: Vec<_> = text.split('\n').map(printable).collect();
        return write!(writer, "{}", lines.join("\n"));
    }
    write!(writer, "{}={}", field.name(), quoted(&text))
}

/// Whether `stream` is a terminal, and NO_COLOR is not set.
pub(crate) fn has_colours(stream: &impl IsTerminal) -> bool {
    let is_set =
        |name, is: fn(&OsStr) -> bool| std::env::var_os(name).is_some_and(|text| is(&text));
    stream.is_terminal()
        && !is_set("NO_COLOR", |value| !value.is_empty())
        && !is_set("TERM", |kind| kind == "dumb")
}

/// With the priority that journald reads at the start of each line (sd-daemon(3)).
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
