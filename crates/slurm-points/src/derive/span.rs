//! The time between two readings: how long it was, and whether slurmctld's counters were reset
//! within it.
//!
//! The clocks are compared with each other, so that a step of any of them yields no figure. In
//! doubt it is a reset, or no span at all: a missing figure does no harm, but a wrong one does.

use slurm_snapshot::{Reading, RpcTables, RpcType, Statistics, by_command, restarted};

use super::interval::exact_f64;

/// The most intervals that may be between two readings that are compared.
const FARTHEST: f64 = 3.0;

/// The least part of an interval that may be between two readings that are compared. A rate over a
/// shorter time, after an answer that was nearly late, would be noise.
const NEAREST: f64 = 0.25;

/// Share by which a clock may run faster than another while it is adjusted, but not set.
const SLEW: f64 = 0.01;

const DAY: i64 = 86_400;

/// The time between two readings of one slurmctld.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    /// Real time between the two replies, s; more than 0.
    pub(crate) seconds: f64,
    /// The event that reset the counters in this time; `None` if there was none.
    pub(crate) reset: Option<Reset>,
}

/// The events that make slurmctld reset its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reset {
    /// Midnight UTC, which resets the scheduler's counters, but not those of RPCs.
    Midnight,
    /// A run of `sdiag --reset`, which resets all counters.
    Command,
    /// A start of slurmctld, or a take-over by another controller: all counters begin at 0.
    Restart,
}

/// Returns the time between two readings, and whether the counters were reset in it. `None` if the
/// readings are more than three intervals apart or nearly at the same time, are of two clusters or
/// releases, or if a clock was set between them.
pub(crate) fn span(before: &Reading, now: &Reading, interval: u32) -> Option<Span> {
    let (old, new) = statistics(before, now)?;
    let seconds = seconds_between(before, now, interval)?;
    // What was read within the second of a reset could not tell another reset in that same second.
    let settled = old.req_time_start > 0 && old.req_time != old.req_time_start;
    let usable = settled && agrees(seconds, before, now, old, new);
    usable.then(|| Span { seconds, reset: began_anew(old, new) })
}

/// The real time between two readings, s; `None` for the reasons of [`span`], but slurmctld's clock
/// is not compared.
pub(crate) fn seconds_between(before: &Reading, now: &Reading, interval: u32) -> Option<f64> {
    let wall = now.time - before.time;
    let seconds = now.uptime.zip(before.uptime).map_or(wall, |(now, before)| now - before);
    let tick = f64::from(interval);
    let near = seconds > 0.0 && (tick * NEAREST..=tick * FARTHEST + 1.0).contains(&seconds);
    let unset = (wall - seconds).abs() < slack(seconds);
    let usable = near && unset && before.release == now.release && !is_another(before, now);
    usable.then_some(seconds)
}

/// Returns the statistics of `before`, and the seconds since then; `None` if the two readings
/// cannot be compared, or if there was a reset between them.
pub fn unbroken<'a>(
    before: &'a Reading,
    now: &Reading,
    interval: u32,
) -> Option<(&'a Statistics, f64)> {
    let span = span(before, now, interval).filter(|span| span.reset.is_none())?;
    Some((before.statistics.as_ref()?, span.seconds))
}

/// Returns the seconds from a run of `sdiag --reset` to the reading `now`: slurmctld's counters are
/// of this time alone. `None` if nobody ran it between the two readings, if midnight UTC was
/// between them, too, or if the time is too short for a rate. slurmctld's clock has whole seconds.
pub(crate) fn since_command(before: &Reading, now: &Reading, interval: u32) -> Option<f64> {
    let span = span(before, now, interval).filter(|span| span.reset == Some(Reset::Command))?;
    let (old, new) = statistics(before, now)?;
    // Midnight moves the time since when counters are, and not those of RPCs.
    (day(old.req_time_start) == day(new.req_time_start)).then_some(())?;
    let seconds = new.req_time.saturating_sub(new.req_time_start) as f64;
    (f64::from(interval) * NEAREST..span.seconds + 1.0).contains(&seconds).then_some(seconds)
}

