//! *Collector*: does slurm-graphite itself work?

use crate::alerts;
use crate::grafana::{Dashboard, Row, closed, query_variable, row, top};
use crate::needs;
use crate::overview::age_of_data;
use crate::panel::{self, series, stat, table};
use crate::verdict::verdict;

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "collector",
        title: "Collector",
        description: "Does slurm-graphite read at every interval, deliver everything, and stay \
            small?",
        variables: vec![query_variable("host", "Collector's host", "$prefix.slurm_graphite.*")],
        rows: vec![health(), work(), trouble(), surveys(), sometimes()],
    }
}

/// The growth of the counters of all hosts and destinations together, per interval.
fn growth(path: &str) -> String {
    let each = panel::growth(&format!("$prefix.slurm_graphite.$host.{path}"));
    format!("consolidateBy(sumSeries({each}), 'sum')")
}

fn health() -> Row {
    top([
        verdict(&alerts::collector()),
        age_of_data().sized(3, 4),
        stat(
            "slurmctld",
            "Whether slurmctld answered the last request. If there is no data, \
            slurm-graphite or its Carbon is down.",
        )
        .curve("slurmctld", "maxSeries($prefix.slurm_graphite.$host.gauge-slurmctld_up)")
        .sized(3, 4)
        .switch("answers", "silent")
        .explained_by("slurmctld does not answer"),
        stat(
            "Carbon",
            "Whether all Carbons are connected. If the Carbon behind this dashboard is \
            down, only the age of the data shows it.",
        )
        .curve("Carbon", "minSeries($prefix.slurm_graphite.$host.carbon.*.gauge-connected)")
        .sized(3, 4)
        .switch("connected", "away")
        .explained_by("A Carbon is down"),
        stat(
            "Queue on disk",
            "Whether the queue is on disk (queue.dir). If it is only in memory, \
              unsent points are lost when the daemon is killed.",
        )
        .curve("queue", "minSeries($prefix.slurm_graphite.$host.queue.gauge-durable)")
        .sized(3, 4)
        .switch("durable", "memory")
        .explained_by("Ticks are not written to disk"),
        stat(
            "Oldest unsent tick",
            "How long the oldest tick has waited to be sent. Above 0, a \
              destination is down or slow, but nothing is lost before queue.max_age.",
        )
        .curve("age", "maxSeries($prefix.slurm_graphite.$host.carbon.*.gauge-queue_age)")
        .unit("s")
        .sized(3, 4)
        .worry(60.0, 3600.0)
        .explained_by("A Carbon is down"),
        stat(
            "Points lost",
            "Points lost in the time range shown, because the queue was full, the \
              points became too old, the queue's file was damaged, or it is not known whether \
              Carbon read them.",
        )
        .curve(
            "lost",
            &growth(
                "carbon.*.gauge-points_{dropped_full,\
                dropped_age,dropped_damaged,unproved}",
            ),
        )
        .unit("short")
        .total()
        .sized(3, 4)
        .never(1.0)
        .explained_by("slurm-graphite loses points"),
        stat(
            "Ticks missed",
            "Ticks without a reading in the time range shown, because the \
              previous reading was still running or the answer came too late.",
        )
        .curve("missed", &growth("gauge-ticks_{skipped,late}"))
        .unit("short")
        .total()
        .sized(3, 4)
        .worry(1.0, 20.0)
        .explained_by("Readings are skipped"),
        stat(
            "Other trouble",
            "How many of these are so now: a Carbon in doubt, a queue that is \
              too small, a refused reload. The table below says which.",
        )
        .curve(
            "now",
            &format!(
                "sumSeries({})",
                ["carbon.*.gauge-in_doubt", "queue.gauge-window_short", "gauge-reload_refused"]
                    .map(|path| format!("$prefix.slurm_graphite.$host.{path}"))
                    .join(", "),
            ),
        )
        .whole()
        .sized(3, 4)
        .never(1.0)
        .opens("Runbook", "runbook"),
    ])
}

fn work() -> Row {
    row("Work").with([
        series(
            "Time of a reading",
            "How long slurmctld took to answer the reader. A few milliseconds is normal. It takes \
                longer when slurmctld or munged is busy.",
        )
        .curve("reading", "maxSeries($prefix.slurm_graphite.$host.gauge-reading_duration)")
        .unit("µs")
        .log(),
        series(
            "Points per second",
            "Points sent for the first time, and points sent again after a lost connection. \
                Sending a point twice is harmless, because Carbon keeps one value.",
        )
        .line(
            "sent",
            "green",
            "sumSeries(perSecond($prefix.slurm_graphite.$host.carbon.*.gauge-points_sent))",
        )
        .line(
            "sent again",
            "orange",
            "sumSeries(perSecond($prefix.slurm_graphite.$host.carbon.*.gauge-points_resent))",
        )
        .unit("suffix:/s"),
        series(
            "Memory",
            "Resident memory, measured once a minute. It should stay level from day \
            to day.",
        )
        .curve("daemon", "sumSeries($prefix.slurm_graphite.$host.gauge-daemon_memory)")
        .curve("reader", "sumSeries($prefix.slurm_graphite.$host.gauge-reader_memory)")
        .unit("bytes"),
        series("Queue's size", "Disk space and memory used by the queue.")
            .curve("file", "sumSeries($prefix.slurm_graphite.$host.queue.gauge-file_bytes)")
            .curve("memory", "sumSeries($prefix.slurm_graphite.$host.queue.gauge-memory_bytes)")
            .unit("bytes"),
    ])
}

