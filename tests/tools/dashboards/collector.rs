//! *Collector*: does slurm-graphite itself do what it is there for?

use crate::grafana::{Dashboard, Row, closed, query_variable, row, top};
use crate::overview::age_of_data;
use crate::panel::{series, stat};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "collector",
        title: "Collector",
        description: "Does slurm-graphite itself read every interval, deliver everything, and stay small?",
        variables: vec![query_variable("host", "Collector's host", "$prefix.slurm_graphite.*")],
        rows: vec![health(), readings(), delivery(), surveys(), upkeep()],
    }
}

/// How much counters of all hosts and destinations grew in each interval. Grafana asks for fewer points than there are when the time
/// shown is long: Graphite has to add up what it puts together then. Where points were lost there may be none to compare the next with:
/// the one before them serves.
fn growth(path: &str) -> String {
    format!(
        "consolidateBy(sumSeries(nonNegativeDerivative(keepLastValue($prefix.slurm_graphite.$host.{path}))), 'sum')"
    )
}

fn health() -> Row {
    top(vec![
        age_of_data().sized(3, 4),
        stat("slurmctld", "Whether slurmctld answered the last time it was asked. No data: slurm-graphite itself is away, or its Carbon.")
            .curve("slurmctld", "maxSeries($prefix.slurm_graphite.$host.gauge-slurmctld_up)")
            .sized(3, 4)
            .switch("answers", "silent"),
        stat("Carbon", "Whether all Carbons are connected. A Carbon that is away cannot show it here: look at the age of data.")
            .curve("Carbon", "minSeries($prefix.slurm_graphite.$host.carbon.*.gauge-connected)")
            .sized(3, 4)
            .switch("connected", "away"),
        stat("Queue on disk", "Without it what Carbon has not had is lost when the daemon is killed; see queue.dir.")
            .curve("queue", "minSeries($prefix.slurm_graphite.$host.queue.gauge-durable)")
            .sized(3, 4)
            .switch("durable", "memory"),
        stat("Oldest tick that waits", "Above 0 a destination is away or slow. Nothing is lost yet: see queue.max_age.")
            .curve("age", "maxSeries($prefix.slurm_graphite.$host.carbon.*.gauge-queue_age)")
            .unit("s")
            .worry(60.0, 3600.0),
        stat("Points lost", "In the time shown: the queue was full, points became too old, its file was damaged, or nothing proves that they were read.")
            .curve("lost", &growth("carbon.*.gauge-points_{dropped_full,dropped_age,dropped_damaged,unproved}"))
            .unit("short")
            .total()
            .never(1.0),
        stat("Ticks missed", "In the time shown: skipped because a reading was still under way, or answered too late.")
            .curve("missed", &growth("gauge-ticks_{skipped,late}"))
            .unit("short")
            .total()
            .worry(1.0, 20.0),
    ])
}

fn readings() -> Row {
    row(
        "Readings",
        vec![
            series("Time of a reading", "How long slurmctld took to answer the reader. Milliseconds are usual; more when slurmctld or munged is busy.")
                .curve("reading", "maxSeries($prefix.slurm_graphite.$host.gauge-reading_duration)")
                .unit("µs")
                .log(),
            series("What was missed", "Readings that failed, ticks skipped and late, readers started again; each over its interval.")
                .curve("failed", &growth("gauge-readings_failed"))
                .curve("skipped", &growth("gauge-ticks_skipped"))
                .curve("late", &growth("gauge-ticks_late"))
                .curve("restarts", &growth("gauge-reader_restarts"))
                .unit("short")
                .min(0.0)
                .colour("failed", "red")
                .colour("skipped", "orange")
                .colour("late", "yellow")
                .colour("restarts", "purple"),
        ],
    )
}

