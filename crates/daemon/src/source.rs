//! The source of readings: a reader process that is asked, watched, killed when it is stuck, and
//! restarted; or slurmctld's own protocol, on this thread.
//!
//! libslurm exits on a bad configuration, hangs for ever behind a frozen munged and cannot be
//! cancelled. None of this may affect the ticks. A [`Source`] is a task that handles one request at
//! a time. Asking it never waits, and each request gets exactly one outcome.

mod child;
pub(crate) mod conf;
pub(crate) mod installed;
mod launch;
#[expect(clippy::disallowed_methods, reason = "in a thread")]
mod locate;
mod output;
mod process;
#[expect(clippy::disallowed_methods, reason = "a command that ends, on its own thread")]
pub(crate) mod recording;
pub(crate) mod rest;
mod stderr;
mod supervisor;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slurm_snapshot::{Failure, NO_REASON, Reading, Release, Request, errno};
use slurmctld_protocol::NativeReader;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub(crate) use self::locate::{NoReader, ReaderKind, TOKEN};
pub(crate) use self::process::ProcessError;
use self::stderr::LastLines;
use self::supervisor::ReaderSupervisor;
use crate::config::SlurmSettings;
use crate::host::{RUNTIME_FOLDER, runtime_folder};
use crate::trust::check_own_folder;

/// The result of a request to a source: a reading, or why there is none.
pub(crate) type Outcome = Result<Box<Reading>, SourceError>;

/// A reason why there is no reading.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SourceError {
    /// The reader's answer that the request has failed, with the lines that libslurm printed
    /// meanwhile.
    #[error("{}", refused(.0, .1))]
    Refused(Failure, LastLines),
    #[error("{} does not exist", .0.display())]
    NoConf(PathBuf),
    #[error("{0}")]
    NoReader(#[from] locate::NoReader),
    #[error("{0}")]
    Reader(#[from] ProcessError),
    /// slurmctld's figures would go to another cluster's paths.
    #[error("slurmctld reports the cluster {new:?}, but these paths have figures of {known:?}")]
    OtherCluster { known: String, new: String },
    /// The source pauses for a moment before it starts another reader, because of this error.
    #[error("{0}")]
    Resting(Arc<SourceError>),
}

impl SourceError {
    /// Returns the error that began the pause, or else this error.
    pub(crate) fn root(&self) -> &Self {
        match self {
            Self::Resting(error) => error.root(),
            error => error,
        }
    }

    /// Whether the request had gone out, so that slurmctld may have worked on it, or still does.
    pub(crate) fn was_asked(&self) -> bool {
        use ProcessError::{Gone, Nonsense, Silent};
        if let Self::Refused(Failure { stage: Some(stage), .. }, _) = self.root() {
            return *stage >= slurm_snapshot::Stage::Http;
        }
        matches!(
            self.root(),
            Self::Refused(..) | Self::Reader(Silent { .. } | Gone { .. } | Nonsense(_))
        )
    }

    /// Whether another user's program listens where slurmctld or slurmrestd should.
    pub(crate) fn names_imposter(&self) -> bool {
        use slurm_snapshot::Stage::Listener;
        matches!(self.root(), Self::Refused(Failure { stage: Some(Listener), .. }, _))
    }

    /// Whether a credential of libslurm was refused or not usable that was the token in SLURM_JWT.
    pub(crate) fn has_used_token(&self) -> bool {
        let Self::Refused(failure, said) = self.root() else { return false };
        said.kind == ReaderKind::Libslurm
            && errno::concerns_credential(failure.errno)
            && std::env::var_os(TOKEN).is_some()
    }

    /// Advice where an administrator would look first.
    pub(crate) fn advice(&self) -> &str {
        match self {
            error if error.has_used_token() => {
                "SLURM_JWT is set in the environment, so libslurm sends this token instead of \
                    munge's credential. Unset it; or is auth/jwt in slurm.conf's AuthAltTypes, and \
                    has the token not expired?"
            }
            Self::NoConf(_) => {
                "Copy the cluster's slurm.conf there, or name its place with --slurm-conf, [slurm] \
                    conf or SLURM_CONF."
            }
            Self::NoReader(error) => error.advice(),
            Self::Refused(Failure { advice: None, .. }, said) if said.is_of_unknown_host() => {
                "Does the name in SlurmctldHost have an address on this host? Try `getent ahosts \
                    NAME`."
            }
            Self::Refused(failure, _) => {
                failure.advice.as_deref().unwrap_or("Does `sdiag` work on this host, as this user?")
            }
            Self::Reader(error) => error.advice(),
            Self::OtherCluster { .. } => {
                "Does slurm.conf, or [slurm] rest, name the right slurmctld? A new name is used \
                    after three ticks, at most once an hour."
            }
            Self::Resting(error) => error.advice(),
        }
    }
}

/// Lowest error number of Slurm's own. A lower errno is the kernel's, and libslurm's lines say
/// more: "Resource temporarily unavailable" is a name that does not resolve.
const SLURMS_ERRNO: i32 = 1000;

fn refused(failure: &Failure, said: &LastLines) -> String {
    let Failure { call, errno, .. } = failure;
    match errno {
        _ if said.is_empty() => failure.to_string(),
        0 if failure.text == NO_REASON => format!("{call} failed{said}"),
        1..SLURMS_ERRNO => format!("{call} failed (errno {errno}){said}"),
        _ => format!("{failure}{said}"),
    }
}

/// A handle of a running source. Two handles may share a source; their requests wait for each
/// other.
#[derive(Debug)]
pub(crate) struct Source {
    requests: mpsc::Sender<Question>,
    answered: mpsc::Sender<Outcome>,
    outcomes: mpsc::Receiver<Outcome>,
    status: watch::Receiver<ReaderStatus>,
    /// The task, which ends with the last handle, and its reader with it.
    task: Arc<JoinSet<()>>,
}

/// A request, and where its outcome goes.
type Question = (Request, mpsc::Sender<Outcome>);

/// The memory that all sources share, and that outlives them and their readers.
#[derive(Clone, Debug)]
pub(crate) struct ReaderMemory {
    /// Number of readers that were started again since the daemon's start.
    restarts: Arc<AtomicU64>,
    /// The native reader, one for all roles.
    native: Arc<NativeReader>,
}

impl Default for ReaderMemory {
    /// The memory of a command, which knows the protocol numbers that the daemon has found.
    fn default() -> Self {
        Self::new(false)
    }
}

impl ReaderMemory {
    /// Makes the memory of the daemon, or of a command, which reads the file of protocol numbers
    /// and never writes it.
    pub(crate) fn new(is_daemon: bool) -> Self {
        let folder = runtime_folder().or_else(|| (!is_daemon).then(|| RUNTIME_FOLDER.into()));
        let numbers = folder.map(|folder| folder.join("protocol-numbers.json"));
        let writes = is_daemon
            && numbers
                .as_deref()
                .and_then(Path::parent)
                .is_some_and(|it| check_own_folder(it).is_ok());
        Self { restarts: Arc::default(), native: Arc::new(NativeReader::new(numbers, writes)) }
    }

    /// Returns the number of readers that were started again.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }
}

/// The reader's state, as others see it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReaderStatus {
    /// Number of readers that this source has started again, after its first.
    pub(crate) restarts: u64,
    /// The reader's process id, while there is one; the native reader has none.
    pub(crate) pid: Option<u32>,
    /// Number of changes of slurm.conf that readers have got so far.
    pub(crate) conf_changes: u64,
    /// The kind of the last reader, with the release of its libslurm, where it has one; `None`:
    /// there was no reader yet.
    pub(crate) last: Option<(ReaderKind, Option<Release>)>,
}

