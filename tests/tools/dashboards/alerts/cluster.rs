//! Rules about nodes, jobs and accounts. Each needs a collector that is off by default, and is silent without it.

use super::{Limit, Rule, where_at_least};
use crate::{overview, usage};

/// The panels' targets, for the cluster in the file.
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
            reason: "A share, because a large cluster always has a few broken nodes. Drained nodes do not count, because somebody \
                     drained them on purpose. Requires the nodes collector.",
            summary: "{{ humanizePercentage .Values.B.Value }} of the nodes are down.",
            advice: "Check with sinfo -R and sinfo -N -t down whether the nodes share a rack, a switch or a file system. Then read \
            slurmd's log on one of them.",
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
            reason: "Covers the primary and the backups. Without this rule, a backup that is down is noticed only when it is needed. \
                     Requires the controllers collector.",
            summary: "One of the hosts in SlurmctldHost has not answered for five minutes (up is {{ .Values.B }}).",
            advice: "scontrol ping names the host. Check whether slurmctld runs there and can read StateSaveLocation.",
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
            reason: "More than half of the jobs that ended in the last hour, if at least 20 ended. Mistakes in users' scripts rarely \
                     reach this share; the cause is more often a node, a file system or a licence. Requires the finished collector.",
            summary: "{{ humanizePercentage .Values.B.Value }} of the jobs that ended in the last hour have failed.",
            advice: "The Jobs dashboard shows the partition. sacct -a -X -s F,NF,OOM -S now-1hour -o user,nodelist,exitcode shows the \
            users and the nodes.",
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
            reason: "For an hour, jobs of an account have been waiting while it runs all the jobs that it may run (GrpJobs), or uses \
                     nine tenths of the CPUs, nodes or GPUs that it may use (GrpTRES). If your limits are meant to be reached, remove \
                     this rule. Requires the associations collector.",
            summary: "{{ .Values.B }} jobs are waiting in an account that has reached its limit.",
            advice: "The Usage dashboard shows the account and the limit. Inform its users, or raise the limit with sacctmgr.",
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
            reason: "slurmdbd rolls up each hour within minutes after its end. If it is two hours late, slurmdbd or its database hangs, \
                     or the roll-up keeps failing. Requires the slurmdbd collector.",
            summary: "The last hour that slurmdbd has rolled up ended {{ humanizeDuration .Values.B.Value }} ago.",
            advice: "slurmdbd's log has the error. sreport shows no newer usage. Fairshare and limits do not depend on roll-ups.",
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
