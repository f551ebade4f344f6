//! `run`: the daemon. A loop in which `select` only names what happened, and one function handles each event.
//!
//! Nothing here waits for slurmctld or for Carbon: readings come from the source's task, batches go to each
//! destination's queue, and the ticks continue whatever happens there.

mod accounting;
mod emitting;
mod following;
mod queue_owner;
mod reload;
mod remembering;
mod signals;
mod status;
mod surveying;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use carbon::{Destination, Queue, Sender};
use slurm_snapshot::{ReplyKind, Request, Role};
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tracing::{error, info, warn};

use self::accounting::start_accounting;
use self::emitting::Outage;
use self::reload::Loading;
use self::signals::{Signals, StopSignals, or_stop};
use self::status::SlurmctldSeen;
use self::surveying::start_survey;
use super::{block_on, load, names, or_never};
use crate::accounting::Accounting;
use crate::cli::Options;
use crate::clock::{self, Alarm, unix_now};
use crate::collecting::Collecting;
use crate::collectors::TickOutcome;
use crate::config::{Config, SlurmSettings};
use crate::follow::Follow;
use crate::grid::{Grid, Tick};
use crate::notify::Notify;
use crate::prefix;
use crate::self_metrics::SelfMetrics;
use crate::source::rest::Expiry;
use crate::source::{self, Outcome, Source};
use crate::status::RefusedEntry;
use crate::status_socket::{Asker, StatusSocket};
use crate::survey::{START_DEADLINE, Survey};
use crate::telemetry::Logging;

/// Runs until SIGTERM or SIGINT.
pub(super) fn run(options: &Options) -> Result<()> {
    let config = load(options)?.with_destination()?;
    let logging = Logging::start(config.log);
    let options = options.clone();
    // A task of its own: waking the runtime's outermost future costs it a system call and a turn each time.
    block_on(async { tokio::spawn(go_on(config, options, logging)).await.context("the daemon's task")? })
}

async fn go_on(config: Config, options: Options, logging: Logging) -> Result<()> {
    let mut signals = Signals::new().context("listening for signals")?;
    let mut daemon = Daemon::start(config).await?;
    daemon.notify.ready();
    loop {
        match daemon.select(&mut signals).await {
            DaemonEvent::Alarm(rung) => {
                rung.context("waiting for the next tick")?;
                daemon.at_alarm();
            }
            DaemonEvent::Answered(outcome) => {
                daemon.answered(outcome);
                daemon.begin_deferred();
            }
            DaemonEvent::Pinged(outcome) => daemon.pinged(outcome)?,
            DaemonEvent::Waited => daemon.waited(),
            DaemonEvent::Surveyed(role, outcome) => daemon.surveyed(role, outcome),
            DaemonEvent::Accounted(outcome) => daemon.accounted(outcome),
            DaemonEvent::CountsKept => daemon.counts_kept(),
            DaemonEvent::StatusAsked(asker) => asker.answer(&daemon.status()),
            DaemonEvent::Reload => daemon.read_configuration(&options),
            DaemonEvent::Read(read) => daemon.read(read, &options, &logging),
            DaemonEvent::Stop => return daemon.stop(&mut signals.stop).await,
        }
    }
}

enum DaemonEvent {
    Alarm(std::io::Result<()>),
    Answered(Outcome),
    Pinged(Outcome),
    Waited,
    Surveyed(Role, Outcome),
    Accounted(Outcome),
    CountsKept,
    StatusAsked(Asker),
    Reload,
    Read(reload::Read),
    Stop,
}

