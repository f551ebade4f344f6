//! Figures that are not in slurmctld's statistics: those of the collectors for nodes, jobs and
//! partitions, the daemon's own, and Carbon's. They are written as lines of Carbon's plaintext
//! protocol, under the paths of docs/metrics.md.

use std::fmt::Write;

use crate::cluster::{CPUS, Cluster, GPU_NODES, Incident, Job, NODES, TICK};

/// Resident memory, as measured in docs/performance.md with the queue on disk: README.md has its sum.
const DAEMON_MEMORY: f64 = 8.0e6;
const READER_MEMORY: f64 = 5.4e6;

/// A node goes down every so many seconds, for so many, besides two that are down all the time.
const DOWN_EVERY: i64 = 5400;
const DOWN_FOR: i64 = 2400;
/// The number of that node.
const DOWN_NOW_AND_THEN: u32 = 77;

/// The figures that are always 0.
const ZEROS: [(&str, &str); 3] = [
    ("slurm_graphite.head1", "ticks_skipped ticks_late reader_restarts reload_refused"),
    ("slurm_graphite.head1.queue", "undurable window_short points_dropped_removed"),
    (
        "slurm_graphite.head1.carbon.carbon",
        "points_dropped_full points_dropped_age points_dropped_damaged points_superseded \
         points_unproved in_doubt unacked_bytes",
    ),
];

/// The lines of one tick. Surveys come once a minute. `total` is how many ticks there have been;
/// `is_away` whether slurmctld or Carbon is, and `since` how many seconds the incident has lasted.
pub(crate) fn lines(
    cluster: &Cluster,
    total: u32,
    incident: Incident,
    is_away: bool,
    since: i64,
) -> String {
    let mut lines = Lines { at: cluster.statistics.req_time, text: String::new() };
    let is_silent = incident == Incident::Hang && is_away;
    own(&mut lines, total, is_silent, (incident == Incident::Carbon && is_away).then_some(since));
    if cluster.statistics.req_time % 60 == 0 && !is_silent {
        nodes(&mut lines, cluster);
        jobs(&mut lines, cluster);
    }
    lines.text
}

struct Lines {
    at: i64,
    text: String,
}

impl Lines {
    fn add(&mut self, path: &str, value: impl Into<f64>) {
        // Writing to a String cannot fail.
        let _ok = writeln!(self.text, "{path} {} {}", value.into(), self.at);
    }

    fn all(&mut self, level: &str, figures: &[(&str, f64)]) {
        figures
            .iter()
            .for_each(|(leaf, value)| self.add(&format!("cluster.{level}.gauge-{leaf}"), *value));
    }
}

fn sum(jobs: &[Job], of: impl Fn(&Job) -> u32) -> f64 {
    jobs.iter().map(|job| f64::from(of(job))).sum()
}

/// The daemon's own. `unsent` is how many seconds Carbon has been away.
fn own(lines: &mut Lines, total: u32, is_silent: bool, unsent: Option<i64>) {
    let (ticks, wave) = (f64::from(total), f64::from(total % 20));
    let (is_connected, waits) = (unsent.is_none(), unsent.unwrap_or(0) as f64);
    let unsent = (waits / f64::from(TICK)).floor();
    if is_silent {
        lines.all("slurm_health", &[("up", 0.0)]);
    }
    lines.all(
        "slurm_graphite.head1",
        &[
            ("slurmctld_up", f64::from(!is_silent)),
            ("readings_failed", 0.0),
            ("reading_duration", 1800.0 + 900.0 * fastrand::f64()),
            ("daemon_memory", DAEMON_MEMORY),
            ("reader_memory", READER_MEMORY),
        ],
    );
    lines.all(
        "slurm_graphite.head1.queue",
        &[
            ("durable", 1.0),
            ("file_bytes", 300e3 + wave * 11e3 + unsent * 18e3),
            ("memory_bytes", 220e3 + unsent * 18e3),
        ],
    );
    lines.all(
        "slurm_graphite.head1.carbon.carbon",
        &[
            ("connected", f64::from(is_connected)),
            ("points_sent", (ticks - unsent) * 231.0),
            ("points_resent", 0.0),
            ("queue_age", waits),
            ("queue_ticks", unsent),
        ],
    );
    for (level, leaves) in ZEROS {
        leaves.split(' ').for_each(|leaf| lines.add(&format!("cluster.{level}.gauge-{leaf}"), 0));
    }
    lines.add("carbon.agents.graphite1-a.errors", 0);
    lines.add("carbon.agents.graphite1-a.cache.overflow", 0);
    for (reply, micros) in [("nodes", 3100.0), ("jobs", 14_000.0)] {
        let micros = micros * (0.8 + 0.5 * fastrand::f64());
        lines.all(
            &format!("slurm_graphite.head1.reply.{reply}"),
            &[("duration", micros), ("hidden", 0.0)],
        );
    }
}

