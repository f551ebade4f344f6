//! *Cluster*: what are the nodes doing, how much of the cluster is in use, and which partition is
//! full?

use crate::colours::NODES;
use crate::grafana::{Dashboard, Row, closed, query_variable, row};
use crate::needs;
use crate::overview::{DOWN, DRAINED, age_of_data, nodes_by_name, nodes_out, pending_and_running};
use crate::panel::{Panel, series, stat, table};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "cluster",
        title: "Cluster",
        description: "What are the nodes doing, how much of the machine is in use, and which \
            partition is full?",
        variables: vec![query_variable("partition", "Partition", "$prefix.slurm_partitions.*")],
        rows: vec![
            load(),
            nodes(),
            use_of(),
            failures(),
            reserved(),
            reservations(),
            licenses(),
            gpus(),
            features(),
            partitions(),
        ],
    }
}

fn load() -> Row {
    row("Jobs and messages").with([
        pending_and_running(),
        series(
            "Messages to nodes",
            "Messages that are waiting for an agent, and agents that are running. Both numbers \
             rise when nodes do not answer, for example because of a switch, a file system or a \
             mass reboot.",
        )
        .line("waiting", "red", "$prefix.slurm_sched_stats.gauge-agent_queue_size")
        .line("agents", "blue", "$prefix.slurm_sched_stats.gauge-agent_count")
        .whole(),
    ])
}

fn nodes() -> Row {
    // As a share, because a large cluster always has some broken nodes.
    let out = |title: &str, description: &str, leaf: &str, yellow: f64, red: f64| {
        let number = |kind: &str| format!("$prefix.slurm_nodes.{kind}.gauge-{leaf}");
        let share = |kind: &str| {
            format!(
                "divideSeries({}, sumSeries($prefix.slurm_nodes.total.gauge-nodes_total))",
                number(kind)
            )
        };
        stat(title, description)
            .number("down", &number("down"))
            .curve("down %", &share("down"))
            .number("drained", &number("drained"))
            .curve("drained %", &share("drained"))
            .unit("percentunit")
            .decimals(1)
            .sized(5, 4)
            .worry(yellow, red)
            .explained_by("Nodes are down")
    };
    // What is broken is on top of the stack.
    let state = |states: &str| format!("$prefix.slurm_nodes.state.{states}.gauge-nodes");
    let last = ["idle", DRAINED, DOWN];
    let by_state = format!(
        "group(exclude({}, 'state[.]({})[.]'), {})",
        state("*"),
        last.join(",").replace(',', "|"),
        last.map(|states| state(&format!("{{{states}}}"))).join(", "),
    );
    // 0 instead of nothing, because the flag has no path before a node ever had it.
    let not_responding = "sumSeries(group($prefix.slurm_nodes.flag.not_responding.gauge-nodes, \
        scale($prefix.slurm_nodes.total.gauge-nodes_total, 0)))";
    closed("Nodes (collectors.nodes)").surveys(needs::NODES).with([
        age_of_data(),
        nodes_out().sized(5, 4),
        out(
            "Out for an hour",
            "Nodes that have been down or drained for more than an hour: their number, and their \
                share of all nodes.",
            "over_1h",
            0.02,
            0.1,
        ),
        out(
            "Out for a day",
            "Nodes that have been down or drained for more than a day.",
            "over_1d",
            0.02,
            0.05,
        ),
        out(
            "Out for a week",
            "Nodes that have been down or drained for more than a week. Perhaps somebody forgot \
                them.",
            "over_7d",
            0.01,
            0.05,
        ),
        series(
            "Nodes by state",
            "Each node is in exactly one state. Drained and down nodes run no jobs. The dashed line \
             counts nodes whose slurmd does not respond: until SlurmdTimeout they are still in the \
             state that they had, mostly idle.",
        )
        .each(&by_state)
        .line("not responding", "purple", not_responding)
        .stacked()
        .apart("not responding")
        .whole()
        .coloured(&NODES)
        .sized(24, 9),
        nodes_by_name(),
    ])
}

