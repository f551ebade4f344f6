//! The task behind a source: starts a reader, asks it, and replaces it when it is stuck, gone, or
//! no longer the right one. One that has only another slurm.conf is replaced by a reader that has
//! said hello, because slurm.conf may be half written, or have an option of another release.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use carbon::Backoff;
use slurm_snapshot::{Answer, ReplyKind, Request};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, info, warn};

use super::child;
use super::conf::ConfWatch;
use super::launch::{Launch, Launched, Successor};
use super::locate::{LocatedReaders, NoReader, ReaderKind, locate_readers};
use super::process::{Process, ProcessError};
use super::stderr::{LastLines, LoggedLines};
use super::{Outcome, Question, ReaderMemory, ReaderStatus, SourceError};
use crate::clock::or_never;
use crate::config::{ReaderChoice, SlurmSettings};
use crate::printable::printable;

/// Time without an answer from slurmctld after which libslurm's reader is replaced: libslurm never
/// looks at its configuration again, and the controller may have moved.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// The reader that gets the requests.
enum ActiveReader {
    Process(Box<Process>),
    /// The native reader in [`ReaderMemory`].
    Native,
}

/// The task behind a source. It owns at most one reader, and one that is to replace it.
pub(super) struct ReaderSupervisor {
    role: &'static str,
    slurm: SlurmSettings,
    start_deadline: Duration,
    memory: ReaderMemory,
    status: watch::Sender<ReaderStatus>,
    reader: Option<ActiveReader>,
    successor: Option<Successor>,
    conf: ConfWatch,
    /// The files that change when a reader or its libslurm is installed; `None` unless the native
    /// reader is used only because no libslurm has a reader.
    libslurm: Option<ConfWatch>,
    backoff: Backoff,
    pause: Option<Pause>,
    /// The reader program that was started last.
    program: Option<PathBuf>,
    unanswered_since: Option<Instant>,
    /// Whether a reader was lost and there was no reading since. The log says so once, not at every
    /// try.
    troubled: bool,
    /// Lines of the log about readers that are passed over, because others could have put them
    /// there.
    passed_over: Vec<String>,
    /// Lines of this role's readers that the log has.
    logged: LoggedLines,
    id: u64,
}

/// A time in which no reader is started, and the error that began it.
struct Pause {
    until: Instant,
    error: Arc<SourceError>,
}

enum ReaderEvent {
    Asked(Option<Question>),
    Gone(ProcessError),
    PauseOver,
    /// The result of the successor's start; `None`: its task has panicked.
    Launched(Option<Result<Launched, SourceError>>),
}

impl ReaderSupervisor {
    pub(super) fn new(
        role: &'static str,
        slurm: SlurmSettings,
        start_deadline: Duration,
        memory: ReaderMemory,
        status: watch::Sender<ReaderStatus>,
    ) -> Self {
        Self {
            conf: ConfWatch::new(slurm.conf.as_deref()),
            libslurm: None,
            role,
            logged: LoggedLines::default(),
            slurm,
            start_deadline,
            memory,
            status,
            reader: None,
            successor: None,
            backoff: Backoff::default(),
            pause: None,
            program: None,
            passed_over: Vec::new(),
            unanswered_since: None,
            troubled: false,
            id: 0,
        }
    }

    pub(super) async fn run(mut self, mut asked: mpsc::Receiver<Question>) {
        self.start_ahead().await;
        loop {
            let pause_end = self.pause.as_ref().map(|pause| pause.until);
            let process = process_of(&mut self.reader);
            let successor = self.successor.as_mut().filter(|next| next.is_starting());
            let event = tokio::select! {
                question = asked.recv() => ReaderEvent::Asked(question),
                error = or_never(process.map(Process::until_ended)) => ReaderEvent::Gone(error),
                () = or_never(pause_end.map(sleep_until)) => ReaderEvent::PauseOver,
                launched = or_never(successor.map(Successor::launched)) => {
                    ReaderEvent::Launched(launched)
                }
            };
            match event {
                ReaderEvent::Asked(Some((request, answered))) => {
                    let outcome = self.answer(request).await;
                    // Its handle may be gone, and another be left.
                    let _ = answered.send(outcome).await;
                }
                ReaderEvent::Asked(None) => return,
                ReaderEvent::Gone(error) => {
                    if self.troubled {
                        debug!(%error, "the reader has ended again");
                    } else {
                        warn!(%error, "the reader has ended; starting another");
                    }
                    self.lose_reader(error.into());
                }
                ReaderEvent::PauseOver => {
                    self.pause = None;
                    self.start_ahead().await;
                }
                ReaderEvent::Launched(Some(launched)) => self.handle_launch(launched).await,
                ReaderEvent::Launched(None) => self.replace_reader(),
            }
        }
    }

