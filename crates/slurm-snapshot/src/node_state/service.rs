//! Whether a node is in service, by its state alone: the rules of docs/development/node-events.md.

use serde::{Deserialize, Serialize};

use super::{
    BASE, COMPLETING, DOWN, DRAIN, FAIL, FUTURE, NO_RESPOND, POWER_DOWN, POWER_DRAIN, POWER_UP,
    POWERED_DOWN, POWERING_DOWN, POWERING_UP, REBOOT_ISSUED, UNKNOWN, is_working,
};

/// Flags of a node that power saving turns off or on, or keeps off.
const POWER: u32 = POWERED_DOWN | POWERING_UP | POWERING_DOWN | POWER_DOWN | POWER_UP;

/// The reasons why a node is out of service, from the mildest to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OutageClass {
    /// The node is out by decision: it is drained, and no job is left on it.
    Drained,
    /// The node is rebooted by `scontrol reboot`, and slurmctld has passed the order on.
    Reboot,
    /// An administrator has set the node to FAIL, and no job is left on it.
    Fail,
    /// The node is down.
    Down,
}

/// The meaning of a state for a node's service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Jobs may run on the node, now or once it is powered up.
    In,
    /// The node's slurmd does not respond, and slurmctld has not yet decided that the node is down.
    Silent,
    /// The state begins no outage and ends none.
    Undecided,
    /// The node is out of service.
    Out(OutageClass),
}

/// Returns what a state, libslurm's number, means for the node's service.
pub const fn service(state: u32) -> Service {
    let base = state & BASE;
    let has_jobs = is_working(base) || state & COMPLETING != 0;
    if base == UNKNOWN || base == FUTURE {
        Service::Undecided
    } else if base == DOWN && state & REBOOT_ISSUED == 0 {
        // "ResumeTimeout reached" leaves DOWN with POWERED_DOWN: a failure, although it is off.
        if state & POWERING_UP == 0 { Service::Out(OutageClass::Down) } else { Service::Undecided }
    } else if state & FAIL != 0 && !has_jobs {
        Service::Out(OutageClass::Fail)
    } else if state & REBOOT_ISSUED != 0 && !is_working(base) {
        // With a job: from 26.05 on, `sbatch --reboot` boots the nodes that the job has already
        // been given.
        Service::Out(OutageClass::Reboot)
    } else if state & DRAIN != 0 && !has_jobs {
        // `scontrol update state=power_down_asap` drains a node until it is turned off.
        let is_asap = state & (POWER_DOWN | POWERING_DOWN | POWER_DRAIN) != 0;
        if is_asap { Service::Undecided } else { Service::Out(OutageClass::Drained) }
    } else if state & NO_RESPOND != 0 && state & POWER == 0 {
        Service::Silent
    } else {
        Service::In
    }
}

/// Whether power saving turns the node off or on, or keeps it off: then its next boot does not
/// count as a reboot.
pub const fn changes_power(state: u32) -> bool {
    state & POWER != 0
}

#[cfg(test)]
mod tests {
    use super::super::{
        ALLOCATED, BLOCKED, IDLE, INVALID_REG, MAINT, MIXED, PLANNED, REBOOT_REQUESTED,
    };
    use super::OutageClass::{Down, Drained, Fail, Reboot};
    use super::Service::{In, Out, Silent, Undecided};
    use super::*;

    #[test]
    fn each_state_says_what_the_document_says() {
        for (state, expected) in [
            (IDLE, In),
            (IDLE | PLANNED, In),
            (IDLE | BLOCKED, In),
            (IDLE | INVALID_REG, In),
            (IDLE | MAINT, In),
            (IDLE | REBOOT_REQUESTED, In),
            (DOWN, Out(Down)),
            (DOWN | DRAIN | MAINT, Out(Down)),
            (DOWN | NO_RESPOND, Out(Down)),
            (DOWN | POWERED_DOWN, Out(Down)),
            (DOWN | POWERING_UP, Undecided),
            (DOWN | REBOOT_ISSUED, Out(Reboot)),
            (DOWN | REBOOT_ISSUED | DRAIN, Out(Reboot)),
            (ALLOCATED | REBOOT_ISSUED | POWERING_UP, In),
            (DOWN | REBOOT_ISSUED | FAIL, Out(Fail)),
            (IDLE | FAIL, Out(Fail)),
            (IDLE | FAIL | DRAIN, Out(Fail)),
            (ALLOCATED | FAIL, In),
            (IDLE | DRAIN, Out(Drained)),
            (IDLE | DRAIN | NO_RESPOND, Out(Drained)),
            (IDLE | DRAIN | POWERED_DOWN, Out(Drained)),
            (IDLE | DRAIN | COMPLETING, In),
            (MIXED | DRAIN, In),
            (ALLOCATED | DRAIN, In),
            (IDLE | DRAIN | POWER_DOWN, Undecided),
            (IDLE | DRAIN | POWERING_DOWN, Undecided),
            (IDLE | NO_RESPOND, Silent),
            (ALLOCATED | NO_RESPOND, Silent),
            (IDLE | NO_RESPOND | POWERING_UP, In),
            (IDLE | POWERED_DOWN, In),
            (UNKNOWN, Undecided),
            (UNKNOWN | DRAIN, Undecided),
            (FUTURE, Undecided),
        ] {
            assert_eq!(service(state), expected, "{state:#x}");
        }
        assert!(Down > Fail && Fail > Reboot && Reboot > Drained);
        assert!(changes_power(IDLE | POWERING_UP) && !changes_power(IDLE | DRAIN | NO_RESPOND));
    }
}
