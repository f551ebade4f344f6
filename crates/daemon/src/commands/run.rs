//! `run`: the daemon. A loop in which `select` only names what happened, and one function handles
//! each event.
//!
//! Nothing here waits for slurmctld or for Carbon: readings come from the source's task, batches go
//! to each destination's queue, and the ticks continue whatever happens there.

mod accounting;
mod emitting;
mod following;
#[expect(clippy::disallowed_methods, reason = "before READY, in a thread")]
mod queue_owner;
mod reload;
mod remembering;
mod status;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use carbon::{Batch, Destination, Queue, Sender};
use slurm_points::collectors::TickOutcome;
use slurm_snapshot::{add_to, one_more};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use self::reload::Loading;
use super::{block_on, load, names};
use crate::accounting::Accounting;
use crate::cli::Options;
use crate::clock::{self, Alarm, boot_now, or_never};
use crate::cluster::{Cluster, ClusterEvent, EndedTick, TickEnd};
use crate::config::{Config, Problems, SlurmSettings};
use crate::grid::{Grid, Tick};
use crate::host::host;
use crate::notify::Notify;
use crate::self_metrics::SelfMetrics;
use crate::source::{self, ReaderMemory};
use crate::status::RefusedEntry;
use crate::status_socket::{Asker, StatusSocket};
use crate::telemetry::Logging;

/// Runs until SIGTERM or SIGINT.
pub(super) fn run(options: &Options) -> Result<()> {
    let config = load(options)?.with_destination()?;
    let logging = Logging::start(config.log);
    let options = options.clone();
    // A task of its own: waking the runtime's outermost future costs it a system call and a turn
    // each time.
    block_on(async {
        tokio::spawn(handle_events(config, options, logging)).await.context("the daemon's task")?
    })
}

async fn handle_events(config: Config, options: Options, logging: Logging) -> Result<()> {
    // Listen for signals first: the start below may wait for a file system that hangs, and a
    // SIGTERM must end the daemon also then. As after a kill, nothing is lost.
    let mut signals = Signals::new().context("listening for signals")?;
    let mut daemon = tokio::select! {
        daemon = Daemon::start(config) => daemon?,
        () = signals.stop() => {
            info!("slurm-graphite has ended before it had started");
            return Ok(());
        }
    };
    // The queue is open, a task for each destination connects to its Carbon, and the readers'
    // tasks wait for requests. Tell systemd that the daemon is ready.
    daemon.notify.insist("READY=1");
    // From here on this loop sleeps until something happens, handles it at once, and sleeps again.
    // Nothing that it calls waits, so it is back here before the next event.
    loop {
        match daemon.select(&mut signals).await {
            // A moment of the grid has come, or the watchdog must be fed. At a tick the daemon
            // gives up the tick before, if that has no answer yet, and requests the statistics.
            DaemonEvent::Alarm(rung) => {
                rung.context("waiting for the next tick")?;
                daemon.at_alarm();
            }
            // A reader has answered, or failed. The collectors make points of the reading, and the
            // queue takes them as a batch: the store writes it to disk, the senders send it. After
            // the statistics of a tick the surveys that are due are requested.
            DaemonEvent::Cluster(event) => daemon.at_cluster(event)?,
            // The disk has a round of finished jobs and its batch, so the next one may begin.
            DaemonEvent::CountsOnDisk => {
                daemon.cluster.finished.as_mut().into_iter().for_each(Accounting::commit);
            }
            // `slurm-graphite status` has connected to the socket.
            DaemonEvent::StatusAsked(asker) => asker.answer(&daemon.status()),
            // SIGHUP: a thread reads the configuration, because its file system may hang. `Read`
            // follows with the result, and the loop goes on with what has not changed.
            DaemonEvent::Reload => daemon.read_configuration(&options),
            DaemonEvent::Read(read) => daemon.apply_read(read, &options, &logging),
            // SIGTERM or SIGINT: the last thing that this loop does.
            DaemonEvent::Stop => return daemon.stop(signals).await,
        }
    }
}

