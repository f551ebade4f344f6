//! Rules about slurmctld and its schedulers, from its statistics only.

use super::{Rule, STATE, growth, mean_of, where_at_least, where_either};

/// Every tick has exactly one reading of slurmctld's statistics.
pub(super) fn rules() -> Vec<Rule> {
    let pending = "cluster.slurm_sched_stats.gauge-jobs_pending";
    let could_run = "movingMin(cluster.slurm_sched_stats.gauge-main_last_queue_length, '10min')";
    let changes = "movingSum(sumSeries(cluster.slurm_sched_interval.gauge-jobs_{submitted,\
                   started,completed,canceled}_per_minute), '10min')";
    let backfill = "cluster.slurm_sched_interval.gauge-bf_last_cycle_age";
    let between_cycles = "offset(scale(cluster.slurm_sched_stats.gauge-bf_active, -1), 1)";
    let not_launched =
        format!("movingSum({}, '15min')", growth("cluster.slurm_sched_stats.gauge-jobs_failed"));
    let dbd_queue = "cluster.slurm_sched_stats.gauge-dbd_agent_queue_size";
    vec![
        Rule {
            name: "no-data",
            title: "No Slurm metrics arrive",
            severity: "critical",
            reason: "Fires after ten minutes without a single point, or if Graphite has not \
                     answered for five. A restart of Graphite takes less. isNonNull turns a slot \
                     without a point into 0, so existing files that receive nothing count too. If \
                     there are no files, or Graphite does not answer, Grafana's states for no data \
                     and for errors are set to Alerting. slurm-graphite sends its own figures even \
                     while slurmctld is down, so this rule and \"slurmctld does not answer\" never \
                     fire together.",
            summary: "Graphite has received no points from slurm-graphite for ten minutes, or has \
                not answered for five.",
            advice: "Check whether slurm-graphite (systemctl status slurm-graphite), Carbon and \
            Graphite are running. slurm-graphite keeps what it cannot send (queue.dir) and sends \
            it later.",
            target: "sumSeries(isNonNull(cluster.slurm_graphite.*.gauge-slurmctld_up))".to_owned(),
            window: 300,
            reducer: "sum",
            limit: ("lt", 1.0),
            is_age: false,
            lasts: "5m",
            panel: ("collector", "slurmctld"),
            nothing: "Alerting",
        },
        Rule {
            name: "slurmctld",
            title: "slurmctld does not answer",
            severity: "critical",
            reason: "On most clusters slurmctld restarts in less than three minutes. If loading \
                the state takes longer, raise \"for\".",
            summary: "slurmctld has not answered slurm-graphite for three minutes (up is {{ \
                .Values.B }}).",
            advice: "Run scontrol ping. Check slurmctld, munged and the network between the hosts. \
            slurm-graphite's log has libslurm's messages.",
            target: "cluster.slurm_health.gauge-up".to_owned(),
            limit: ("lt", 1.0),
            lasts: "3m",
            panel: ("scheduler", "slurmctld"),
            ..STATE
        },
        Rule {
            name: "backfill",
            title: "Backfill does not run",
            reason: "A cycle begins every bf_interval (30 s) if something has changed and a job \
                     that could start is waiting, and it lasts up to bf_max_time. Ten minutes are \
                     twenty missed cycles. A held job, or one that waits for another job, needs no \
                     cycle, so the rule requires that the main scheduler's queue, which has only \
                     jobs that could start, was never empty in these ten minutes. It also requires \
                     that jobs were submitted, started or ended, because slurmctld runs no cycle \
                     while nothing changes, and that no cycle is running, which with a large \
                     bf_max_time may take long. If bf_interval is several minutes, raise the limit \
                     to ten times of it.",
            summary: "Jobs that could start are waiting, and the last backfill cycle began {{ \
                humanizeDuration .Values.B.Value }} ago.",
            advice: "The Scheduler dashboard shows whether the last cycle ended. Backfill stops if \
            the number of RPCs exceeds max_rpc_cnt, or if the main scheduler is always busy.",
            target: where_at_least(
                backfill,
                &[(could_run, 1.0), (changes, 0.01), (pending, 1.0), (between_cycles, 1.0)],
            ),
            limit: ("gt", 600.0),
            is_age: true,
            panel: ("scheduler", "Last backfill"),
            ..STATE
        },
        Rule {
            name: "main",
            title: "The main scheduler does not run",
            severity: "critical",
            reason: "It runs at least once a minute (sched_interval), so five minutes are five \
                     missed cycles. The rule applies only if jobs were pending all the time: the \
                     division leaves no point if there were none. If sched_interval is several \
                     minutes, replace each '5min' by five times of it. If it is -1, remove the \
                     rule: then a cycle begins only when a job is submitted or ends.",
            summary: "Jobs are pending, and the main scheduler has completed {{ .Values.B }} \
                cycles in five minutes.",
            advice: "Check SchedulerParameters (scontrol show config). Too many RPCs (max_rpc_cnt, \
            defer) or jobs that stay in COMPLETING stop the scheduler. The Scheduler dashboard \
            shows its cycles.",
            target: format!(
                "divideSeries(movingSum(cluster.slurm_sched_interval.gauge-main_cycles, '5min'), \
                 isNonNull(removeBelowValue(movingMin({pending}, '5min'), 1)))"
            ),
            limit: ("lt", 1.0),
            lasts: "2m",
            panel: ("scheduler", "Cycles per minute"),
            ..STATE
        },
        Rule {
            name: "main-slow",
            title: "The main scheduler is slow",
            reason: "Mean of 15 minutes. A cycle holds slurmctld's locks, so with cycles of a \
                     second, users have to wait for squeue and sbatch.",
            summary: "In the last 15 minutes, a cycle of the main scheduler took {{ \
                humanizeDuration .Values.B.Value }} on average.",
            advice: "Lower default_queue_depth or partition_job_depth, set max_sched_time, or give \
                     the main scheduler longer pauses (sched_min_interval).",
            target: "scale(cluster.slurm_sched_interval.gauge-main_mean_cycle, 0.000001)"
                .to_owned(),
            limit: ("gt", 1.0),
            panel: ("scheduler", "Main scheduler: cycle time"),
            ..mean_of(900)
        },
        Rule {
            name: "main-busy",
            title: "The main scheduler is always busy",
            reason: "Share of wall-clock time over 15 minutes. Above one half, little time is left \
                for RPCs and backfill.",
            summary: "The main scheduler was running for {{ humanizePercentage .Values.B.Value }} \
                of the last 15 minutes.",
            advice: "Check whether it runs too often (sched_min_interval, batch_sched_delay) or \
            too long (default_queue_depth, max_sched_time).",
            target: "cluster.slurm_sched_interval.gauge-main_busy_fraction".to_owned(),
            limit: ("gt", 0.5),
            panel: ("scheduler", "Busy fraction"),
            ..mean_of(900)
        },
        Rule {
            name: "background",
            title: "slurmctld's background work is held up",
            reason: "slurmctld counts its jobs every 30 s. If the counts have been older than a \
                     minute for ten minutes, time limits, purges and scheduling are delayed as \
                     well.",
            summary: "slurmctld's own job counts have been at least {{ humanizeDuration \
                .Values.B.Value }} old for ten minutes.",
            advice: "Find out what holds slurmctld's locks: check the cycle times and the RPC \
            load, then the disk that holds StateSaveLocation.",
            target: "cluster.slurm_sched_interval.gauge-job_states_age".to_owned(),
            reducer: "min",
            limit: ("gt", 60.0),
            lasts: "2m",
            panel: ("scheduler", "Age of the job counts"),
            ..STATE
        },
        Rule {
            name: "launch",
            title: "Jobs are not launched",
            reason: "Jobs that slurmd could not start, which sdiag counts as failed: a twentieth \
                     of all that were started in 15 minutes, and at least six. A single job with a \
                     bad working directory is harmless, and where 100,000 jobs run a day, so are \
                     some dozens. A broken node takes one job after the other.",
            summary: "In the last 15 minutes, slurmd could not start {{ humanizePercentage \
                .Values.B.Value }} of the jobs.",
            advice: "Find the node with sinfo -R and slurmctld's log, and drain it. The usual \
            causes are a full disk, a missing mount and a failing prolog.",
            target: where_at_least(
                &format!(
                    "divideSeries({not_launched}, movingSum({}, '15min'))",
                    growth("cluster.slurm_sched_stats.gauge-jobs_{started,failed}")
                ),
                &[(&not_launched, 6.0)],
            ),
            limit: ("gt", 0.05),
            lasts: "0s",
            panel: ("overview", "Jobs not launched"),
            ..STATE
        },
        Rule {
            name: "agents",
            title: "Messages for nodes pile up",
            reason: "When a large job starts or ends, hundreds of messages are queued for a few \
                     seconds. More than 500 for ten minutes without a break has another cause, \
                     whether the queue grows or not.",
            summary: "For ten minutes, at least {{ .Values.B }} messages to nodes have been \
                waiting.",
            advice: "Nodes or a switch do not answer. Check sinfo -R, the agent's messages in \
            slurmctld's log, and the pending RPCs in sdiag.",
            target: "cluster.slurm_sched_stats.gauge-agent_queue_size".to_owned(),
            reducer: "min",
            limit: ("gt", 500.0),
            panel: ("scheduler", "Agent queue"),
            ..STATE
        },
        Rule {
            name: "dbd",
            title: "Messages for slurmdbd pile up",
            reason: "On a healthy cluster this queue empties within a second. If there are more \
                     than 100 messages for ten minutes, slurmdbd is down. The rule keeps firing \
                     when the queue stops growing: at MaxDBDMsgs (10,000 or more) the queue is \
                     full, and slurmctld discards accounting records.",
            summary: "For ten minutes, at least {{ .Values.B }} messages to slurmdbd have been \
                waiting.",
            advice: "Check whether slurmdbd and its database are running; sacctmgr show cluster \
            needs both. Nothing is lost until MaxDBDMsgs is reached.",
            target: "cluster.slurm_sched_stats.gauge-dbd_agent_queue_size".to_owned(),
            reducer: "min",
            limit: ("gt", 100.0),
            panel: ("scheduler", "DBD queue"),
            ..STATE
        },
        Rule {
            name: "dbd-full",
            title: "Accounting records will be lost",
            severity: "critical",
            reason: "The same queue, when it is urgent: more than 5,000 messages for ten minutes, \
                     which is half of the smallest MaxDBDMsgs (10,000), or more than 100 for an \
                     hour, which is longer than a backup or a purge of the database should hold it.",
            summary: "{{ .Values.B }} messages to slurmdbd are waiting. At MaxDBDMsgs, slurmctld \
                discards accounting records.",
            advice: "Start slurmdbd and its database now; sacctmgr show cluster needs both. \
            slurmctld's log says when it begins to discard records.",
            target: where_either(
                dbd_queue,
                &[
                    &[(&format!("movingMin({dbd_queue}, '10min')"), 5000.0)],
                    &[(&format!("movingMin({dbd_queue}, '1hour')"), 100.0)],
                ],
            ),
            lasts: "2m",
            panel: ("scheduler", "DBD queue"),
            ..STATE
        },
        Rule {
            name: "threads",
            title: "slurmctld runs out of threads",
            severity: "critical",
            reason: "Share of max_server_threads (256), up to Slurm 24.05. Later releases have \
                     neither the limit nor the figure; the next rule covers them. A burst uses all \
                     threads for a few seconds. An average of 0.9 over five minutes means that \
                     they are in use nearly all the time, and that commands hang.",
            summary: "{{ humanizePercentage .Values.B.Value }} of slurmctld's threads have been in \
                use for five minutes.",
            advice: "The RPC load dashboard shows the type and the user. From Slurm 23.02 on, \
                rl_enable limits the RPCs of each user.",
            target: "cluster.slurm_health.gauge-threads_fraction".to_owned(),
            limit: ("gt", 0.9),
            lasts: "2m",
            panel: ("scheduler", "RPC threads"),
            ..mean_of(300)
        },
        Rule {
            name: "rpc-time",
            title: "slurmctld answers slowly",
            severity: "critical",
            reason: "Mean time of all RPCs over five minutes, including the time that they waited \
                     for locks. This works on every release, also those without a thread limit \
                     (24.11 and later). A few milliseconds is normal. At one second, commands hang.",
            summary: "In the last five minutes, an RPC took slurmctld {{ humanizeDuration \
                .Values.B.Value }} on average.",
            advice: "The RPC load dashboard shows the type and the user. The Scheduler dashboard \
                shows whether cycles hold the locks.",
            target: "scale(cluster.slurm_rpc_stats.total.gauge-interval_mean_time, 0.000001)"
                .to_owned(),
            limit: ("gt", 1.0),
            lasts: "2m",
            panel: ("scheduler", "Mean RPC time"),
            ..mean_of(300)
        },
        Rule {
            name: "rpc-tables",
            title: "slurmctld's table of RPC types is full",
            reason: "The table holds 100 types. Further ones are not counted anywhere, not even in \
                     sdiag. No cluster uses that many in ordinary work. The table of users has 200 \
                     rows and is always full at a large site, so no rule watches it.",
            summary: "slurmctld's table of RPC types has {{ .Values.B }} of 100 rows.",
            advice: "Run sdiag --reset once, which empties it. The figures per interval then have \
            one gap, and those since the start begin again at zero.",
            target: "cluster.slurm_rpc_stats.total.gauge-types".to_owned(),
            limit: ("gt", 99.5),
            lasts: "10m",
            panel: ("rpc", "Tables"),
            ..STATE
        },
    ]
}
