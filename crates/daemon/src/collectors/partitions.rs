//! `slurm_partitions`: each partition's state, its nodes, CPUs and GPUs, and the jobs in it.
//!
//! A node in two partitions counts in each.

use carbon::path;
use slurm_snapshot::{JobTally, Partition, PartitionJobs};

use super::{Collect, Collector, Paths, Round};
use crate::figure::{Figure, Points, Rollup, count};
use crate::shares::SHARES;
use crate::survey::{Findings, Needs};

pub(super) const COLLECTOR: Collector = Collector {
    name: "partitions",
    paths: &[
        Paths {
            below: "slurm_partitions.<partition>",
            about: "Each partition, hidden ones too: `[collectors.partitions]`, off by default. It shares its replies with \
                    `jobs` and `nodes`, and costs slurmctld both where those are off.",
            leaves: &STATE,
        },
        Paths {
            below: "slurm_partitions.<partition>",
            about: "What its nodes have. A node in two partitions counts in each.",
            leaves: &SHARES,
        },
        Paths {
            below: "slurm_partitions.<partition>",
            about: "Its jobs. One that waits in several partitions counts in each.",
            leaves: &JOBS,
        },
    ],
    start: |settings| {
        let config = settings.collectors.partitions;
        config.enabled.then(|| Box::new(Partitions { every: config.interval(settings.interval) }) as _)
    },
};

struct Partitions {
    every: u32,
}

#[rustfmt::skip]
const STATE: &[Figure<Partition>] = &[
    Figure { leaf: "up", unit: "0 or 1", rollup: Rollup::Average, value: |p| is(p, "up"),
        meaning: "takes jobs and starts them" },
    Figure { leaf: "down", unit: "0 or 1", rollup: Rollup::Average, value: |p| is(p, "down"),
        meaning: "takes jobs and does not start them" },
    Figure { leaf: "drain", unit: "0 or 1", rollup: Rollup::Average, value: |p| is(p, "drain"),
        meaning: "starts jobs and takes no new ones" },
    Figure { leaf: "inactive", unit: "0 or 1", rollup: Rollup::Average, value: |p| is(p, "inactive"),
        meaning: "neither takes nor starts jobs" },
];

#[rustfmt::skip]
const JOBS: &[Figure<PartitionJobs>] = &[
    Figure { leaf: "jobs_pending", unit: "count", rollup: Rollup::Average, value: |p| tally(p, "pending", |t| t.jobs),
        meaning: "jobs pending" },
    Figure { leaf: "jobs_running", unit: "count", rollup: Rollup::Average, value: |p| tally(p, "running", |t| t.jobs),
        meaning: "jobs running" },
    Figure { leaf: "jobs_cpus_pending", unit: "count", rollup: Rollup::Average, value: |p| tally(p, "pending", |t| t.cpus),
        meaning: "CPUs that pending jobs ask for" },
    Figure { leaf: "jobs_cpus_running", unit: "count", rollup: Rollup::Average, value: |p| tally(p, "running", |t| t.cpus),
        meaning: "CPUs that running jobs have" },
];

impl Collect for Partitions {
    fn needs(&self) -> Needs {
        Needs { jobs: true, partitions: true, ..Needs::default() }
    }

    fn every(&self) -> u32 {
        self.every
    }

    fn collect(&mut self, round: &Round<'_>, points: &mut Points<'_>) {
        let Some(partitions) =
            round.findings.and_then(Findings::nodes).and_then(|nodes| nodes.partitions.as_ref())
        else {
            return;
        };
        for partition in &partitions.partitions {
            let below = format!("slurm_partitions.{}", path::component(&partition.name));
            points.push(&below, STATE, partition);
            points.push(&below, SHARES, &partition.total);
            if let Some(jobs) = round.findings.and_then(Findings::jobs) {
                let none = PartitionJobs::default();
                points.push(&below, JOBS, jobs.partitions.get(&partition.name).unwrap_or(&none));
            }
        }
    }
}

fn is(partition: &Partition, state: &str) -> Option<f64> {
    Some(u8::from(partition.state == state).into())
}

fn tally(jobs: &PartitionJobs, state: &str, of: fn(&JobTally) -> u64) -> Option<f64> {
    count(jobs.states.get(state).map_or(0, of))
}