fn nodes(lines: &mut Lines, cluster: &Cluster) {
    let used = sum(&cluster.running, |job| job.cpus);
    let nodes = f64::from(NODES);
    // Two nodes are down and five were drained days ago; a node with a job that is drained is
    // draining.
    let (down, old) = (2.0 + f64::from(is_down_now(lines.at)), 5.0);
    let busy = (used / f64::from(CPUS)).min(nodes - down - old).floor();
    let drained = f64::from(cluster.drained).min(nodes - down - old);
    let draining = (drained * busy / (nodes - down - old)).floor();
    let (at_work, free) = (busy - draining, nodes - down - old - busy - (drained - draining));
    let mixed = (at_work * 0.22).floor();
    for (state, count) in [
        ("allocated", at_work - mixed),
        ("mixed", mixed),
        ("idle", free),
        ("draining", draining),
        ("drained", old + drained - draining),
        ("down", down),
    ] {
        lines.add(&format!("cluster.slurm_nodes.state.{state}.gauge-nodes"), count);
    }
    events(lines, old, drained, f64::from(cluster.drained_seconds));
    each(lines, cluster.drained);
    let (reserved, upgraded) = (12.0, (nodes / 3.0).floor());
    lines.all(
        "slurm_nodes.reserved",
        &[("nodes_allocated", 7.0), ("nodes_idle", reserved - 8.0), ("nodes_other", 1.0)],
    );
    lines.add("cluster.slurm_nodes.maintenance.gauge-nodes_total", 4.0);
    for (release, count) in [("24_11_4", nodes - upgraded), ("25_05_3", upgraded)] {
        lines.add(&format!("cluster.slurm_nodes.slurmd.{release}.gauge-nodes"), count);
    }
    for (kind, [hour, day, week]) in [("drained", [old, old, 3.0]), ("down", [2.0, 2.0, 1.0])] {
        let figures = [("over_1h", hour), ("over_1d", day), ("over_7d", week)];
        lines.all(&format!("slurm_nodes.{kind}"), &figures);
    }
    let (cpus, out) =
        (nodes * f64::from(CPUS), (down + old + drained - draining) * f64::from(CPUS));
    let all_gpus = f64::from(GPU_NODES * 4);
    let gpus = (sum(&cluster.running, |job| job.gpus) * 0.55).min(all_gpus);
    let memory = cpus * 4e9;
    lines.all(
        "slurm_nodes.total",
        &[
            ("nodes_total", nodes),
            ("nodes_allocated", busy),
            ("nodes_idle", free),
            ("cpus_total", cpus),
            ("cpus_allocated", used),
            ("cpus_other", out),
            ("cpus_idle", (cpus - used - out).max(0.0)),
            ("gpus_total", all_gpus),
            ("gpus_allocated", gpus),
            ("memory_real", memory),
            ("memory_allocated", memory * used / cpus * 0.8),
            ("memory_free", memory * (1.0 - used / cpus * 0.55)),
        ],
    );
    lines.all(
        "slurm_nodes.gpu.a100",
        &[("allocated", (gpus * 0.7).floor()), ("total", all_gpus * 0.7)],
    );
    lines.all(
        "slurm_nodes.gpu.h100",
        &[("allocated", (gpus * 0.3).floor()), ("total", all_gpus * 0.3)],
    );
    let waiting = cluster.pending.len() as f64;
    for (name, share, jobs) in [("compute", 0.82, 0.7), ("gpu", 0.08, 0.2), ("long", 0.1, 0.1)] {
        let use_of = (used / cpus * (0.9 + 0.3 * jobs)).min(1.0);
        lines.all(
            &format!("slurm_partitions.{name}"),
            &[
                ("cpus_total", cpus * share),
                ("cpus_allocated", (cpus * share * use_of).floor()),
                ("nodes_idle", (free * share).floor()),
                ("jobs_pending", (waiting * jobs).floor()),
                ("gpus_allocated", if name == "gpu" { gpus } else { 0.0 }),
            ],
        );
    }
}

/// By name: those that are out, and those that will be.
fn each(lines: &mut Lines, drained: u32) {
    let names = (0..NODES).map(|number| format!("n{number:03}"));
    for (number, name) in (0..NODES).zip(names) {
        let for_a_while = number == DOWN_NOW_AND_THEN && is_down_now(lines.at);
        let (down, out) =
            ([41, 208].contains(&number) || for_a_while, (100..105).contains(&number));
        if down || out || number % 9 == 0 || number == DOWN_NOW_AND_THEN {
            let drain = out || number % 9 == 0 && number * 10 / 9 < drained;
            let figures = [("down", down), ("drain", drain), ("not_responding", down)]
                .map(|(leaf, is_so)| (leaf, f64::from(is_so)));
            lines.all(&format!("slurm_nodes.out.{name}"), &figures);
        }
    }
}

