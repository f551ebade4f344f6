//! `slurm_load_node`, counted while the reply is walked, and each node's tally for the partitions
//! that it is in.
//!
//! This file depends on the release: up to 24.11, a node's allocation comes from
//! `slurm_get_select_nodeinfo`; later it is in the record.

use slurm_snapshot::gres::NodeGres;
use slurm_snapshot::{
    FeatureCounter, FoundNode, KnownSum, Memory, NodeMark, NodeState, NodeTally, Nodes,
    ReplyOptions, moment, one_more,
};
use slurm_sys::{node_info_msg_t, node_info_t};

use crate::unpacked::Unpacked;
use crate::values::{name, number, number64};
use crate::{slurm_names, version};

/// `NODE_STATE_ALLOCATED`: the number of the base state allocated.
#[cfg(not(slurm_ge_2505))]
const ALLOCATED: u32 = 3;

/// The part of a node that its partitions count.
#[derive(Clone, Debug)]
pub(crate) struct CountedNode {
    /// The word for the node's state.
    pub(crate) word: String,
    pub(crate) tally: NodeTally,
    pub(crate) gres: NodeGres,
    /// Index of the node in [`Nodes::marks`]; `None` if marks are not requested.
    pub(crate) mark: Option<usize>,
}

/// All nodes of a reply, counted.
#[derive(Debug, Default)]
pub(crate) struct CountedNodes {
    pub(crate) nodes: Nodes,
    /// Each node in the reply's order, to which the indexes of partitions refer; `None` for a
    /// record that is not counted.
    pub(crate) members: Vec<Option<CountedNode>>,
    features: FeatureCounter,
}

/// Counts the nodes of the reply. Each node by itself is kept only with `rows` or `marks`.
pub(crate) fn from_reply(
    reply: Unpacked<'_, node_info_msg_t>,
    options: ReplyOptions,
) -> CountedNodes {
    let mut counted = CountedNodes::default();
    counted.nodes.last_update = reply.last_update;
    counted.nodes.future = Some(0);
    for record in reply.node_array() {
        let member = counted.add(record, options);
        counted.members.push(member);
    }
    counted.nodes.sort_times();
    counted.nodes.features = options.features.then(|| counted.features.finish());
    counted
}

impl CountedNodes {
    fn add(
        &mut self,
        record: Unpacked<'_, node_info_t>,
        options: ReplyOptions,
    ) -> Option<CountedNode> {
        let nodes = &mut self.nodes;
        one_more(&mut nodes.records);
        if record.name().is_empty() {
            one_more(&mut nodes.blank);
            return None;
        }
        let state = NodeState { number: record.node_state, release: version::built_for() };
        if state.is_future() {
            nodes.future = nodes.future.map(|future| future.saturating_add(1));
            return None;
        }
        let (allocated, memory) = allocated(record);
        let found = FoundNode {
            state,
            word: slurm_names::node_state(state.number),
            flags: state.flags(),
            cpus: [allocated, cpus(&record)],
            memory: Memory {
                real: KnownSum::new(number64(record.real_memory)),
                allocated: KnownSum::new(memory),
                free: KnownSum::new(number64(record.free_mem)),
            },
            gres: NodeGres::parse(record.gres(), record.gres_used(), state.is_usable()),
            cpu_load: number(record.cpu_load),
            reason_time: moment(record.reason_time),
            slurmd: name(record.version()),
        };
        let counted = CountedNode {
            tally: nodes.add(&found),
            word: found.word.clone(),
            gres: found.gres.clone(),
            mark: options.marks.then_some(nodes.marks.len()),
        };
        if options.features {
            self.features.add(record.features_act(), &counted.tally);
        }
        nodes.out.extend(found.out(&name(record.name())));
        if options.marks {
            nodes.marks.push(NodeMark {
                name: name(record.name()),
                state: state.number,
                boot_time: moment(record.boot_time),
                slurmd_start_time: moment(record.slurmd_start_time),
            });
        }
        if options.rows {
            nodes.rows.push(found.row(name(record.name())));
        }
        Some(counted)
    }
}

