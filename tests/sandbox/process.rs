//! One program of the sandbox: it is started, stopped, killed, frozen and thawed by its id, and its
//! output is in a log.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::proc::{self, Signal};
use crate::{Folder, wait};

/// The end of a process.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Its exit code or signal.
    pub status: ExitStatus,
    /// The time from the signal to the end.
    pub after: Duration,
}

/// A program with its arguments, running or not; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    command: Command,
    log: PathBuf,
    stderr: Option<File>,
    ready: Ready,
    child: Option<Child>,
}

struct Ready(Box<dyn Fn() -> bool + Send + Sync>);

impl std::fmt::Debug for Ready {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Ready")
    }
}

impl Process {
    /// A program that is not started yet. Its stdout and stderr go to `log/NAME.log` in the folder.
    pub fn new(folder: &Folder, name: &str, program: PathBuf) -> Self {
        let mut command = crate::command(folder.path(), &program);
        command.stdin(Stdio::null()).process_group(0);
        let log = folder.path().join("log").join(format!("{name}.log"));
        Self {
            name: name.to_owned(),
            command,
            log,
            stderr: None,
            ready: Ready(Box::new(|| true)),
            child: None,
        }
    }

    /// A program that is not started yet, from the words of a command line; the first is the
    /// program.
    pub(crate) fn with_words(folder: &Folder, name: &str, words: Vec<OsString>) -> Self {
        let mut words = words.into_iter();
        Self::new(folder, name, words.next().unwrap_or_default().into()).args(words)
    }

    /// Adds arguments.
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.set_env(name, value);
        self
    }

    /// Adds an environment variable to a process that is part of something larger.
    pub fn set_env(&mut self, name: &str, value: impl Into<OsString>) {
        self.command.env(name, value.into());
    }

    /// Sends its stderr elsewhere than to its log.
    pub fn stderr(mut self, stderr: File) -> Self {
        self.stderr = Some(stderr);
        self
    }

    /// Sets the condition under which the program is ready for use.
    pub fn ready(mut self, condition: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.ready = Ready(Box::new(condition));
        self
    }

    /// Starts the program, or starts it again, and waits until it is ready.
    pub fn start(&mut self) -> Result<()> {
        self.spawn()?;
        self.wait_ready()
    }

    /// Starts the program without waiting for it. Its output is appended to the log.
    pub fn spawn(&mut self) -> Result<()> {
        ensure!(self.pid().is_none(), "{} runs already", self.name);
        let log = File::options().create(true).append(true).open(&self.log)?;
        let stderr = self.stderr.as_ref().unwrap_or(&log).try_clone()?;
        self.command.stdout(log).stderr(stderr);
        self.child = Some(self.command.spawn().with_context(|| self.name.clone())?);
        Ok(())
    }

    /// Waits until the program is ready.
    pub fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + wait::LIMIT;
        while !(self.ready.0)() {
            if let Some(status) = self.exit_status()? {
                bail!("{} ended ({status}):\n{}", self.name, self.log_end());
            }
            if Instant::now() >= deadline {
                bail!("{} was not ready after {:?}:\n{}", self.name, wait::LIMIT, self.log_end());
            }
            wait::pause(Duration::from_millis(100));
        }
        Ok(())
    }

    /// The process id while it runs.
    pub fn pid(&mut self) -> Option<u32> {
        match self.exit_status() {
            Ok(None) => self.child.as_ref().map(Child::id),
            _ => None,
        }
    }

    /// Ends it with SIGTERM.
    /// If it does not end within [`wait::LIMIT`], it is killed, which is an error.
    pub fn stop(&mut self) -> Result<Ended> {
        self.end_by_signal(Signal::TERM)
    }

    /// Ends it with SIGKILL, frozen or not.
    pub fn kill(&mut self) -> Result<Ended> {
        self.end_by_signal(Signal::KILL)
    }

    /// Freezes it (SIGSTOP).
    pub fn freeze(&mut self) -> Result<()> {
        self.signal(Signal::STOP)?;
        let pid = self.child.as_ref().map_or(0, Child::id);
        wait::until("a frozen process", wait::LIMIT, || proc::state(pid) == Some('T')).map(drop)
    }

    /// Lets it continue (SIGCONT).
    pub fn thaw(&mut self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Sends it any signal.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        let pid = self
            .pid()
            .with_context(|| format!("{} does not run:\n{}", self.name, self.log_end()))?;
        proc::signal(pid, signal)
    }

    /// Waits for it to end by itself, for instance over a bad configuration.
    pub fn wait(&mut self, limit: Duration) -> Result<Ended> {
        let start = Instant::now();
        let what = format!("the end of {}", self.name);
        let status = wait::until_some(&what, limit, || self.exit_status().ok().flatten())?;
        Ok(Ended { status, after: start.elapsed() })
    }

    /// Its exit status if it was started and has ended.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.as_mut().map(Child::try_wait).transpose()?.flatten())
    }

    /// The file of its stdout and stderr.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// All lines it has written so far, including those of earlier starts.
    pub fn lines(&self) -> Vec<String> {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }

    /// Waits for a line that contains `needle`.
    pub fn line(&self, needle: &str, limit: Duration) -> Result<String> {
        self.line_after(0, needle, limit)
    }

    /// Waits for a line that contains `needle`, ignoring the first `skip` lines: the number of
    /// [`Process::lines`] before an event.
    pub fn line_after(&self, skip: usize, needle: &str, limit: Duration) -> Result<String> {
        let what = format!("{needle:?} in the log of {}", self.name);
        wait::until_some(&what, limit, || {
            self.lines().into_iter().skip(skip).find(|line| line.contains(needle))
        })
        .with_context(|| self.log_end())
    }

    fn end_by_signal(&mut self, signal: Signal) -> Result<Ended> {
        let start = Instant::now();
        self.signal(signal)?;
        let ended = self.wait(wait::LIMIT);
        if ended.is_err() {
            self.signal(Signal::KILL)?;
            self.wait(wait::LIMIT)?;
        }
        Ok(Ended { after: start.elapsed(), ..ended? })
    }

    fn log_end(&self) -> String {
        let lines = self.lines();
        let tail = lines.iter().skip(lines.len().saturating_sub(25));
        tail.map(|line| format!("  {}: {line}\n", self.name)).collect()
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "the test harness captures it")]
    fn drop(&mut self) {
        // A failed test shows what its programs wrote last, because the folder is gone when a
        // person looks.
        if std::thread::panicking() {
            eprint!("{}", self.log_end());
        }
        if let Some(child) = &mut self.child {
            // Both fail only if the process is already gone.
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}
