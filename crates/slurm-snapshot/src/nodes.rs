//! The nodes and their partitions: a reader's counts from the replies of `slurm_load_node` and
//! `slurm_load_partitions`.
//!
//! A node in two partitions counts in each of them and once everywhere else. FUTURE nodes count
//! only in `future`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::gres::NodeGres;
use crate::known::KnownSum;
use crate::shards::Shards;
use crate::shares::Shares;

/// Nodes by state or flag.
pub type NodeTallies = BTreeMap<String, NodeTally>;

/// A group of nodes: how many nodes, CPUs and GPUs are allocated, idle or neither, and the sums of
/// their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTally {
    /// Number of nodes: sinfo's `%F`.
    pub nodes: Shares,
    /// CPUs that are available to jobs: sinfo's `%C`.
    pub cpus: Shares,
    /// GPUs of every type.
    pub gpus: Shares,
    /// Memory of the nodes, MiB.
    pub memory: Memory,
}

/// Memory of nodes, MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The memory that the configuration or the node reports.
    pub real: KnownSum,
    /// The memory that is allocated to jobs.
    pub allocated: KnownSum,
    /// The memory that the nodes' kernels report as free: unknown for a node that has not
    /// registered since slurmctld's start.
    pub free: KnownSum,
}

impl NodeTally {
    /// Adds another tally to this one.
    pub fn add(&mut self, more: &Self) {
        self.nodes.add(more.nodes);
        self.cpus.add(more.cpus);
        self.gpus.add(more.gpus);
        self.memory.real.add(more.memory.real);
        self.memory.allocated.add(more.memory.allocated);
        self.memory.free.add(more.memory.free);
    }
}

/// All nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// Moment at which slurmctld wrote the reply: Unix seconds on its clock. The `since` of the
    /// next request.
    pub last_update: i64,
    /// Number of records in the reply.
    pub records: u64,
    /// Number of records that slurmctld sent empty: nodes that it hides from us, or that no longer
    /// exist.
    pub blank: u64,
    /// Number of FUTURE nodes: configured, but not there yet. `None` if the reply never has them.
    pub future: Option<u64>,
    /// All nodes that are neither blank nor FUTURE.
    pub total: NodeTally,
    /// Nodes by the one word that sinfo's `%T` shows, in lower case and without its suffix:
    /// `drained`, `mixed`, `maint`.
    pub states: NodeTallies,
    /// Nodes by the flags that they have besides their base state, in lower case (`drain`,
    /// `not_responding`, `powered_down` …): a node may have none or several.
    pub flags: NodeTallies,
    /// GPUs by type; those without a type have the empty name.
    pub gpus: BTreeMap<String, Shares>,
    /// Shards by the type of their GPUs; those without a type have the empty name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shards: BTreeMap<String, Shards>,
    /// Nodes in active reservations that are not for maintenance.
    pub reserved: NodeTally,
    /// Nodes in active reservations for maintenance.
    pub maintenance: NodeTally,
    /// Nodes by the release of their slurmd, as it was when it registered (`22.05.8`); `other` for
    /// a text that is no release; `unknown` for a node that has not registered since slurmctld was
    /// started.
    pub slurmds: BTreeMap<String, u64>,
    /// Moments since which the drained and draining nodes are in that state (their `reason_time`):
    /// Unix seconds, oldest first. Nodes without a reason have no time.
    pub drain_since: Vec<i64>,
    /// Moments since which the nodes that are down and not drained are in that state (their
    /// `reason_time`): Unix seconds, oldest first. Nodes without a reason have no time. A drained
    /// node that goes down keeps the time of its reason.
    pub down_since: Vec<i64>,
    /// Sum of the nodes' load averages × 100, over the nodes that have reported one.
    pub cpu_load: KnownSum,
    /// The fullness of the nodes that jobs may use.
    pub scarcest: Scarcest,
    /// Nodes by active feature; `None` if not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    /// The nodes that are out ([`OutNode`]), in slurmctld's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out: Vec<OutNode>,
    /// Each node by itself, in slurmctld's order; empty if not requested.
    pub rows: Vec<NodeRow>,
    /// The state and the starts of each node, in slurmctld's order; empty if not requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<NodeMark>,
    /// The partitions; `None` if not requested.
    pub partitions: Option<Partitions>,
    /// Number of texts that could not be understood (a GRES count). Their nodes are counted, but
    /// the values in those texts are missing.
    pub unparsed: u64,
}