struct Daemon {
    config: Config,
    grid: Grid,
    alarm: Alarm,
    /// When systemd's watchdog must be fed at the latest, Unix time.
    feed: Option<Duration>,
    source: Source,
    /// Where figures are published only if the active slurmctld runs here.
    follow: Option<Follow>,
    /// For the collectors that need more than the statistics; `None` where there is none.
    survey: Option<Survey>,
    /// For those that need slurmdbd's own statistics. Its reader is that of finished jobs.
    dbd_survey: Option<Survey>,
    /// For finished jobs; `None` where they are not counted.
    accounting: Option<Accounting>,
    collecting: Collecting,
    queue: Queue,
    /// Of the running queue: a reload does not change it.
    queue_dir: Option<PathBuf>,
    senders: Vec<(Destination, Sender)>,
    notify: Notify,
    health: SelfMetrics,
    host: String,
    cluster: Option<String>,
    /// Of slurmrestd, when its token ends.
    expiry: Expiry,
    /// Readers started again by sources that a reload has replaced.
    restarts_before: u64,
    /// A request is on its way to the source.
    asked: bool,
    /// The tick that it is for; `None` once its slot is over.
    pending: Option<i64>,
    /// What the log said last of slurmctld.
    logged: LoggedState,
    /// While there are no readings.
    outage: Option<Outage>,
    /// The last reload, if it was refused.
    refused: Option<RefusedEntry>,
    /// The same for `status`.
    slurmctld: SlurmctldSeen,
    status_socket: StatusSocket,
    started: i64,
    last_tick: Option<i64>,
    /// The tick at which collectors' memories were stored last.
    remembered: i64,
    /// The log says that points cannot be sent, because the prefix needs the cluster's name.
    logged_nameless: bool,
    loading: Option<Loading>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LoggedState {
    Nothing,
    Up,
    Down,
    Standby,
}

impl Daemon {
    async fn start(config: Config) -> Result<Self> {
        queue_owner::check(config.queue.dir.clone()).await?;
        let queue =
            Queue::open(config.queue.dir.clone(), config.queue.limits.clone(), &names(&config.carbon));
        // Before anything else is started: two daemons must not share a folder.
        queue.locked().await?;
        let senders =
            config.carbon.iter().map(|to| (to.clone(), Sender::start(to.clone(), &queue))).collect();
        if config.collectors.remember() {
            remembering::wait(&queue).await;
        }
        let memory = |name| remembering::memory(&queue, name);
        let collecting = Collecting::start(config.interval, &config.collectors, memory);
        let dbd_survey = start_survey(&config, &collecting, Role::Accounting, None);
        let shared = dbd_survey.as_ref().map(|survey| survey.source().share());
        info!(
            version = env!("SLURM_GRAPHITE_VERSION"),
            configuration = config.file.as_ref().map(|file| file.display().to_string()),
            interval = config.interval,
            prefix = %config.prefix,
            destinations = addresses(&config.carbon),
            queue = config.queue.dir.as_ref().map_or("in memory".into(), |dir| dir.display().to_string()),
            "slurm-graphite has started"
        );
        tell_missing_conf(&config.slurm);
        Ok(Self {
            alarm: Alarm::new().context("making a timer")?,
            feed: Some(Duration::ZERO),
            grid: Grid::new(config.interval, clock::now()),
            source: Source::start(config.slurm.clone(), START_DEADLINE),
            follow: Follow::start(&config.slurm),
            survey: start_survey(&config, &collecting, Role::Surveys, None),
            dbd_survey,
            accounting: start_accounting(&config, shared),
            collecting,
            queue,
            queue_dir: config.queue.dir.clone(),
            senders,
            notify: Notify::from_env(),
            health: SelfMetrics::default(),
            host: prefix::host(),
            cluster: None,
            expiry: Expiry::default(),
            restarts_before: 0,
            asked: false,
            pending: None,
            logged: LoggedState::Nothing,
            outage: None,
            refused: None,
            slurmctld: SlurmctldSeen::default(),
            status_socket: StatusSocket::listen(),
            started: unix_now(),
            last_tick: None,
            remembered: 0,
            logged_nameless: false,
            loading: None,
            config,
        })
    }

    async fn select(&mut self, signals: &mut Signals) -> DaemonEvent {
        let next = self.grid.next();
        let moment = self.feed.map_or(next, |feed| next.min(feed));
        let ticket = self.accounting.as_ref().and_then(Accounting::ticket);
        let waits_until = self.follow.as_ref().and_then(Follow::deadline);
        tokio::select! {
            rung = self.alarm.at(moment) => DaemonEvent::Alarm(rung),
            outcome = self.source.outcome(), if self.asked => DaemonEvent::Answered(outcome),
            () = or_never(waits_until.map(sleep_until)) => DaemonEvent::Waited,
            outcome = or_never(self.follow.as_mut().map(Follow::outcome)) => DaemonEvent::Pinged(outcome),
            outcome = or_never(self.survey.as_mut().map(Survey::outcome)) => DaemonEvent::Surveyed(Role::Surveys, outcome),
            outcome = or_never(self.dbd_survey.as_mut().map(Survey::outcome)) => DaemonEvent::Surveyed(Role::Accounting, outcome),
            outcome = or_never(self.accounting.as_mut().map(Accounting::outcome)) => DaemonEvent::Accounted(outcome),
            () = or_never(ticket.map(|ticket| self.queue.kept(ticket))) => DaemonEvent::CountsKept,
            asker = self.status_socket.asked() => DaemonEvent::StatusAsked(asker),
            never = self.notify.insisting() => match never {},
            _ = signals.hangup.recv() => DaemonEvent::Reload,
            read = or_never(self.loading.as_mut().map(Loading::read)) => DaemonEvent::Read(read),
            () = signals.stop.recv() => DaemonEvent::Stop,
        }
    }

