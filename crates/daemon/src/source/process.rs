//! One reader process: started, spoken to in lines, and killed when it is dropped.
//!
//! Whatever goes wrong (exit, hang, garbage, half a line) becomes a [`ProcessError`] within a
//! deadline. After that the process must be dropped, because it is no longer known which answer
//! belongs to which request.

use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use slurm_snapshot::{Answer, PROTOCOL, Release, Reply, Request, WRONG_LIBRARY};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::{sleep, timeout};

use super::child::{Pipes, ReaderChild};
use super::locate::ReaderKind;
use super::output::{LONGEST_LINE, ReaderOutput};
use super::stderr::{LastLines, LoggedLines, Stderr};

/// Time in which lines of stderr that are still in the pipe are read, before an error quotes them.
const SETTLE: Duration = Duration::from_millis(20);
/// Time to wait for the end of a pipe whose process has ended, or the other way round.
const END_DEADLINE: Duration = Duration::from_secs(1);
/// Time to wait for a reader's version. It takes the reader no longer than to be loaded, perhaps
/// from a file system over the network.
const VERSION_DEADLINE: Duration = Duration::from_secs(10);
/// The exit code of the dynamic loader when a library is missing.
const LOADER_FAILED: i32 = 127;

/// The failures of a reader.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ProcessError {
    #[error("starting {program}: {source}")]
    Start { program: String, source: Error },
    /// Earlier readers wait in the kernel, where no signal reaches them.
    #[error("no other reader is started, because earlier ones were killed and have not ended")]
    Unkillable,
    /// The host's libslurm is not the one that the reader is built for. The dynamic loader says so,
    /// or the reader itself.
    #[error("{0}")]
    Unloadable(String),
    #[error("the reader ended ({status}){said}")]
    Gone { status: String, said: LastLines },
    /// The reader ended before it was ready, mostly by libslurm's `fatal()`: there is no
    /// slurm.conf, or a bad one.
    #[error("libslurm failed to start (the reader ended, {status}){said}")]
    NotInitialized { status: String, said: LastLines },
    #[error("{} was not ready within {} s{said}", .said.kind.speaker(), .deadline.as_secs_f64())]
    NotReady { deadline: Duration, said: LastLines },
    #[error("the reader gave no response within {} s and was killed{}{said}",
        .deadline.as_secs_f64(), .said.may_hang())]
    Silent { deadline: Duration, said: LastLines },
    #[error("unexpected output of the reader: {0}")]
    Nonsense(String),
}

/// Advice about a slurm.conf that exists but that this user may not read.
const FORBIDDEN_CONF: &str = "This user may not read slurm.conf, although it is there: give it the \
    right to read the file (`chmod o+r`, or its group), and to search every parent directory (x).";

impl ProcessError {
    /// Advice where an administrator would look first.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Self::NotInitialized { said, .. }
                if said.lines.iter().any(|line| line.contains("SlurmUser")) =>
            {
                "Create the user that SlurmUser in slurm.conf names on this host too, with the \
                    same number."
            }
            Self::NotInitialized { said, .. } if said.is_of_forbidden_conf() => FORBIDDEN_CONF,
            Self::Start { .. } => {
                "Does the program exist, may the daemon's user run it, and does its file system \
                    answer?"
            }
            Self::Unkillable => {
                "They wait in the kernel, most often for a file system that hangs: see `ps -eo \
                 pid,stat,wchan:30,args`. When one of them has ended, another is started."
            }
            Self::Nonsense(_) => "Install the reader of the same version as this program.",
            Self::Unloadable(_) => "Install the reader for this host's libslurm.",
            Self::Gone { said, .. } | Self::NotReady { said, .. } | Self::Silent { said, .. }
                if !matches!(said.kind, ReaderKind::Libslurm) =>
            {
                "Slurm has not failed; the reader would have reported that. Is this host short of \
                 memory or CPU? `slurm-graphite check --connect` starts another reader."
            }
            Self::NotInitialized { .. } | Self::NotReady { .. } => {
                "libslurm needs /etc/slurm/slurm.conf, or the file that --slurm-conf, [slurm] conf \
                 or SLURM_CONF names; a configless host gets it from slurmctld, which must answer. \
                 Does `sdiag` work here?"
            }
            Self::Silent { .. } => "Is munged stopped? Try `munge -n | unmunge`.",
            Self::Gone { .. } => "Does `sdiag` work on this host, as this user?",
        }
    }
}

/// Shortest time that libslurm gets to read its configuration as long as it prints nothing: for
/// 8,000 lines of nodes it takes 7 s on a busy host.
const READS_LONG: Duration = Duration::from_secs(20);

/// A reader that has said hello.
#[derive(Debug)]
pub(crate) struct Process {
    pub(super) child: ReaderChild,
    stdin: Sender,
    stdout: ReaderOutput,
    /// The release of its libslurm, where it has one.
    pub(super) release: Option<Release>,
    stderr: Stderr,
}

