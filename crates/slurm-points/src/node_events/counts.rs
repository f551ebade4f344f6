//! Sums of node events: of a round, or since the first start.

use serde::{Deserialize, Serialize};
use slurm_snapshot::{OutageClass, add_members, sum_of};

/// Counts of the events of all nodes, or of those of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EventCounts {
    /// Outages that began.
    pub(crate) begun: u64,
    /// Nodes that vanished while they were out of service.
    pub(crate) removed: u64,
    pub(crate) reboots: u64,
    pub(crate) slurmd_restarts: u64,
    /// Seconds in which no reply says what happened.
    pub(crate) unknown_seconds: u64,
    /// The counts by class of outage, from the mildest class to the worst.
    pub(crate) classes: [ClassCounts; 4],
}

/// Counts of the outages of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClassCounts {
    /// Outages that came to this class.
    pub(crate) reached: u64,
    /// Outages that ended and had no worse class.
    pub(crate) ended: u64,
    /// Outages that ended, had no worse class, and whose beginning and end are known.
    pub(crate) timed: u64,
    /// Time that the outages in `timed` lasted together, s.
    pub(crate) seconds: u64,
    /// Length of the longest outage in `timed`, s; of a round only.
    #[serde(skip)]
    pub(crate) longest: u64,
    /// Time that nodes spent in this class, s.
    pub(crate) node_seconds: u64,
}

impl EventCounts {
    pub(super) const fn class_counts(&mut self, class: OutageClass) -> &mut ClassCounts {
        let [drained, reboot, fail, down] = &mut self.classes;
        match class {
            OutageClass::Drained => drained,
            OutageClass::Reboot => reboot,
            OutageClass::Fail => fail,
            OutageClass::Down => down,
        }
    }

    /// Outages that ended.
    pub(crate) fn ended(&self) -> u64 {
        sum_of(self.classes.iter().map(|class| class.ended))
    }

    pub(super) fn add(&mut self, more: &Self) {
        add_members!(self, more; begun removed reboots slurmd_restarts unknown_seconds);
        self.classes.iter_mut().zip(&more.classes).for_each(|(class, more)| class.add(more));
    }
}

impl ClassCounts {
    fn add(&mut self, more: &Self) {
        add_members!(self, more; reached ended timed seconds node_seconds);
        self.longest = self.longest.max(more.longest);
    }
}
