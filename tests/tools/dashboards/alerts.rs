//! The alert rules, as a file that Grafana provisions: what wakes an administrator up, with the thresholds and their reasons.
//!
//! Every rule is a Graphite query, a reduction to one number and a threshold. While a rule has no data it is silent: that there is none
//! is the business of one rule only, which so fires once and not eight times.

use std::fmt::Write;

use serde_json::json;

/// What is compared with what.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Above(f64),
    Below(f64),
}

/// A rule.
struct Rule {
    /// The last word of its uid.
    name: &'static str,
    title: &'static str,
    /// `critical`: somebody should look now. `warning`: today.
    severity: &'static str,
    /// Why this threshold: a comment in the file.
    reason: &'static str,
    /// What is wrong, in a sentence.
    summary: &'static str,
    /// What to do.
    advice: &'static str,
    target: &'static str,
    /// Seconds looked back. Whatever the interval, up to 5 minutes, there have to be points in it.
    window: u32,
    reducer: &'static str,
    limit: Limit,
    /// How long it has to last before anybody is told.
    lasts: &'static str,
    /// Dashboard and panel to look at.
    panel: (&'static str, &'static str),
    /// What no answer from Graphite, or none with a point, means.
    nothing: &'static str,
}

const RULES: [Rule; 10] = [
    Rule {
        name: "no-data",
        title: "No Slurm metrics arrive",
        severity: "critical",
        reason: "Ten minutes without a single point, or no answer from Graphite at all. isNonNull makes 0 of a slot without a point, so that \
                 files which are there and get nothing count too; where there are no files, or Graphite does not answer, Grafana's states for \
                 no data and for errors are Alerting. So it needs nothing of Carbon, and slurm-graphite sends its own figures even while \
                 slurmctld is away: this rule and \"slurmctld does not answer\" exclude each other.",
        summary: "Graphite has had no point of slurm-graphite for ten minutes.",
        advice: "Is slurm-graphite running (systemctl status slurm-graphite)? Is its Carbon, is Graphite? What slurm-graphite could not \
                 send it keeps (queue.dir) and sends later.",
        target: "sumSeries(isNonNull(cluster.slurm_graphite.*.gauge-slurmctld_up))",
        window: 600,
        reducer: "sum",
        limit: Limit::Below(1.0),
        lasts: "1m",
        panel: ("collector", "slurmctld"),
        nothing: "Alerting",
    },
    Rule {
        name: "slurmctld",
        title: "slurmctld does not answer",
        severity: "critical",
        reason: "A restart of slurmctld takes less than three minutes on most clusters; where loading the state takes longer, say so in \"for\".",
        summary: "slurmctld has not answered slurm-graphite for three minutes.",
        advice: "scontrol ping; is slurmctld running, munged, the network between? slurm-graphite's log says what libslurm said.",
        target: "cluster.slurm_health.gauge-up",
        window: 600,
        reducer: "last",
        limit: Limit::Below(1.0),
        lasts: "3m",
        panel: ("scheduler", "slurmctld"),
        nothing: "OK",
    },
    Rule {
        name: "backfill",
        title: "Backfill does not run",
        severity: "warning",
        reason: "A cycle begins every bf_interval (30 s) while jobs wait and anything has changed, and lasts up to bf_max_time: ten minutes \
                 are twenty missed beginnings. Only while jobs are pending: an idle cluster runs no cycles. With a bf_interval or bf_max_time \
                 of minutes raise it to ten times the larger one.",
        summary: "Jobs are pending and no backfill cycle has begun for over ten minutes.",
        advice: "The Scheduler dashboard shows whether the last cycle ended; max_rpc_cnt with a high RPC load stops backfill, and so does a \
                 main scheduler that is always busy.",
        target: "multiplySeries(cluster.slurm_sched_interval.gauge-bf_last_cycle_age, \
                 isNonNull(removeBelowValue(cluster.slurm_sched_stats.gauge-jobs_pending, 1)))",
        window: 600,
        reducer: "last",
        limit: Limit::Above(600.0),
        lasts: "5m",
        panel: ("scheduler", "Last backfill cycle"),
        nothing: "OK",
    },
    Rule {
        name: "agents",
        title: "slurmctld's agent queue grows",
        severity: "warning",
        reason: "The start or end of a large job puts hundreds of messages there for seconds. Over 500 that still grow, by 10 a minute on \
                 average over a quarter of an hour, are not that.",
        summary: "Over 500 messages wait for nodes, and they become more.",
        advice: "Nodes or a switch do not answer: sinfo -R, the agent's lines in slurmctld's log, pending RPCs in sdiag.",
        target: "multiplySeries(cluster.slurm_health.gauge-agent_queue_per_minute, \
                 isNonNull(removeBelowValue(cluster.slurm_sched_stats.gauge-agent_queue_size, 500)))",
        window: 900,
        reducer: "mean",
        limit: Limit::Above(10.0),
        lasts: "5m",
        panel: ("scheduler", "Agent queue"),
        nothing: "OK",
    },
    Rule {
        name: "dbd",
        title: "slurmctld's queue for slurmdbd grows",
        severity: "warning",
        reason: "Empty within a second on a healthy cluster. Over 100 and growing, by 1 a minute on average over a quarter of an hour: slurmdbd \
                 is away. At MaxDBDMsgs (10,000 or more) slurmctld begins to throw accounting records away, hours later on most clusters.",
        summary: "Over 100 messages wait for slurmdbd, and they become more.",
        advice: "Is slurmdbd running, and its database? sacctmgr show cluster asks both. Nothing is lost until MaxDBDMsgs is reached.",
        target: "multiplySeries(cluster.slurm_health.gauge-dbd_agent_queue_per_minute, \
                 isNonNull(removeBelowValue(cluster.slurm_sched_stats.gauge-dbd_agent_queue_size, 100)))",
        window: 900,
        reducer: "mean",
        limit: Limit::Above(1.0),
        lasts: "5m",
        panel: ("scheduler", "DBD queue"),
        nothing: "OK",
    },
    Rule {
        name: "threads",
        title: "slurmctld runs out of threads",
        severity: "critical",
        reason: "Of max_server_threads (256). A burst fills them for seconds; an average of 0.9 over five minutes means that they are all taken \
                 again and again, and that commands hang.",
        summary: "Over 90 % of slurmctld's threads have been in use for five minutes.",
        advice: "The RPC load dashboard shows which type and which user. rl_enable (Slurm 23.02) limits users.",
        target: "cluster.slurm_health.gauge-threads_fraction",
        window: 300,
        reducer: "mean",
        limit: Limit::Above(0.9),
        lasts: "2m",
        panel: ("scheduler", "Threads in use"),
        nothing: "OK",
    },
    Rule {
        name: "lost",
        title: "slurm-graphite loses points",
        severity: "warning",
        reason: "Any. keepLastValue, because where points were lost there may be none to compare with. The queue holds half a day (queue.max_age, queue.max_bytes); what is counted here is gone, or was sent and nothing proves that it was read.",
        summary: "slurm-graphite has given up points in the last quarter of an hour.",
        advice: "The Collector dashboard says for which reason; the log of slurm-graphite says what happened. A Carbon that has been away for \
                 hours is the usual one.",
        target: "sumSeries(nonNegativeDerivative(keepLastValue(group(\
                 cluster.slurm_graphite.*.carbon.*.gauge-points_{dropped_full,dropped_age,dropped_damaged,unproved}, \
                 cluster.slurm_graphite.*.queue.gauge-points_dropped_removed))))",
        window: 900,
        reducer: "sum",
        limit: Limit::Above(0.0),
        lasts: "0s",
        panel: ("collector", "Points lost"),
        nothing: "OK",
    },
    Rule {
        name: "doubt",
        title: "A Carbon does not read",
        severity: "warning",
        reason: "in_doubt is 1 while nothing has shown for stall_timeout (30 s) that the receiver reads. Five minutes are longer than a full \
                 cache with flow control takes to drain. Where there is one Carbon, the figure arrives when it reads again.",
        summary: "A Carbon accepts connections and has read nothing for over five minutes.",
        advice: "Is carbon-cache stopped, deadlocked, or its cache full (USE_FLOW_CONTROL)? Nothing is lost before queue.max_age or \
                 queue.max_bytes is reached; a restart of Carbon is safe.",
        target: "maxSeries(cluster.slurm_graphite.*.carbon.*.gauge-in_doubt)",
        window: 300,
        reducer: "mean",
        limit: Limit::Above(0.9),
        lasts: "1m",
        panel: ("collector", "Carbons in doubt"),
        nothing: "OK",
    },
    Rule {
        name: "token",
        title: "slurmrestd's token ends",
        severity: "critical",
        reason: "Ten minutes before. A token that nobody renews ends in silence: afterwards slurmrestd refuses every request. Only where \
                 figures come over REST; the timer in docs/install.md renews it hours before.",
        summary: "The token with which slurm-graphite asks slurmrestd ends within ten minutes, or has ended.",
        advice: "Renew it: scontrol token username=NAME lifespan=SECONDS, into token_file. Does the timer that does so run (systemctl \
                 list-timers)? The daemon needs no restart.",
        target: "minSeries(cluster.slurm_graphite.*.gauge-token_expires_in)",
        window: 600,
        reducer: "last",
        limit: Limit::Below(600.0),
        lasts: "0s",
        panel: ("collector", "slurmctld"),
        nothing: "OK",
    },
    Rule {
        name: "backlog",
        title: "A Carbon is away",
        severity: "warning",
        reason: "A quarter of an hour is longer than a restart of Carbon, and far from queue.max_age (12 h), at which points begin to be lost. \
                 Only where there is more than one Carbon can the figure arrive while it is so; with one, \"No Slurm metrics arrive\" tells.",
        summary: "What slurm-graphite sends to one of its Carbons has been waiting for over a quarter of an hour.",
        advice: "The Collector dashboard shows which destination. Nothing is lost before queue.max_age or queue.max_bytes is reached.",
        target: "maxSeries(cluster.slurm_graphite.*.carbon.*.gauge-queue_age)",
        window: 600,
        reducer: "last",
        limit: Limit::Above(900.0),
        lasts: "5m",
        panel: ("collector", "Oldest tick that waits"),
        nothing: "OK",
    },
];