/// Returns the number of CPUs of a node that jobs may use, without those reserved for the system.
fn cpus(record: &node_info_t) -> u64 {
    #[cfg(slurm_ge_2205)]
    if record.cpus_efctv > 0 {
        return record.cpus_efctv.into();
    }
    record.cpus.into()
}

/// Returns the CPUs, and the memory in MiB, that jobs hold on a node.
fn allocated(record: Unpacked<'_, node_info_t>) -> (u64, Option<u64>) {
    #[cfg(not(slurm_ge_2505))]
    let (cpus, memory) = record.select_nodeinfo(ALLOCATED);
    #[cfg(slurm_ge_2505)]
    let (cpus, memory) = (record.alloc_cpus, record.alloc_memory);
    (cpus.into(), number64(memory))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::{CStr, CString};

    use proptest::prelude::*;

    use slurm_snapshot::Shares;

    use super::*;
    use crate::unpacked::made;

    /// A node of this name, state and GRES.
    pub(crate) fn record(name: &CStr, state: u32, gres: &CStr, used: &CStr) -> node_info_t {
        node_info_t {
            name: name.as_ptr().cast_mut(),
            node_state: state,
            gres: gres.as_ptr().cast_mut(),
            gres_used: used.as_ptr().cast_mut(),
            cpus: 8,
            real_memory: 2000,
            free_mem: u64::MAX - 1,
            ..Default::default()
        }
    }

    /// Counts these records.
    pub(crate) fn counted(records: &mut [node_info_t], rows: bool) -> CountedNodes {
        let record_count = u32::try_from(records.len()).unwrap();
        let reply =
            node_info_msg_t { last_update: 5, record_count, node_array: records.as_mut_ptr() };
        from_reply(made(&reply), ReplyOptions { rows, marks: rows, ..ReplyOptions::default() })
    }

    fn sum<'a>(tallies: impl IntoIterator<Item = &'a NodeTally>) -> NodeTally {
        tallies.into_iter().fold(NodeTally::default(), |mut sum, tally| {
            sum.add(tally);
            sum
        })
    }

    #[test]
    fn a_suffix_or_a_flag_makes_no_other_state() {
        let mut records = [0x2, 0x802, 0x1082].map(|state| record(c"n", state, c"", c""));
        let nodes = counted(&mut records, false).nodes;
        assert_eq!(nodes.flags["not_responding"].nodes.total, 1);
        assert_eq!(nodes.flags["powered_down"].nodes.total, 1);
        assert_eq!(nodes.states["idle"].nodes.total, 3, "{:?}", nodes.states.keys());
    }

    #[test]
    fn future_nodes_and_empty_records_are_in_no_total() {
        let mut records =
            [record(c"f", 6, c"gpu:4", c""), node_info_t::default(), record(c"n", 2, c"", c"")];
        let counted = counted(&mut records, true);
        assert_eq!(
            (counted.nodes.records, counted.nodes.future, counted.nodes.blank),
            (3, Some(1), 1)
        );
        assert_eq!(counted.nodes.total.nodes.total, 1);
        assert_eq!(counted.nodes.rows.len(), 1);
        assert_eq!(counted.members.len(), 3, "indexes count them too");
    }

    #[test]
    fn a_node_that_only_completes_is_allocated_and_its_cpus_are_not() {
        let total = counted(&mut [record(c"n", 0x402, c"", c"")], false).nodes.total;
        assert_eq!((total.nodes.allocated, total.cpus.allocated, total.cpus.idle), (1, 0, 8));
    }

    #[test]
    fn memory_that_a_node_has_not_reported_is_neither_16_exbibytes_nor_0() {
        let memory = counted(&mut [record(c"n", 2, c"", c"")], false).nodes.total.memory;
        assert_eq!((memory.real.value(), memory.free.value()), (Some(2000), None));
        assert_eq!(memory.free.unknown(), 1);
    }

    #[test]
    fn gpus_go_by_type_and_those_of_drained_nodes_are_not_idle() {
        let mut records = [
            record(
                c"a",
                5,
                c"gpu:a100:4(S:0-1),gpu:v100:2",
                c"gpu:a100:3(IDX:0-2),gpu:v100:0(IDX:N/A)",
            ),
            record(c"b", 0x202, c"gpu:a100:4", c"gpu:a100:0(IDX:N/A)"),
            record(c"c", 2, c"(null)", c"gpu:0"),
        ];
        let nodes = counted(&mut records, false).nodes;
        assert_eq!(nodes.gpus["a100"], Shares { allocated: 3, idle: 1, other: 4, total: 8 });
        assert_eq!(nodes.gpus["v100"], Shares { allocated: 0, idle: 2, other: 0, total: 2 });
        assert_eq!(nodes.gpus.len(), 2);
        assert_eq!(nodes.total.gpus.total, 10);
    }

    #[test]
    fn gpus_without_a_type_are_in_use_or_idle_and_no_more_than_there_are() {
        let mut records = [
            record(c"a", 5, c"gpu:4", c"gpu:(null):3(IDX:0-2)"),
            record(c"b", 2, c"gpu:4(S:0-1)", c"gpu:(null):0(IDX:N/A)"),
        ];
        let nodes = counted(&mut records, false).nodes;
        assert_eq!(nodes.total.gpus, Shares { allocated: 3, idle: 5, other: 0, total: 8 });
        assert_eq!((nodes.gpus[""], nodes.gpus.len(), nodes.unparsed), (nodes.total.gpus, 1, 0));
    }

    #[test]
    fn gpus_whose_type_shows_only_in_use_are_not_twice_there() {
        let mut records = [record(c"a", 5, c"gpu:4(S:0-3)", c"gpu:gh200:3(IDX:0-2)")];
        let nodes = counted(&mut records, false).nodes;
        assert_eq!(nodes.total.gpus, Shares { allocated: 3, idle: 1, other: 0, total: 4 });
        assert_eq!(nodes.gpus.keys().collect::<Vec<_>>(), [""]);
    }

    #[test]
    fn only_drained_and_down_nodes_are_neither_allocated_nor_idle() {
        // Base states unknown, down, idle, error; unknown and error, both drained; unknown and not
        // responding.
        for (state, idle) in
            [(0, 1), (1, 0), (2, 1), (4, 1), (0x200, 0), (0x204, 0), (0x800, 1), (0x2002, 1)]
        {
            let total = counted(&mut [record(c"n", state, c"gpu:1", c"")], false).nodes.total;
            assert_eq!((total.nodes.idle, total.nodes.other), (idle, 1 - idle), "{state:#x}");
            assert_eq!((total.cpus.idle, total.gpus.idle), (8 * idle, idle), "{state:#x}");
        }
    }

    /// Slurm keeps one time for both, that of the reason, and a drained node that goes down keeps
    /// it.
    #[test]
    fn since_when_a_drained_node_is_down_nobody_knows() {
        let at = |state, reason_time| node_info_t { reason_time, ..record(c"n", state, c"", c"") };
        let mut records =
            [at(0x202, 90), at(0x203, 70), at(1, 50), at(0x201, 60), at(2, 10), at(0x202, 0)];
        let nodes = counted(&mut records, false).nodes;
        assert_eq!((nodes.drain_since, nodes.down_since), (vec![60, 70, 90], vec![50]));
    }

    proptest! {
        #[test]
        fn any_state_word_counts_once_and_totals_are_the_sums_of_their_parts(
            states in prop::collection::vec(prop_oneof![0_u32..8, any::<u32>()], 0..40),
            gres in "(gpu(:[a-z0-9]{0,3}){0,2}(\\([0-9,]*\\))?,?){0,3}",
            used in "[ -~]{0,20}",
        ) {
            let gres = CString::new(gres).unwrap();
            let used = CString::new(used).unwrap();
            let mut records: Vec<_> = states.iter().map(|&state| record(c"n", state, &gres,
                &used)).collect();
            let nodes = counted(&mut records, false).nodes;
            let here = states.iter().filter(|&state| state & 0xf != 6).count();
            prop_assert_eq!(nodes.total.nodes.total, u64::try_from(here).unwrap());
            prop_assert_eq!(sum(nodes.states.values()), nodes.total);
            let mut gpus = Shares::default();
            nodes.gpus.values().for_each(|shares| gpus.add(*shares));
            prop_assert_eq!(gpus, nodes.total.gpus);
            let Shares { allocated, idle, other, total } = nodes.total.nodes;
            prop_assert_eq!(allocated + idle + other, total);
        }
    }
}