    /// Starts a reader so that the next request need not wait for it. A failure is the outcome of
    /// that request.
    async fn start_ahead(&mut self) {
        if let Err(error) = self.ready().await {
            debug!(%error, "no reader yet");
        }
    }

    async fn answer(&mut self, request: Request) -> Outcome {
        self.replace_if_conf_changed(&request).await;
        self.retry_if_installed().await;
        self.replace_if_stale();
        let timeout = self.slurm.timeout;
        self.id = self.id.wrapping_add(1);
        let request = Request { id: self.id, ..request };
        let answer = match self.ready().await? {
            ActiveReader::Process(process) => process.ask(&request, timeout).await,
            ActiveReader::Native => {
                let conf = self.slurm.conf.as_deref();
                Ok(self.memory.native.answer(conf, &request, timeout.mul_f64(0.9)).await)
            }
        };
        match answer {
            Ok(Answer::Reading(reading)) => {
                self.backoff.reset();
                self.unanswered_since = None;
                self.troubled = false;
                Ok(reading)
            }
            Ok(Answer::Failure(mut failure)) => {
                self.unanswered_since.get_or_insert_with(Instant::now);
                for text in [&mut failure.call, &mut failure.text] {
                    *text = printable(text).into_owned();
                }
                failure.advice = failure.advice.map(|advice| printable(&advice).into());
                let said = match process_of(&mut self.reader) {
                    Some(process) => process.said().await,
                    None => LastLines::default(),
                };
                Err(SourceError::Refused(failure, said))
            }
            Ok(Answer::Hello(_)) => {
                Err(self.lose_reader(ProcessError::Nonsense("a second hello".to_owned()).into()))
            }
            Err(error) => Err(self.lose_reader(error.into())),
        }
    }

