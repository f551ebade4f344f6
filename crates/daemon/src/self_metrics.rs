//! The daemon's own figures: `slurm_graphite.<host>`, and `carbon.<destination>` below it.
//!
//! Counters run since the daemon's start. They are in every tick's batch, even if its reading
//! failed.

use std::collections::BTreeSet;
use std::time::Duration;

use carbon::{Batch, Destination, QueueStatus, Status, path};
use slurm_points::derive::seconds_since;
use slurm_points::levels::Names::Closed;
use slurm_points::levels::{DocumentedLevel, Name, Table};
use slurm_points::named_paths::{NamedPaths, Points};
use slurm_points::prefix::OWN_FAMILY;
use slurm_points::replies::ReplyCounters;
use slurm_points::{levels, metrics};
use slurm_snapshot::ReplyKind;
use tokio::time::Instant;

/// Leaf of the point that only `check --connect` sends, never the daemon.
const CANARY: &str = "check";

levels! {
    pub(crate) LEVELS:
    DAEMON: Level<Table<SelfMetrics>, 1> = ("slurm_graphite.<host>", [Closed], METRICS,
        "The daemon itself, at every tick, even if its reading failed. Counts begin at its start.");
    QUEUE: Level<Table<QueueStatus>, 1> = ("slurm_graphite.<host>.queue", [Closed], QUEUE_METRICS,
        "The queue, which keeps ticks until every destination is done with them.");
    DESTINATION: Level<Table<DestinationMetrics>, 2> =
        ("slurm_graphite.<host>.carbon.<destination>", [Closed, Closed], DESTINATION_METRICS,
        "One destination, under its `name` (`carbon` if it has none; after the first `--carbon` \
         the address).");
    REPLY: Level<Table<ReplyCounters>, 2> = ("slurm_graphite.<host>.reply.<reply>", [Closed,
        Closed], REPLY_METRICS,
        "The expensive replies, by name: `jobs`, `nodes` and so on.");
}

/// Time between two measurements of memory, which cost more than all other figures of the daemon.
const MEMORY_EVERY: Duration = Duration::from_secs(60);

/// The daemon's figures about itself.
#[derive(Debug, Default)]
pub(crate) struct SelfMetrics {
    /// Whether the last reading succeeded; `None` when a reload has cut it short.
    pub(crate) slurmctld_up: Option<bool>,
    /// µs of the last reading's RPC, as the reader timed it; `None` when it failed.
    pub(crate) reading_duration: Option<u64>,
    pub(crate) readings_ok: u64,
    pub(crate) readings_failed: u64,
    pub(crate) ticks_run: u64,
    pub(crate) ticks_skipped: u64,
    pub(crate) ticks_late: u64,
    pub(crate) timelines: u64,
    pub(crate) points_refused: u64,
    pub(crate) reader_restarts: u64,
    /// Number of the `ReaderKind` that reads the statistics; `None` until a reader has been
    /// started.
    pub(crate) reader: Option<u32>,
    /// Whether the last reload was refused.
    pub(crate) reload_refused: bool,
    /// Seconds until slurmrestd's token expires, less than 0 afterwards; `None` if no end is known.
    pub(crate) token_expires_in: Option<i64>,
    /// The figures of `[slurm] follow`; `None` without it, or if nothing is known of this tick.
    pub(crate) follow: Option<FollowFigures>,
    memory: ResidentMemory,
}

/// The figures of `[slurm] follow` at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FollowFigures {
    /// Whether the cluster's figures are left to another host.
    pub(crate) standby: bool,
    /// Whether this host begins to publish the cluster's figures at this tick.
    pub(crate) handover: bool,
}

#[derive(Debug, Default)]
struct ResidentMemory {
    looked: Option<Instant>,
    daemon: Option<u64>,
    reader: Option<u64>,
    second_reader: Option<u64>,
}

pub(crate) struct DestinationMetrics {
    pub(crate) status: Status,
    /// Unix seconds of the tick.
    pub(crate) now: i64,
}

