//! Shares of something that are allocated, idle or neither: sinfo's A/I/O/T, for nodes, CPUs and
//! GPUs alike.
//!
//! `total` is always the sum of the other three, and sums saturate instead of wrapping.

use serde::{Deserialize, Serialize};

/// sinfo's `%F` (nodes) and `%C` (CPUs), and the same for GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shares {
    /// Number of nodes, CPUs or GPUs in use by jobs.
    pub allocated: u64,
    /// Number that is free, on nodes that are neither down nor drained.
    pub idle: u64,
    /// Number that is neither in use nor idle, on nodes that are down or drained.
    pub other: u64,
    /// The sum of the other three.
    pub total: u64,
}

impl Shares {
    /// Makes the shares of which `allocated` of `total` are in use. The rest is idle if `usable`,
    /// that is, if jobs may use it; otherwise it is other. If more is allocated than `total`, the
    /// total is raised.
    pub fn new(allocated: u64, total: u64, usable: bool) -> Self {
        let rest = total.saturating_sub(allocated);
        let (idle, other) = if usable { (rest, 0) } else { (0, rest) };
        Self { allocated, idle, other, total: total.max(allocated) }
    }

    /// Adds other shares to these.
    pub fn add(&mut self, more: Self) {
        add_members!(self, more; allocated idle other total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_the_sum_of_its_parts() {
        for (allocated, total, usable) in
            [(0, 0, true), (3, 8, true), (3, 8, false), (9, 8, true), (9, 8, false)]
        {
            let shares = Shares::new(allocated, total, usable);
            assert_eq!(shares.total, shares.allocated + shares.idle + shares.other);
            assert_eq!(shares.allocated, allocated);
        }
    }

    #[test]
    fn sums_stop_at_the_greatest_number() {
        let mut shares = Shares::new(u64::MAX, u64::MAX, true);
        shares.add(Shares::new(1, 2, true));
        assert_eq!((shares.allocated, shares.idle, shares.total), (u64::MAX, 1, u64::MAX));
    }
}
