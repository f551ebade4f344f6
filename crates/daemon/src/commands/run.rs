//! `run`: the daemon. A loop in which `select` only names what happened, and one function each does it.
//!
//! Nothing here waits for slurmctld or for Carbon: readings come from the source's task, batches go to each
//! destination's queue, and the ticks go on whatever those do.

mod accounting;
mod following;
mod reload;
mod signals;
mod status;
mod surveying;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use carbon::{Batch, Destination, Queue, Sender};
use slurm_snapshot::{Reply, ReplyKind, Request, Role};
use tokio::task::JoinSet;
use tracing::{debug, error, info, trace, warn};

use self::accounting::{accounted, kept, start_accounting};
use self::following::{pinged, waited};
use self::reload::Loading;
use self::signals::{Signals, StopSignals, or_stop};
use self::status::SlurmctldSeen;
use self::surveying::{start_survey, surveyed};
use super::{block_on, load};
use crate::accounting::Accounting;
use crate::cli::Options;
use crate::clock::{self, Alarm};
use crate::collecting::Collecting;
use crate::collector_memory::Memories;
use crate::collectors::TickOutcome;
use crate::config::Config;
use crate::follow::Follow;
use crate::grid::{Grid, Tick};
use crate::notify::Notify;
use crate::prefix;
use crate::self_metrics::{DestinationMetrics, SelfMetrics};
use crate::source::rest::Expiry;
use crate::source::{Outcome, Source};
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
            DaemonEvent::Woken(woken) => {
                woken.context("waiting for the next tick")?;
                daemon.woken();
            }
            DaemonEvent::Answered(outcome) => daemon.answered(outcome),
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
    Woken(std::io::Result<()>),
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
    /// For the collectors that want more than the statistics; `None` where there is none.
    survey: Option<Survey>,
    /// For those that need slurmdbd's own statistics. Its reader is that of finished jobs.
    dbd_survey: Option<Survey>,
    /// For finished jobs; `None` where they are not counted.
    accounting: Option<Accounting>,
    collecting: Collecting,
    memories: Memories,
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
    /// The same for `status`.
    slurmctld: SlurmctldSeen,
    status_socket: StatusSocket,
    started: i64,
    last_tick: Option<i64>,
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
        let queue =
            Queue::open(config.queue.dir.clone(), config.queue.limits.clone(), &names(&config.carbon));
        // Before anything else is started: two daemons must not share a folder.
        queue.locked().await?;
        let senders =
            config.carbon.iter().map(|to| (to.clone(), Sender::start(to.clone(), &queue))).collect();
        let memories = Memories::new(config.queue.dir.clone());
        memories.read(config.collectors.remembering()).await;
        let collecting = Collecting::start(config.interval, &config.collectors, |name| memories.recall(name));
        let dbd_survey = start_survey(&config, &collecting, Role::Accounting, None);
        let shared = dbd_survey.as_ref().map(|survey| survey.source().share());
        info!(
            interval = config.interval,
            prefix = %config.prefix,
            configuration = config.file.as_ref().map(|file| file.display().to_string()),
            version = env!("SLURM_GRAPHITE_VERSION"),
            "slurm-graphite has started"
        );
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
            memories,
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
            slurmctld: SlurmctldSeen::default(),
            status_socket: StatusSocket::listen(),
            started: unix_now(),
            last_tick: None,
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
            woken = self.alarm.at(moment) => DaemonEvent::Woken(woken),
            outcome = self.source.outcome(), if self.asked => DaemonEvent::Answered(outcome),
            () = waited(waits_until), if waits_until.is_some() => DaemonEvent::Waited,
            outcome = pinged(self.follow.as_mut()) => DaemonEvent::Pinged(outcome),
            outcome = surveyed(self.survey.as_mut()) => DaemonEvent::Surveyed(Role::Surveys, outcome),
            outcome = surveyed(self.dbd_survey.as_mut()) => DaemonEvent::Surveyed(Role::Accounting, outcome),
            outcome = accounted(self.accounting.as_mut()) => DaemonEvent::Accounted(outcome),
            () = kept(&self.queue, ticket), if ticket.is_some() => DaemonEvent::CountsKept,
            asker = self.status_socket.asked() => DaemonEvent::StatusAsked(asker),
            _ = signals.hangup.recv() => DaemonEvent::Reload,
            read = reload::read(&mut self.loading), if self.loading.is_some() => DaemonEvent::Read(read),
            () = signals.stop.recv() => DaemonEvent::Stop,
        }
    }

    fn woken(&mut self) {
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
            warn!(timestamp = tick.timestamp, "the clock was set back; a new timeline begins");
            self.health.timelines += 1;
        }
        if tick.skipped > 0 {
            warn!(
                skipped = tick.skipped,
                "ticks were missed: the host slept, was overloaded, or its clock was set"
            );
            self.health.ticks_skipped = self.health.ticks_skipped.saturating_add(tick.skipped);
        }
        if self.asked {
            // The slot of the tick that asked is over, and this one must not ask again.
            if let Some(timestamp) = self.pending.take() {
                self.emit(timestamp, TickOutcome::Failed);
            }
            self.health.ticks_skipped = self.health.ticks_skipped.saturating_add(1);
            self.emit(tick.timestamp, TickOutcome::Failed);
        } else {
            self.begin(tick.timestamp);
        }
        self.tell_status();
    }

    /// Asks slurmctld for a tick.
    fn ask(&mut self, timestamp: i64) {
        let mut options = self.collecting.options();
        options.follow = self.follow.is_some();
        if self.source.ask(Request::new(ReplyKind::Statistics, options)) {
            self.asked = true;
            self.pending = Some(timestamp);
        }
    }

    /// slurm.conf may be replaced by another cluster's: nothing that was seen of the old one goes under the new name.
    fn know_cluster(&mut self, cluster: &str) {
        if self.cluster.as_deref() == Some(cluster) {
            return;
        }
        if let Some(old) = self.cluster.replace(cluster.to_owned()) {
            warn!(old, new = cluster, "slurm.conf is another cluster's now; its collectors begin anew");
            self.collecting = Collecting::start(self.config.interval, &self.config.collectors, |_| None);
        }
    }

    fn log_nameless(&mut self, nameless: bool) {
        if nameless && !self.logged_nameless {
            warn!(
                prefix = %self.config.prefix,
                "the prefix needs the cluster's name, which no reading has had yet: nothing is sent until one has"
            );
        } else if !nameless && self.logged_nameless {
            info!(cluster = self.cluster.as_deref(), "the cluster's name is known; points are sent");
        }
        self.logged_nameless = nameless;
    }

    /// Hands a batch to the queue, and to every destination with it.
    fn keep(&mut self, batch: &Batch) {
        self.memories.save(self.collecting.changed_memories());
        if batch.points().len() == 0 {
            return;
        }
        self.trace_batch(batch);
        self.queue.push(batch);
    }

    /// The record of what was collected, which a test holds against what has arrived.
    fn trace_batch(&self, batch: &Batch) {
        trace!(timestamp = batch.timestamp(), lines = carbon::lines(batch), "tick collected");
    }

    fn answered(&mut self, outcome: Outcome) {
        self.asked = false;
        self.expiry.note(&outcome, unix_now());
        self.slurmctld.note(&outcome, unix_now());
        if outcome.as_ref().is_ok_and(|reading| reading.reply == Some(Reply::Standby)) {
            return self.answered_standby(outcome.ok().and_then(|reading| reading.cluster));
        }
        match &outcome {
            Ok(_) => self.health.readings_ok += 1,
            Err(_) => self.health.readings_failed += 1,
        }
        match &outcome {
            Ok(reading) if self.logged != LoggedState::Up => {
                info!(
                    elapsed_us = reading.elapsed,
                    cluster = reading.cluster.as_deref(),
                    "slurmctld answers"
                );
                self.logged = LoggedState::Up;
            }
            Err(error) if self.logged != LoggedState::Down => {
                warn!(%error, "no reading; trying at every tick");
                self.logged = LoggedState::Down;
            }
            Err(error) => debug!(%error, "no reading"),
            Ok(_) => {}
        }
        match (self.pending.take(), outcome) {
            (Some(timestamp), outcome) => self.emit(
                timestamp,
                outcome.map_or(TickOutcome::Failed, |reading| TickOutcome::Reading(reading.into())),
            ),
            (None, Ok(_)) => {
                self.health.ticks_late += 1;
                debug!("a reading came after its tick and is thrown away");
            }
            (None, Err(_)) => {}
        }
        self.tell_status();
    }

    /// Makes the tick's batch and hands it to every destination: without a reading it has the daemon's own figures.
    fn emit(&mut self, timestamp: i64, outcome: TickOutcome) {
        let reading = outcome.reading();
        self.health.ticks_run += 1;
        self.health.slurmctld_up = match outcome {
            TickOutcome::GivenUp | TickOutcome::Standby => None,
            _ => Some(reading.is_some()),
        };
        self.health.reading_duration = reading.map(|reading| reading.elapsed);
        self.health.reader_restarts = self.restarts_before.saturating_add(self.restarts());
        self.health.token_expires_in = self.expiry.left(unix_now());
        let second_reader = self.survey.as_ref().and_then(|survey| survey.source().pid());
        self.health.look_at_memory(self.source.pid(), second_reader);
        if let Some(cluster) = reading.and_then(|reading| reading.cluster.as_ref()) {
            self.know_cluster(cluster);
        }
        let prefix = self.config.prefix.fill(self.cluster.as_deref(), &self.host);
        self.log_nameless(prefix.is_none());
        let is_published = self.follow_outcome(&outcome);
        let Some(prefix) = prefix else { return };
        let mut batch = Batch::new(timestamp);
        if is_published {
            self.collecting.collect(timestamp, &outcome, &prefix, &mut batch);
        }
        let destinations: Vec<(String, DestinationMetrics)> = self
            .senders
            .iter()
            .map(|(to, sender)| {
                (to.name.clone(), DestinationMetrics { status: sender.status(), now: timestamp })
            })
            .collect();
        let queue = self.queue.status();
        let replies = self.survey.iter().chain(&self.dbd_survey).flat_map(Survey::counters);
        let replies = replies.chain(self.accounting.iter().map(Accounting::counters));
        self.health.points(&prefix, &self.host, &queue, &destinations, replies, &mut batch);
        self.health.points_refused = self.health.points_refused.saturating_add(batch.refused());
        self.keep(&batch);
        if !matches!(outcome, TickOutcome::GivenUp) {
            let statistics = outcome.reading().and_then(|reading| reading.statistics.as_ref());
            if is_published {
                self.begin_surveys(timestamp, statistics.map(|statistics| statistics.server_thread_count));
            }
            let backlog = statistics.map(|statistics| statistics.dbd_agent_queue_size);
            // Without either, what others publish is not known.
            if is_published || matches!(outcome, TickOutcome::Standby) {
                self.begin_accounting(timestamp, backlog.map(u64::from), is_published);
            }
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
    async fn stop(self, signals: &mut StopSignals) -> Result<()> {
        self.notify.stopping();
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
                        warn!(%destination, since = left.oldest_due.map(clock_time), "{left}")
                    }
                    Err(error) => error!(%error, "a destination's end failed"),
                }
            }
        };
        or_stop(all, signals).await;
        let kept = self.queue.close().await;
        info!(ticks_kept_on_disk = kept, "slurm-graphite has ended");
        Ok(())
    }
}

fn unix_now() -> i64 {
    i64::try_from(clock::now().as_secs()).unwrap_or(i64::MAX)
}

fn names(destinations: &[Destination]) -> Vec<String> {
    destinations.iter().map(|to| to.name.clone()).collect()
}

/// `12:00:30`, local time.
fn clock_time(unix: i64) -> String {
    jiff::Timestamp::from_second(unix)
        .map(|at| at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string())
        .unwrap_or_else(|_| unix.to_string())
}