metrics! {
    METRICS: SelfMetrics =
        average(slurmctld_up, "0 or 1",
            "whether this tick's reading succeeded; no point if a reload cut it short"),
        average(reading_duration, "µs",
            "how long slurmctld took to answer; no point if the reading failed"),
        last(readings_ok, "count", "readings that succeeded"),
        last(readings_failed, "count", "readings that failed"),
        last(ticks_run, "count", "ticks for which points were made, with or without a reading"),
        last(ticks_skipped, "count",
            "ticks without a reading: the previous one was still running, the host was suspended, \
                or its clock was not set"),
        last(ticks_late, "count", "readings that arrived after their tick and were discarded"),
        last(timelines, "count", "times that the clock was set back by more than half an interval"),
        last(points_refused, "count", "points that no Carbon could have stored: illegal path, NaN, \
            infinity"),
        last(reader_restarts, "count",
            "readers started again: one was killed or crashed, or slurm.conf changed"),
        max(reader, "0, 1, 2",
            "which reader reads the statistics: 0 libslurm's, 1 the native one (statistics only), \
             2 slurmrestd's"),
        average(reload_refused, "0 or 1",
            "whether the last reload was refused: the previous configuration is still in use. \
                Alert: 1"),
        average(token_expires_in, "s",
            "time until slurmrestd's token expires, negative after that; no point without `[slurm] \
             rest` or if it never expires. Alert: below 600"),
        average("standby", "0 or 1", |h| h.follow?.standby,
            "0 on the active slurmctld's host, which publishes its figures. Only with `[slurm] \
             follow`. Alert: not 0 on exactly one host"),
        max("handover", "0 or 1", |h| h.follow?.handover,
            "1 in the slot in which this host began to publish, perhaps not alone. Only with \
             `[slurm] follow`"),
        average("daemon_memory", "bytes", |h| h.memory.daemon, "resident memory of the daemon, \
            measured once a minute"),
        average("reader_memory", "bytes", |h| h.memory.reader,
            "resident memory of the reader, measured once a minute; the native one has no process"),
        average("second_reader_memory", "bytes", |h| h.memory.second_reader,
            "resident memory of the reader for jobs, nodes and so on; no point if no collector \
                needs it"),
        last(CANARY, "Unix s", |_| None::<f64>,
            "when `check --connect` last ran here; only that command sends it");
    DESTINATION_METRICS: DestinationMetrics =
        average("connected", "0 or 1", |d| d.status.connected, "whether there is a connection"),
        last("connects", "count", |d| d.status.connects, "connections made after there was none"),
        last("renewals", "count", |d| d.status.renewals, "renewed connections whose end proved \
            that everything on them was read"),
        last("points_sent", "count", |d| d.status.sent, "points written, each counted once"),
        last("points_resent", "count", |d| d.status.resent, "points written again after a lost \
            connection"),
        last("points_dropped_full", "count", |d| d.status.dropped.full, "points lost because the \
            queue was full (queue.max_bytes)"),
        last("points_dropped_age", "count", |d| d.status.dropped.age, "points lost because they \
            had become too old (queue.max_age)"),
        last("points_dropped_damaged", "count", |d| d.status.dropped.damaged, "points lost because \
            the queue's file was damaged"),
        last("points_superseded", "count", |d| d.status.dropped.withdrawn,
            "points dropped unsent because another controller may have been active (`[slurm] \
             follow`)"),
        last("points_unproved", "count", |d| d.status.unproved,
            "points that were sent but perhaps not read, and are not sent again"),
        average("in_doubt", "0 or 1", |d| d.status.in_doubt, "1 if there has been no sign for \
            stall_timeout that the receiver reads"),
        average("unacked_bytes", "bytes", |d| d.status.unacked, "bytes sent that the other host's \
            kernel had not acknowledged"),
        last("last_delivery", "Unix s", |d| d.status.last_delivery, "when a whole tick was last \
            sent"),
        average("queue_ticks", "count", |d| d.status.unsent.ticks, "ticks that have never been \
            sent, without this one"),
        average("queue_resend", "count", |d| d.status.again.ticks, "ticks that were sent before a \
            lost connection and wait to be sent again"),
        average("queue_held", "count", |d| d.status.held,
            "ticks kept: those two, and those read less than queue.resend_window ago or perhaps \
                not read"),
        average("queue_bytes", "bytes", |d| d.status.bytes, "size of those ticks, on disk or in \
            memory"),
        average("queue_age", "s", |d| seconds_since(d.status.waits_since.unwrap_or(d.now), d.now),
            "time that the oldest tick has waited, since its collection or, if it was sent before, \
             the loss; 0 if none waits");
    QUEUE_METRICS: QueueStatus =
        average(durable, "0 or 1", "whether ticks are being written to disk; 0 without queue.dir"),
        last(undurable, "count",
            "ticks that were sent before they were on disk: it was full, damaged or did not \
             respond"),
        last("points_dropped_removed", "count", |q| q.dropped_removed,
            "points dropped unsent because their destination was removed from the configuration"),
        average(window_short, "0 or 1",
            "whether queue.max_bytes is too small to hold all ticks within queue.resend_window"),
        average(file_bytes, "bytes", "size of the queue's files"),
        average(memory_bytes, "bytes", "memory of the queue");
    REPLY_METRICS: ReplyCounters =
        average(duration, "µs", "how long the last reading took; no point if it failed"),
        last(readings_ok, "count", "readings that succeeded"),
        last(readings_failed, "count", "readings that failed"),
        last(readings_unchanged, "count",
            "successful readings in which nothing had changed"),
        last(readings_late, "count", "readings that arrived after their slot and were discarded"),
        last("readings_skipped_duty", "count", |v| v.skipped_duty, "readings skipped because the \
            last one took too long (`max_duty`)"),
        last("readings_skipped_busy", "count", |v| v.skipped_busy,
            "readings skipped because slurmctld served more than `max_threads` RPCs, or did not \
             answer"),
        last("readings_skipped_round", "count", |v| v.skipped_round, "readings skipped because the \
            previous round was still running"),
        max(hidden, "0 or 1",
            "whether PrivateData may hide part of the reply; then none of it is published");
}

