//! Rules about slurmctld and its schedulers, from its statistics alone.

use super::{Limit, Rule, where_at_least};

/// Of slurmctld's statistics there is always one reading a tick.
pub(super) fn rules() -> Vec<Rule> {
    [alive(), scheduling(), load()].into_iter().flatten().collect()
}

fn alive() -> Vec<Rule> {
    vec![
        Rule {
            name: "no-data",
            title: "No Slurm metrics arrive",
            severity: "critical",
            reason: "Ten minutes without a single point, or no answer from Graphite at all. isNonNull makes 0 of a slot without a point, so that \
                     files which are there and get nothing count too; where there are no files, or Graphite does not answer, Grafana's states \
                     for no data and for errors are Alerting. So it needs nothing of Carbon, and slurm-graphite sends its own figures even \
                     while slurmctld is away: this rule and \"slurmctld does not answer\" exclude each other.",
            summary: "Graphite has had no point of slurm-graphite for ten minutes.",
            advice: "Is slurm-graphite running (systemctl status slurm-graphite)? Is its Carbon, is Graphite? What slurm-graphite could not \
                     send it keeps (queue.dir) and sends later.",
            target: "sumSeries(isNonNull(cluster.slurm_graphite.*.gauge-slurmctld_up))".to_owned(),
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
            summary: "slurmctld has not answered slurm-graphite for three minutes (up is {{ .Values.B }}).",
            advice: "scontrol ping; is slurmctld running, munged, the network between? slurm-graphite's log says what libslurm said.",
            target: "cluster.slurm_health.gauge-up".to_owned(),
            window: 600,
            reducer: "last",
            limit: Limit::Below(1.0),
            lasts: "3m",
            panel: ("scheduler", "slurmctld"),
            nothing: "OK",
        },
    ]
}

