//! The start of a reader, as a value that needs nothing of its supervisor, so that it can be a task
//! of its own while another reader is asked.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carbon::Backoff;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::SourceError;
use super::locate::{LocatedReaders, ReaderKind};
use super::process::{Process, ProcessError};
use super::stderr::LoggedLines;

/// The start of a reader: the programs to try, each with its arguments, and how long to wait.
pub(super) struct Launch {
    pub(super) role: &'static str,
    pub(super) programs: Vec<(PathBuf, ReaderKind, Vec<OsString>)>,
    pub(super) located: LocatedReaders,
    /// Time to wait for a program's hello.
    pub(super) deadline: Duration,
    /// Time after which the log says that a start is slow.
    pub(super) slow_after: Duration,
    pub(super) logged: LoggedLines,
    /// Whether the native reader is used because no libslurm has a reader.
    pub(super) is_native_used: bool,
    /// Whether the log has said that a reader was lost.
    pub(super) troubled: bool,
}

/// The result of a start: the reader that runs, and the programs that do not fit.
pub(super) struct Launched {
    pub(super) located: LocatedReaders,
    /// Programs that do not fit this host, and why.
    pub(super) unfit: Vec<String>,
    /// The reader that has said hello; `None` if no program fits.
    pub(super) started: Option<(PathBuf, ReaderKind, Box<Process>)>,
}

impl Launch {
    /// Starts the first program that fits, and waits for its hello.
    pub(super) async fn run(self) -> Result<Launched, SourceError> {
        let mut unfit = Vec::new();
        for (program, kind, arguments) in &self.programs {
            let start =
                Process::start(self.role, program, arguments, self.deadline, *kind, &self.logged);
            let mut start = std::pin::pin!(start);
            let started = match timeout(self.slow_after, &mut start).await {
                Ok(started) => started,
                Err(_) => {
                    self.say_slow(program);
                    start.await
                }
            };
            match started {
                Ok(process) => {
                    let started = Some((program.clone(), *kind, Box::new(process)));
                    return Ok(Launched { located: self.located, unfit, started });
                }
                // The dynamic loader's answer: this host has another libslurm.
                Err(ProcessError::Unloadable(text)) => {
                    unfit.push(format!("{}: {text}", program.display()));
                }
                // One that was installed without its plugins does not take the place of a native
                // reader that works.
                Err(error @ ProcessError::NotInitialized { .. }) if self.is_native_used => {
                    unfit.push(format!("{}: {error}", program.display()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Launched { located: self.located, unfit, started: None })
    }

    fn say_slow(&self, program: &Path) {
        let seconds = self.slow_after.as_secs_f64();
        if self.troubled {
            debug!("the reader is not ready after {seconds} s again");
        } else {
            let reader = program.display();
            warn!(%reader, "the reader is not ready after {seconds} s; waiting for it");
        }
    }
}

/// The reader for a slurm.conf that has changed. It is started while the present one is asked.
#[derive(Default)]
pub(super) struct Successor {
    /// The task of the start under way; empty between two starts.
    starting: JoinSet<Result<Launched, SourceError>>,
    backoff: Backoff,
    /// Moment at which a start that has failed is tried again; `None`: none has failed.
    retry_at: Option<Instant>,
    /// Lines of these starts that the log has. Those of the present reader are kept apart, because
    /// each of its readings makes its lines news again.
    pub(super) logged: LoggedLines,
}

impl Successor {
    /// Begins the start in a task, which fails at once if `launch` is an error.
    pub(super) fn start(&mut self, launch: Result<Launch, SourceError>) {
        self.starting.spawn(async move { launch?.run().await });
    }

    pub(super) fn is_starting(&self) -> bool {
        !self.starting.is_empty()
    }

    /// Whether it is time to try a start again that has failed.
    pub(super) fn is_due(&self) -> bool {
        !self.is_starting() && self.retry_at.is_some_and(|at| at <= Instant::now())
    }

    /// Whether a start has failed since slurm.conf changed.
    pub(super) fn has_failed(&self) -> bool {
        self.retry_at.is_some()
    }

    /// Waits for the result of the start; `None`: its task has panicked. Safe to cancel.
    pub(super) async fn launched(&mut self) -> Option<Result<Launched, SourceError>> {
        self.starting.join_next().await?.ok()
    }

    /// Plans another try after a failed start. Returns whether it is the first failure since
    /// slurm.conf changed.
    pub(super) fn note_failure(&mut self) -> bool {
        let retry_at = Instant::now() + self.backoff.next_delay();
        self.retry_at.replace(retry_at).is_none()
    }
}
