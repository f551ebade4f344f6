//! Rules about nodes, jobs and accounts. Each needs a collector that is off by default, and is
//! silent without it.

use super::{Rule, STATE, where_at_least, where_either};
use crate::overview::{self, DOWN, DRAINED};

/// The panels' targets, for the cluster in the file.
fn of_cluster(target: &str) -> String {
    target.replace("$prefix", "cluster")
}

/// By how much a number of nodes grew within 15 minutes, at any time of the last hour. The first
/// number ever is no growth.
fn lately(nodes: &str) -> String {
    format!(
        "movingMax(diffSeries({nodes}, minSeries(group({nodes}, movingMin({nodes}, '15min')))), \
            '1hour')"
    )
}

/// Nodes that went down or failed within 15 minutes.
const FAILED: &str =
    "movingSum(sumSeries(cluster.slurm_nodes.events.class.{down,fail}.gauge-reached), '15min')";

pub(super) fn rules() -> Vec<Rule> {
    let [down, drained] = [DOWN, DRAINED].map(|states| of_cluster(&overview::number_in(states)));
    let share_down = of_cluster(&overview::nodes_in(DOWN));
    let records = "cluster.slurm_jobs.total.gauge-records";
    let ended = "movingSum(cluster.slurm_jobs_finished.total.work.gauge-jobs, '1hour')";
    vec![
        Rule {
            name: "nodes",
            title: "Nodes are down",
            reason: "More than a twentieth of the nodes, and at least two, or 20 that went down \
                     within 15 minutes and stay down: a rack of a large cluster is a small share. \
                     A large cluster always has a few broken nodes. Requires the nodes collector.",
            summary: "{{ .Values.B }} nodes are down.",
            advice: "Check with sinfo -R and sinfo -N -t down whether the nodes share a rack, a \
            switch or a file system. Then read slurmd's log on one of them.",
            target: where_either(
                &down,
                &[&[(&share_down, 0.05), (&down, 2.0)], &[(&lately(&down), 20.0), (&down, 20.0)]],
            ),
            panel: ("overview", "Nodes out"),
            ..STATE
        },
        Rule {
            name: "outages",
            title: "Many nodes failed, or fail and return",
            reason: "Within 15 minutes a twentieth of the nodes, and at least ten, went down or \
                     failed, also those that are back: a switch that flaps, or a service that ends \
                     slurmd, is over before \"Nodes are down\" fires. Nodes that were only \
                     drained, rebooted by scontrol reboot or powered down do not count. Requires \
                     the nodes collector with events.",
            summary: "{{ .Values.B }} nodes went down within 15 minutes.",
            advice: "slurmctld's log names them; look for what they share: a switch, a rack, a \
            job, an update. On one of them, journalctl -u slurmd.",
            target: where_at_least(
                FAILED,
                &[
                    (FAILED, 10.0),
                    (
                        // FAILED has a value in the current slot before its points have come, so
                        // the total needs one too.
                        &format!(
                            "divideSeries({FAILED}, \
                                movingMax(sumSeries(cluster.slurm_nodes.total.gauge-nodes_total), \
                                '15min'))"
                        ),
                        0.05,
                    ),
                ],
            ),
            lasts: "1m",
            panel: ("cluster", "Nodes that left service"),
            ..STATE
        },
        Rule {
            name: "drained",
            title: "Many nodes were drained",
            reason: "Within 15 minutes a tenth of the nodes was drained, and at least three, and \
                     some still are. This is what a health check does when a file system hangs: \
                     schedulers and RPCs look well, and no job starts. Growth counts, not the \
                     number: nodes that were drained one after the other for maintenance do not. \
                     Silence it before you drain more at once. It fires for an hour at most. \
                     Requires the nodes collector.",
            summary: "{{ .Values.B }} nodes are drained, many of them since less than an hour.",
            advice: "sinfo -R shows who drained them, and why. If it was the health check, find \
            the file system or the service that it tests, then resume the nodes.",
            target: where_at_least(
                &drained,
                &[
                    (
                        &format!(
                            "divideSeries({}, \
                                sumSeries(cluster.slurm_nodes.total.gauge-nodes_total))",
                            lately(&drained)
                        ),
                        0.1,
                    ),
                    (&lately(&drained), 3.0),
                ],
            ),
            lasts: "2m",
            panel: ("overview", "Nodes out"),
            ..STATE
        },
        Rule {
            name: "controller",
            title: "A controller is down",
            severity: "critical",
            reason: "Covers the primary and the backups. Without this rule, a backup that is down \
                     is noticed only when it is needed. Requires the controllers collector.",
            summary: "One of the hosts in SlurmctldHost has not answered for five minutes (up is \
                {{ .Values.B }}).",
            advice: "scontrol ping names the host. Check whether slurmctld runs there and can read \
                StateSaveLocation.",
            target: "minSeries(cluster.slurm_controllers.*.gauge-up)".to_owned(),
            limit: ("lt", 1.0),
            panel: ("scheduler", "Controllers"),
            ..STATE
        },
        Rule {
            name: "failing",
            title: "Many jobs fail",
            reason: "More than half of the jobs that ended in the last hour, if at least 20 ended. \
                     Mistakes in users' scripts rarely reach this share; the cause is more often a \
                     node, a file system or a licence. Requires the finished collector.",
            summary: "{{ humanizePercentage .Values.B.Value }} of the jobs that ended in the last \
                hour have failed.",
            advice: "The Jobs dashboard shows the partition. sacct -a -X -s F,NF,OOM -S now-1hour \
            -o user,nodelist,exitcode shows the users and the nodes.",
            target: where_at_least(&of_cluster(overview::FAILING), &[(ended, 20.0)]),
            limit: ("gt", 0.5),
            lasts: "10m",
            panel: ("jobs", "Share of jobs that failed"),
            ..STATE
        },
        Rule {
            name: "job-count",
            title: "slurmctld has nearly MaxJobCount jobs",
            reason: "Nine tenths of 10,000, which is MaxJobCount unless slurm.conf sets it. If \
                     there were more than 10,000 within three hours, yours is larger, and the rule \
                     is silent until you replace 9000 and 10000 by nine tenths of it and by it. An \
                     array's waiting tasks are one record. Requires the jobs collector.",
            summary: "slurmctld holds {{ .Values.B }} job records. At MaxJobCount, sbatch is \
                refused for everybody.",
            advice: "squeue shows who has so many jobs. Ask for job arrays, set MaxSubmitJobs for \
            the association or the QOS, or raise MaxJobCount in slurm.conf (a restart of \
            slurmctld).",
            target: where_at_least(
                records,
                &[
                    (&format!("removeAboveValue(movingMax({records}, '3hours'), 10000)"), 9000.0),
                    (records, 9000.0),
                ],
            ),
            panel: ("jobs", "Job records"),
            ..STATE
        },
        Rule {
            name: "rollup",
            title: "slurmdbd does not roll up",
            reason: "slurmdbd rolls up each hour within minutes after its end. If it is two hours \
                     late, slurmdbd or its database hangs, or the roll-up keeps failing. Requires \
                     the slurmdbd collector.",
            summary: "The last hour that slurmdbd has rolled up ended {{ humanizeDuration \
                .Values.B.Value }} ago.",
            advice: "slurmdbd's log has the error. sreport shows no newer usage. Fairshare and \
                limits do not depend on roll-ups.",
            target: "cluster.slurm_slurmdbd.rollup.hour.gauge-age".to_owned(),
            limit: ("gt", 7200.0),
            panel: ("rpc", "Age of the roll-ups"),
            ..STATE
        },
    ]
}
