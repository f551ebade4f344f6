//! A reader's stderr: passed on to our log without repetitions, with its last lines in errors.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::locate::ReaderKind;
use crate::printable::printable;

/// How many of the last lines of its stderr go into an error.
const TAIL: usize = 3;
/// How many lines are remembered so that none of them is logged twice.
const REMEMBERED: usize = 16;

/// The last lines of its stderr.
#[derive(Debug, Default)]
pub(crate) struct LastLines {
    pub(super) kind: ReaderKind,
    pub(super) lines: Vec<String>,
}

impl LastLines {
    /// Whether there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// What may hang if a reader does: the others have deadlines of their own for each request.
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

/// Lines that were said, the newest last, for all who hold them.
#[derive(Clone, Debug, Default)]
pub(super) struct SaidLines(Arc<Mutex<VecDeque<String>>>);

impl SaidLines {
    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, or makes it the newest, and keeps no more than `most`; whether it was not there.
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

/// Carries a reader's stderr, which is libslurm's log where there is one, into ours.
#[derive(Debug)]
pub(super) struct Stderr {
    kind: ReaderKind,
    /// The last lines of this reader since its last request.
    pub(super) tail: SaidLines,
    /// What readers have said since the last reading, so that what libslurm repeats at every call, and every reader at its
    /// start, is logged once.
    pub(super) logged: SaidLines,
    /// It ends with this.
    task: JoinSet<()>,
}

impl Stderr {
    pub(super) fn follow(stderr: Receiver, kind: ReaderKind, logged: SaidLines) -> Self {
        let (tail, mut task) = (SaidLines::default(), JoinSet::new());
        task.spawn(Self::carry(stderr, tail.clone(), kind, logged.clone()));
        Self { kind, tail, logged, task }
    }

    async fn carry(stderr: Receiver, tail: SaidLines, kind: ReaderKind, logged: SaidLines) {
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
            if is_of_the_loader(&text) {
                debug!("{text}");
            } else {
                match (kind, logged.remember(&text, REMEMBERED)) {
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

    /// Takes what is still in the pipe of a reader that has ended.
    pub(super) async fn finish(&mut self) {
        let _ = timeout(Duration::from_secs(1), self.task.join_next()).await;
    }
}

/// libslurm begins its lines with the program's name: `slurm-graphite-reader: ` or `slurm-graphite-reader-42: `.
fn without_program(text: &str) -> &str {
    text.strip_prefix("slurm-graphite-reader")
        .and_then(|rest| rest.split_once(": "))
        .filter(|(soname, _)| soname.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(text, |(_, line)| line)
}

/// Of readers side by side all but one cannot be loaded, which is as it should be; where it is not, it is in the error. The
/// last is a reader's own refusal.
fn is_of_the_loader(text: &str) -> bool {
    ["error while loading shared libraries", "symbol lookup error", "the loaded libslurm is "]
        .iter()
        .any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libslurm_says_is_quoted_without_the_readers_name_whatever_it_is() {
        for line in ["slurm-graphite-reader: error: munge: no", "slurm-graphite-reader-42: error: munge: no"]
        {
            assert_eq!(without_program(line), "error: munge: no");
        }
        for line in ["error: munge: no", "slurm-graphite-reader.conf: no", "slurm-graphite-reader"] {
            assert_eq!(without_program(line), line);
        }
    }
}