fn scheduling() -> Vec<Rule> {
    let pending = "cluster.slurm_sched_stats.gauge-jobs_pending";
    let could_run = "movingMin(cluster.slurm_sched_stats.gauge-main_last_queue_length, '10min')";
    let changes = "movingSum(sumSeries(\
                   cluster.slurm_sched_interval.gauge-jobs_{submitted,started,completed,canceled}_per_minute), '10min')";
    let backfill = "cluster.slurm_sched_interval.gauge-bf_last_cycle_age";
    vec![
        Rule {
            name: "backfill",
            title: "Backfill does not run",
            severity: "warning",
            reason: "A cycle begins every bf_interval (30 s) while a job that could run waits and anything has changed, and lasts up to \
                     bf_max_time: ten minutes are twenty missed beginnings. A held job, or one that waits for another, needs no cycle: the main \
                     scheduler's queue, which has only jobs that could run, must not have been empty once in ten minutes. And jobs must have come, \
                     started or ended in that time: slurmctld runs no cycle while nothing changes. With a bf_interval or bf_max_time of minutes \
                     raise it to ten times the larger one.",
            summary: "Jobs that could run wait, and the last backfill cycle began {{ humanizeDuration .Values.B.Value }} ago.",
            advice: "The Scheduler dashboard shows whether the last cycle ended; max_rpc_cnt with a high RPC load stops backfill, and so does a \
                     main scheduler that is always busy.",
            target: where_at_least(backfill, &[(could_run, 1.0), (changes, 0.01), (pending, 1.0)]),
            window: 600,
            reducer: "last",
            limit: Limit::Above(600.0),
            lasts: "5m",
            panel: ("scheduler", "Time since last backfill"),
            nothing: "OK",
        },
        Rule {
            name: "main",
            title: "The main scheduler does not run",
            severity: "critical",
            reason: "It runs once a minute at least (sched_interval), whatever happens. Only while jobs are pending: the division leaves no point \
                     where none are. With a sched_interval of minutes raise \"for\".",
            summary: "Jobs are pending, and the main scheduler has ended {{ .Values.B }} cycles in ten minutes.",
            advice: "scontrol show config | grep -i sched; too many RPCs (max_rpc_cnt, defer) or jobs that never stop completing hold it up. The \
                     Scheduler dashboard shows its cycles.",
            target: format!(
                "divideSeries(cluster.slurm_sched_interval.gauge-main_cycles, isNonNull(removeBelowValue({pending}, 1)))"
            ),
            window: 600,
            reducer: "max",
            limit: Limit::Below(1.0),
            lasts: "5m",
            panel: ("scheduler", "Cycles per minute"),
            nothing: "OK",
        },
        Rule {
            name: "main-slow",
            title: "The main scheduler is slow",
            severity: "warning",
            reason: "The mean of a quarter of an hour. A cycle holds slurmctld's locks: for a second each, users wait for squeue and sbatch.",
            summary: "A cycle of the main scheduler has taken {{ humanizeDuration .Values.B.Value }} on average for a quarter of an hour.",
            advice: "Lower default_queue_depth or partition_job_depth, set max_sched_time, or give the main scheduler longer pauses \
                     (sched_min_interval).",
            target: "scale(cluster.slurm_sched_interval.gauge-main_mean_cycle, 0.000001)".to_owned(),
            window: 900,
            reducer: "mean",
            limit: Limit::Above(1.0),
            lasts: "5m",
            panel: ("scheduler", "Main scheduler: cycle time"),
            nothing: "OK",
        },
        Rule {
            name: "main-busy",
            title: "The main scheduler is always busy",
            severity: "warning",
            reason: "Of the wall-clock time of a quarter of an hour. Above a half little is left for RPCs and backfill.",
            summary: "The main scheduler has worked {{ humanizePercentage .Values.B.Value }} of the last quarter of an hour.",
            advice: "Does it run too often (sched_min_interval, batch_sched_delay), or too long (default_queue_depth, max_sched_time)?",
            target: "cluster.slurm_sched_interval.gauge-main_busy_fraction".to_owned(),
            window: 900,
            reducer: "mean",
            limit: Limit::Above(0.5),
            lasts: "5m",
            panel: ("scheduler", "Busy fraction"),
            nothing: "OK",
        },
        Rule {
            name: "background",
            title: "slurmctld's background work is held up",
            severity: "warning",
            reason: "slurmctld counts its jobs every 30 s. Counts that were older than a minute for ten minutes: time limits, purges and \
                     scheduling wait too.",
            summary: "slurmctld's own job counts are {{ humanizeDuration .Values.B.Value }} old or older.",
            advice: "What holds slurmctld's locks? Look at the cycle times and at the RPC load; then at the disk under StateSaveLocation.",
            target: "cluster.slurm_sched_interval.gauge-job_states_age".to_owned(),
            window: 600,
            reducer: "min",
            limit: Limit::Above(60.0),
            lasts: "2m",
            panel: ("scheduler", "Age of the job counts"),
            nothing: "OK",
        },
        Rule {
            name: "launch",
            title: "Jobs are not launched",
            severity: "warning",
            reason: "What sdiag counts as failed: slurmd could not run the job. One job with a bad working directory is nothing; one every two \
                     minutes is a node or a file system.",
            summary: "slurmd could not run {{ .Values.B }} jobs a minute, on average of ten minutes.",
            advice: "sinfo -R, and slurmctld's log: which node? Drain it. A full disk, a missing mount or a prolog that fails are the usual causes.",
            target: "cluster.slurm_sched_interval.gauge-jobs_failed_per_minute".to_owned(),
            window: 600,
            reducer: "mean",
            limit: Limit::Above(0.5),
            lasts: "0s",
            panel: ("overview", "Jobs not launched"),
            nothing: "OK",
        },
    ]
}

