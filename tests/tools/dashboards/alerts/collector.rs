//! Rules about slurm-graphite itself: what it could not read, keep or deliver.

use crate::collector::TROUBLE;

use super::{Rule, STATE, added_up, growth, mean_of, where_at_least};

pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule {
            name: "lost",
            title: "slurm-graphite loses points",
            reason: "Any lost point. keepLastValue is needed because the slot before a loss may \
                     have no point to compare with. The queue holds half a day (queue.max_age, \
                     queue.max_bytes). The points counted here are gone, or were sent and may not \
                     have been read.",
            summary: "slurm-graphite lost {{ .Values.B }} points in the last 15 minutes.",
            advice: "The Collector dashboard shows the reason, and slurm-graphite's log says what \
            happened. The usual cause is a Carbon that has been down for hours.",
            target: growth(
                "group(cluster.slurm_graphite.*.carbon.*.gauge-points_{dropped_full,\
                 dropped_age,dropped_damaged,unproved,superseded}, \
                 cluster.slurm_graphite.*.queue.gauge-points_dropped_removed)",
            ),
            panel: ("collector", TROUBLE),
            ..added_up()
        },
        Rule {
            name: "doubt",
            title: "A Carbon does not read",
            reason: "in_doubt is 1 if there has been no sign for stall_timeout (30 s) that the \
                     receiver reads. A full cache with flow control drains in less than five \
                     minutes. With a single Carbon, the figure arrives only when that Carbon reads \
                     again.",
            summary: "A Carbon accepts connections but has read nothing for more than five minutes \
                (in_doubt is {{ .Values.B }}).",
            advice: "Check whether carbon-cache is stopped or deadlocked, or its cache is full \
            (USE_FLOW_CONTROL). Nothing is lost until queue.max_age or queue.max_bytes is reached. \
            Restarting Carbon is safe.",
            target: "maxSeries(cluster.slurm_graphite.*.carbon.*.gauge-in_doubt)".to_owned(),
            limit: ("gt", 0.9),
            lasts: "1m",
            panel: ("collector", TROUBLE),
            ..mean_of(300)
        },
        Rule {
            name: "backlog",
            title: "A Carbon is down",
            reason: "15 minutes is longer than a restart of Carbon, and far from queue.max_age (12 \
                     h), after which points are lost. The figure can arrive during the outage only \
                     if there is more than one Carbon. With a single one, \"No Slurm metrics \
                     arrive\" fires instead.",
            summary: "A tick has waited for one of the Carbons for {{ humanizeDuration \
                .Values.B.Value }}.",
            advice: "The Collector dashboard shows the destination. Nothing is lost until \
                queue.max_age or queue.max_bytes is reached.",
            target: "maxSeries(cluster.slurm_graphite.*.carbon.*.gauge-queue_age)".to_owned(),
            limit: ("gt", 900.0),
            is_age: true,
            panel: ("collector", "Oldest unsent tick"),
            ..STATE
        },
        Rule {
            name: "carbon-errors",
            title: "Carbon loses what it has read",
            reason: "carbon-cache counts files that it could not create or write, and points that \
                     it threw away because its cache was full. slurm-graphite has delivered these \
                     points and cannot know. The figures are Carbon's own, once a minute under \
                     CARBON_METRIC_PREFIX; carbon-c-relay and VictoriaMetrics have others. They \
                     are about everything that this Carbon stores.",
            summary: "In the last 15 minutes, carbon-cache failed {{ .Values.B }} times to store \
                points.",
            advice: "Carbon's log has the errors; df on its host. When it can write again, restart \
            carbon-cache within queue.resend_window (10 minutes): slurm-graphite then sends again \
            what Carbon lost.",
            target: "sumSeries(group(carbon.agents.*.errors, carbon.agents.*.cache.overflow))"
                .to_owned(),
            panel: ("collector", TROUBLE),
            ..added_up()
        },
        Rule {
            name: "undurable",
            title: "Ticks are not written to disk",
            reason: "Any such tick, if queue.dir is set. The disk was full or damaged, or did not \
                answer in time.",
            summary: "In the last 15 minutes, {{ .Values.B }} ticks were sent before they were \
                written to disk.",
            advice: "Check df and dmesg on slurm-graphite's host; its log has the error. Nothing \
            is lost unless slurm-graphite is killed before the disk works again.",
            target: growth("cluster.slurm_graphite.*.queue.gauge-undurable"),
            panel: ("collector", TROUBLE),
            ..added_up()
        },
        Rule {
            name: "window",
            title: "The queue is too small",
            reason: "queue.max_bytes is too small for queue.resend_window. If Carbon loses its \
                     memory, part of what it had read but not stored cannot be sent again.",
            summary: "queue.max_bytes is too small for queue.resend_window (window_short is {{ \
                .Values.B }}).",
            advice: "Raise queue.max_bytes, or disable a collector that creates many paths.",
            target: "maxSeries(cluster.slurm_graphite.*.queue.gauge-window_short)".to_owned(),
            limit: ("gt", 0.5),
            lasts: "10m",
            panel: ("collector", TROUBLE),
            ..STATE
        },
        Rule {
            name: "skipped",
            title: "Readings are skipped",
            reason: "One or two skipped readings are normal at a busy moment. If there are more \
                     than three in 15 minutes, slurmctld takes longer to answer than the interval.",
            summary: "In the last 15 minutes, {{ .Values.B }} ticks had no reading, because it was \
                skipped or came too late.",
            advice: "The Collector dashboard shows how long a reading takes. Check whether \
            slurmctld or munged is overloaded, or slurm-graphite's host was suspended.",
            target: growth("cluster.slurm_graphite.*.gauge-ticks_{skipped,late}"),
            limit: ("gt", 3.0),
            panel: ("collector", TROUBLE),
            ..added_up()
        },
        Rule {
            name: "reload",
            title: "A reload was refused",
            reason: "Any refused reload. The daemon continues with the previous configuration, but \
                it would not start with the new one.",
            summary: "slurm-graphite did not reload its configuration, because it has an error \
                (reload_refused is {{ .Values.B }}).",
            advice: "slurm-graphite check, slurm-graphite status and the log show the file, the \
            line and the reason. Correct the file and reload.",
            target: "maxSeries(cluster.slurm_graphite.*.gauge-reload_refused)".to_owned(),
            limit: ("gt", 0.5),
            panel: ("collector", TROUBLE),
            ..STATE
        },
        Rule {
            name: "hidden",
            title: "Some figures stopped: PrivateData hides them",
            reason: "Any hidden reply. slurmctld may leave out part of such a reply, so nothing \
                from it is published and the curves end.",
            summary: "PrivateData in slurm.conf may hide a reply from slurm-graphite's user \
                (hidden is {{ .Values.B }}).",
            advice: "slurm-graphite's log names the reply. Make its user an operator: sacctmgr \
                modify user slurm-graphite set adminlevel=operator.",
            target: "maxSeries(cluster.slurm_graphite.*.reply.*.gauge-hidden)".to_owned(),
            limit: ("gt", 0.5),
            panel: ("collector", "Replies hidden by PrivateData"),
            ..STATE
        },
        Rule {
            name: "unproved",
            title: "Counts of finished jobs are late",
            reason: "slurmdbd answers a query that failed in its database like one without jobs. \
                     An idle cluster looks the same, so the rule requires that slurmctld has \
                     started jobs in the last hour.",
            summary: "For an hour slurmdbd has returned no job, although slurmctld started some \
                (unproved is {{ .Values.B }}).",
            advice: "slurmdbd's log has an error if its database fails. Check the database: \
            crashed or locked tables, max_statement_time. Nothing is lost: the jobs are counted \
            when slurmdbd returns them.",
            target: where_at_least(
                "cluster.slurm_jobs_finished.reading.gauge-unproved",
                &[(
                    &format!(
                        "movingSum({}, '1hour')",
                        growth("cluster.slurm_sched_stats.gauge-jobs_started")
                    ),
                    1.0,
                )],
            ),
            limit: ("gt", 0.5),
            lasts: "1h",
            panel: ("collector", "Counts of finished jobs are late"),
            ..STATE
        },
        Rule {
            name: "follow",
            title: "Not exactly one host publishes",
            severity: "critical",
            reason: "With [slurm] follow, the daemon publishes only on the host of the active \
                     slurmctld, so standby is 0 on exactly one host. The rule uses the mean of \
                     five minutes, because a takeover needs a few ticks. If no host reports, the \
                     last division leaves no point, and \"No Slurm metrics arrive\" fires instead.",
            summary: "One host should publish slurmctld's figures; the actual number differs by {{ \
                .Values.B }}.",
            advice: "Find the active controller with scontrol ping. Then run slurm-graphite status \
                on each controller's host.",
            target: "divideSeries(absolute(offset(diffSeries(\
                sumSeries(isNonNull(cluster.slurm_graphite.*.gauge-standby)), \
                sumSeries(cluster.slurm_graphite.*.gauge-standby)), -1)), \
                isNonNull(sumSeries(cluster.slurm_graphite.*.gauge-standby)))"
                .to_owned(),
            limit: ("gt", 0.5),
            lasts: "2m",
            panel: ("collector", "Hosts on standby"),
            ..mean_of(300)
        },
        Rule {
            name: "token",
            title: "The token for slurmrestd expires",
            severity: "critical",
            reason: "Fires ten minutes before the token expires. After that, slurmrestd refuses \
                     every request. Only with [slurm] rest. The timer in docs/install.md renews \
                     the token hours earlier.",
            summary: "slurm-graphite's token for slurmrestd expires in {{ humanizeDuration \
                .Values.B.Value }}.",
            advice: "Write the output of scontrol token username=NAME lifespan=SECONDS to \
            token_file, and check that the timer which renews it is running (systemctl \
            list-timers). The daemon needs no restart.",
            target: "minSeries(cluster.slurm_graphite.*.gauge-token_expires_in)".to_owned(),
            limit: ("lt", 600.0),
            lasts: "0s",
            panel: ("collector", "Token for slurmrestd"),
            ..STATE
        },
    ]
}