/// The reason why the counters were reset between two readings, however far apart; `None` if they
/// were not.
pub(crate) fn reset(before: &Reading, now: &Reading) -> Option<Reset> {
    let (old, new) = statistics(before, now)?;
    began_anew(old, new)
}

/// Returns the statistics of both readings; `None` if one has none, or if they are of two clusters.
fn statistics<'a>(
    before: &'a Reading,
    now: &'a Reading,
) -> Option<(&'a Statistics, &'a Statistics)> {
    before.statistics.as_ref().zip(now.statistics.as_ref()).filter(|_| !is_another(before, now))
}

/// Whether two readings are of two clusters.
fn is_another(before: &Reading, now: &Reading) -> bool {
    matches!((&before.cluster, &now.cluster), (Some(old), Some(new)) if old != new)
}

const fn day(moment: i64) -> i64 {
    moment.div_euclid(DAY)
}

fn slack(seconds: f64) -> f64 {
    0.05 + seconds * SLEW
}

/// Whether about `seconds` passed between two readings on slurmctld's clock, too. This clock has
/// whole seconds, and slurmctld looked at it some time between request and reply.
fn agrees(
    seconds: f64,
    before: &Reading,
    now: &Reading,
    old: &Statistics,
    new: &Statistics,
) -> bool {
    let there = new.req_time.saturating_sub(old.req_time) as f64;
    let slack = slack(seconds);
    seconds - elapsed(now) - slack < there + 1.0 && seconds + elapsed(before) + slack > there - 1.0
}

/// Time that the RPC of a reading took, s.
fn elapsed(reading: &Reading) -> f64 {
    exact_f64(reading.elapsed) / 1e6
}

fn began_anew(old: &Statistics, new: &Statistics) -> Option<Reset> {
    let kept = !kept_went_down(old, new);
    // A slurmctld counts from time 0 until it first looks at its clock, and keeps what it counted
    // before that.
    let moved = old.req_time_start != new.req_time_start && old.req_time_start > 0;
    if !moved && kept && !scheduler_went_down(old, new) {
        return None;
    }
    // slurmctld resets its counters when it first looks at the clock on a new day (UTC); a busy one
    // does that late.
    if moved && kept && day(old.req_time_start) < day(new.req_time_start) && !restarted(old, new) {
        return Some(Reset::Midnight);
    }
    Some(if restarted(old, new) || !by_command(new) { Reset::Restart } else { Reset::Command })
}

/// Whether a counter has gone down that every reset sets to 0 and nothing else lowers. The sums of
/// depths and lengths are not among them, because they may wrap within a day.
fn scheduler_went_down(old: &Statistics, new: &Statistics) -> bool {
    let counters = |s: &Statistics| {
        [
            s.schedule_cycle_counter,
            s.bf_cycle_counter,
            s.jobs_submitted,
            s.jobs_started,
            s.jobs_completed,
            s.jobs_canceled,
            s.jobs_failed,
            s.bf_last_backfilled_jobs,
            s.bf_backfilled_het_jobs,
        ]
    };
    counters(old).into_iter().zip(counters(new)).any(|(old, new)| went_down(old, new))
        || is_lower(old.bf_cycle_sum, new.bf_cycle_sum)
        || new.schedule_cycle_max < old.schedule_cycle_max
        || is_lower(old.bf_cycle_max, new.bf_cycle_max)
}

/// Whether a counter has gone down that midnight does not reset.
fn kept_went_down(old: &Statistics, new: &Statistics) -> bool {
    went_down(old.bf_backfilled_jobs, new.bf_backfilled_jobs)
        || old.rpc.as_ref().zip(new.rpc.as_ref()).is_some_and(|(old, new)| rpcs_went_down(old, new))
}