    /// Returns the reader, after the start of another if there is none.
    async fn ready(&mut self) -> Result<&mut ActiveReader, SourceError> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.start_another().await?,
        };
        Ok(self.reader.insert(reader))
    }

    async fn start_another(&mut self) -> Result<ActiveReader, SourceError> {
        if let Some(pause) = &self.pause {
            return Err(SourceError::Resting(Arc::clone(&pause.error)));
        }
        // A reader of slurmrestd has no slurm.conf.
        if self.slurm.rest.endpoint.is_none()
            && let Err(missing) = self.conf.note().await
        {
            return Err(self.lose_reader(SourceError::NoConf(missing)));
        }
        self.start().await.map_err(|error| self.lose_reader(error))
    }

    async fn start(&mut self) -> Result<ActiveReader, SourceError> {
        let launched = self.prepare_launch(self.logged.clone()).await?.run().await?;
        self.adopt(launched).await
    }

    /// Locates the installed readers, and prepares the start of one of them.
    async fn prepare_launch(&mut self, logged: LoggedLines) -> Result<Launch, SourceError> {
        let located = locate_readers(&self.slurm).await?;
        if self.passed_over != located.passed_over {
            located.passed_over.iter().for_each(|text| error!("{text}"));
            self.passed_over.clone_from(&located.passed_over);
        }
        let programs = located.programs.iter().map(|program| {
            let kind = ReaderKind::for_program(program, &self.slurm);
            (program.clone(), kind, self.arguments(kind))
        });
        Ok(Launch {
            role: self.role,
            programs: programs.collect(),
            located,
            deadline: self.start_deadline,
            slow_after: self.slurm.timeout,
            logged,
            is_native_used: self.libslurm.is_some(),
            troubled: self.troubled,
        })
    }

    /// Makes a reader that was started the one that gets the requests, or the native one if none
    /// fits.
    async fn adopt(&mut self, launched: Launched) -> Result<ActiveReader, SourceError> {
        let Launched { located, unfit, started } = launched;
        let Some((program, kind, reader)) = started else {
            return self.use_native(&located, &unfit).await;
        };
        let path = program.display();
        let pid = Some(reader.child.pid);
        let release = reader.release;
        let whose = match (kind, release) {
            (ReaderKind::Rest, _) => "slurmrestd".to_owned(),
            (_, None) => "an unknown release of Slurm".to_owned(),
            (_, Some(release)) => format!("Slurm {release}"),
        };
        // Of another libslurm, it is the sign of an upgrade.
        if self.troubled && self.program.as_ref() == Some(&program) {
            debug!(reader = %path, pid, "reader started again for {whose}");
        } else {
            info!(reader = %path, pid, "reader started for {whose}");
        }
        self.libslurm = None;
        let again = u64::from(self.program.replace(program).is_some());
        self.memory.restarts.fetch_add(again, Ordering::Relaxed);
        self.status.send_modify(|status| {
            status.restarts += again;
            status.pid = pid;
            status.last = Some((kind, release));
        });
        Ok(ActiveReader::Process(reader))
    }

    async fn use_native(
        &mut self,
        located: &LocatedReaders,
        unfit: &[String],
    ) -> Result<ActiveReader, SourceError> {
        if !located.is_native {
            return Err(NoReader::unfit(unfit, &located.sonames, &self.slurm).into());
        }
        self.watch_libslurm(unfit, located).await;
        self.memory.native.forget_conf().await;
        if self.status.borrow().kind() != Some(ReaderKind::Native) {
            info!("slurmctld is asked in its own protocol, without libslurm");
        }
        self.status.send_modify(|status| {
            status.pid = None;
            status.last = Some((ReaderKind::Native, None));
        });
        Ok(ActiveReader::Native)
    }

    /// Drops the reader and pauses; returns the error that requests get until then.
    fn lose_reader(&mut self, error: SourceError) -> SourceError {
        self.replace_reader();
        self.troubled = true;
        let error = Arc::new(error);
        self.pause = Some(Pause {
            until: Instant::now() + self.backoff.next_delay(),
            error: Arc::clone(&error),
        });
        SourceError::Resting(error)
    }

    /// Begins to look for a libslurm that has a reader, if the native one is used for lack of it.
    async fn watch_libslurm(&mut self, unfit: &[String], located: &LocatedReaders) {
        let was_watched = self.libslurm.take().is_some();
        if self.slurm.reader != ReaderChoice::Auto {
            return;
        }
        if !was_watched && !unfit.is_empty() {
            info!("{}", NoReader::unfit(unfit, &located.sonames, &self.slurm));
        }
        self.libslurm = Some(ConfWatch::files(located.signs.clone()).await);
    }

    /// Lets all readers be tried again, libslurm's first, if something was installed.
    async fn retry_if_installed(&mut self) {
        let Some(libslurm) = &mut self.libslurm else { return };
        if libslurm.has_changed(false).await {
            debug!("a library or a reader was installed; starting another reader");
            self.replace_reader();
        }
    }

    /// The arguments of a reader of this kind.
    fn arguments(&self, kind: ReaderKind) -> Vec<OsString> {
        let SlurmSettings { conf, rest, timeout, .. } = &self.slurm;
        let path = |path: &Option<PathBuf>| path.clone().map(OsString::from);
        let conf = ("--conf", path(conf));
        let token_file = ("--token-file", path(&rest.token_file));
        // It gives up before it would be killed.
        let timeout = ("--timeout", Some(timeout.mul_f64(0.9).as_secs_f64().to_string().into()));
        let flags = match kind {
            ReaderKind::Libslurm | ReaderKind::Native => vec![conf],
            ReaderKind::Rest => vec![
                ("--rest", rest.endpoint.as_ref().map(|endpoint| endpoint.to_string().into())),
                timeout,
                token_file,
                ("--user", rest.user.clone().map(Into::into)),
                ("--rest-user", rest.rest_user.clone().map(Into::into)),
                ("--ca-file", path(&rest.ca_file)),
            ],
        };
        let flags =
            flags.into_iter().filter_map(|(flag, value)| Some([flag.into(), value?])).flatten();
        // Without slurmrestd the configuration cannot have it.
        flags.chain(rest.insecure.then(|| "--insecure".into())).collect()
    }

    /// Starts another reader if slurm.conf has changed, because libslurm reads it only once. A
    /// reader that gives readings goes on until the other one has said hello; any other, and one
    /// for pings, is replaced at once.
    async fn replace_if_conf_changed(&mut self, request: &Request) {
        if self.slurm.rest.endpoint.is_some() {
            return;
        }
        // Pings decide who publishes: by the order of controllers that the file has now, for which
        // the reader that runs would give the former one.
        let is_ping = request.reply == ReplyKind::Controllers && request.options.follow;
        if is_ping && self.successor.is_some() {
            self.replace_reader();
        }
        let is_well = !is_ping && self.unanswered_since.is_none() && self.reader.is_some();
        let goes_on = is_well && matches!(self.reader, Some(ActiveReader::Process(_)));
        let successor = self.successor.as_ref();
        if goes_on && successor.is_some_and(Successor::is_starting) {
            return;
        }
        let soon = !is_well || successor.is_some();
        let has_changed = self.conf.has_changed(soon).await;
        if has_changed && self.reader.is_some() {
            info!("slurm.conf has changed; starting another reader");
        }
        if has_changed && !goes_on {
            self.note_conf_change();
            self.replace_reader();
        } else if has_changed || successor.is_some_and(Successor::is_due) {
            self.start_successor().await;
        }
    }

    /// Starts the reader of a changed slurm.conf, without waiting for it.
    async fn start_successor(&mut self) {
        let mut next = self.successor.take().unwrap_or_default();
        let launch = match self.conf.note().await {
            Ok(()) => self.prepare_launch(next.logged.clone()).await,
            Err(missing) => Err(SourceError::NoConf(missing)),
        };
        // The first slow start is reported, and then a failure.
        let is_known = next.has_failed();
        next.start(launch.map(|launch| Launch { troubled: launch.troubled || is_known, ..launch }));
        self.successor = Some(next);
    }

    async fn handle_launch(&mut self, launched: Result<Launched, SourceError>) {
        let adopted = match launched {
            Ok(launched) => self.adopt(launched).await,
            Err(error) => Err(error),
        };
        match adopted {
            Ok(reader) => {
                self.reader = Some(reader);
                if let Some(next) = self.successor.take() {
                    self.logged = next.logged;
                    self.note_conf_change();
                }
            }
            Err(error) => {
                let Some(next) = &mut self.successor else { return };
                if next.note_failure() {
                    warn!(
                        %error,
                        "no reader starts with the changed slurm.conf; the one that runs goes on"
                    );
                } else {
                    debug!(%error, "no reader starts with the changed slurm.conf yet");
                }
            }
        }
    }

    /// Counts a change of slurm.conf, which readers have from now on.
    fn note_conf_change(&mut self) {
        self.status.send_modify(|status| status.conf_changes += 1);
    }

    fn replace_if_stale(&mut self) {
        // Only libslurm keeps to the controller that it once knew.
        let keeps = self.status.borrow().kind() == Some(ReaderKind::Libslurm);
        if keeps && self.unanswered_since.is_some_and(|since| since.elapsed() >= STALE_AFTER) {
            debug!(
                "slurmctld has not answered for a minute; starting another reader, in case it has \
                    moved"
            );
            self.unanswered_since = None;
            self.troubled = true;
            self.replace_reader();
        }
    }

    /// Drops the reader, so that the next request starts another.
    fn replace_reader(&mut self) {
        if self.successor.take().is_some() {
            self.note_conf_change();
        }
        self.reader = None;
        self.pause = None;
        self.status.send_modify(|status| status.pid = None);
    }
}

/// The reader's process, unless it is the native one.
fn process_of(reader: &mut Option<ActiveReader>) -> Option<&mut Process> {
    match reader {
        Some(ActiveReader::Process(process)) => Some(process),
        Some(ActiveReader::Native) | None => None,
    }
}

impl Drop for ReaderSupervisor {
    fn drop(&mut self) {
        child::forget(self.role);
    }
}