impl Process {
    /// Starts `program` for this role, and waits for its hello.
    pub(crate) async fn start(
        role: &str,
        program: &Path,
        arguments: &[OsString],
        deadline: Duration,
        kind: ReaderKind,
        logged: &LoggedLines,
    ) -> Result<Self, ProcessError> {
        let start_error = |source: Error| match source.kind() {
            ErrorKind::ResourceBusy => ProcessError::Unkillable,
            _ => ProcessError::Start { program: program.display().to_string(), source },
        };
        let started =
            ReaderChild::start(role, program, arguments, deadline).await.map_err(start_error)?;
        let mut process = Self::with(started, kind, logged).map_err(start_error)?;
        let mut waited = deadline;
        let mut hello = timeout(deadline, process.read_answer()).await;
        let more = READS_LONG.saturating_sub(deadline);
        let is_silent = kind == ReaderKind::Libslurm && process.stderr.said().is_empty();
        if hello.is_err() && is_silent && more > Duration::ZERO {
            // It says what it looks for in vain.
            waited = READS_LONG;
            hello = timeout(more, process.read_answer()).await;
        }
        let Ok(hello) = hello else {
            return Err(ProcessError::NotReady { deadline: waited, said: process.stderr.said() });
        };
        let hello = hello.map_err(|error| match error {
            ProcessError::Gone { status, said } if kind == ReaderKind::Libslurm => {
                ProcessError::NotInitialized { status, said }
            }
            other => other,
        });
        match hello? {
            Answer::Hello(hello) if hello.protocol == PROTOCOL => process.release = hello.release,
            Answer::Hello(hello) => {
                let text = format!(
                    "it uses line format {}, not {PROTOCOL}; install the reader of this version",
                    hello.protocol
                );
                return Err(ProcessError::Nonsense(text));
            }
            _ => return Err(ProcessError::Nonsense("a response before its hello".to_owned())),
        }
        Ok(process)
    }

    fn with(
        (child, (stdin, stdout, stderr)): (ReaderChild, Pipes),
        kind: ReaderKind,
        logged: &LoggedLines,
    ) -> Result<Self, Error> {
        let stderr = Receiver::from_owned_fd(stderr.into())?;
        Ok(Self {
            child,
            stdin: Sender::from_owned_fd(stdin.into())?,
            stdout: ReaderOutput::new(stdout.into())?,
            release: None,
            stderr: Stderr::follow(stderr, kind, logged.clone()),
        })
    }

