//! How far the tick under way has come.

use tokio::time::Instant;

/// Exactly one of these is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TickPhase {
    Idle,
    /// The tick waits for a ping, at most until then.
    Waiting {
        timestamp: i64,
        until: Instant,
    },
    /// Slurmctld is asked for this tick.
    Asked(i64),
    /// Slurmctld has not answered, and the tick's slot is over.
    Late,
    /// The same, and this tick begins when it has answered.
    LateThen(i64),
}

/// What a tick does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TickStep {
    /// It waits for a ping, or for an answer.
    UnderWay,
    /// Nothing: another controller is active.
    Standby,
    /// Slurmctld cannot be asked in its slot.
    Missed,
}

/// A tick whose slot is over before there was an answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedTick {
    pub(crate) timestamp: i64,
    pub(crate) was_asked: bool,
}

impl TickPhase {
    /// Returns the tick under way, whose slot is over.
    pub(super) const fn end_slot(&mut self) -> Option<EndedTick> {
        let (phase, timestamp, was_asked) = match *self {
            Self::Idle | Self::Late => return None,
            Self::Waiting { timestamp, .. } => (Self::Idle, timestamp, false),
            Self::Asked(timestamp) => (Self::Late, timestamp, true),
            Self::LateThen(timestamp) => (Self::Late, timestamp, false),
        };
        *self = phase;
        Some(EndedTick { timestamp, was_asked })
    }

    pub(super) const fn waits_until(&self) -> Option<Instant> {
        match *self {
            Self::Waiting { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Returns the tick that waited for a ping, which waits no longer.
    pub(super) const fn waited(&mut self) -> Option<i64> {
        let Self::Waiting { timestamp, .. } = *self else { return None };
        *self = Self::Idle;
        Some(timestamp)
    }

    /// The answer is there: returns the tick that it is for, if its slot is not over, and the one that begins now.
    pub(super) const fn answered(&mut self) -> (Option<i64>, Option<i64>) {
        let ticks = match *self {
            Self::Idle | Self::Waiting { .. } => return (None, None),
            Self::Asked(timestamp) => (Some(timestamp), None),
            Self::Late => (None, None),
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
        let ended = |timestamp, was_asked| Some(EndedTick { timestamp, was_asked });
        let mut phase = TickPhase::Asked(10);
        assert_eq!((phase.answered(), phase.end_slot()), ((Some(10), None), None), "in time");
        phase = TickPhase::Asked(10);
        assert_eq!((phase.end_slot(), phase.end_slot()), (ended(10, true), None));
        assert_eq!((phase, phase.answered(), phase), (TickPhase::Late, (None, None), TickPhase::Idle));
        phase = TickPhase::LateThen(20);
        assert_eq!((phase.answered(), phase), ((None, Some(20)), TickPhase::Idle));
        phase = TickPhase::LateThen(20);
        assert_eq!(
            (phase.end_slot(), phase),
            (ended(20, false), TickPhase::Late),
            "the answer is still to come"
        );
    }

    #[test]
    fn a_tick_that_waits_for_a_ping_was_not_asked_for() {
        let until = Instant::now();
        let waiting = TickPhase::Waiting { timestamp: 10, until };
        let mut phase = waiting;
        assert_eq!((phase.waits_until(), phase.answered()), (Some(until), (None, None)));
        assert_eq!((phase.waited(), phase.waited(), phase), (Some(10), None, TickPhase::Idle));
        phase = waiting;
        assert_eq!(phase.end_slot(), Some(EndedTick { timestamp: 10, was_asked: false }));
        assert_eq!(
            (phase, phase.waited()),
            (TickPhase::Idle, None),
            "a ping that comes later begins nothing"
        );
    }
}
