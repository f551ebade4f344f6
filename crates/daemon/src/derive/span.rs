//! What lies between two readings: how long it was, and whether slurmctld's counters began anew within it.
//!
//! The clocks are held against each other, so that a step of any makes no figure. Whatever is in doubt is a reset, or
//! no span at all: an interval without a figure is no harm, a wrong one is.

use slurm_snapshot::{Reading, RpcTables, RpcType, Statistics};

/// How many intervals may lie between two readings that are compared.
const FARTHEST: f64 = 3.0;

/// How much of one at least: a rate over a moment, after an answer that was nearly late, would be noise.
const NEAREST: f64 = 0.25;

/// How much faster than the other a clock may run that is being adjusted and not set.
const SLEW: f64 = 0.01;

/// `REQUEST_STATS_INFO`, which is also how `sdiag --reset` asks.
const STATS_INFO: u16 = 2035;

const DAY: i64 = 86_400;

/// The time between two readings of one slurmctld.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    /// Real time between the two replies, s; more than 0.
    pub(crate) seconds: f64,
    /// Why the counters began anew within it.
    pub(crate) reset: Option<Reset>,
}

/// What makes slurmctld's counters begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reset {
    /// Midnight UTC: the scheduler's counters, not those of RPCs.
    Midnight,
    /// `sdiag --reset`, by anybody: all of them.
    Command,
    /// slurmctld started, or another controller took over: all of them.
    Restart,
}

/// What lies between two readings; `None` where they are more than three intervals apart or nearly at once, of two
/// clusters or releases, or where a clock was set meanwhile.
pub(crate) fn span(before: &Reading, now: &Reading, interval: u32) -> Option<Span> {
    let (old, new) = statistics(before, now)?;
    let wall = now.time - before.time;
    let seconds = now.uptime.zip(before.uptime).map_or(wall, |(now, before)| now - before);
    let tick = f64::from(interval);
    let near = seconds > 0.0 && (tick * NEAREST..=tick * FARTHEST + 1.0).contains(&seconds);
    let unset = (wall - seconds).abs() < slack(seconds) && agrees(seconds, before, now, old, new);
    // What was read within the second of a reset could not tell another reset in that same second.
    let settled = old.req_time_start > 0 && old.req_time != old.req_time_start;
    let usable = near && unset && settled && before.release == now.release;
    usable.then(|| Span { seconds, reset: began_anew(old, new) })
}

/// Why the counters began anew between two readings, however far apart.
pub(crate) fn reset(before: &Reading, now: &Reading) -> Option<Reset> {
    let (old, new) = statistics(before, now)?;
    began_anew(old, new)
}

/// Both statistics, where they may be compared.
fn statistics<'a>(before: &'a Reading, now: &'a Reading) -> Option<(&'a Statistics, &'a Statistics)> {
    let another = matches!((&before.cluster, &now.cluster), (Some(old), Some(new)) if old != new);
    before.statistics.as_ref().zip(now.statistics.as_ref()).filter(|_| !another)
}

/// How far two clocks may differ over so many seconds.
fn slack(seconds: f64) -> f64 {
    0.05 + seconds * SLEW
}

/// Whether so much time went by on slurmctld's clock too, which tells whole seconds; it answered between the request
/// and the reply.
fn agrees(seconds: f64, before: &Reading, now: &Reading, old: &Statistics, new: &Statistics) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "moments of this century are exact")]
    let there = new.req_time.saturating_sub(old.req_time) as f64;
    let slack = slack(seconds);
    seconds - elapsed(now) - slack < there + 1.0 && seconds + elapsed(before) + slack > there - 1.0
}

/// How long the RPC took, s.
fn elapsed(reading: &Reading) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "285 years of µs are exact")]
    let micros = reading.elapsed as f64;
    micros / 1e6
}

fn began_anew(old: &Statistics, new: &Statistics) -> Option<Reset> {
    let kept = !kept_went_down(old, new);
    // A slurmctld counts since 0 until it first looks at its clock, and keeps what it has counted by then.
    let moved = old.req_time_start != new.req_time_start && old.req_time_start > 0;
    if !moved && kept && !scheduler_went_down(old, new) {
        return None;
    }
    // It resets itself at its first moment of a day, which may be late when it is busy.
    let day = |moment: i64| moment.div_euclid(DAY);
    if moved && kept && day(old.req_time_start) < day(new.req_time_start) && !restarted(old, new) {
        return Some(Reset::Midnight);
    }
    Some(if restarted(old, new) || !by_command(new) { Reset::Restart } else { Reset::Command })
}

/// What every reset sets to 0 and nothing else lowers; the sums of depths and lengths may wrap within a day.
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
        || new.bf_cycle_sum < old.bf_cycle_sum
        || new.schedule_cycle_max < old.schedule_cycle_max
        || new.bf_cycle_max < old.bf_cycle_max
}

/// What midnight leaves alone.
fn kept_went_down(old: &Statistics, new: &Statistics) -> bool {
    went_down(old.bf_backfilled_jobs, new.bf_backfilled_jobs)
        || old.rpc.as_ref().zip(new.rpc.as_ref()).is_some_and(|(old, new)| rpcs_went_down(old, new))
}

fn rpcs_went_down(old: &RpcTables, new: &RpcTables) -> bool {
    old.types.iter().enumerate().any(|(index, old)| {
        let same = |row: &&RpcType| row.id == old.id;
        // slurmctld adds a new type at the end, so that a row stays where it is.
        let row = new.types.get(index).filter(same).or_else(|| new.types.iter().find(same));
        row.is_none_or(|new| went_down(old.count, new.count) || new.time < old.time)
    })
}

/// Whether a counter was set back; one that has passed `u32::MAX` was not.
const fn went_down(old: u32, new: u32) -> bool {
    new.wrapping_sub(old) > u32::MAX / 2
}

/// Whether what outlives `sdiag --reset` and midnight is lost: that takes another process, or another controller.
fn restarted(old: &Statistics, new: &Statistics) -> bool {
    new.req_time_start <= 0
        || new.req_time_start < old.req_time_start
        || (old.bf_when_last_cycle.is_some() && new.bf_when_last_cycle.is_none())
        || (old.bf_table_size > 0 && new.bf_table_size == 0)
        || (old.schedule_cycle_last > 0 && new.schedule_cycle_last == 0 && new.schedule_cycle_counter == 0)
}

/// Whether this process is older than its counters. A reset is the first RPC that the tables count after it; a
/// slurmctld that starts hears from others first. The moment of the last backfill cycle tells nothing: a slurmctld
/// that starts knows it from its saved state (22.05).
fn by_command(new: &Statistics) -> bool {
    let since = new.req_time_start;
    let first = new.rpc.as_ref().and_then(|tables| tables.types.first());
    new.job_states_ts.is_some_and(|counted| counted < since)
        || (new.schedule_cycle_counter == 0 && new.schedule_cycle_last > 0)
        || (new.bf_cycle_counter == 0 && new.bf_table_size > 0)
        || first.is_some_and(|row| row.id == STATS_INFO)
}