/// The fullness of nodes, each by the resource of which it has the least left: CPUs, memory or
/// GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scarcest {
    /// Number of nodes that are neither down nor drained.
    pub nodes: u64,
    /// Sum over these nodes of the greatest share in use: that of CPUs, memory or GPUs, in
    /// millionths.
    pub millionths: u64,
}

/// Nodes by feature, without their memory. A node counts in each of its features.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// Nodes by the name of a feature, for the first 4,096 features of a reply.
    pub names: BTreeMap<String, NodeTally>,
    /// The sum of the features after the first 4,096.
    pub others: NodeTally,
}

/// A node that is down, drained or draining, set to fail, or whose slurmd does not respond. Not one
/// that power saving turns off or on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutNode {
    /// Name of the node.
    pub name: String,
    /// Whether the node's base state is down.
    pub down: bool,
    /// Whether the node is drained or draining, and not only until power saving turns it off.
    pub drain: bool,
    /// Whether the node is set to fail (flag FAIL).
    pub fail: bool,
    /// Whether the node's slurmd does not respond, and power saving does not turn the node off or
    /// on.
    pub not_responding: bool,
    /// Moment at which the node got its reason: Unix seconds; `None` without a reason.
    pub since: Option<i64>,
}

/// One node by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRow {
    /// Name of the node.
    pub name: String,
    /// Whether the node's base state is down, also if it is drained.
    pub down: bool,
    /// Whether the node is drained or draining.
    pub drain: bool,
    /// Whether the node's slurmd does not respond.
    pub not_responding: bool,
    /// The node counted as one, and its resources.
    pub tally: NodeTally,
    /// Load average × 100, if the node has reported it.
    pub cpu_load: Option<u32>,
}

as_array! {
    /// The state of a node and its last starts, from which its outages and reboots are found.
    /// Written as an array of its members.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
    pub struct NodeMark {
        /// Name of the node.
        pub name: String,
        /// libslurm's number of the node's state, the argument of [`crate::service()`].
        pub state: u32,
        /// Moment at which the node was booted, computed by slurmctld when the node registers: Unix
        /// seconds.
        pub boot_time: Option<i64>,
        /// Moment at which the node's slurmd started, by the node's clock: Unix seconds.
        pub slurmd_start_time: Option<i64>,
    }
}

/// All partitions, including hidden ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partitions {
    /// Moment at which slurmctld wrote the reply: Unix seconds on its clock.
    pub last_update: i64,
    /// The partitions in slurmctld's order.
    pub partitions: Vec<Partition>,
}

/// One partition, and the resources of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Name of the partition.
    pub name: String,
    /// State of the partition: `up`, `down`, `drain` or `inactive`; `state_N` for an unknown state;
    /// empty if it is not reported.
    pub state: String,
    /// All nodes of the partition, except FUTURE ones.
    pub total: NodeTally,
    /// Nodes of the partition by state, as in [`Nodes::states`].
    pub states: NodeTallies,
    /// GPUs of the partition by type, as in [`Nodes::gpus`].
    pub gpus: BTreeMap<String, Shares>,
    /// Shards of the partition by the type of their GPUs, as in [`Nodes::shards`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shards: BTreeMap<String, Shards>,
    /// Indices of the partition's nodes in [`Nodes::marks`], as ranges: the first and the last
    /// index of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<(usize, usize)>,
}

impl Partition {
    /// Adds a node: the word for its state, its tally, and its GPUs and shards by type.
    pub fn add(&mut self, word: &str, tally: &NodeTally, gres: &NodeGres) {
        self.total.add(tally);
        self.states.entry(word.to_owned()).or_default().add(tally);
        gres.add_to(&mut self.gpus, &mut self.shards);
    }

    /// Adds the index of a node to the ranges of members. Indices come in ascending order.
    pub fn add_member(&mut self, index: usize) {
        match self.members.last_mut() {
            Some((_, last)) if *last >= index => {}
            Some((_, last)) if last.checked_add(1) == Some(index) => *last = index,
            _ => self.members.push((index, index)),
        }
    }
}