    fn at_alarm(&mut self) {
        let now = clock::now();
        self.notify.feed();
        self.feed = self.notify.feed_every().map(|patience| now + patience);
        if let Some(tick) = self.grid.tick(now) {
            self.tick(tick);
        }
    }

    fn tick(&mut self, tick: Tick) {
        self.last_tick = Some(tick.timestamp);
        self.status_socket.go_on();
        if tick.new_timeline {
            warn!(tick = tick.timestamp, "the clock was set back; a new timeline begins");
            self.health.timelines += 1;
            // The same clock may be slurmctld's.
            self.survey.iter_mut().for_each(Survey::forget);
        }
        if tick.skipped > 0 {
            warn!(
                skipped = tick.skipped,
                "ticks were missed: the host was suspended or overloaded, or its clock was set"
            );
            self.health.ticks_skipped = self.health.ticks_skipped.saturating_add(tick.skipped);
        }
        if self.asked {
            // The slot of the tick that asked is over, and this one must not ask again.
            if let Some(timestamp) = self.pending.take() {
                self.emit(timestamp, TickOutcome::Failed);
            }
            self.defer(tick.timestamp);
        } else {
            self.begin(tick.timestamp);
        }
        self.tell_status();
    }

    /// Asks slurmctld for a tick.
    fn ask(&mut self, timestamp: i64) {
        let mut options = self.collecting.options();
        options.follow = self.follow.is_some();
        // They show whether slurmd is heard.
        options.rpc |= options.follow;
        if self.source.ask(Request::new(ReplyKind::Statistics, options)) {
            self.asked = true;
            self.pending = Some(timestamp);
        }
    }

    /// Readers started again by the present sources.
    fn restarts(&self) -> u64 {
        let second = self.survey.as_ref().map_or(0, |survey| survey.source().restarts());
        let third = self.dbd_source().map_or(0, Source::restarts);
        let pings = self.follow.as_ref().map_or(0, |follow| follow.source().restarts());
        [second, third, pings].into_iter().fold(self.source.restarts(), u64::saturating_add)
    }

    /// The reader of slurmdbd, where there is one.
    fn dbd_source(&self) -> Option<&Source> {
        let of_finished = self.accounting.as_ref().map(Accounting::source);
        of_finished.or_else(|| self.dbd_survey.as_ref().map(Survey::source))
    }

    /// No more readings; what is queued goes out within `drain_timeout`, or sooner at a second signal.
    async fn stop(mut self, signals: &mut StopSignals) -> Result<()> {
        self.notify.stopping();
        self.remember(i64::MAX);
        drop((self.source, self.follow, self.survey, self.dbd_survey, self.accounting, self.status_socket));
        self.queue.publish();
        let mut drains = JoinSet::new();
        for (to, sender) in self.senders {
            let deadline = self.config.drain_timeout;
            drains.spawn(async move { (to.name, sender.drain(deadline).await) });
        }
        let all = async {
            while let Some(drained) = drains.join_next().await {
                match drained {
                    Ok((destination, left)) if left.is_complete() => info!(%destination, "{left}"),
                    Ok((destination, left)) => {
                        warn!(%destination, since = left.oldest_unsent.map(clock_time), "{left}")
                    }
                    Err(error) => error!(%error, "a destination's end failed"),
                }
            }
        };
        tokio::select! {
            () = or_stop(all, signals) => {}
            never = self.notify.insisting() => match never {},
        }
        let kept = self.queue.close().await;
        if let Some(dir) =
            self.queue_dir.filter(|dir| kept > 0 && self.config.queue.dir.as_ref() != Some(dir))
        {
            warn!(
                ticks = kept,
                dir = %dir.display(),
                "the next start uses another queue.dir and does not send the ticks in this one; move its queue-*.log files there first"
            );
        }
        info!(ticks_kept_on_disk = kept, "slurm-graphite has ended");
        Ok(())
    }
}

/// Says at the start that slurm.conf cannot be read: the first tick may be an hour away. Its file system may hang.
fn tell_missing_conf(slurm: &SlurmSettings) {
    let named = source::conf::named(slurm.conf.as_deref()).filter(|_| slurm.rest.endpoint.is_none());
    let Some((conf, by)) = named else { return };
    drop(tokio::task::spawn_blocking(move || {
        if let Err(error) = conf.metadata() {
            warn!(conf = %conf.display(), named_by = by, %error, "slurm.conf does not exist or cannot be read; waiting for it");
        }
    }));
}

/// Such as `main (carbon1:2004), second (carbon2:2004)`.
fn addresses(destinations: &[Destination]) -> String {
    let one = |to: &Destination| format!("{} ({})", to.name, to.address);
    destinations.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// `12:00:30`, local time.
fn clock_time(unix: i64) -> String {
    clock::local(unix, "%H:%M:%S")
}