    /// The output of `program --version`. There is one only if this host can run the reader, and
    /// its libslurm is the one that the reader is built for.
    pub(crate) async fn version(program: &Path) -> Option<String> {
        #[expect(clippy::disallowed_methods, reason = "a reader, for its version")]
        let mut command = Command::new(program);
        command.arg("--version").stdin(std::process::Stdio::null());
        let work = move || command.output();
        let output =
            waiting_threads::ask("versions", &program.to_string_lossy(), VERSION_DEADLINE, work)
                .await;
        let output = output.ok()?.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Sends a request, and waits for the answer with the request's number.
    pub(crate) async fn ask(
        &mut self,
        request: &Request,
        deadline: Duration,
    ) -> Result<Answer, ProcessError> {
        // What was said before is not about this request.
        self.stderr.tail.forget();
        if !self.stdout.begin_request() {
            return Err(ProcessError::Nonsense("a line without a request".to_owned()));
        }
        let line = request.line();
        let exchange = async {
            if self.stdin.write_all(line.as_bytes()).await.is_err() {
                return Err(self.ended().await);
            }
            self.read_answer().await
        };
        let Ok(answer) = timeout(deadline, exchange).await else {
            return Err(ProcessError::Silent { deadline, said: self.stderr.said() });
        };
        match answer? {
            Answer::Reading(reading) if reading.id == request.id => {
                // Pings that failed are an answer too, and libslurm says about each why.
                if !matches!(&reading.reply, Some(Reply::Ahead(ahead)) if ahead.answers.is_none()) {
                    self.stderr.logged.forget();
                }
                Ok(Answer::Reading(reading))
            }
            Answer::Failure(failure) if failure.id == request.id => Ok(Answer::Failure(failure)),
            hello @ Answer::Hello(_) => Ok(hello),
            _ => Err(ProcessError::Nonsense("a response to another request".to_owned())),
        }
    }

    /// Waits until the reader has ended, and returns how. Safe to cancel.
    pub(crate) async fn until_ended(&mut self) -> ProcessError {
        self.child.ended().await;
        self.ended().await
    }

    /// The lines that libslurm has printed since the last request, which has failed. They were
    /// written before the answer, so they are in the pipe, but another task reads that.
    pub(crate) async fn said(&self) -> LastLines {
        sleep(SETTLE).await;
        self.stderr.said()
    }

    async fn read_answer(&mut self) -> Result<Answer, ProcessError> {
        let read = tokio::select! {
            biased;
            read = self.stdout.next_line() => read,
            // Not the pipe's end alone: what libslurm forks while it fetches a configuration may
            // hold it open. An answer that is in the pipe counts, also when its end is known first.
            _ = self.child.ended() => {
                let rest = self.stdout.next_line();
                timeout(END_DEADLINE, rest).await.unwrap_or(Ok(&[]))
            }
        };
        match read {
            Ok(line) if line.last() == Some(&b'\n') => {
                Answer::parse(line).map_err(|error| ProcessError::Nonsense(error.to_string()))
            }
            Ok(line) if line.len() >= LONGEST_LINE => {
                Err(ProcessError::Nonsense("a line without end".to_owned()))
            }
            Ok(_) | Err(_) => Err(self.ended().await),
        }
    }

    /// Finds out how a reader ended whose pipes are closed. One that lives on without them is as
    /// good as gone.
    async fn ended(&mut self) -> ProcessError {
        let Ok(Some(status)) = timeout(END_DEADLINE, self.child.ended()).await else {
            return ProcessError::Gone {
                status: "its pipes are closed".to_owned(),
                said: self.stderr.said(),
            };
        };
        self.stderr.finish().await;
        let said = self.stderr.said();
        if [LOADER_FAILED, WRONG_LIBRARY.into()].map(Some).contains(&status.code()) {
            return ProcessError::Unloadable(said.lines.join(" | "));
        }
        ProcessError::Gone { status: status.to_string(), said }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::Pid;

    use super::*;

    /// With 8,000 lines of nodes on a busy host, `once` gave libslurm up after 4 s, while sdiag had
    /// an answer after 7 s.
    #[tokio::test]
    async fn libslurm_may_read_a_long_configuration_without_a_word() {
        let hello =
            "sleep 2; echo '{\"hello\":{\"protocol\":1,\"release\":\"22.05\"}}'; exec sleep 60";
        let (deadline, logged) = (Duration::from_millis(500), LoggedLines::default());
        let start = |script: String| {
            let arguments = ["-c".into(), script.into()];
            let logged = logged.clone();
            async move {
                let kind = ReaderKind::Libslurm;
                Process::start(
                    "third test",
                    Path::new("/bin/sh"),
                    &arguments,
                    deadline,
                    kind,
                    &logged,
                )
                .await
                .map(|process| process.release)
            }
        };
        let release = start(hello.to_owned()).await.unwrap();
        assert_eq!(release, Some(Release::new(22, 5)));
        let error = start(format!("echo error: no configuration >&2; {hello}")).await.unwrap_err();
        assert!(error.to_string().starts_with("libslurm was not ready within 0.5 s"), "{error}");
    }

    /// A host that asks slurmrestd has no libslurm to look for.
    #[tokio::test]
    async fn what_the_reader_of_slurmrestd_says_is_not_called_libslurms() {
        let script = ["-c".into(), "echo no such option >&2; exit 64".into()];
        let deadline = Duration::from_secs(10);
        let logged = LoggedLines::default();
        let shell = Path::new("/bin/sh");
        let error = Process::start("a test", shell, &script, deadline, ReaderKind::Rest, &logged)
            .await
            .unwrap_err();
        let text = error.to_string();
        assert_eq!(text, "the reader ended (exit status: 64); the reader said: no such option");
    }

    #[test]
    fn nobody_is_sent_to_munged_or_sdiag_on_a_host_that_asks_slurmrestd() {
        let said = || LastLines { kind: ReaderKind::Rest, lines: vec!["no memory".into()] };
        let deadline = Duration::from_secs(30);
        for error in [
            ProcessError::Silent { deadline, said: said() },
            ProcessError::NotReady { deadline, said: said() },
            ProcessError::Gone { status: "signal: 9".into(), said: said() },
            ProcessError::Nonsense("x".into()),
        ] {
            let text = format!("{error} {}", error.advice());
            for word in ["munge", "sdiag", "slurm.conf", "libslurm"] {
                assert!(!text.contains(word), "{word}: {text}");
            }
        }
        let silent = ProcessError::Silent { deadline, said: LastLines::default() };
        assert!(silent.to_string().contains("munged or slurmctld may hang"), "{silent}");
    }

    #[tokio::test]
    async fn a_reader_that_never_says_hello_is_killed_at_its_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("reader");
        std::fs::write(
            &script,
            "#!/bin/sh\necho $$ > \"$0.pid\"\necho looking for slurm.conf >&2\nexec sleep 60\n",
        )
        .unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let deadline = Duration::from_secs(5);
        let logged = LoggedLines::default();
        let error =
            Process::start("another test", &script, &[], deadline, ReaderKind::Libslurm, &logged)
                .await
                .unwrap_err();
        assert!(matches!(error, ProcessError::NotReady { .. }), "{error}");
        let text = error.to_string();
        assert_eq!(
            text,
            "libslurm was not ready within 5 s; libslurm said: looking for slurm.conf"
        );
        let pid: i32 = std::fs::read_to_string(folder.path().join("reader.pid"))
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let group = Pid::from_raw(pid).unwrap();
        let gone = async {
            while rustix::process::test_kill_process_group(group).is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(5), gone).await.unwrap();
    }
}