impl ReaderStatus {
    /// The kind of the last reader.
    pub(crate) fn kind(&self) -> Option<ReaderKind> {
        self.last.map(|(kind, _)| kind)
    }
}

impl Source {
    /// Starts the task, and the first reader of this role with it. `start_deadline` is for
    /// libslurm's initialization, which may look for its configuration for a minute.
    pub(crate) fn start(
        role: &'static str,
        slurm: SlurmSettings,
        start_deadline: Duration,
        memory: &ReaderMemory,
    ) -> Self {
        // One of each handle, and of those that are gone.
        let (requests, asked) = mpsc::channel(4);
        let (answered, outcomes) = mpsc::channel(1);
        let (status_sender, status) = watch::channel(ReaderStatus::default());
        let mut task = JoinSet::new();
        task.spawn(
            ReaderSupervisor::new(role, slurm, start_deadline, memory.clone(), status_sender)
                .run(asked),
        );
        Self { requests, answered, outcomes, status, task: Arc::new(task) }
    }

    /// The second handle to the same reader.
    pub(crate) fn share(&self) -> Self {
        let (answered, outcomes) = mpsc::channel(1);
        let requests = self.requests.clone();
        let status = self.status.clone();
        let task = Arc::clone(&self.task);
        Self { requests, answered, outcomes, status, task }
    }

    /// Hands a request to the source's task, which gives it its number. No other request of this
    /// handle may be under way. Returns `false`, and asks nothing, if too many requests wait.
    pub(crate) fn ask(&self, request: Request) -> bool {
        self.requests.try_send((request, self.answered.clone())).is_ok()
    }

    /// Waits for the outcome of the request under way. Safe to cancel.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        match self.outcomes.recv().await {
            Some(outcome) => outcome,
            // This handle can send to itself.
            None => std::future::pending().await,
        }
    }

    pub(crate) fn status(&self) -> ReaderStatus {
        *self.status.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If libslurm had printed lines, the error lacked the warning that another user may know the
    /// token.
    #[test]
    fn an_error_has_the_readers_reason_and_libslurms_lines() {
        let said = LastLines { kind: ReaderKind::Libslurm, lines: vec!["error: recv".to_owned()] };
        let text_of = |errno, text: &str| {
            let failure = Failure {
                call: "CALL".to_owned(),
                errno,
                text: text.to_owned(),
                ..Failure::default()
            };
            SourceError::Refused(failure, said.clone()).to_string()
        };
        let leak = "the token in SLURM_JWT may have been sent there: replace it";
        assert_eq!(text_of(0, leak), format!("CALL: {leak}{said}"));
        assert_eq!(text_of(0, NO_REASON), format!("CALL failed{said}"));
        assert_eq!(
            text_of(11, "Resource temporarily unavailable"),
            format!("CALL failed (errno 11){said}")
        );
        assert_eq!(
            text_of(2008, "Access denied"),
            format!("CALL: Access denied (errno 2008){said}")
        );
    }
}
