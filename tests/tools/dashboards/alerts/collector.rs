//! Rules about slurm-graphite itself: what it could not read, keep or deliver.

use super::{Limit, Rule, growth};

pub(super) fn rules() -> Vec<Rule> {
    [delivery(), queue(), reading()].into_iter().flatten().collect()
}

fn delivery() -> Vec<Rule> {
    vec![
        Rule {
            name: "lost",
            title: "slurm-graphite loses points",
            severity: "warning",
            reason: "Any. keepLastValue, because where points were lost there may be none to compare with. The queue holds half a day (queue.max_age, \
                     queue.max_bytes); what is counted here is gone, or was sent and nothing proves that it was read.",
            summary: "slurm-graphite has given up {{ .Values.B }} points in the last quarter of an hour.",
            advice: "The Collector dashboard says for which reason; the log of slurm-graphite says what happened. A Carbon that has been away for \
                     hours is the usual one.",
            target: growth(
                "group(cluster.slurm_graphite.*.carbon.*.gauge-points_{dropped_full,dropped_age,dropped_damaged,unproved}, \
                 cluster.slurm_graphite.*.queue.gauge-points_dropped_removed)",
            ),
            window: 900,
            reducer: "sum",
            limit: Limit::Above(0.0),
            lasts: "0s",
            panel: ("collector", "Points lost by reason"),
            nothing: "OK",
        },
        Rule {
            name: "doubt",
            title: "A Carbon does not read",
            severity: "warning",
            reason: "in_doubt is 1 while nothing has shown for stall_timeout (30 s) that the receiver reads. Five minutes are longer than a full \
                     cache with flow control takes to drain. Where there is one Carbon, the figure arrives when it reads again.",
            summary: "A Carbon accepts connections and has read nothing for over five minutes (in_doubt is {{ .Values.B }}).",
            advice: "Is carbon-cache stopped, deadlocked, or its cache full (USE_FLOW_CONTROL)? Nothing is lost before queue.max_age or \
                     queue.max_bytes is reached; a restart of Carbon is safe.",
            target: "maxSeries(cluster.slurm_graphite.*.carbon.*.gauge-in_doubt)".to_owned(),
            window: 300,
            reducer: "mean",
            limit: Limit::Above(0.9),
            lasts: "1m",
            panel: ("collector", "Carbons in doubt"),
            nothing: "OK",
        },
        Rule {
            name: "backlog",
            title: "A Carbon is away",
            severity: "warning",
            reason: "A quarter of an hour is longer than a restart of Carbon, and far from queue.max_age (12 h), at which points begin to be lost. \
                     Only where there is more than one Carbon can the figure arrive while it is so; with one, \"No Slurm metrics arrive\" tells.",
            summary: "What slurm-graphite sends to one of its Carbons has been waiting for {{ humanizeDuration .Values.B.Value }}.",
            advice: "The Collector dashboard shows which destination. Nothing is lost before queue.max_age or queue.max_bytes is reached.",
            target: "maxSeries(cluster.slurm_graphite.*.carbon.*.gauge-queue_age)".to_owned(),
            window: 600,
            reducer: "last",
            limit: Limit::Above(900.0),
            lasts: "5m",
            panel: ("collector", "Oldest tick that waits"),
            nothing: "OK",
        },
    ]
}

fn queue() -> Vec<Rule> {
    vec![
        Rule {
            name: "undurable",
            title: "Ticks are not kept on disk",
            severity: "warning",
            reason: "Any, where queue.dir is set: the disk was full, damaged, or did not answer in time.",
            summary: "{{ .Values.B }} ticks of the last quarter of an hour were sent without being on disk first.",
            advice: "df and dmesg on slurm-graphite's host; its log names the error. Nothing is lost unless slurm-graphite is killed meanwhile.",
            target: growth("cluster.slurm_graphite.*.queue.gauge-undurable"),
            window: 900,
            reducer: "sum",
            limit: Limit::Above(0.0),
            lasts: "0s",
            panel: ("collector", "Ticks not on disk"),
            nothing: "OK",
        },
        Rule {
            name: "window",
            title: "The queue is too small",
            severity: "warning",
            reason: "queue.max_bytes has no room for all of queue.resend_window: after a loss, some of what Carbon had read and not stored could not \
                     be sent again.",
            summary: "queue.max_bytes has no room for queue.resend_window (window_short is {{ .Values.B }}).",
            advice: "Raise queue.max_bytes, or turn off a collector that makes many paths.",
            target: "maxSeries(cluster.slurm_graphite.*.queue.gauge-window_short)".to_owned(),
            window: 600,
            reducer: "last",
            limit: Limit::Above(0.5),
            lasts: "10m",
            panel: ("collector", "Queue too small"),
            nothing: "OK",
        },
    ]
}