fn delivery() -> Row {
    row(
        "Delivery",
        vec![
            series("Points per second", "Sent for the first time, and sent again because a connection was lost (harmless: Carbon keeps one).")
                .curve("sent", "sumSeries(perSecond($prefix.slurm_graphite.$host.carbon.*.gauge-points_sent))")
                .curve("sent again", "sumSeries(perSecond($prefix.slurm_graphite.$host.carbon.*.gauge-points_resent))")
                .unit("suffix: /s")
                .min(0.0)
                .colour("sent", "green")
                .colour("sent again", "orange"),
            series("Queue", "Ticks that wait to be sent, by destination; they wait while it is away.")
                .each("$prefix.slurm_graphite.$host.carbon.*.gauge-queue_ticks")
                .unit("short")
                .min(0.0),
            series("Points lost by reason", "Each over its interval, by the reason. Any is worth a look at the log.")
                .curve("queue full", &growth("carbon.*.gauge-points_dropped_full"))
                .curve("too old", &growth("carbon.*.gauge-points_dropped_age"))
                .curve("file damaged", &growth("carbon.*.gauge-points_dropped_damaged"))
                .curve("not proved read", &growth("carbon.*.gauge-points_unproved"))
                .curve("destination removed", &growth("queue.gauge-points_dropped_removed"))
                .unit("short")
                .min(0.0),
            series("Carbons in doubt", "1 while nothing shows that a destination reads: it hangs, or its cache is full. The backlog waits meanwhile.")
                .each("$prefix.slurm_graphite.$host.carbon.*.gauge-in_doubt")
                .min(0.0),
            series("Not yet acknowledged", "Bytes sent that the other host's kernel has not acknowledged, by destination.")
                .each("$prefix.slurm_graphite.$host.carbon.*.gauge-unacked_bytes")
                .unit("bytes")
                .min(0.0),
        ],
    )
}

fn surveys() -> Row {
    closed(
        "Surveys (collectors that are off by default)",
        vec![
            series("Time of a reply", "How long slurmctld took for each reply. It holds a lock meanwhile; max_duty bounds its share of the time.")
                .each("$prefix.slurm_graphite.$host.reply.*.gauge-duration")
                .unit("µs")
                .survey()
                .log(),
            series("Replies hidden by PrivateData", "1: nothing of this reply is published, because slurmctld may answer with a part only.")
                .each("$prefix.slurm_graphite.$host.reply.*.gauge-hidden")
                .min(0.0)
                .survey(),
        ],
    )
}

fn upkeep() -> Row {
    row(
        "Upkeep",
        vec![
            series("Memory", "Resident, looked at once a minute. Level, day after day.")
                .curve("daemon", "sumSeries($prefix.slurm_graphite.$host.gauge-daemon_memory)")
                .curve("reader", "sumSeries($prefix.slurm_graphite.$host.gauge-reader_memory)")
                .unit("bytes")
                .min(0.0),
            series("Ticks not on disk", "Ticks of an interval that were sent without being on disk first.")
                .curve("not on disk", &growth("queue.gauge-undurable"))
                .unit("short")
                .min(0.0)
                .colour("not on disk", "red"),
            series("Queue too small", "1 while queue.max_bytes has no room for all of queue.resend_window.")
                .curve("too small", "maxSeries($prefix.slurm_graphite.$host.queue.gauge-window_short)")
                .min(0.0)
                .colour("too small", "orange"),
            series("Refused reload", "1 while the configuration that was last reloaded has an error, so that the one before stays in use.")
                .curve("refused", "maxSeries($prefix.slurm_graphite.$host.gauge-reload_refused)")
                .min(0.0)
                .colour("refused", "orange"),
            series(
                "Hosts on standby",
                "With [slurm] follow: 0 on the host of the active slurmctld, which publishes its figures, 1 on the others.",
            )
            .each("$prefix.slurm_graphite.$host.gauge-standby")
            .min(0.0),
            series(
                "Token for slurmrestd",
                "How long the token is still valid; only with [slurm] rest, and of a token that says so.",
            )
            .curve("valid for", "minSeries($prefix.slurm_graphite.$host.gauge-token_expires_in)")
            .unit("s"),
            series("Queue's size", "The queue's file with its log, and its share of memory.")
                .curve("file", "sumSeries($prefix.slurm_graphite.$host.queue.gauge-file_bytes)")
                .curve("memory", "sumSeries($prefix.slurm_graphite.$host.queue.gauge-memory_bytes)")
                .unit("bytes")
                .min(0.0),
        ],
    )
}