fn rpcs_went_down(old: &RpcTables, new: &RpcTables) -> bool {
    // slurmctld adds new types at the end: if a row has moved, it is another process.
    let mut rows = new.types.iter();
    old.types.iter().any(|old| {
        let is_lower = |new: &RpcType| {
            new.id != old.id || went_down(old.count, new.count) || new.time < old.time
        };
        rows.next().is_none_or(is_lower)
    })
}

fn is_lower<T: Ord>(old: Option<T>, new: Option<T>) -> bool {
    old.zip(new).is_some_and(|(old, new)| new < old)
}

/// Whether a counter was set back, not wrapped at `u32::MAX`.
const fn went_down(old: u32, new: u32) -> bool {
    new.wrapping_sub(old) > u32::MAX / 2
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use slurm_snapshot::Release;

    use super::*;

    const MIDNIGHT: i64 = 20_000 * DAY;

    /// Numbers that may become lower without a reset, or wrap within a day; and moments.
    const NO_SIGN: &str = "server_thread_count agent_queue_size agent_count agent_thread_count \
        dbd_agent_queue_size gettimeofday_latency schedule_cycle_last schedule_queue_len \
        schedule_cycle_sum schedule_cycle_depth jobs_pending jobs_running bf_cycle_last \
        bf_queue_len bf_last_depth bf_last_depth_try bf_depth_sum bf_depth_try_sum \
        bf_queue_len_sum bf_table_size bf_table_size_sum bf_active req_time req_time_start \
        job_states_ts bf_when_last_cycle";

    /// The members of [`Statistics`] that are numbers, also of a release that is added later.
    fn numbers() -> Vec<String> {
        let json = serde_json::to_value(Statistics::default()).unwrap();
        let members = json.as_object().unwrap().keys().cloned();
        members.filter(|name| changed(&json, name, 9).is_ok()).collect()
    }

    /// These statistics with another number in a member; an error if it is no number.
    fn changed(json: &Value, member: &str, number: u32) -> serde_json::Result<Statistics> {
        let mut json = json.clone();
        json[member] = number.into();
        serde_json::from_value(json)
    }

    #[test]
    fn each_number_is_a_sign_of_a_reset_or_is_known_to_be_none() {
        let numbers = numbers();
        let mut nines = serde_json::to_value(Statistics::default()).unwrap();
        numbers.iter().for_each(|name| nines[name] = 9.into());
        let old = serde_json::from_value(nines.clone()).unwrap();
        for name in &numbers {
            let new = changed(&nines, name, 8).unwrap();
            let is_sign = scheduler_went_down(&old, &new) || kept_went_down(&old, &new);
            let is_listed = NO_SIGN.split_whitespace().any(|other| other == name);
            assert_eq!(is_sign, !is_listed, "{name}: does each reset set it to 0, and only that?");
        }
    }

    fn rpc(rows: &[(u16, u32)]) -> Option<RpcTables> {
        let row =
            |&(id, count): &(u16, u32)| RpcType { id, count, time: u64::from(count), queue: None };
        Some(RpcTables { types: rows.iter().map(row).collect(), ..RpcTables::default() })
    }

    /// A slurmctld that has run for an hour.
    fn running() -> Statistics {
        Statistics {
            req_time: MIDNIGHT + 3600,
            req_time_start: MIDNIGHT + 5,
            schedule_cycle_last: 85,
            schedule_cycle_max: 900,
            schedule_cycle_counter: 11,
            jobs_submitted: 3,
            bf_cycle_counter: 2,
            bf_table_size: Some(1),
            bf_when_last_cycle: Some(MIDNIGHT + 3597),
            bf_backfilled_jobs: 1,
            job_states_ts: Some(MIDNIGHT + 3579),
            rpc: rpc(&[(1002, 1), (4003, 3), (2035, 100)]),
            ..Statistics::default()
        }
    }

    fn reading(statistics: Statistics) -> Reading {
        let time = f64::from(u32::try_from(statistics.req_time).unwrap()) + 0.5;
        Reading {
            id: 1,
            time,
            elapsed: 400,
            release: Release::new(22, 5),
            statistics: Some(statistics),
            ..Reading::default()
        }
    }

    fn between(old: Statistics, new: Statistics) -> Option<Span> {
        span(&reading(old), &reading(new), 30)
    }

    #[test]
    fn what_22_05_keeps_tells_a_reset_by_command_from_a_restart() {
        // Both recorded in the sandbox; after the restart the moment of the last backfill cycle is
        // an old one.
        let reset = Statistics {
            req_time: MIDNIGHT + 3630,
            req_time_start: MIDNIGHT + 3620,
            schedule_cycle_last: 85,
            bf_table_size: Some(1),
            bf_when_last_cycle: Some(MIDNIGHT + 3597),
            job_states_ts: Some(MIDNIGHT + 3609),
            rpc: rpc(&[(2035, 1)]),
            ..Statistics::default()
        };
        assert_eq!(between(running(), reset.clone()).unwrap().reset, Some(Reset::Command));
        let restart = Statistics {
            schedule_cycle_last: 0,
            bf_table_size: Some(0),
            job_states_ts: Some(MIDNIGHT + 3620),
            rpc: rpc(&[(2035, 3), (2001, 3)]),
            ..reset.clone()
        };
        assert_eq!(between(running(), restart.clone()).unwrap().reset, Some(Reset::Restart));
        // Later, after cycles of both schedulers, only the order of the RPCs is left.
        let later = Statistics {
            schedule_cycle_last: 93,
            schedule_cycle_counter: 3,
            bf_cycle_counter: 3,
            bf_table_size: Some(1),
            job_states_ts: Some(MIDNIGHT + 3621),
            ..reset
        };
        assert_eq!(between(running(), later.clone()).unwrap().reset, Some(Reset::Command));
        let restarted = Statistics { rpc: rpc(&[(1002, 1), (2035, 1)]), ..later };
        assert_eq!(between(running(), restarted).unwrap().reset, Some(Reset::Restart));
    }

    #[test]
    fn midnight_is_what_leaves_the_rpcs_alone_however_late_a_busy_slurmctld_does_it() {
        let evening = Statistics {
            req_time: MIDNIGHT - 10,
            req_time_start: MIDNIGHT - 50_000,
            job_states_ts: Some(MIDNIGHT - 30),
            ..running()
        };
        let anew = Statistics {
            req_time: MIDNIGHT + 60,
            req_time_start: MIDNIGHT + 55,
            schedule_cycle_counter: 0,
            schedule_cycle_max: 0,
            bf_cycle_counter: 0,
            jobs_submitted: 0,
            ..evening.clone()
        };
        assert_eq!(between(evening.clone(), anew.clone()).unwrap().reset, Some(Reset::Midnight));
        let command = Statistics { rpc: rpc(&[(2035, 1)]), bf_backfilled_jobs: 0, ..anew.clone() };
        assert_eq!(between(evening.clone(), command).unwrap().reset, Some(Reset::Command));
        let unlike = Statistics { req_time_start: MIDNIGHT - 5, ..anew };
        assert_ne!(
            between(evening, unlike).unwrap().reset,
            Some(Reset::Midnight),
            "before midnight"
        );
    }

    #[test]
    fn rows_in_another_order_are_of_another_process_however_high_they_are() {
        let evening =
            Statistics { req_time: MIDNIGHT - 10, req_time_start: MIDNIGHT - 50_000, ..running() };
        let morning =
            Statistics { req_time: MIDNIGHT + 60, req_time_start: MIDNIGHT + 5, ..evening.clone() };
        assert_eq!(between(evening.clone(), morning.clone()).unwrap().reset, Some(Reset::Midnight));
        let mut rows = evening.rpc.clone().unwrap();
        rows.types.rotate_left(1);
        rows.types.iter_mut().for_each(|row| row.count += 1000);
        rows.types.iter_mut().for_each(|row| row.time += 1_000_000);
        let started = Statistics { rpc: Some(rows), job_states_ts: Some(MIDNIGHT + 6), ..morning };
        assert_eq!(between(evening, started).unwrap().reset, Some(Reset::Restart));
    }

    #[test]
    fn a_counter_that_went_down_is_a_reset_whatever_req_time_start_says() {
        let changes: [fn(&mut Statistics); 6] = [
            |s| s.schedule_cycle_counter -= 1,
            |s| s.jobs_submitted = 0,
            |s| s.bf_backfilled_jobs = 0,
            |s| s.schedule_cycle_max = 5,
            |s| s.rpc = rpc(&[(1002, 1), (4003, 2), (2035, 101)]),
            |s| s.rpc = rpc(&[(1002, 1), (2035, 101)]),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut new = Statistics { req_time: MIDNIGHT + 3630, ..running() };
            assert_eq!(between(running(), new.clone()).unwrap().reset, None);
            change(&mut new);
            assert!(between(running(), new).unwrap().reset.is_some(), "change {index}");
        }
    }

    #[test]
    fn a_counter_that_passes_its_end_is_no_reset() {
        let old =
            Statistics { jobs_submitted: u32::MAX - 2, bf_depth_sum: Some(u32::MAX), ..running() };
        let new = Statistics {
            req_time: MIDNIGHT + 3630,
            jobs_submitted: 4,
            bf_depth_sum: Some(9),
            ..old.clone()
        };
        assert_eq!(between(old, new).unwrap().reset, None);
    }

    #[test]
    fn a_slurmctld_that_has_not_looked_at_its_clock_yet_is_told_once() {
        let fresh =
            Statistics { req_time: MIDNIGHT + 3630, rpc: rpc(&[]), ..Statistics::default() };
        assert_eq!(between(running(), fresh.clone()).unwrap().reset, Some(Reset::Restart));
        let counting = Statistics {
            req_time: MIDNIGHT + 3660,
            req_time_start: MIDNIGHT + 3631,
            ..fresh.clone()
        };
        assert_eq!(
            reset(&reading(fresh.clone()), &reading(counting.clone())),
            None,
            "the same process"
        );
        assert_eq!(between(fresh, counting), None, "since when is not known");
    }

    #[test]
    fn what_does_not_belong_together_has_no_span() {
        let (old, now) =
            (reading(running()), reading(Statistics { req_time: MIDNIGHT + 3630, ..running() }));
        assert_eq!(span(&old, &now, 30).map(|span| span.seconds), Some(30.0));
        assert_eq!(span(&old, &now, 9), None, "more than three intervals");
        assert_eq!(span(&old, &now, 300), None, "nearly at once");
        assert_eq!(span(&now, &old, 30), None, "backwards");
        let changed = |change: fn(&mut Reading)| {
            let mut now = now.clone();
            change(&mut now);
            span(&old, &now, 30)
        };
        assert_eq!(changed(|now| now.time += 3.0), None, "the reader's clock was set");
        assert_eq!(changed(|now| now.release = Release::new(22, 6)), None);
        assert_eq!(changed(|now| now.statistics = None), None, "a reset's answer");
        let clusters = |old: &str, new: &str| {
            let named = |reading: &Reading, name: &str| Reading {
                cluster: Some(name.to_owned()),
                ..reading.clone()
            };
            span(&named(&self::reading(running()), old), &named(&now, new), 30)
        };
        assert!(clusters("a", "a").is_some());
        assert_eq!(clusters("a", "b"), None);
    }

    #[test]
    fn a_clock_that_slurmctld_and_the_reader_share_is_not_believed_when_it_is_set() {
        let up = |reading: Reading, uptime| Reading { uptime: Some(uptime), ..reading };
        let old = up(reading(running()), 500.0);
        // 30 s went by, and the clock of both was set 40 s forward.
        let now = up(reading(Statistics { req_time: MIDNIGHT + 3670, ..running() }), 530.0);
        assert_eq!(span(&old, &now, 30), None);
        let unset = up(reading(Statistics { req_time: MIDNIGHT + 3630, ..running() }), 530.001);
        let seconds = span(&old, &unset, 30).unwrap().seconds;
        assert!((seconds - 30.001).abs() < 1e-9, "{seconds}");
    }
}
