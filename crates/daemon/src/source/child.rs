//! A reader's process, started and waited for by a thread of its own.
//!
//! The start waits until the program is loaded, and its file system may hang. The thread lives as
//! long as the process, because a reader asks the kernel to be killed when its parent ends, and a
//! parent is the thread that has started it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::watch;
use waiting_threads::JobEnd;

/// Largest number of a role's reader processes. It includes those that were killed and have not
/// ended: they wait in the kernel, where no signal reaches them.
const MOST: usize = 3;

/// A running program, killed when this is dropped.
#[derive(Debug)]
pub(super) struct ReaderChild {
    pub(super) pid: u32,
    group: ProcessGroup,
    end: watch::Receiver<Option<ExitStatus>>,
}

/// The daemon's ends of a reader's stdin, stdout and stderr.
pub(super) type Pipes = (ChildStdin, ChildStdout, ChildStderr);

/// The process group of a reader, to kill it; `None` afterwards. Until then the reader is not
/// waited for, so that its id is nobody else's.
#[derive(Clone, Debug)]
struct ProcessGroup(Arc<Mutex<Option<Pid>>>);

impl ProcessGroup {
    /// Kills the child, and what libslurm has forked.
    fn kill(&self) {
        if let Some(group) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It fails only when all of them have ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl ReaderChild {
    /// Starts `program` for this role.
    ///
    /// # Errors
    /// The program cannot be started, or not within `patience`. [`io::ErrorKind::ResourceBusy`]:
    /// earlier readers of this role have not ended.
    pub(super) async fn start(
        role: &str,
        program: &Path,
        arguments: &[OsString],
        patience: Duration,
    ) -> io::Result<(Self, Pipes)> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that starts programs: readers"
        )]
        let mut command = Command::new(program);
        command.args(arguments);
        // A process group of its own, so that a terminal's Ctrl-C reaches only the daemon.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let question = format!("{command:?}");
        let work = move |job: JobEnd<_>| follow_process(command, job);
        waiting_threads::ask_at_most(MOST, &owner(role), &question, patience, work).await?
    }

    /// Waits for the end of the process, and returns its exit status; `None`: that is not known.
    /// Safe to cancel.
    pub(super) async fn ended(&mut self) -> Option<ExitStatus> {
        self.end.wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }
}

impl Drop for ReaderChild {
    fn drop(&mut self) {
        self.group.kill();
    }
}

/// Gives up a start of a reader of this role that is under way: the reader is killed as soon as it
/// runs.
pub(super) fn forget(role: &str) {
    waiting_threads::forget(&owner(role));
}

fn owner(role: &str) -> String {
    format!("the reader of {role}")
}

/// Follows the process from its start to its end.
fn follow_process(mut command: Command, mut job: JobEnd<io::Result<(ReaderChild, Pipes)>>) {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return job.finish(Err(error)),
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let group = ProcessGroup(Arc::new(Mutex::new(pid)));
    let (ended, end) = watch::channel(None);
    let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
    let running = ReaderChild { pid: child.id(), group: group.clone(), end };
    // If nobody waits for it any more, it is dropped, which kills it.
    job.answer(match pipes {
        Some(((stdin, stdout), stderr)) => Ok((running, (stdin, stdout, stderr))),
        None => Err(io::Error::other("no pipes")),
    });
    if let Some(pid) = pid {
        let exited = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(pid), exited).err() == Some(Errno::INTR) {}
    }
    group.kill();
    let status = child.wait().ok();
    // Before anybody starts the next.
    drop(job);
    ended.send_replace(status);
}