impl SelfMetrics {
    /// Measures the memory of the processes, if that is due.
    pub(crate) fn look_at_memory(&mut self, reader: Option<u32>, second_reader: Option<u32>) {
        let now = Instant::now();
        if self.memory.looked.is_some_and(|looked| now.duration_since(looked) < MEMORY_EVERY) {
            return;
        }
        let daemon = resident("self");
        let resident_of = |pid: Option<u32>| pid.and_then(|pid| resident(&pid.to_string()));
        let reader = resident_of(reader);
        let second_reader = resident_of(second_reader);
        self.memory = ResidentMemory { looked: Some(now), daemon, reader, second_reader };
    }

    /// Adds the daemon's own points to `batch`, below `prefix`: those about itself, the queue, each
    /// destination and each expensive reply.
    pub(crate) fn points(
        &self,
        prefix: &str,
        host: &str,
        queue: &QueueStatus,
        destinations: &[(String, DestinationMetrics)],
        replies: impl Iterator<Item = (ReplyKind, ReplyCounters)>,
        batch: &mut Batch,
    ) {
        let mut paths = NamedPaths::default();
        let mut points = Points::new(prefix, batch, &mut paths);
        let host = || Name::new(host);
        points.push(&DAEMON, [host()], self);
        points.push(&QUEUE, [host()], queue);
        for (name, health) in destinations {
            points.push(&DESTINATION, [host(), Name::new(name)], health);
        }
        for (kind, counters) in replies {
            points.push(&REPLY, [host(), Name::new(kind.name())], &counters);
        }
    }
}

/// Returns every level of the daemon's own figures, as a path without the prefix, with its metrics.
pub(crate) fn levels(
    host: &str,
    destinations: &[Destination],
    replies: &BTreeSet<ReplyKind>,
) -> Vec<(String, &'static DocumentedLevel)> {
    let mut levels = Vec::new();
    for level in LEVELS {
        let below = level.below.replace("<host>", &path::component(host));
        if let Some(below) = below.strip_suffix("<destination>") {
            let names = destinations.iter().map(|to| path::component(&to.name));
            levels.extend(names.map(|name| (format!("{below}{name}"), level)));
        } else if let Some(below) = below.strip_suffix("<reply>") {
            levels.extend(replies.iter().map(|reply| (format!("{below}{}", reply.name()), level)));
        } else {
            levels.push((below, level));
        }
    }
    levels
}

/// The path of the point by which `check --connect` sees whether points arrive.
pub(crate) fn canary(prefix: &str, host: &str) -> String {
    format!("{prefix}.{OWN_FAMILY}.{}.gauge-{CANARY}", path::component(host))
}

/// Returns the resident memory of a process, bytes: the second word of its statm, which is in pages
/// (proc(5)).
#[expect(clippy::disallowed_methods, reason = "/proc does not wait")]
fn resident(process: &str) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(u64::try_from(rustix::param::page_size()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_reading_has_no_duration_and_everything_else() {
        let mut batch = Batch::new(60);
        let destination = DestinationMetrics { status: Status::default(), now: 60 };
        let destinations = [("carbon.example.org:2004".to_owned(), destination)];
        let queue = QueueStatus::default();
        let health = SelfMetrics { slurmctld_up: Some(false), ..SelfMetrics::default() };
        health.points("cluster", "node1", &queue, &destinations, std::iter::empty(), &mut batch);
        assert_eq!(batch.refused(), 0);
        let mut points = batch.points();
        let up =
            points.find(|p| p.path() == "cluster.slurm_graphite.node1.gauge-slurmctld_up").unwrap();
        assert!(up.value().abs() < f64::EPSILON);
        assert!(!batch.points().any(|p| p.path().ends_with("reading_duration")));
        assert_eq!(
            batch.points().len(),
            METRICS.len() - 9 + QUEUE_METRICS.len() + DESTINATION_METRICS.len() - 1,
            "nothing read, looked at, checked or delivered yet"
        );
    }

    #[test]
    fn a_reading_that_a_reload_cut_short_is_no_failure() {
        let mut batch = Batch::new(60);
        let health = SelfMetrics { slurmctld_up: None, ..SelfMetrics::default() };
        health.points(
            "cluster",
            "node1",
            &QueueStatus::default(),
            &[],
            std::iter::empty(),
            &mut batch,
        );
        let lines = carbon::lines(&batch);
        assert!(!lines.contains("slurmctld_up") && lines.contains("ticks_run"), "{lines}");
    }

    #[test]
    fn no_leaf_of_a_destination_is_longer_than_what_prefixes_leave_room_for() {
        let longest = slurm_points::prefix::LONGEST_LEAF;
        assert!(DESTINATION_METRICS.iter().any(|figure| figure.leaf == longest));
        assert!(DESTINATION_METRICS.iter().all(|figure| figure.leaf.len() <= longest.len()));
    }

    #[test]
    fn the_memory_of_this_process_is_some() {
        assert!(resident("self").is_some_and(|bytes| bytes > 100_000));
        assert_eq!(resident("0"), None);
    }
}
