//! Rules about nodes, jobs and accounts. Each needs a collector that is off by default, and is silent without it.

use super::{Limit, Rule, where_at_least};
use crate::{overview, usage};

/// The panels' targets, for the cluster of the file.
fn of_cluster(target: &str) -> String {
    target.replace("$prefix", "cluster")
}

pub(super) fn rules() -> Vec<Rule> {
    let ended = "movingSum(cluster.slurm_jobs_finished.total.work.gauge-jobs, '1hour')";
    vec![
        Rule {
            name: "nodes",
            title: "Nodes are down",
            severity: "warning",
            reason: "A share, because a large cluster always has some broken node. Drained nodes are somebody's wish and do not count. Needs the \
                     collector nodes.",
            summary: "{{ humanizePercentage .Values.B.Value }} of the nodes are down.",
            advice: "sinfo -R and sinfo -N -t down: one rack, one switch, one file system? Then slurmd's log on one of them.",
            target: of_cluster(&overview::nodes_in(overview::DOWN)),
            window: 600,
            reducer: "last",
            limit: Limit::Above(0.05),
            lasts: "5m",
            panel: ("overview", "Nodes out"),
            nothing: "OK",
        },
        Rule {
            name: "controller",
            title: "A controller is down",
            severity: "critical",
            reason: "Primary or backup. A backup that is down is noticed when it is needed, or here. Needs the collector controllers.",
            summary: "One of the hosts in SlurmctldHost has not answered for five minutes (up is {{ .Values.B }}).",
            advice: "scontrol ping names it. Is slurmctld running there, and can it read StateSaveLocation?",
            target: "minSeries(cluster.slurm_controllers.*.gauge-up)".to_owned(),
            window: 600,
            reducer: "last",
            limit: Limit::Below(1.0),
            lasts: "5m",
            panel: ("scheduler", "Controllers"),
            nothing: "OK",
        },
        Rule {
            name: "failing",
            title: "Many jobs fail",
            severity: "warning",
            reason: "Half of the jobs that ended in an hour, and at least 20 of them. Users' own mistakes come one script at a time; this is often a \
                     node, a file system or a licence. Needs the collector finished.",
            summary: "{{ humanizePercentage .Values.B.Value }} of the jobs that ended in the last hour have failed.",
            advice: "The Jobs dashboard shows which partition; sacct -s F,NF,OOM -S now-1hour -o user,nodelist,exitcode who and where.",
            target: where_at_least(&of_cluster(overview::FAILING), &[(ended, 20.0)]),
            window: 600,
            reducer: "last",
            limit: Limit::Above(0.5),
            lasts: "10m",
            panel: ("jobs", "Share of jobs that failed"),
            nothing: "OK",
        },
        Rule {
            name: "limit",
            title: "Jobs wait at an account's limit",
            severity: "warning",
            reason: "An account of which as many jobs run as may (GrpJobs), or which has nine tenths of the CPUs, nodes or GPUs that it may have \
                     (GrpTRES), while others of its jobs wait, for an hour. Where limits are there to be reached, remove this rule. Needs the \
                     collector associations.",
            summary: "{{ .Values.B }} jobs wait in an account that is at its limit.",
            advice: "The Usage dashboard shows which account and which limit. Tell its users, or raise the limit with sacctmgr.",
            target: usage::waiting_at_limit("cluster", "account"),
            window: 600,
            reducer: "last",
            limit: Limit::Above(0.0),
            lasts: "1h",
            panel: ("usage", "Jobs waiting at an account's limit"),
            nothing: "OK",
        },
        Rule {
            name: "rollup",
            title: "slurmdbd does not roll up",
            severity: "warning",
            reason: "slurmdbd adds up each hour once it is over, within minutes. Two hours late is a slurmdbd or a database that hangs, or a roll-up that \
                     fails again and again. Needs the collector slurmdbd.",
            summary: "The last hour that slurmdbd has added up ended {{ humanizeDuration .Values.B.Value }} ago.",
            advice: "slurmdbd's log has the error. sreport shows nothing newer; fairshare and limits do not depend on it.",
            target: "cluster.slurm_slurmdbd.rollup.hour.gauge-age".to_owned(),
            window: 600,
            reducer: "last",
            limit: Limit::Above(7200.0),
            lasts: "5m",
            panel: ("rpc", "Age of the roll-ups"),
            nothing: "OK",
        },
    ]
}
