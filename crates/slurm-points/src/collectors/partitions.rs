//! `slurm_partitions`: each partition's state, its nodes, CPUs and GPUs, and the jobs in it.
//!
//! A node in two partitions counts in each.

use slurm_snapshot::{
    JobTally, NodeTally, Partition, PartitionJobs, Reply, ReplyKind, ReplyOptions, Shards, Shares,
};

use super::{Collect, Collector, Start};
use crate::levels::Names::{Closed, Configured};
use crate::levels::{Name, Table};
use crate::named_paths::Points;
use crate::node_metrics::{GPUS, SHARDS, SHARES, TALLY};
use crate::replies::SurveyReplies;
use crate::settings::MOST_NAMES;

pub(super) const COLLECTOR: Collector = Collector {
    name: "partitions",
    comment: "Each partition: slurm_partitions. Needs the replies of jobs and nodes.",
    settings: &[],
    levels: &[LEVELS],
    replies: &[ReplyKind::Nodes, ReplyKind::Jobs],
    start: Start::Survey(|_| Box::new(PartitionsCollector)),
};

levels! {
    LEVELS:
    STATE: Level<Table<Partition>, 1> = ("slurm_partitions.<partition>", [Configured(MOST_NAMES)],
        STATES,
        "Each partition, hidden ones too: `[collectors.partitions]`. It costs slurmctld as much as \
         `jobs` and `nodes` if those are off.");
    NODES: Level<Table<NodeTally>, 1> = ("slurm_partitions.<partition>", [Configured(MOST_NAMES)],
        SHARES,
        "The CPUs, GPUs and memory of its nodes. A node in two partitions counts in each.");
    NODE_STATE: Level<Table<NodeTally>, 2> = ("slurm_partitions.<partition>.state.<state>",
        [Configured(MOST_NAMES), Closed], TALLY,
        "Its nodes by state, as in `slurm_nodes.state.<state>`: jobs do not get those that are \
         down, drained, fail or inval.");
    GPU: Level<Table<Shares>, 2> = ("slurm_partitions.<partition>.gpu.<type>",
        [Configured(MOST_NAMES), Configured(64)], GPUS,
        "Its GPUs by type; those without a type are in `slurm_partitions.<partition>.untyped_gpu`.");
    UNTYPED_GPU: Level<Table<Shares>, 1> = ("slurm_partitions.<partition>.untyped_gpu",
        [Configured(MOST_NAMES)], GPUS, "Its GPUs without a type.");
    SHARD: Level<Table<Shards>, 2> = ("slurm_partitions.<partition>.shard.<type>",
        [Configured(MOST_NAMES), Configured(64)], SHARDS,
        "Its shards by the type of their GPUs; those without a type are in \
         `slurm_partitions.<partition>.untyped_shard`.");
    UNTYPED_SHARD: Level<Table<Shards>, 1> = ("slurm_partitions.<partition>.untyped_shard",
        [Configured(MOST_NAMES)], SHARDS, "Its shards of GPUs without a type.");
    JOBS: Level<Table<PartitionJobs>, 1> = ("slurm_partitions.<partition>",
        [Configured(MOST_NAMES)], OF_JOBS,
        "Its jobs. A job that waits in several partitions counts in each.");
}

struct PartitionsCollector;

metrics! {
    STATES: Partition =
        average("up", "0 or 1", |p| is(p, "up"), "whether the partition accepts jobs and starts \
            them"),
        average("down", "0 or 1", |p| is(p, "down"), "whether the partition accepts jobs without \
            starting them"),
        average("drain", "0 or 1", |p| is(p, "drain"), "whether the partition starts queued jobs \
            while refusing new ones"),
        average("inactive", "0 or 1", |p| is(p, "inactive"), "whether the partition neither \
            accepts nor starts jobs");
    OF_JOBS: PartitionJobs =
        average("jobs_pending", "count", |p| p.states.pending().jobs, "jobs pending"),
        average("jobs_running", "count", |p| p.states.running().jobs,
            "jobs of base state running: also those that squeue shows as configuring, stopped, \
             signaling or resizing"),
        average("jobs_cpus_pending", "count", |p| cpus(p.states.pending()), "CPUs that pending jobs \
            request"),
        average("jobs_cpus_running", "count", |p| cpus(p.states.running()), "CPUs allocated to \
            these jobs");
}

impl Collect<SurveyReplies> for PartitionsCollector {
    fn options(&self) -> ReplyOptions {
        ReplyOptions { partitions: true, ..ReplyOptions::default() }
    }

    fn collect(&mut self, _: i64, replies: &SurveyReplies, points: &mut Points<'_>) {
        let Some(Reply::Nodes(nodes)) = replies.get(ReplyKind::Nodes) else { return };
        let Some(partitions) = &nodes.partitions else { return };
        for partition in &partitions.partitions {
            let name = || Name::new(&partition.name);
            points.push(&STATE, [name()], partition);
            points.push(&NODES, [name()], &partition.total);
            points.push_words(&NODE_STATE, [name()], &[], &partition.states);
            points.push_types(&GPU, &UNTYPED_GPU, [name()], &partition.gpus, Shares::add);
            points.push_types(&SHARD, &UNTYPED_SHARD, [name()], &partition.shards, Shards::add);
            if let Some(Reply::Jobs(jobs)) = replies.get(ReplyKind::Jobs)
                && !jobs.states_only
            {
                let none = PartitionJobs::default();
                points.push(&JOBS, [name()], jobs.partitions.get(&partition.name).unwrap_or(&none));
            }
        }
        points.end_round();
    }
}

