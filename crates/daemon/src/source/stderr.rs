//! A reader's stderr: passed on to our log without repetitions and floods, with its last lines in
//! errors.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::locate::ReaderKind;
use crate::printable::printable;

/// Number of the last lines of stderr that go into an error.
const TAIL: usize = 3;
/// Number of lines that are remembered so that none of them is logged twice.
const REMEMBERED: usize = 16;
/// Number of lines of a role's readers that are logged in a minute.
const MOST_IN_A_MINUTE: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

/// The last lines of a reader's stderr, as errors quote them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastLines {
    pub(super) kind: ReaderKind,
    pub(super) lines: Vec<String>,
}

impl LastLines {
    /// Whether the reader has printed no line.
    pub(crate) const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether libslurm found no address for a name.
    pub(super) fn is_of_unknown_host(&self) -> bool {
        let is_sign =
            |line: &String| line.contains("getaddrinfo") || line.contains("Unable to resolve");
        self.lines.iter().any(is_sign)
    }

    /// Returns whether libslurm may not read slurm.conf, or a file that it includes.
    pub(super) fn is_of_forbidden_conf(&self) -> bool {
        let is_sign =
            |line: &String| line.contains("s_p_parse_file") && line.contains("Permission denied");
        self.lines.iter().any(is_sign)
    }

    /// Names the programs that may hang if a reader does. Readers that are not libslurm's have
    /// deadlines of their own for each request.
    pub(super) const fn may_hang(&self) -> &'static str {
        match self.kind {
            ReaderKind::Libslurm => ": munged or slurmctld may hang",
            ReaderKind::Native | ReaderKind::Rest => "",
        }
    }
}

impl fmt::Display for LastLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            Ok(())
        } else {
            write!(f, "; {} said: {}", self.kind.speaker(), self.lines.join(" | "))
        }
    }
}

/// Lines that a reader has printed, the newest last. All clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct SaidLines(Arc<Mutex<VecDeque<String>>>);

impl SaidLines {
    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, or makes it the newest, and keeps no more than `most` lines. Returns whether
    /// the line was not there before.
    fn remember(&self, text: &str, most: usize) -> bool {
        let mut lines = self.lock();
        let before = lines.len();
        lines.retain(|line| line != text);
        let is_news = lines.len() == before;
        lines.push_back(text.to_owned());
        if lines.len() > most {
            lines.pop_front();
        }
        is_news
    }

    pub(super) fn forget(&self) {
        self.lock().clear();
    }
}

/// The lines of a role's readers that the log has.
#[derive(Clone, Debug, Default)]
pub(super) struct LoggedLines {
    /// Lines since the last reading: what libslurm repeats at every call, and every reader at its
    /// start, is logged once.
    lines: SaidLines,
    minute: Arc<Mutex<LogMinute>>,
}

/// A minute of readers' lines in the log, which begins with a line.
#[derive(Debug, Default)]
struct LogMinute {
    began: Option<Instant>,
    lines: u32,
    withheld: u64,
}

impl LogMinute {
    /// Begins another minute when this one is over, and tells how many lines it withheld.
    fn report_when_over(&mut self) {
        if self.began.is_none_or(|began| began.elapsed() < MINUTE) {
            return;
        }
        if self.withheld > 0 {
            warn!(
                lines = self.withheld,
                "the reader said more than {MOST_IN_A_MINUTE} lines in a minute; the others were \
                    logged at debug"
            );
        }
        *self = Self::default();
    }

    /// Counts a line, and returns whether it is logged in this minute.
    fn admit(&mut self) -> bool {
        self.report_when_over();
        self.began.get_or_insert_with(Instant::now);
        self.lines = self.lines.saturating_add(1);
        let has_room = self.lines <= MOST_IN_A_MINUTE;
        self.withheld = self.withheld.saturating_add(u64::from(!has_room));
        has_room
    }
}

impl LoggedLines {
    fn minute(&self) -> MutexGuard<'_, LogMinute> {
        self.minute.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a line is logged as a warning: if it is news, and the minute has room.
    fn admit(&self, text: &str) -> bool {
        self.lines.remember(text, REMEMBERED) && self.minute().admit()
    }

    /// Forgets the lines at a reading: what comes again after it is news.
    pub(super) fn forget(&self) {
        self.lines.forget();
        self.minute().report_when_over();
    }
}

/// Carries a reader's stderr into the daemon's log. It is libslurm's log, if the reader uses
/// libslurm.
#[derive(Debug)]
pub(super) struct Stderr {
    kind: ReaderKind,
    /// The last lines of this reader since its last request.
    pub(super) tail: SaidLines,
    pub(super) logged: LoggedLines,
    /// The task that reads the pipe; it ends with this value.
    task: JoinSet<()>,
}

impl Stderr {
    pub(super) fn follow(stderr: Receiver, kind: ReaderKind, logged: LoggedLines) -> Self {
        let tail = SaidLines::default();
        let mut task = JoinSet::new();
        task.spawn(Self::carry(stderr, tail.clone(), kind, logged.clone()));
        Self { kind, tail, logged, task }
    }