const HEAD: &str = "\
# Alert rules for Grafana 10 to 13. Written by `make dashboards`; do not edit here.
#
# Copy it to /etc/grafana/provisioning/alerting/ and set two things:
#   - the uid of the Graphite data source: every `datasourceUid: graphite`, and `uid: graphite` in the models
#   - the prefix, where it is not `cluster`: every `cluster.slurm_`
# Of several clusters each needs a file of its own (a cluster that has fallen silent would be missed by a wildcard), with a
# uid of its own for each rule; for a cluster named alpha, whose prefix is cluster.alpha:
#   sed -e 's/cluster[.]slurm_/cluster.alpha.slurm_/g' -e 's/uid: slurm-graphite-/uid: alpha-slurm-graphite-/' \\
#       -e 's/name: slurm-graphite/name: slurm-graphite alpha/' slurm-graphite.yaml
# `dashboardUid` keeps its uid: the dashboards serve all clusters.
apiVersion: 1
groups:
  - orgId: 1
    name: slurm-graphite
    folder: Slurm
    interval: 1m
    rules:
";

/// The file. `panel` tells the id of a dashboard's panel by its title.
pub(crate) fn file(panel: impl Fn(&str, &str) -> Option<u64>) -> Option<String> {
    let mut file = HEAD.to_owned();
    for rule in &RULES {
        let id = panel(rule.panel.0, rule.panel.1)?;
        rule.write(&mut file, id).ok()?;
    }
    Some(file)
}