/// The panel with everything that is 0 on a good day.
pub(crate) const TROUBLE: &str = "What was not zero";

/// Figures that are 0 on a good day: those that happened in an interval, and those that are so now.
/// The figures at the top say whether one of these is worth a look.
fn trouble() -> Row {
    let own = |path: &str| format!("$prefix.slurm_graphite.$host.{path}");
    let counted = [
        ("readings failed", "gauge-readings_failed"),
        ("ticks skipped", "gauge-ticks_skipped"),
        ("ticks late", "gauge-ticks_late"),
        ("readers started again", "gauge-reader_restarts"),
        ("points lost: queue full", "carbon.*.gauge-points_dropped_full"),
        ("points lost: too old", "carbon.*.gauge-points_dropped_age"),
        ("points lost: file damaged", "carbon.*.gauge-points_dropped_damaged"),
        ("points superseded", "carbon.*.gauge-points_superseded"),
        ("points not proved read", "carbon.*.gauge-points_unproved"),
        ("points lost: destination removed", "queue.gauge-points_dropped_removed"),
        ("ticks not on disk", "queue.gauge-undurable"),
    ];
    let now = [
        ("ticks that wait", "carbon.*.gauge-queue_ticks"),
        ("Carbons in doubt", "carbon.*.gauge-in_doubt"),
        ("queue too small", "queue.gauge-window_short"),
        ("reload refused", "gauge-reload_refused"),
    ];
    let panel = table(
        TROUBLE,
        "What went wrong in an interval, or is wrong now, if it did within the time shown. A \
         Carbon is in doubt while it is not known whether it still reads. The last two are \
         carbon-cache's own figures (CARBON_METRIC_INTERVAL): files that it could not write, and \
         points that it threw away because its cache was full.",
        "What",
    )
    .sized(24, 7)
    .whole();
    let seen = |target: String| format!("maximumAbove({target}, 0)");
    let panel = counted
        .into_iter()
        .fold(panel, |panel, (name, path)| panel.curve(name, &seen(growth(path))));
    let panel = now.into_iter().fold(panel, |panel, (name, path)| {
        panel.curve(name, &seen(format!("sumSeries({})", own(path))))
    });
    let panel = panel
        .curve("Carbon's errors", &seen("sumSeries(carbon.agents.*.errors)".to_owned()))
        .curve(
            "Carbon's points thrown away",
            &seen("sumSeries(carbon.agents.*.cache.overflow)".to_owned()),
        );
    row("Trouble")
        .without_data("No data: each of these was 0 in the time shown.".to_owned(), "")
        .with([panel])
}

fn surveys() -> Row {
    closed("Surveys (collectors that are off by default)").survey().with([
        series(
            "Time of a reply",
            "How long slurmctld took to produce each reply. It holds a lock \
                during this time; max_duty limits the share of time that this may take.",
        )
        .each("$prefix.slurm_graphite.$host.reply.*.gauge-duration")
        .unit("µs")
        .log(),
        series(
            "Replies hidden by PrivateData",
            "1 if nothing from this reply is published, \
            because PrivateData may hide part of it.",
        )
        .each("$prefix.slurm_graphite.$host.reply.*.gauge-hidden"),
        series(
            "Counts of finished jobs are late",
            "1 if slurmdbd returned no job, not even one \
                that ran or that it had before: its database may have failed, or the cluster is \
                idle. The jobs are counted later.",
        )
        .curve("unproved", "$prefix.slurm_jobs_finished.reading.gauge-unproved"),
    ])
}

fn sometimes() -> Row {
    closed("Several controllers, and slurmrestd ([slurm] follow and rest)")
        .needs(needs::SEVERAL)
        .with([
        series(
            "Hosts on standby",
            "With [slurm] follow: 0 on the active slurmctld's host, which publishes the figures, \
                and 1 on the other hosts.",
        )
        .each("$prefix.slurm_graphite.$host.gauge-standby"),
        series(
            "Token for slurmrestd",
            "Remaining lifetime of the token. Only with [slurm] rest, and only if the token has an \
                expiry time.",
        )
        .curve("valid for", "minSeries($prefix.slurm_graphite.$host.gauge-token_expires_in)")
        .hours()
        .without_min(),
    ])
}
