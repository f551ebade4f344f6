//! Random walks of slurmctld's counters, read through the collectors, against what really happened:
//! the figures of `slurm_sched_interval` and of each type of RPC.
//!
//! The walks include wraps, resets at any moment, restarts, clock changes and missing readings. An
//! interval figure must be exactly right or absent, and must be present if nothing prevented it.

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use carbon_wire::Batch;
use proptest::prelude::*;
use slurm_snapshot::{Reading, Release, Statistics, rpc_name};

use self::world::{ClusterEvent, Truth, Work, World};
use crate::collecting::Collecting;
use crate::collectors::TickOutcome;
use crate::configured::Collectors;
use crate::derive::Reset;

/// The events of one interval, and whether slurmctld is read at its end.
type Step = (Vec<ClusterEvent>, bool);

fn work() -> impl Strategy<Value = ClusterEvent> {
    let long = prop_oneof![4 => Just(0), 1 => 1_000_000_u32..60_000_000];
    (0_u32..50, 0.0..1.0, 0_u32..5000, long).prop_map(|(cycles, share, depth, long)| {
        ClusterEvent::Work(Work { cycles, share, depth, long })
    })
}

fn event() -> impl Strategy<Value = ClusterEvent> {
    let by = prop_oneof![-100_000_i64..-3, 3_i64..100_000];
    prop_oneof![
        60 => work(),
        2 => Just(ClusterEvent::Command),
        2 => Just(ClusterEvent::Restart),
        1 => by.clone().prop_map(ClusterEvent::SetReader),
        1 => by.clone().prop_map(ClusterEvent::SetSlurmctld),
        1 => by.prop_map(ClusterEvent::SetBoth),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (prop::collection::vec(event(), 0..4), prop::bool::weighted(0.8));
    prop::collection::vec(step, 2..40)
}

fn world() -> impl Strategy<Value = World> {
    let release = prop_oneof![
        Just(Release::new(22, 5)),
        Just(Release::new(24, 11)),
        Just(Release::new(26, 5))
    ];
    let tick = prop_oneof![Just(1_u32), Just(10), Just(30), Just(60), Just(300), Just(3600)];
    // Near midnight as often as not.
    let start = prop_oneof![86_000.0..86_399.9, 0.0..86_400.0];
    let near_the_end = prop_oneof![0_u32..1000, (u32::MAX - 5000)..=u32::MAX, any::<u32>()];
    (
        release,
        tick,
        start,
        [near_the_end.clone(), near_the_end.clone(), near_the_end],
        any::<bool>(),
    )
        .prop_map(|(release, tick, start, counters, uptime)| {
            World::new(release, tick, start, counters, uptime)
        })
}

/// Values by their leaf, or by what is behind the family.
type PublishedValues = BTreeMap<String, f64>;

/// One tick through the collectors: the schedulers' interval, and that of the RPCs.
fn published(
    collecting: &mut Collecting,
    timestamp: i64,
    reading: Option<&Arc<Reading>>,
) -> (PublishedValues, PublishedValues) {
    let mut batch = Batch::new(timestamp);
    let outcome = reading.cloned().map_or(TickOutcome::Failed, TickOutcome::Reading);
    collecting.collect(timestamp, &outcome, "c", &mut batch);
    assert_eq!(batch.refused(), 0, "NaN or infinity");
    let mut schedulers = PublishedValues::new();
    let mut rpcs = PublishedValues::new();
    for point in batch.points() {
        assert!(point.value() >= 0.0 || point.path().contains("queue_per_minute"), "{point:?}");
        if let Some(leaf) = point.path().strip_prefix("c.slurm_sched_interval.gauge-") {
            schedulers.insert(leaf.to_owned(), point.value());
        } else if let Some(row) = point.path().strip_prefix("c.slurm_rpc_stats.")
            && OF_INTERVAL.iter().any(|leaf| row.ends_with(leaf))
        {
            rpcs.insert(row.to_owned(), point.value());
        }
    }
    (schedulers, rpcs)
}

/// The figures of RPCs that take two readings.
const OF_INTERVAL: [&str; 4] =
    ["gauge-calls_per_minute", "gauge-interval_mean_time", "gauge-time_share", "gauge-busy"];

const RESETS: [(&str, Reset); 3] = [
    ("resets_midnight", Reset::Midnight),
    ("resets_command", Reset::Command),
    ("resets_restart", Reset::Restart),
];

/// The figures of an interval; the others are of one reading.
const OF_ONE: [&str; 2] = ["bf_last_cycle_age", "job_states_age"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn an_interval_figure_is_exactly_right_or_absent(mut world in world(), steps in steps()) {
        let mut collecting = Collecting::start(world.tick, &Collectors::default(), |_| None);
        let mut last: Option<(Arc<Reading>, Truth)> = None;
        let mut resets = BTreeMap::new();
        for (index, (events, read)) in steps.into_iter().enumerate() {
            world.live(&events);
            let timestamp = i64::try_from(index).unwrap();
            if !read {
                let (found, rpcs) = published(&mut collecting, timestamp, None);
                prop_assert!(found.keys().all(|leaf| leaf.starts_with("resets_")), "{found:?}");
                prop_assert!(rpcs.is_empty(), "{rpcs:?}");
                continue;
            }
            let reading = Arc::new(world.reading());
            let (mut found, rpcs) = published(&mut collecting, timestamp, Some(&reading));
            let mut more = |leaf| {
                let count = found.remove(leaf).unwrap_or(0.0);
                count > resets.insert(leaf, count).unwrap_or(0.0)
            };
            let counted: Vec<Reset> =
                RESETS.into_iter().filter(|(leaf, _)| more(*leaf)).map(|(_, kind)| kind).collect();
            found.retain(|leaf, _| !OF_ONE.contains(&leaf.as_str()));
            if let Some((before, then)) = &last {
                check([before, &reading], then, &world, &found, &counted)?;
                check_rpcs(before, then, &world, [&found, &rpcs], &counted)?;
            } else {
                prop_assert!(found.is_empty() && rpcs.is_empty(), "{found:?} {rpcs:?} of one \
                    reading");
            }
            last = Some((reading, world.truth.clone()));
            world.truth.forget_moments();
        }
    }
}

/// One reading's figures against what happened since the one before.
fn check(
    [before, now]: [&Reading; 2],
    then: &Truth,
    world: &World,
    found: &PublishedValues,
    counted: &[Reset],
) -> Result<(), TestCaseError> {
    let truth = &world.truth;
    let [old, new] = [before, now].map(|reading| reading.statistics.as_ref().unwrap());
    let tick = f64::from(world.tick);
    let seconds = truth.replied - then.replied;
    let settled = is_settled(before);
    let part = part_since_command(world, counted);
    if (!truth.resets.is_empty() && part.is_none())
        || world.surely_seen_as_set(seconds)
        || seconds > 3.0 * tick + 1.5 + seconds * 0.01
    {
        prop_assert!(
            found.is_empty(),
            "{found:?} across {:?} or a clock that was set",
            truth.resets
        );
    }
    if let ([only], true, true) = (truth.resets.as_slice(), settled, !world.ever_set) {
        // Where midnight fell between them and nothing is less than it was, no reading can tell.
        let rows = |s: &Statistics| s.rpc.as_ref().unwrap().types.clone();
        let less = old.bf_backfilled_jobs > new.bf_backfilled_jobs
            || (old.bf_table_size > Some(0) && new.bf_table_size == Some(0))
            || (old.bf_when_last_cycle.is_some() && new.bf_when_last_cycle.is_none())
            || (old.schedule_cycle_last > 0
                && (new.schedule_cycle_last, new.schedule_cycle_counter) == (0, 0))
            || rows(old).iter().enumerate().any(|(index, old)| {
                rows(new).get(index).is_none_or(|new| new.id != old.id || new.count < old.count)
            });
        let day = |s: &Statistics| s.req_time_start.div_euclid(86_400);
        let untold = *only == Reset::Restart && !less && day(old) < day(new);
        let taken_for = untold.then_some([Reset::Midnight]);
        prop_assert!(
            counted == [*only] || taken_for.is_some_and(|kind| counted == kind),
            "{counted:?} for {only:?} of {:?}",
            old.rpc
        );
    }
    if truth.resets.is_empty() && !world.ever_set && settled {
        prop_assert!(counted.is_empty(), "{counted:?} of nothing");
        let surely = seconds > 0.26 * tick && seconds < 3.0 * tick;
        prop_assert!(!surely || !found.is_empty(), "nothing after {seconds} s");
    }
    if let (Some(part), [_], true, false) = (part, &truth.resets[..], settled, world.ever_set) {
        let long = truth.replied - part.replied > 0.26 * tick + 1.2 && seconds < 3.0 * tick;
        let day = |statistics: &Statistics| statistics.req_time_start.div_euclid(86_400);
        prop_assert!(!long || day(old) != day(new) || !found.is_empty(), "nothing since a reset");
    }
    let then = part.unwrap_or(then);
    let is_whole = part.is_none();
    let seconds = truth.replied - then.replied;
    let Some(&measured) = found.get("seconds") else {
        prop_assert!(found.is_empty(), "{found:?}");
        return Ok(());
    };
    prop_assert!((measured - seconds).abs() <= 2.1 + 0.011 * seconds, "{measured} of {seconds} s");
    let slack = if is_whole { 1e-3 } else { 1.15 };
    prop_assert!(
        world.any_set() || (measured - seconds).abs() < slack,
        "{measured} of {seconds} s"
    );
    let grown = |of: fn(&Truth) -> u64| u32::try_from(of(truth) - of(then)).unwrap();
    let (cycles, depth) = (grown(|t| t.main_cycles), grown(|t| t.main_depth));
    let main_time = truth.main_time - then.main_time;
    let exactly = |leaf: &str, value: Option<f64>| {
        let same = match (found.get(leaf), value) {
            (Some(found), Some(value)) => (found - value).abs() <= value.abs() * 1e-12,
            (found, value) => found.is_none() && value.is_none(),
        };
        prop_assert!(same, "{leaf}: {:?} for {value:?}", found.get(leaf));
        Ok(())
    };
    let float = |value: u64| value.to_string().parse::<f64>().unwrap();
    let mean = |sum: f64, count: u32| (count > 0).then(|| sum / f64::from(count));
    // Of a part there are no counts, and no coverage.
    exactly("main_cycles", is_whole.then_some(cycles.into()))?;
    exactly("main_cycles_per_minute", Some(f64::from(cycles) * 60.0 / measured))?;
    exactly("main_mean_depth", mean(depth.into(), cycles))?;
    // In longer ones a u32 of µs may have wrapped once more than it seems.
    if world.is_wide() || seconds < 1000.0 || found.contains_key("main_busy_fraction") {
        exactly("main_busy_fraction", Some(float(main_time) / (measured * 1e6)))?;
        exactly("main_mean_cycle", mean(float(main_time), cycles))?;
    }
    let bf_cycles = grown(|t| t.bf_cycles);
    let bf_time = truth.bf_time - then.bf_time;
    exactly("bf_cycles", is_whole.then_some(bf_cycles.into()))?;
    exactly("bf_cycles_per_minute", Some(f64::from(bf_cycles) * 60.0 / measured))?;
    exactly("bf_busy_fraction", Some(float(bf_time) / (measured * 1e6)))?;
    exactly("bf_mean_cycle", mean(float(bf_time), bf_cycles))?;
    // Of a part it is not always known whether a cycle was running at the reset.
    let mean_or_none = |leaf: &str, sum: u32| match found.contains_key(leaf) || is_whole {
        true => exactly(leaf, mean(sum.into(), bf_cycles)),
        false => Ok(()),
    };
    mean_or_none("bf_depth_mean_try", grown(|t| t.bf_depth_try))?;
    mean_or_none("bf_queue_length_mean", grown(|t| t.bf_queue_len))?;
    // Of the last cycle; without one since the reading before it would be that of a cycle that is
    // long over.
    let tries = new.bf_last_depth_try.unwrap_or(0);
    let queue = new.bf_queue_len;
    let is_known = is_whole && bf_cycles > 0 && new.bf_active == 0 && queue > 0;
    exactly("bf_coverage", is_known.then(|| f64::from(tries) / f64::from(queue)))?;
    mean_or_none("bf_depth_mean", grown(|t| t.bf_depth))?;
    exactly("bf_table_size_mean", (bf_cycles > 0).then_some(1.0))?;
    let jobs = grown(|t| t.jobs);
    for (kind, times) in [
        ("submitted", 1.0),
        ("started", 2.0),
        ("completed", 3.0),
        ("canceled", 4.0),
        ("failed", 5.0),
    ] {
        exactly(
            &format!("jobs_{kind}_per_minute"),
            Some(f64::from(jobs) * times * 60.0 / measured),
        )?;
    }
    exactly("jobs_backfilled_per_minute", Some(f64::from(jobs) * 60.0 / measured))
}

/// The RPCs' figures of one reading: midnight leaves their tables alone.
fn check_rpcs(
    before: &Reading,
    then: &Truth,
    world: &World,
    [found, rpcs]: [&PublishedValues; 2],
    counted: &[Reset],
) -> Result<(), TestCaseError> {
    let truth = &world.truth;
    let seconds = truth.replied - then.replied;
    let only_midnight = |resets: &[Reset]| resets.iter().all(|reset| *reset == Reset::Midnight);
    let part = part_since_command(world, counted);
    if !only_midnight(counted) && part.is_none() {
        prop_assert!(rpcs.is_empty(), "{rpcs:?} across {counted:?}");
    }
    if !only_midnight(&truth.resets) && part.is_none() {
        // What no reading can tell from midnight is held to be it, above.
        prop_assert!(
            rpcs.is_empty() || counted == [Reset::Midnight],
            "{rpcs:?} across {:?}",
            truth.resets
        );
        return Ok(());
    }
    let tick = f64::from(world.tick);
    let surely = seconds > 0.26 * tick && seconds < 3.0 * tick && !world.ever_set;
    let surely = surely && part.is_none();
    if found.contains_key("seconds") || (surely && is_settled(before)) {
        prop_assert!(!rpcs.is_empty(), "nothing after {seconds} s");
    }
    if rpcs.is_empty() {
        return Ok(());
    }
    // Across midnight nothing says what was measured: it is right to the µs, unless a clock was
    // set.
    let (measured, slack) =
        found.get("seconds").map_or((seconds, 1e-5), |&measured| (measured, 1e-12));
    let is_known = found.contains_key("seconds") || !world.any_set();
    let grown: BTreeMap<u16, u64> = truth
        .calls
        .iter()
        .map(|(&id, calls)| {
            let before = match part {
                // The reading's own is counted after it.
                Some(_) => u64::from(id == 2035),
                None => then.calls.get(&id).copied().unwrap_or(0),
            };
            (id, calls - before)
        })
        .collect();
    let all: u64 = grown.values().sum();
    let float = |value: u64| value.to_string().parse::<f64>().unwrap();
    let exactly = |row: &str, leaf: &str, value: Option<f64>| {
        let found = rpcs.get(&format!("{row}.gauge-{leaf}")).copied();
        let same = match (found, value) {
            (Some(found), Some(value)) => (found - value).abs() <= value.abs() * slack,
            (found, value) => found.is_none() && value.is_none(),
        };
        prop_assert!(same, "{row} {leaf}: {found:?} for {value:?}");
        Ok(())
    };
    let rows = grown.iter().map(|(&id, &calls)| {
        (format!("type.{}", rpc_name(id.into(), Release::new(22, 5)).unwrap()), calls)
    });
    for (row, calls) in rows.chain([("total".to_owned(), all)]) {
        if is_known {
            exactly(&row, "calls_per_minute", Some(float(calls) * 60.0 / measured))?;
        }
        exactly(&row, "interval_mean_time", (calls > 0).then_some(300.0))?;
        if row != "total" {
            exactly(&row, "time_share", (all > 0).then(|| float(calls) / float(all)))?;
        }
    }
    if is_known {
        exactly("total", "busy", Some(float(all) * 300.0 / 1e6 / measured))?;
    }
    Ok(())
}

/// The truth of the moment when `sdiag --reset` was run, if that was the last reset and it was noticed.
fn part_since_command<'a>(world: &'a World, counted: &[Reset]) -> Option<&'a Truth> {
    let is_last = world.truth.resets.last() == Some(&Reset::Command);
    (is_last && counted == [Reset::Command]).then_some(world.truth.at_reset.as_deref()?)
}

/// Whether a reset after it can be told: not of one in the second of a reset, nor before
/// slurmctld's first look at its clock.
fn is_settled(reading: &Reading) -> bool {
    let statistics = reading.statistics.as_ref().unwrap();
    statistics.req_time_start > 0 && statistics.req_time_start != statistics.req_time
}