fn is_down_now(at: i64) -> bool {
    at % DOWN_EVERY < DOWN_FOR
}

/// `old` nodes were drained days ago, `drained` since, for `drained_seconds` together.
fn events(lines: &mut Lines, old: f64, drained: f64, drained_seconds: f64) {
    let (begun, phase) = (lines.at / DOWN_EVERY, lines.at % DOWN_EVERY);
    let ended = begun - i64::from(phase < DOWN_FOR);
    let out = begun * DOWN_FOR + phase.min(DOWN_FOR) + 2 * lines.at;
    for (class, reached, ended, seconds) in [
        ("down", begun as f64, ended as f64, out as f64),
        ("fail", 0.0, 0.0, 0.0),
        ("reboot", 0.0, 0.0, 0.0),
        ("drained", drained, 0.0, lines.at as f64 * old + drained_seconds),
    ] {
        lines.all(
            &format!("slurm_nodes.events.class.{class}"),
            &[
                ("reached_total", reached),
                ("ended_timed_total", ended),
                ("outage_seconds_total", ended * DOWN_FOR as f64),
                ("node_seconds_total", seconds),
            ],
        );
    }
    // It is booted, and then back.
    let restarts = ["reboots_total", "slurmd_restarts_total"].map(|leaf| (leaf, ended as f64));
    lines.all("slurm_nodes.events.total", &restarts);
}

fn jobs(lines: &mut Lines, cluster: &Cluster) {
    let (pending, running) = (&cluster.pending, &cluster.running);
    let ended = f64::from(cluster.statistics.jobs_completed % 40) + 30.0;
    lines.add(
        "cluster.slurm_jobs.total.gauge-records",
        (pending.len() + running.len()) as f64 + ended,
    );
    for (state, jobs) in [("pending", pending), ("running", running)] {
        lines.all(
            &format!("slurm_jobs.state.{state}"),
            &[
                ("jobs", jobs.len() as f64),
                ("cpus", sum(jobs, |job| job.cpus)),
                ("gpus", sum(jobs, |job| job.gpus)),
            ],
        );
    }
    let completing = if cluster.drained > 0 { f64::from(cluster.drained) / 6.0 } else { 2.0 };
    lines.all(
        "slurm_jobs.state.completing",
        &[("jobs", completing.floor()), ("cpus", completing.floor() * 16.0), ("gpus", 0.0)],
    );
    let all = pending.len() as f64;
    let held = (all * 0.05).min(14.0).floor();
    let limit = (all * 0.1).min(60.0).floor();
    let dependency = (all * 0.1).min(35.0).floor();
    let resources = (all - held - limit - dependency).min(4.0);
    for (reason, count) in [
        ("Resources", resources),
        ("Priority", all - held - limit - dependency - resources),
        ("QOSMaxCpuPerUserLimit", limit),
        ("Dependency", dependency),
        ("JobHeldUser", held),
    ] {
        lines.add(&format!("cluster.slurm_jobs.reason.{reason}.gauge-jobs"), count);
    }
    let waits = cluster.waits();
    let rank =
        |part: usize| waits.get(waits.len() * part / 10_000).map(|wait| f64::from(wait + TICK));
    let moments = [("p50", 5000), ("p90", 9000), ("max", 9999)];
    // Jobs that do not wait for resources have no plan, nor has what comes after the first 500.
    let planned = (all - held - dependency - limit).clamp(0.0, 500.0);
    lines.all(
        "slurm_jobs.expected_start",
        &[
            ("planned", planned),
            ("overdue", (planned / 40.0).floor()),
            ("unplanned", all - planned),
        ],
    );
    for (end, part) in moments {
        if let Some(wait) = rank(part) {
            let start = (planned * 11.0 + 60.0) * (part as f64 / 10_000.0);
            lines.add(&format!("cluster.slurm_jobs.expected_start.gauge-start_in_{end}"), start);
            for (partition, share) in [("compute", 1.0), ("gpu", 1.7)] {
                let level = format!("cluster.slurm_jobs.partition.{partition}.expected_start");
                lines.add(&format!("{level}.gauge-start_in_{end}"), start * share);
            }
            lines.add(&format!("cluster.slurm_jobs.waiting.gauge-wait_{end}"), wait);
            lines.add(&format!("cluster.slurm_jobs.waiting.gauge-started_wait_{end}"), wait * 0.7);
            lines.add(
                &format!("cluster.slurm_jobs.partition.compute.waiting.gauge-wait_{end}"),
                wait,
            );
            lines.add(
                &format!("cluster.slurm_jobs.partition.gpu.waiting.gauge-wait_{end}"),
                wait * 0.4,
            );
        }
    }
}