fn use_of() -> Row {
    let total = |leaf: &str| format!("$prefix.slurm_nodes.total.gauge-{leaf}");
    closed("CPUs and memory (collectors.nodes)").surveys(needs::NODES).with([
        series("CPUs", "\"other\" counts the CPUs of nodes that cannot run jobs.")
            .line("allocated", "blue", &total("cpus_allocated"))
            .line("idle", "green", &total("cpus_idle"))
            .line("other", "red", &total("cpus_other"))
            .stacked()
            .whole(),
        series(
            "Memory",
            "Memory that is allocated to jobs, and memory that the nodes report as \
                free. Jobs, caches and the operating system use the rest.",
        )
        .beside("installed")
        .line("installed", "text", &total("memory_real"))
        .line("allocated", "blue", &total("memory_allocated"))
        .line("free", "green", &total("memory_free"))
        .unit("bytes"),
    ])
}

fn failures() -> Row {
    let class_sum = |class: &str, leaf: &str| {
        format!("sumSeries($prefix.slurm_nodes.events.class.{class}.gauge-{leaf})")
    };
    // Of totals, which roll up to the last value: those of a round roll up to their average.
    let an_hour = |series: &str| {
        format!("movingSum(nonNegativeDerivative(keepLastValue({series})), '1hour')")
    };
    let failed = "{down,fail}";
    closed("Failures and repairs (collectors.nodes)").surveys(needs::EVENTS).with([
        series(
            "Nodes that left service",
            "Within the last hour. Down or failing: nobody asked for it. Drained: an administrator \
             or a health check took the node out, and its jobs have ended. Rebooting: by scontrol \
             reboot.",
        )
        .line("down or failing", "red", &an_hour(&class_sum(failed, "reached_total")))
        .line("drained", "orange", &an_hour(&class_sum("drained", "reached_total")))
        .line("rebooting", "blue", &an_hour(&class_sum("reboot", "reached_total")))
        .whole(),
        series(
            "Time that nodes were out of service",
            "Of all nodes together, within the last hour, by what they were at that moment. \
             Maintenance, power saving and draining with jobs are not included.",
        )
        .each(&an_hour("$prefix.slurm_nodes.events.class.*.gauge-node_seconds_total"))
        .stacked()
        .hours()
        .coloured(&[
            ("down", "red"),
            ("fail", "purple"),
            ("reboot", "blue"),
            ("drained", "orange"),
        ]),
        series(
            "Mean time to repair",
            "Of all outages that were down or failing and are over, since the figures began: from \
             the first round in which the node was out to the first in which it was back.",
        )
        .line(
            "mean",
            "red",
            &format!(
                "divideSeries({}, {})",
                class_sum(failed, "outage_seconds_total"),
                class_sum(failed, "ended_timed_total"),
            ),
        )
        .hours(),
        series(
            "Reboots and restarts of slurmd",
            "Nodes within the last hour. A reboot restarts \
            slurmd too.",
        )
        .line("reboots", "red", &an_hour("$prefix.slurm_nodes.events.total.gauge-reboots_total"))
        .line(
            "restarts of slurmd",
            "blue",
            &an_hour("$prefix.slurm_nodes.events.total.gauge-slurmd_restarts_total"),
        )
        .whole(),
    ])
}

fn reserved() -> Row {
    let path = |leaf: &str| format!("$prefix.slurm_nodes.reserved.gauge-nodes_{leaf}");
    closed("Reservations and upgrades (collectors.nodes)").surveys(needs::NODES).with([
        series(
            "Nodes in reservations",
            "Nodes in active reservations. Only those for whom they are reserved may use what is \
             idle. Maintenance: nodes in reservations with the flag MAINT, whatever they do.",
        )
        .line("allocated", "blue", &path("allocated"))
        .line("idle", "green", &path("idle"))
        .line("down or drained", "red", &path("other"))
        .line("maintenance", "purple", "$prefix.slurm_nodes.maintenance.gauge-nodes_total")
        .stacked()
        .whole(),
        series(
            "Nodes by release of slurmd",
            "As it was when the node registered last. During a rolling upgrade one curve falls \
                while another rises.",
        )
        .each("$prefix.slurm_nodes.slurmd.*.gauge-nodes")
        .stacked()
        .whole(),
    ])
}

