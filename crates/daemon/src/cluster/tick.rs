//! The phases of the tick under way.

use tokio::time::Instant;

/// The phase of the tick under way, exactly one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TickPhase {
    Idle,
    /// The tick waits for a ping, at most until the moment `until`.
    Waiting {
        timestamp: i64,
        until: Instant,
    },
    /// slurmctld is asked for this tick.
    Asked(i64),
    /// slurmctld has not answered, and the slot of the tick that asked it is over.
    Late,
    /// slurmctld has not answered an earlier tick; this tick begins when it has answered.
    LateThen(i64),
}

/// A tick that is over without an answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedTick {
    pub(crate) timestamp: i64,
    pub(crate) end: TickEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TickEnd {
    /// Another controller is active, so that this host publishes nothing of the cluster.
    Standby,
    /// slurmctld could not be asked in the tick's slot.
    Missed,
    /// slurmctld has not answered in the tick's slot.
    Late,
}

impl TickPhase {
    /// Ends the slot of the tick under way. Returns that tick; `None` if no tick's slot was open.
    pub(super) const fn end_slot(&mut self) -> Option<EndedTick> {
        let (phase, timestamp, end) = match *self {
            Self::Idle | Self::Late => return None,
            Self::Waiting { timestamp, .. } => (Self::Idle, timestamp, TickEnd::Missed),
            Self::Asked(timestamp) => (Self::Late, timestamp, TickEnd::Late),
            Self::LateThen(timestamp) => (Self::Late, timestamp, TickEnd::Missed),
        };
        *self = phase;
        Some(EndedTick { timestamp, end })
    }

    pub(super) const fn waits_until(&self) -> Option<Instant> {
        match *self {
            Self::Waiting { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Returns the tick that waited for a ping, which waits no longer.
    pub(super) const fn take_waiting(&mut self) -> Option<i64> {
        let Self::Waiting { timestamp, .. } = *self else { return None };
        *self = Self::Idle;
        Some(timestamp)
    }

    /// Takes that slurmctld has answered. Returns the tick that the answer is for, if its slot is
    /// not over, and the tick that has waited for it and begins now.
    pub(super) const fn handle_answer(&mut self) -> (Option<i64>, Option<i64>) {
        let ticks = match *self {
            Self::Waiting { .. } => return (None, None),
            Self::Idle | Self::Late => (None, None),
            Self::Asked(timestamp) => (Some(timestamp), None),
            Self::LateThen(timestamp) => (None, Some(timestamp)),
        };
        *self = Self::Idle;
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_has_one_end_and_a_late_answer_belongs_to_none() {
        let ended = |timestamp, end| Some(EndedTick { timestamp, end });
        let mut phase = TickPhase::Asked(10);
        assert_eq!((phase.handle_answer(), phase.end_slot()), ((Some(10), None), None), "in time");
        phase = TickPhase::Asked(10);
        assert_eq!((phase.end_slot(), phase.end_slot()), (ended(10, TickEnd::Late), None));
        assert_eq!(
            (phase, phase.handle_answer(), phase),
            (TickPhase::Late, (None, None), TickPhase::Idle)
        );
        phase = TickPhase::LateThen(20);
        assert_eq!((phase.handle_answer(), phase), ((None, Some(20)), TickPhase::Idle));
        phase = TickPhase::LateThen(20);
        assert_eq!(
            (phase.end_slot(), phase),
            (ended(20, TickEnd::Missed), TickPhase::Late),
            "the answer is still to come"
        );
    }

    #[test]
    fn a_tick_that_waits_for_a_ping_was_not_asked_for() {
        let until = Instant::now();
        let waiting = TickPhase::Waiting { timestamp: 10, until };
        let mut phase = waiting;
        assert_eq!((phase.waits_until(), phase.handle_answer()), (Some(until), (None, None)));
        assert_eq!(
            (phase.take_waiting(), phase.take_waiting(), phase),
            (Some(10), None, TickPhase::Idle)
        );
        phase = waiting;
        assert_eq!(phase.end_slot(), Some(EndedTick { timestamp: 10, end: TickEnd::Missed }));
        assert_eq!(
            (phase, phase.take_waiting()),
            (TickPhase::Idle, None),
            "a ping that comes later begins nothing"
        );
    }
}
