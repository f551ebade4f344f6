//! Shards: parts of GPUs, of which several jobs can have one each.
//!
//! slurmctld says from 23.11 on how many are in use. What is not known of one node is not known of
//! a sum, because a part of it would look like the whole.

use serde::{Deserialize, Serialize};

use crate::sums::add_to;

/// Numbers of shards of one type, of a node or of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shards {
    /// Number in use by jobs; `None` if it is not known of a node.
    pub allocated: Option<u64>,
    /// Number that is free, of GPUs that no job has whole, on nodes that are neither down nor
    /// drained. `None` if it is not known of a node.
    pub idle: Option<u64>,
    /// Number of all shards.
    pub total: u64,
}

impl Default for Shards {
    fn default() -> Self {
        Self { allocated: Some(0), idle: Some(0), total: 0 }
    }
}

impl Shards {
    /// Adds other shards to these. A number becomes `None` if it is not known of either.
    pub fn add(&mut self, more: Self) {
        let sum = |sum: Option<u64>, more: Option<u64>| Some(sum?.saturating_add(more?));
        self.allocated = sum(self.allocated, more.allocated);
        self.idle = sum(self.idle, more.idle);
        add_to(&mut self.total, more.total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_sum_never_looks_like_the_whole() {
        let mut sum = Shards::default();
        sum.add(Shards { allocated: Some(3), idle: Some(5), total: 8 });
        assert_eq!(sum, Shards { allocated: Some(3), idle: Some(5), total: 8 });
        sum.add(Shards { allocated: Some(1), idle: None, total: 8 });
        sum.add(Shards { allocated: Some(2), idle: Some(6), total: u64::MAX });
        assert_eq!(sum, Shards { allocated: Some(6), idle: None, total: u64::MAX });
    }
}