/// Time within which two signals count as one wish to stop: timeout(1) signals the process, and
/// then its whole group.
const SAME_WISH: Duration = Duration::from_secs(1);

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        // Caught, so that a file over `ulimit -f` is a write that fails, and not the end.
        let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for a second signal that was not sent together with the first one.
    async fn stop_again(&mut self) {
        let begin = Instant::now();
        loop {
            self.stop().await;
            if begin.elapsed() >= SAME_WISH {
                return;
            }
        }
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

enum DaemonEvent {
    Alarm(std::io::Result<()>),
    Cluster(ClusterEvent),
    CountsOnDisk,
    StatusAsked(Asker),
    Reload,
    Read(reload::ReadConfig),
    Stop,
}

struct Daemon {
    config: Config,
    grid: Grid,
    alarm: Alarm,
    cluster: Cluster,
    readers: ReaderMemory,
    queue: Queue,
    senders: Vec<(Destination, Sender)>,
    notify: Notify,
    health: SelfMetrics,
    /// Batch of the last tick, kept so that the next tick can use its memory.
    batch: Batch,
    host: String,
    /// The last reload, if it was refused.
    refused: Option<RefusedEntry>,
    status_socket: StatusSocket,
    /// Moment of the start, nanoseconds of CLOCK_BOOTTIME.
    started: i64,
    last_tick: Option<i64>,
    is_clock_unset: bool,
    /// Tick at which collectors' memories were stored last, Unix seconds.
    remembered: i64,
    loading: Option<Loading>,
}

impl Daemon {
    async fn start(config: Config) -> Result<Self> {
        queue_owner::check(config.queue.dir.clone()).await?;
        let queue = Queue::open(
            config.queue.dir.clone(),
            config.queue.limits.clone(),
            &names(&config.carbon),
        );
        // Before anything else is started: two daemons must not share a folder.
        queue.locked().await?;
        let senders = config
            .carbon
            .iter()
            .map(|to| (to.clone(), Sender::start(to.clone(), &queue)))
            .collect();
        if config.collectors.remember() {
            remembering::wait(&queue).await;
        }
        info!(
            version = env!("SLURM_GRAPHITE_VERSION"),
            configuration = config.file.as_ref().map(|file| file.display().to_string()),
            interval = config.interval,
            prefix = %config.prefix,
            destinations = addresses(&config.carbon),
            queue = config.queue.dir.as_ref().map_or("in memory".into(), |dir|
                dir.display().to_string()),
            "slurm-graphite has started"
        );
        say_missing_conf(&config.slurm);
        let readers = ReaderMemory::new(true);
        Ok(Self {
            alarm: Alarm::new().context("making a timer")?,
            grid: Grid::new(config.interval, clock::now()),
            cluster: Cluster::start(&config, &readers, &|name| {
                remembering::memory(&queue, name, None)
            }),
            readers,
            queue,
            senders,
            notify: Notify::from_env(),
            health: SelfMetrics::default(),
            batch: Batch::default(),
            host: host(),
            refused: None,
            status_socket: StatusSocket::listen(),
            started: boot_now(),
            last_tick: None,
            is_clock_unset: false,
            remembered: 0,
            loading: None,
            config,
        })
    }

    /// Waits for the next event, and only names it. All branches are safe to cancel: what lost the
    /// race is there at the next call.
    async fn select(&mut self, signals: &mut Signals) -> DaemonEvent {
        let next = self.grid.next();
        let moment = self.notify.feed_at().map_or(next, |feed| next.min(feed));
        let ticket = self.cluster.finished.as_ref().and_then(Accounting::ticket);
        tokio::select! {
            rung = self.alarm.at(moment) => DaemonEvent::Alarm(rung),
            event = self.cluster.event() => DaemonEvent::Cluster(event),
            () = or_never(ticket.map(|ticket|
                self.queue.kept(ticket))) => DaemonEvent::CountsOnDisk,
            asker = self.status_socket.asked() => DaemonEvent::StatusAsked(asker),
            never = self.notify.insisting() => match never {},
            _ = signals.hangup.recv() => DaemonEvent::Reload,
            read = or_never(self.loading.as_ref().map(Loading::until_read)) => DaemonEvent::Read(read),
            _ = signals.terminate.recv() => DaemonEvent::Stop,
            _ = signals.interrupt.recv() => DaemonEvent::Stop,
        }
    }

    fn at_alarm(&mut self) {
        let now = clock::now();
        self.notify.feed(now);
        if let Some(tick) = self.grid.tick(now) {
            self.begin_tick(tick);
        }
    }

    /// Begins a tick: ends the slot of the one before, and requests the statistics for this one.
    fn begin_tick(&mut self, tick: Tick) {
        if tick.is_before_the_clock_was_set() {
            if !std::mem::replace(&mut self.is_clock_unset, true) {
                warn!("the clock of this host is not set; nothing is collected until it is");
            }
            return one_more(&mut self.health.ticks_skipped);
        }
        self.is_clock_unset = false;
        self.last_tick = Some(tick.timestamp);
        if tick.new_timeline {
            warn!(tick = tick.timestamp, "the clock was set back; a new timeline begins");
            self.health.timelines += 1;
            // The same clock may be slurmctld's.
            self.cluster.forget();
        }
        if tick.skipped > 0 {
            warn!(
                skipped = tick.skipped,
                "ticks were missed: the host was suspended or overloaded, or its clock was set"
            );
            add_to(&mut self.health.ticks_skipped, tick.skipped);
        }
        // The tick before gets no more time: without an answer it is published as failed.
        let ended = self.cluster.end_slot();
        self.publish_ended_tick(ended);
        // The request goes to the reader now, or, with `follow`, after a ping. A reader that does
        // not take it ends this tick at once.
        let ended = self.cluster.ask_when_ready(tick.timestamp);
        self.publish_ended_tick(ended);
        self.send_status();
    }

    /// Publishes a tick that is over without an answer.
    fn publish_ended_tick(&mut self, ended: Option<EndedTick>) {
        let Some(EndedTick { timestamp, end }) = ended else { return };
        match end {
            TickEnd::Standby => self.cluster.note_standby(),
            TickEnd::Missed => one_more(&mut self.health.ticks_skipped),
            TickEnd::Late => {}
        }
        let is_standby = end == TickEnd::Standby;
        self.emit(timestamp, if is_standby { TickOutcome::Standby } else { TickOutcome::Failed });
        self.send_status();
    }

    fn at_cluster(&mut self, event: ClusterEvent) -> Result<(), Problems> {
        match event {
            ClusterEvent::Answered(outcome) => {
                let (timestamp, next) = self.cluster.handle_answer(&outcome);
                self.publish_answer(timestamp, outcome);
                let ended = next.and_then(|next| self.cluster.ask_when_ready(next));
                self.publish_ended_tick(ended);
            }
            ClusterEvent::Pinged(outcome) => self.handle_ping(outcome)?,
            ClusterEvent::Waited => {
                let ended = self.cluster.ask_without_ping();
                self.publish_ended_tick(ended);
            }
            ClusterEvent::Surveyed(role, outcome) => {
                if let Some(done) = self.cluster.handle_survey_reply(role, outcome) {
                    self.emit_survey(done);
                }
            }
            ClusterEvent::Accounted(outcome) => self.handle_slurmdbd_reply(outcome),
        }
        Ok(())
    }

    /// Ends the daemon: no more readings; what is queued is sent within `drain_timeout`, or until a
    /// second signal.
    async fn stop(mut self, mut signals: Signals) -> Result<()> {
        self.notify.insist("STOPPING=1");
        // The queue's log gets what collectors must know again. Dropping the cluster ends its
        // tasks and kills the readers, so no reading comes any more.
        self.remember(i64::MAX);
        drop((self.cluster, self.status_socket));
        // The senders get also what the disk has not written yet. Then each of them sends what is
        // due and waits until its Carbon has read it.
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
        let is_cut_short = tokio::select! {
            () = all => false,
            () = signals.stop_again() => true,
            never = self.notify.insisting() => match never {},
        };
        if is_cut_short {
            warn!("second signal: ending without waiting for unsent ticks");
        }
        // What is left is written to disk. The next run sends it.
        let kept = self.queue.close().await;
        info!(ticks_kept_on_disk = kept, "slurm-graphite has ended");
        Ok(())
    }
}

/// Warns at the start if slurm.conf cannot be read, because the first tick may be an hour away. A
/// thread reads it, because its file system may hang.
fn say_missing_conf(slurm: &SlurmSettings) {
    let named =
        source::conf::named(slurm.conf.as_deref()).filter(|_| slurm.rest.endpoint.is_none());
    let Some((conf, by)) = named else { return };
    // If there is no thread for it, the first tick says so.
    let _ = waiting_threads::begin("slurm.conf at the start", move || {
        if let Err(error) = source::conf::fingerprint(&conf) {
            warn!(conf = %conf.display(), named_by = by, %error, "slurm.conf does not exist or \
                cannot be read; waiting for it");
        }
    });
}

/// The destinations in one line: `main (carbon1:2004), second (carbon2:2004)`.
fn addresses(destinations: &[Destination]) -> String {
    let one = |to: &Destination| format!("{} ({})", to.name, to.address);
    destinations.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Formats Unix seconds as a time of day in local time: `12:00:30`.
fn clock_time(unix: i64) -> String {
    clock::local(unix, "%H:%M:%S")
}
