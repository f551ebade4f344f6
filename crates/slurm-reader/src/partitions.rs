//! `slurm_load_partitions`, joined with the nodes that were counted just before.
//!
//! A partition lists its nodes as pairs of first and last index into the nodes' reply, ended by -1.

use slurm_snapshot::{Partition, Partitions};
use slurm_sys::{partition_info_msg_t, partition_info_t};

use crate::nodes::CountedNodes;
use crate::unpacked::Unpacked;
use crate::values::{NO_VAL16, name};

/// Counts the nodes of each partition in the reply. `nodes` are those that were counted just
/// before.
pub(crate) fn from_reply(
    reply: Unpacked<'_, partition_info_msg_t>,
    nodes: &CountedNodes,
) -> Partitions {
    let partitions = reply.partition_array().map(|record| partition(record, nodes));
    Partitions { last_update: reply.last_update, partitions: partitions.collect() }
}

fn partition(record: Unpacked<'_, partition_info_t>, nodes: &CountedNodes) -> Partition {
    let name = name(record.name());
    let state = state(record.state_up);
    let mut partition = Partition { name, state, ..Partition::default() };
    // No list is longer than ranges of one node each.
    let indexes = record.node_indexes(nodes.members.len().saturating_mul(2));
    let mut ranges = indexes.chunks_exact(2);
    while let Some([first, last]) = ranges.next() {
        let (Ok(first), Ok(last)) = (usize::try_from(*first), usize::try_from(*last)) else {
            continue;
        };
        let last = last.min(nodes.members.len().saturating_sub(1));
        for member in nodes.members.get(first..=last).unwrap_or_default().iter().flatten() {
            partition.add(&member.word, &member.tally, &member.gres);
            member.mark.into_iter().for_each(|mark| partition.add_member(mark));
        }
    }
    partition
}

/// Returns the word for a partition's state, in which bit 1 means that jobs may be submitted, and
/// bit 2 that jobs may be started. Empty if the state is not known.
fn state(state: u16) -> String {
    match state {
        NO_VAL16.. => String::new(),
        3 => "up".to_owned(),
        1 => "down".to_owned(),
        2 => "drain".to_owned(),
        0 => "inactive".to_owned(),
        _ => format!("state_{state}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::tests::{counted as counted_nodes, record};
    use crate::unpacked::made;

    fn counted(records: &mut [partition_info_t], nodes: &CountedNodes) -> Vec<Partition> {
        let record_count = u32::try_from(records.len()).unwrap();
        let reply = partition_info_msg_t {
            last_update: 7,
            record_count,
            partition_array: records.as_mut_ptr(),
        };
        from_reply(made(&reply), nodes).partitions
    }

    fn with_nodes(list: &mut [i32]) -> partition_info_t {
        partition_info_t { node_inx: list.as_mut_ptr(), ..Default::default() }
    }

    #[test]
    fn a_node_of_two_partitions_counts_in_both() {
        let mut nodes = [2, 5, 0x202].map(|state| record(c"n", state, c"gpu:a100:2", c""));
        let nodes = counted_nodes(&mut nodes, false);
        let partitions =
            counted(&mut [with_nodes(&mut [0, 2, -1]), with_nodes(&mut [1, 1, 2, 2, -1])], &nodes);
        assert_eq!(partitions[0].total, nodes.nodes.total);
        assert_eq!((partitions[1].total.nodes.total, partitions[1].total.gpus.total), (2, 4));
        assert_eq!(partitions[1].states["drained"].nodes.other, 1);
        assert_eq!(partitions[0].gpus, nodes.nodes.gpus);
        assert_eq!(partitions[1].gpus["a100"], partitions[1].total.gpus);
    }

    #[test]
    fn indexes_that_lead_nowhere_count_nothing() {
        let nodes = counted_nodes(&mut [record(c"n", 2, c"", c"")], false);
        for list in [&mut [-1][..], &mut [5, 9, -1], &mut [3, 1, -1], &mut [0, -1]] {
            assert_eq!(
                counted(&mut [with_nodes(list)], &nodes)[0].total.nodes.total,
                0,
                "{list:?}"
            );
        }
        assert_eq!(
            counted(&mut [with_nodes(&mut [0, i32::MAX, -1])], &nodes)[0].total.nodes.total,
            1
        );
        assert_eq!(counted(&mut [partition_info_t::default()], &nodes)[0].total.nodes.total, 0);
        assert_eq!(
            counted(&mut [with_nodes(&mut [0, 0, -1])], &CountedNodes::default())[0]
                .total
                .nodes
                .total,
            0
        );
    }

    #[test]
    fn states_have_their_words() {
        let at = |state_up| partition_info_t { state_up, ..Default::default() };
        let mut records = [at(3), at(1), at(2), at(0), at(9)];
        let seen = counted(&mut records, &CountedNodes::default());
        let states: Vec<_> = seen.iter().map(|partition| partition.state.as_str()).collect();
        assert_eq!(states, ["up", "down", "drain", "inactive", "state_9"]);
    }
}