fn cpus(jobs: JobTally) -> Option<u64> {
    jobs.figure(jobs.cpus)
}

fn is(partition: &Partition, state: &str) -> Option<bool> {
    // slurmrestd of 23.02 does not tell it.
    (!partition.state.is_empty()).then_some(partition.state == state)
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::{JobStates, Jobs, KnownSum, Memory, NodeTally, Nodes, Reply, Shares};

    use super::super::tests::{started, surveyed};
    use super::*;

    fn partition(name: &str, state: &str, total: NodeTally) -> Partition {
        Partition { name: name.to_owned(), state: state.to_owned(), total, ..Partition::default() }
    }

    fn nodes(partitions: Vec<Partition>) -> Reply {
        let partitions = Some(slurm_snapshot::Partitions { last_update: 1, partitions });
        Reply::Nodes(Box::new(Nodes { partitions, ..Nodes::default() }))
    }

    fn points(replies: &SurveyReplies) -> Vec<String> {
        let mut collector = started(&COLLECTOR, &[]);
        surveyed(&mut collector, 60, replies)
    }

    #[test]
    fn every_number_of_a_partition_is_under_its_own_name() {
        let known = |number| KnownSum::new(Some(number));
        let shares = |allocated, idle, other, total| Shares { allocated, idle, other, total };
        let total = NodeTally {
            nodes: shares(1, 2, 3, 6),
            cpus: shares(10, 20, 30, 60),
            gpus: shares(4, 5, 7, 16),
            memory: Memory { real: known(9), allocated: known(8), free: known(6) },
        };
        let tally = |jobs, cpus| JobTally { jobs, cpus: Some(cpus), ..JobTally::default() };
        let shown =
            [("special_exit".to_owned(), tally(11, 44)), ("configuring".to_owned(), tally(12, 48))];
        let unfinished =
            [("pending".to_owned(), tally(11, 44)), ("running".to_owned(), tally(12, 48))];
        let states = JobStates { shown: shown.into(), unfinished: unfinished.into() };
        let queued = PartitionJobs { states, ..PartitionJobs::default() };
        let jobs = Jobs { partitions: [("gpu".to_owned(), queued)].into(), ..Jobs::default() };
        let mut replies = SurveyReplies::with_only(
            ReplyKind::Nodes,
            nodes(vec![partition("gpu", "drain", total)]),
        );
        replies.add(ReplyKind::Jobs, Reply::Jobs(Box::new(jobs)));
        let expected = [
            "up 0",
            "down 0",
            "drain 1",
            "inactive 0",
            "nodes_allocated 1",
            "nodes_idle 2",
            "nodes_other 3",
            "nodes_total 6",
            "cpus_allocated 10",
            "cpus_idle 20",
            "cpus_other 30",
            "cpus_total 60",
            "gpus_allocated 4",
            "gpus_idle 5",
            "gpus_other 7",
            "gpus_total 16",
            "memory_real 9437184",
            "memory_allocated 8388608",
            "memory_free 6291456",
            "jobs_pending 11",
            "jobs_running 12",
            "jobs_cpus_pending 44",
            "jobs_cpus_running 48",
        ];
        assert_eq!(
            points(&replies),
            expected.map(|point| format!("c.slurm_partitions.gpu.gauge-{point}"))
        );
    }

    #[test]
    fn each_state_is_told_apart_and_a_partition_without_jobs_has_none_of_them() {
        let named = |state| partition(state, state, NodeTally::default());
        let all = ["up", "down", "drain", "inactive"];
        let mut replies = SurveyReplies::with_only(ReplyKind::Nodes, nodes(all.map(named).into()));
        let without = points(&replies);
        for state in all {
            for other in all {
                let point = format!(
                    "c.slurm_partitions.{state}.gauge-{other} {}",
                    u8::from(state == other)
                );
                assert!(without.contains(&point), "{point} is not in {without:#?}");
            }
        }
        assert!(!without.iter().any(|point| point.contains("gauge-jobs_")), "no jobs were read");
        replies.add(ReplyKind::Jobs, Reply::Jobs(Box::default()));
        assert!(
            points(&replies).contains(&"c.slurm_partitions.up.gauge-jobs_pending 0".to_owned())
        );
    }

    #[test]
    fn what_slurmrestd_does_not_tell_is_no_zero() {
        let mut replies = SurveyReplies::with_only(
            ReplyKind::Nodes,
            nodes(vec![partition("gpu", "", NodeTally::default())]),
        );
        let states = Jobs { states_only: true, ..Jobs::default() };
        replies.add(ReplyKind::Jobs, Reply::Jobs(Box::new(states)));
        let points = points(&replies);
        let wrong = ["gauge-jobs_", "gauge-up ", "gauge-down ", "gauge-drain ", "gauge-inactive "];
        assert!(
            !points.iter().any(|point| wrong.iter().any(|leaf| point.contains(leaf))),
            "{points:#?}"
        );
        assert!(!points.is_empty());
    }
}
