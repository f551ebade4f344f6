//! Sums of node events: of a round, or since the first start.

use serde::{Deserialize, Serialize};
use slurm_snapshot::OutageClass;

/// What happened to all nodes, or to those of a partition.
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
    /// From the mildest to the worst.
    pub(crate) classes: [ClassCounts; 4],
}

/// What happened in outages of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClassCounts {
    /// Outages that came to this class.
    pub(crate) reached: u64,
    /// Outages that ended and had no worse class.
    pub(crate) ended: u64,
    /// Those of them whose beginning and end are known.
    pub(crate) timed: u64,
    /// How long those lasted together.
    pub(crate) seconds: u64,
    /// The longest of them; of a round only.
    #[serde(skip)]
    pub(crate) longest: u64,
    /// Time that nodes spent in this class, s.
    pub(crate) node_seconds: u64,
}

impl EventCounts {
    pub(super) const fn of(&mut self, class: OutageClass) -> &mut ClassCounts {
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
        self.classes.iter().fold(0, |sum, class| sum.saturating_add(class.ended))
    }

    pub(super) fn add(&mut self, more: &Self) {
        add(&mut self.begun, more.begun);
        add(&mut self.removed, more.removed);
        add(&mut self.reboots, more.reboots);
        add(&mut self.slurmd_restarts, more.slurmd_restarts);
        add(&mut self.unknown_seconds, more.unknown_seconds);
        self.classes.iter_mut().zip(&more.classes).for_each(|(class, more)| class.add(more));
    }
}

impl ClassCounts {
    fn add(&mut self, more: &Self) {
        add(&mut self.reached, more.reached);
        add(&mut self.ended, more.ended);
        add(&mut self.timed, more.timed);
        add(&mut self.seconds, more.seconds);
        add(&mut self.node_seconds, more.node_seconds);
        self.longest = self.longest.max(more.longest);
    }
}

const fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}