    async fn carry(stderr: Receiver, tail: SaidLines, kind: ReaderKind, logged: LoggedLines) {
        // Small: it stays for the reader's whole life.
        let mut stderr = BufReader::with_capacity(512, stderr);
        let mut line = Vec::new();
        loop {
            line.clear();
            // A line longer than this is cut, not kept.
            match (&mut stderr).take(4096).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line);
            let text = printable(without_program(text.trim())).into_owned();
            if text.is_empty() {
                continue;
            }
            if is_of_the_loader(&text) || is_of_the_range(&text) {
                debug!("{text}");
            } else {
                match (kind, logged.admit(&text)) {
                    (ReaderKind::Libslurm, true) => warn!(target: "libslurm", "libslurm: {text}"),
                    (ReaderKind::Libslurm, false) => debug!(target: "libslurm", "libslurm: {text}"),
                    (_, true) => warn!("the reader: {text}"),
                    (_, false) => debug!("the reader: {text}"),
                }
            }
            tail.remember(&text, TAIL);
        }
    }

    pub(super) fn said(&self) -> LastLines {
        LastLines { kind: self.kind, lines: self.tail.lock().iter().cloned().collect() }
    }

    /// Takes the lines that are still in the pipe of a reader that has ended, for a second at most.
    pub(super) async fn finish(&mut self) {
        let _ = timeout(Duration::from_secs(1), self.task.join_next()).await;
    }
}

/// Returns a line without the name of the program, with which libslurm begins its lines:
/// `slurm-graphite-reader: ` or `slurm-graphite-reader-42: `.
fn without_program(text: &str) -> &str {
    text.strip_prefix("slurm-graphite-reader")
        .and_then(|rest| rest.split_once(": "))
        .filter(|(soname, _)| {
            soname.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit())
        })
        .map_or(text, |(_, line)| line)
}

/// Whether a line is the dynamic loader's, or of a reader that refuses a libslurm. Of readers
/// installed side by side all but one print such a line, as they should; if none can be used, the
/// error has their lines.
fn is_of_the_loader(text: &str) -> bool {
    ["error while loading shared libraries", "symbol lookup error", "the loaded libslurm is "]
        .iter()
        .any(|words| text.contains(words))
}

/// Whether a line says that a request is for a longer time than MaxQueryTimeRange, which an
/// ordinary user may not ask for. The reader or the daemon then asks for a shorter one, and reports
/// it if that is not enough.
fn is_of_the_range(text: &str) -> bool {
    text.contains("Too wide of a date range in query")
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::LazyLock;

    use tokio::io::AsyncWriteExt;
    use tracing::Dispatch;
    use tracing::subscriber::NoSubscriber;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Log {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    /// A log of warnings, until the guard is dropped, and a reader's stderr with both its ends.
    fn log_and_pipe() -> (Log, impl Drop, Receiver, tokio::net::unix::pipe::Sender) {
        // With a single subscriber, tracing asks only the thread that reaches a line first whether
        // it is wanted. A test without a subscriber switched the line off for all tests.
        static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));
        LazyLock::force(&SECOND);
        let log = Log::default();
        let subscriber =
            tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(log.clone());
        let guard = tracing::subscriber::set_default(subscriber.with_ansi(false).finish());
        let (output, input) = std::io::pipe().unwrap();
        let output = Receiver::from_owned_fd(OwnedFd::from(output)).unwrap();
        let input = tokio::net::unix::pipe::Sender::from_owned_fd(OwnedFd::from(input)).unwrap();
        (log, guard, output, input)
    }

    /// An ordinary user under MaxQueryTimeRange had this warning at each question about finished
    /// jobs, although all of them were counted: a reading between two of them made it news.
    #[tokio::test]
    async fn a_time_that_is_too_wide_is_no_warning() {
        let (log, _guard, output, mut input) = log_and_pipe();
        let mut stderr = Stderr::follow(output, ReaderKind::Libslurm, LoggedLines::default());
        input
            .write_all(
                b"slurm-graphite-reader-38: error: slurmdbd: Too wide of a date range in query\n\
                slurm-graphite-reader-38: error: slurmdbd: Access/permission denied\n",
            )
            .await
            .unwrap();
        drop(input);
        stderr.finish().await;
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("Access/permission denied"), "{text}");
        assert_eq!(stderr.said().lines.len(), 2, "an error has both");
    }

    /// Guards against an error: 11 MB of log a second, from a reader that printed no line twice.
    #[tokio::test(start_paused = true)]
    async fn a_flood_is_twenty_lines_a_minute_and_a_count_and_an_error_still_has_its_end() {
        let (log, _guard, output, mut input) = log_and_pipe();
        let logged = LoggedLines::default();
        let mut stderr = Stderr::follow(output, ReaderKind::Libslurm, logged.clone());
        for minute in 0..3 {
            for line in 0..1000 {
                input.write_all(format!("error: {line} of {minute}\n").as_bytes()).await.unwrap();
            }
            let last = format!("error: 999 of {minute}");
            while stderr.said().lines.last() != Some(&last) {
                tokio::task::yield_now().await;
            }
            tokio::time::advance(MINUTE).await;
        }
        drop(input);
        stderr.finish().await;
        assert_eq!(stderr.said().lines, ["error: 997 of 2", "error: 998 of 2", "error: 999 of 2"]);
        logged.forget();
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        for minute in 0..3 {
            let lines = text.lines().filter(|line| line.ends_with(&format!(" of {minute}")));
            assert_eq!(lines.count(), 20, "{text}");
        }
        let counts = text.lines().filter(|line| line.ends_with("lines=980"));
        assert_eq!((counts.count(), text.lines().count()), (3, 63), "{text}");
    }

    #[test]
    fn what_libslurm_says_is_quoted_without_the_readers_name_whatever_it_is() {
        for line in [
            "slurm-graphite-reader: error: munge: no",
            "slurm-graphite-reader-42: error: munge: no",
        ] {
            assert_eq!(without_program(line), "error: munge: no");
        }
        for line in ["error: munge: no", "slurm-graphite-reader.conf: no", "slurm-graphite-reader"]
        {
            assert_eq!(without_program(line), line);
        }
    }
}