impl Rule {
    fn write(&self, file: &mut String, panel: u64) -> std::fmt::Result {
        let Self { name, title, severity, summary, advice, nothing, lasts, window, .. } = self;
        writeln!(file)?;
        for line in wrapped(self.reason, 110) {
            writeln!(file, "      # {line}")?;
        }
        let first = [
            format!("- uid: slurm-graphite-{name}"),
            format!("  title: {}", json!(title)),
            "  condition: C".to_owned(),
            format!("  for: {lasts}"),
            format!("  noDataState: {nothing}"),
            format!("  execErrState: {nothing}"),
            format!("  dashboardUid: slurm-graphite-{}", self.panel.0),
            format!("  panelId: {panel}"),
            "  labels:".to_owned(),
            format!("    severity: {severity}"),
            "  annotations:".to_owned(),
            format!("    summary: {}", json!(summary)),
            format!("    description: {}", json!(advice)),
            "  data:".to_owned(),
        ];
        for line in first {
            writeln!(file, "      {line}")?;
        }
        let (kind, value) = match self.limit {
            Limit::Above(value) => ("gt", value),
            Limit::Below(value) => ("lt", value),
        };
        for (id, uid, model) in [
            (
                "A",
                "graphite",
                json!({ "target": self.target, "textEditor": true, "intervalMs": 1000, "maxDataPoints": 43200 }),
            ),
            (
                "B",
                "__expr__",
                json!({ "type": "reduce", "expression": "A", "reducer": self.reducer, "settings": { "mode": "dropNN" } }),
            ),
            (
                "C",
                "__expr__",
                json!({ "type": "threshold", "expression": "B", "conditions": [{ "evaluator": { "type": kind, "params": [value] } }] }),
            ),
        ] {
            for line in [
                format!("- refId: {id}"),
                format!("  relativeTimeRange: {{ from: {window}, to: 0 }}"),
                format!("  datasourceUid: {uid}"),
                "  model:".to_owned(),
                format!("    refId: {id}"),
                // Grafana's own expressions have a type of that name, Graphite's is the one that stands here as its uid.
                format!("    datasource: {{ type: {uid}, uid: {uid} }}"),
            ] {
                writeln!(file, "          {line}")?;
            }
            for (key, value) in model.as_object().into_iter().flatten() {
                // JSON is YAML.
                writeln!(file, "              {key}: {value}")?;
            }
        }
        Ok(())
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