fn reservations() -> Row {
    let all = |leaf: &str| format!("$prefix.slurm_reservations.all.gauge-{leaf}");
    closed("Reservations (collectors.reservations)").surveys(needs::RESERVATIONS).with([
        series("Reservations", "All that exist, and those that have begun and not ended.")
            .line("all", "blue", &all("count"))
            .line("active", "green", &all("active"))
            .whole()
            .sized(8, 8),
        series("Nodes of active reservations", "A node that is in two reservations counts twice.")
            .line("nodes", "blue", &all("nodes"))
            .whole()
            .sized(8, 8),
        series(
            "Time until a reservation",
            "Until the next one begins, until the next one with the flag MAINT begins, and until \
             the next active one ends. No curve if none is planned.",
        )
        .line("begins", "blue", &all("seconds_to_start"))
        .line("ends", "green", &all("seconds_to_end"))
        .line("maintenance", "purple", "$prefix.slurm_reservations.maint.gauge-seconds_to_start")
        .hours()
        .sized(8, 8),
    ])
}

fn licenses() -> Row {
    let each = |leaf: &str| format!("$prefix.slurm_licenses.*.gauge-{leaf}");
    closed("Licences (collectors.licenses)").surveys(needs::LICENSES).with([
        series("Licences in use", "Licences that jobs use, of those that Slurm counts.")
            .each(&each("used"))
            .whole(),
        table(
            "Free licences",
            "Those with the fewest come first: at 0, jobs that need one wait with the reason \
             Licenses. A licence without a limit is not here.",
            "Licence",
        )
        .each(&format!("limit(sortBy({}, 'current'), 20)", each("free")))
        .whole()
        .sorted_by("Now", false)
        .sized(12, 8),
    ])
}

fn gpus() -> Row {
    closed("GPUs (collectors.nodes)").surveys(needs::NODES).with([
        series("GPUs in use", "GPUs allocated to jobs, by type.")
            .each("$prefix.slurm_nodes.gpu.*.gauge-allocated")
            .stacked()
            .whole(),
        series("GPUs installed", "GPUs on all nodes, by type.")
            .each("$prefix.slurm_nodes.gpu.*.gauge-total")
            .stacked()
            .whole(),
        series("Shards in use", "Shards that jobs have, by the type of their GPUs.")
            .each("$prefix.slurm_nodes.shard.*.gauge-allocated")
            .stacked()
            .whole(),
        series("Free shards", "Shards that no job has, of GPUs that no job has whole.")
            .each("$prefix.slurm_nodes.shard.*.gauge-idle")
            .stacked()
            .whole(),
    ])
}

fn features() -> Row {
    let each = "$prefix.slurm_nodes.feature.*.gauge-";
    closed("Features (collectors.nodes)").surveys(needs::FEATURES).with([
        series("CPUs in use by feature", "CPUs allocated to jobs, on nodes with each feature.")
            .each(&format!("{each}cpus_allocated"))
            .whole(),
        series(
            "Idle CPUs by feature",
            "CPUs that no job has, on nodes with each feature that are not down or drained. Jobs \
             that ask for a feature wait if it has none.",
        )
        .each(&format!("{each}cpus_idle"))
        .whole(),
        series("Nodes out by feature", "Nodes with each feature that are down or drained.")
            .each(&format!("{each}nodes_other"))
            .whole(),
        series("GPUs in use by feature", "GPUs allocated to jobs, on nodes with each feature.")
            .each(&format!("{each}gpus_allocated"))
            .whole(),
    ])
}

fn partitions() -> Row {
    let each = |title: &str, description: &str, leaf: &str| -> Panel {
        series(title, description)
            .each(&format!("$prefix.slurm_partitions.$partition.gauge-{leaf}"))
            .whole()
            .leads_to("Jobs of this partition", "jobs", "partition")
    };
    closed("Partitions (collectors.partitions)").surveys(needs::PARTITIONS).with([
        series(
            "CPUs in use",
            "Share of the partition's CPUs that is allocated to jobs. A node that belongs to \
             several partitions counts in each of them.",
        )
        .each(
            "asPercent($prefix.slurm_partitions.$partition.gauge-cpus_allocated, \
                $prefix.slurm_partitions.$partition.gauge-cpus_total, -2)",
        )
        .unit("percent")
        .max(100.0)
        .leads_to("Jobs of this partition", "jobs", "partition"),
        each("Nodes idle", "Idle nodes of the partition.", "nodes_idle"),
        each("Jobs pending", "Pending jobs of the partition.", "jobs_pending"),
        each("GPUs in use", "GPUs of the partition that are allocated to jobs.", "gpus_allocated"),
    ])
}