fn reading() -> Vec<Rule> {
    vec![
        Rule {
            name: "skipped",
            title: "Readings are skipped",
            severity: "warning",
            reason: "One or two are a busy moment. More than three in a quarter of an hour: slurmctld, or a collector that is expensive, takes longer \
                     to answer than interval.",
            summary: "{{ .Values.B }} ticks of the last quarter of an hour are without a reading: skipped, or answered too late.",
            advice: "The Collector dashboard shows how long a reading takes. Is slurmctld overloaded, munged, or slurm-graphite's host asleep?",
            target: growth("cluster.slurm_graphite.*.gauge-ticks_{skipped,late}"),
            window: 900,
            reducer: "sum",
            limit: Limit::Above(3.0),
            lasts: "0s",
            panel: ("collector", "What was missed"),
            nothing: "OK",
        },
        Rule {
            name: "reload",
            title: "A reload was refused",
            severity: "warning",
            reason: "Any. The daemon goes on with the configuration from before; a restart would fail with the new one.",
            summary: "slurm-graphite refused to reload its configuration, which has an error (reload_refused is {{ .Values.B }}).",
            advice: "slurm-graphite check names the file, the line and the reason; so do slurm-graphite status and the log. Mend it and reload.",
            target: "maxSeries(cluster.slurm_graphite.*.gauge-reload_refused)".to_owned(),
            window: 600,
            reducer: "last",
            limit: Limit::Above(0.5),
            lasts: "5m",
            panel: ("collector", "Refused reload"),
            nothing: "OK",
        },
        Rule {
            name: "hidden",
            title: "PrivateData hides figures",
            severity: "warning",
            reason: "Any. slurmctld may answer with a part only, so that nothing of it is published; the curves just end.",
            summary: "PrivateData in slurm.conf may hide a reply from slurm-graphite's user (hidden is {{ .Values.B }}).",
            advice: "slurm-graphite's log names the reply. Make its user an operator: sacctmgr modify user slurm-graphite set adminlevel=operator.",
            target: "maxSeries(cluster.slurm_graphite.*.reply.*.gauge-hidden)".to_owned(),
            window: 600,
            reducer: "last",
            limit: Limit::Above(0.5),
            lasts: "5m",
            panel: ("collector", "Replies hidden by PrivateData"),
            nothing: "OK",
        },
        Rule {
            name: "follow",
            title: "Not exactly one host publishes",
            severity: "critical",
            reason: "With [slurm] follow, the daemon publishes only on the host of the active slurmctld: standby is 0 on exactly one host. Of five \
                     minutes, because a takeover needs some ticks. The last division leaves no point where no host tells, which is \"No Slurm metrics \
                     arrive\".",
            summary: "The hosts that publish slurmctld's figures are too many or too few by {{ .Values.B }}.",
            advice: "scontrol ping: which controller is active? slurm-graphite status on each controller's host.",
            target: "divideSeries(absolute(offset(diffSeries(sumSeries(isNonNull(cluster.slurm_graphite.*.gauge-standby)), \
                     sumSeries(cluster.slurm_graphite.*.gauge-standby)), -1)), \
                     isNonNull(sumSeries(cluster.slurm_graphite.*.gauge-standby)))"
                .to_owned(),
            window: 300,
            reducer: "mean",
            limit: Limit::Above(0.5),
            lasts: "2m",
            panel: ("collector", "Hosts on standby"),
            nothing: "OK",
        },
        Rule {
            name: "token",
            title: "slurmrestd's token ends",
            severity: "critical",
            reason: "Ten minutes before. A token that nobody renews ends in silence: afterwards slurmrestd refuses every request. Only where \
                     figures come over REST; the timer in docs/install.md renews it hours before.",
            summary: "The token with which slurm-graphite asks slurmrestd is valid for {{ humanizeDuration .Values.B.Value }} more.",
            advice: "Renew it: scontrol token username=NAME lifespan=SECONDS, into token_file. Does the timer that does so run (systemctl \
                     list-timers)? The daemon needs no restart.",
            target: "minSeries(cluster.slurm_graphite.*.gauge-token_expires_in)".to_owned(),
            window: 600,
            reducer: "last",
            limit: Limit::Below(600.0),
            lasts: "0s",
            panel: ("collector", "Token for slurmrestd"),
            nothing: "OK",
        },
    ]
}