fn load() -> Vec<Rule> {
    vec![
        Rule {
            name: "agents",
            title: "Messages for nodes pile up",
            severity: "warning",
            reason: "The start or end of a large job puts hundreds of messages there for seconds. Over 500 at every moment of ten minutes, growing \
                     or not, are not that.",
            summary: "At least {{ .Values.B }} messages have waited for nodes, at every moment of ten minutes.",
            advice: "Nodes or a switch do not answer: sinfo -R, the agent's lines in slurmctld's log, pending RPCs in sdiag.",
            target: "cluster.slurm_sched_stats.gauge-agent_queue_size".to_owned(),
            window: 600,
            reducer: "min",
            limit: Limit::Above(500.0),
            lasts: "5m",
            panel: ("scheduler", "Agent queue"),
            nothing: "OK",
        },
        Rule {
            name: "dbd",
            title: "Messages for slurmdbd pile up",
            severity: "warning",
            reason: "Empty within a second on a healthy cluster. Over 100 at every moment of ten minutes: slurmdbd is away. It stays so when the queue \
                     no longer grows: at MaxDBDMsgs (10,000 or more) it is full, and slurmctld throws accounting records away.",
            summary: "At least {{ .Values.B }} messages have waited for slurmdbd, at every moment of ten minutes.",
            advice: "Is slurmdbd running, and its database? sacctmgr show cluster asks both. Nothing is lost until MaxDBDMsgs is reached.",
            target: "cluster.slurm_sched_stats.gauge-dbd_agent_queue_size".to_owned(),
            window: 600,
            reducer: "min",
            limit: Limit::Above(100.0),
            lasts: "5m",
            panel: ("scheduler", "DBD queue"),
            nothing: "OK",
        },
        Rule {
            name: "threads",
            title: "slurmctld runs out of threads",
            severity: "critical",
            reason: "Of max_server_threads (256), up to Slurm 24.05; later releases have no such limit and no such figure, there the next rule \
                     tells. A burst fills them for seconds; an average of 0.9 over five minutes means that they are all taken again and again, and \
                     that commands hang.",
            summary: "{{ humanizePercentage .Values.B.Value }} of slurmctld's threads have been in use for five minutes.",
            advice: "The RPC load dashboard shows which type and which user. rl_enable (Slurm 23.02) limits users.",
            target: "cluster.slurm_health.gauge-threads_fraction".to_owned(),
            window: 300,
            reducer: "mean",
            limit: Limit::Above(0.9),
            lasts: "2m",
            panel: ("scheduler", "RPC threads"),
            nothing: "OK",
        },
        Rule {
            name: "rpc-time",
            title: "slurmctld answers slowly",
            severity: "critical",
            reason: "The mean time of all RPCs of five minutes, with what they waited for locks. On every release, also where threads have no limit \
                     (24.11 and later). Milliseconds are usual; at a second commands hang.",
            summary: "An RPC has taken slurmctld {{ humanizeDuration .Values.B.Value }} on average for five minutes.",
            advice: "The RPC load dashboard shows which type and which user; the Scheduler dashboard whether cycles hold the locks.",
            target: "scale(cluster.slurm_rpc_stats.total.gauge-interval_mean_time, 0.000001)".to_owned(),
            window: 300,
            reducer: "mean",
            limit: Limit::Above(1.0),
            lasts: "2m",
            panel: ("scheduler", "RPC time"),
            nothing: "OK",
        },
        Rule {
            name: "rpc-tables",
            title: "A table of slurmctld's RPCs is full",
            severity: "warning",
            reason: "100 types and 200 users: what comes then is counted nowhere, in sdiag neither.",
            summary: "slurmctld's table of RPC types or users is {{ humanizePercentage .Values.B.Value }} full.",
            advice: "sdiag --reset empties both, once; the figures of the interval have one gap. Figures since the start begin again.",
            target: "maxSeries(group(scale(cluster.slurm_rpc_stats.total.gauge-types, 0.01), \
                     scale(cluster.slurm_rpc_stats.total.gauge-users, 0.005)))"
                .to_owned(),
            window: 600,
            reducer: "last",
            limit: Limit::Above(0.995),
            lasts: "10m",
            panel: ("rpc", "Tables"),
            nothing: "OK",
        },
    ]
}
