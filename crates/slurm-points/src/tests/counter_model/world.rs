//! A model of slurmctld's counters, together with what really happened in numbers that never wrap.
//!
//! Measured on 22.05: what midnight, `sdiag --reset` and a restart set to 0, and what each of them
//! keeps.

use std::collections::BTreeMap;

use slurm_snapshot::{Reading, Release, RpcTables, RpcType, Statistics};

use crate::derive::{Reset, nothing_yet};

const DAY: i64 = 86_400;
const EPOCH: i64 = 20_000 * DAY;

#[derive(Clone, Debug)]
pub(super) enum ClusterEvent {
    Work(Work),
    Command,
    Restart,
    /// s
    SetReader(i64),
    SetSlurmctld(i64),
    /// One host with one clock.
    SetBoth(i64),
}

/// The work of the schedulers in a part of an interval.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) cycles: u32,
    /// Its share of the time.
    pub(super) share: f64,
    pub(super) depth: u32,
    /// Instead one cycle that began long before, at most so long, µs; 0 for none.
    pub(super) long: u32,
}

/// The true counts since the beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth {
    pub(super) main_cycles: u64,
    pub(super) main_time: u64,
    pub(super) main_depth: u64,
    pub(super) bf_cycles: u64,
    pub(super) bf_time: u64,
    pub(super) bf_depth_try: u64,
    pub(super) bf_depth: u64,
    pub(super) bf_queue_len: u64,
    pub(super) jobs: u64,
    /// RPCs by type, 300 µs each, since the tables were last emptied.
    pub(super) calls: BTreeMap<u16, u64>,
    /// Moment of the last reply, s.
    pub(super) replied: f64,
    /// The true resets since the last reading.
    pub(super) resets: Vec<Reset>,
    /// The truth at the last `sdiag --reset`; `replied` is its moment.
    pub(super) at_reset: Option<Box<Truth>>,
    reader_set: i64,
    slurmctld_set: i64,
}

impl Truth {
    pub(super) fn forget_moments(&mut self) {
        self.resets.clear();
        self.reader_set = 0;
        self.slurmctld_set = 0;
    }
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) tick: u32,
    pub(super) truth: Truth,
    pub(super) ever_set: bool,
    release: Release,
    /// Whether readings tell it.
    uptime: bool,
    /// s since the world began.
    time: f64,
    /// End of the last cycle.
    idle_since: f64,
    reader_ahead: i64,
    slurmctld_ahead: i64,
    next_midnight: i64,
    statistics: Statistics,
}

impl World {
    /// slurmctld has run for a while: its wrapping sums are anywhere.
    pub(super) fn new(
        release: Release,
        tick: u32,
        time: f64,
        sums: [u32; 3],
        uptime: bool,
    ) -> Self {
        let [sum, depth, bf] = sums;
        let mut world = Self {
            tick,
            truth: Truth::default(),
            ever_set: false,
            release,
            uptime,
            time,
            idle_since: time,
            reader_ahead: 0,
            slurmctld_ahead: 0,
            next_midnight: EPOCH + DAY,
            statistics: Statistics {
                req_time_start: EPOCH - 7,
                schedule_cycle_sum: Some(sum.into()),
                schedule_cycle_depth: Some(depth),
                schedule_cycle_counter: 1000,
                bf_cycle_counter: bf / 2,
                bf_depth_sum: Some(bf),
                bf_depth_try_sum: Some(depth),
                bf_queue_len_sum: Some(sum),
                bf_table_size_sum: Some(bf),
                bf_backfilled_jobs: 500,
                ..nothing_yet()
            },
        };
        world.rpcs(2035, 3);
        world.rpcs(4003, bf);
        world.cycles_ran(80, 700);
        world
    }

    pub(super) fn is_wide(&self) -> bool {
        self.release >= Release::new(25, 11)
    }

    pub(super) fn any_set(&self) -> bool {
        self.truth.reader_set != 0 || self.truth.slurmctld_set != 0
    }

    /// Whether what was set since the last reading must have been noticed over so many seconds.
    pub(super) fn surely_seen_as_set(&self, seconds: f64) -> bool {
        let reader = self.truth.reader_set;
        let slurmctld = self.truth.slurmctld_set;
        let far = |by: i64| {
            i32::try_from(by).map_or(f64::INFINITY, f64::from).abs() > 2.5 + seconds * 0.011
        };
        // Without an uptime, clocks that are set alike look like time that went by.
        if self.uptime { far(reader) || far(slurmctld) } else { far(reader - slurmctld) }
    }

    /// One interval with what happens in it.
    pub(super) fn live(&mut self, events: &[ClusterEvent]) {
        let parts = u32::try_from(events.len()).unwrap() + 1;
        let part = f64::from(self.tick) / f64::from(parts);
        for event in events {
            self.pass(part);
            match event {
                ClusterEvent::Work(work) => self.work(work, part),
                ClusterEvent::Command => self.command(),
                ClusterEvent::Restart => self.restart(),
                ClusterEvent::SetReader(by) => self.set(*by, 0),
                ClusterEvent::SetSlurmctld(by) => self.set(0, *by),
                // Not to be told apart without an uptime.
                ClusterEvent::SetBoth(by) => self.set(*by, if self.uptime { *by } else { 0 }),
            }
        }
        self.pass(part);
    }

    /// slurmctld answers, and its answer comes a little later.
    pub(super) fn reading(&mut self) -> Reading {
        let late = 0.1 * (self.time * 7.3).fract();
        self.truth.replied = self.time + late;
        self.statistics.req_time = self.now();
        let statistics = self.statistics.clone();
        self.rpcs(2035, 1);
        Reading {
            id: 1,
            time: self.truth.replied + seconds(EPOCH + self.reader_ahead),
            uptime: self.uptime.then_some(self.truth.replied),
            elapsed: 150_000,
            release: self.release,
            statistics: Some(statistics),
            ..Reading::default()
        }
    }

    fn set(&mut self, reader: i64, slurmctld: i64) {
        self.ever_set = true;
        self.reader_ahead += reader;
        self.slurmctld_ahead += slurmctld;
        self.truth.reader_set += reader;
        self.truth.slurmctld_set += slurmctld;
    }

    /// slurmctld's clock.
    fn now(&self) -> i64 {
        #[expect(clippy::cast_possible_truncation, reason = "whole seconds")]
        let passed = self.time.floor() as i64;
        EPOCH + passed + self.slurmctld_ahead
    }

    fn pass(&mut self, seconds: f64) {
        self.time += seconds;
        let now = self.now();
        if self.statistics.job_states_ts.is_none_or(|counted| now - counted >= 30) {
            self.statistics.job_states_ts = Some(now);
        }
        if self.statistics.req_time_start == 0 {
            self.statistics.req_time_start = now;
            self.next_midnight = (now.div_euclid(DAY) + 1) * DAY;
        } else if now >= self.next_midnight {
            self.next_midnight = (now.div_euclid(DAY) + 1) * DAY;
            self.truth.resets.push(Reset::Midnight);
            self.scheduler_at_zero();
        }
    }

    fn command(&mut self) {
        self.truth.resets.push(Reset::Command);
        self.scheduler_at_zero();
        self.statistics.bf_backfilled_jobs = 0;
        self.statistics.rpc = None;
        self.truth.calls.clear();
        self.truth.at_reset = None;
        self.truth.at_reset = Some(Box::new(Truth { replied: self.time, ..self.truth.clone() }));
        self.rpcs(2035, 1);
    }

    fn restart(&mut self) {
        self.truth.resets.push(Reset::Restart);
        let bf_when_last_cycle = self.statistics.bf_when_last_cycle;
        self.statistics = Statistics { bf_when_last_cycle, ..nothing_yet() };
        self.truth.calls.clear();
        self.rpcs(1002, 1);
    }

    fn scheduler_at_zero(&mut self) {
        let s = &self.statistics;
        self.statistics = Statistics {
            req_time_start: self.now(),
            schedule_cycle_last: s.schedule_cycle_last,
            schedule_queue_len: s.schedule_queue_len,
            bf_table_size: s.bf_table_size,
            bf_when_last_cycle: s.bf_when_last_cycle,
            bf_backfilled_jobs: s.bf_backfilled_jobs,
            job_states_ts: s.job_states_ts,
            rpc: s.rpc.clone(),
            ..nothing_yet()
        };
    }

    fn work(&mut self, work: &Work, part: f64) {
        let &Work { cycles, share, depth, long } = work;
        if cycles == 0 {
            return;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "up to an hour of µs"
        )]
        let each = (part * share * 1e6) as u64 / u64::from(cycles);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "up to a day of µs"
        )]
        let idle = ((self.time - self.idle_since) * 1e6) as u64;
        let (count, each) = match u32::try_from(idle.min(long.into())).unwrap() {
            0 => (cycles, u32::try_from(each).unwrap()),
            long => (1, long),
        };
        let time = u64::from(each) * u64::from(count);
        self.idle_since = self.time;
        let wide = self.is_wide();
        let s = &mut self.statistics;
        s.schedule_cycle_counter = s.schedule_cycle_counter.wrapping_add(count);
        let most = if wide { u64::MAX } else { u64::from(u32::MAX) };
        s.schedule_cycle_sum = s.schedule_cycle_sum.map(|sum| (sum + time) & most);
        wrap(&mut s.schedule_cycle_depth, depth);
        s.bf_cycle_counter = s.bf_cycle_counter.wrapping_add(count);
        s.bf_cycle_sum = s.bf_cycle_sum.map(|sum| sum + time);
        wrap(&mut s.bf_depth_sum, depth);
        wrap(&mut s.bf_depth_try_sum, depth / 2);
        s.bf_queue_len = 3 * depth;
        s.bf_last_depth_try = Some(depth / 2);
        wrap(&mut s.bf_queue_len_sum, 3 * depth);
        wrap(&mut s.bf_table_size_sum, count);
        s.jobs_submitted += depth;
        // Each of its own size, so that none can be taken for another.
        s.jobs_started += 2 * depth;
        s.jobs_completed += 3 * depth;
        s.jobs_canceled += 4 * depth;
        s.jobs_failed += 5 * depth;
        s.bf_last_backfilled_jobs += depth;
        s.bf_backfilled_jobs += depth;
        self.cycles_ran(each.max(1), each);
        self.rpcs(4003, depth);
        let t = &mut self.truth;
        for (counter, by) in [
            (&mut t.main_cycles, u64::from(count)),
            (&mut t.main_time, time),
            (&mut t.main_depth, depth.into()),
            (&mut t.bf_cycles, count.into()),
            (&mut t.bf_time, time),
            (&mut t.bf_depth_try, (depth / 2).into()),
            (&mut t.bf_depth, depth.into()),
            (&mut t.bf_queue_len, (3 * depth).into()),
            (&mut t.jobs, depth.into()),
        ] {
            *counter += by;
        }
    }

    fn cycles_ran(&mut self, last: u32, longest: u32) {
        let now = self.now();
        let s = &mut self.statistics;
        s.schedule_cycle_last = last;
        s.schedule_cycle_max = s.schedule_cycle_max.max(longest);
        s.bf_cycle_max = s.bf_cycle_max.max(Some(longest));
        s.bf_table_size = Some(9);
        s.bf_when_last_cycle = Some(now);
    }

    fn rpcs(&mut self, id: u16, count: u32) {
        *self.truth.calls.entry(id).or_default() += u64::from(count);
        let tables = self.statistics.rpc.get_or_insert_with(RpcTables::default);
        if !tables.types.iter().any(|row| row.id == id) {
            tables.types.push(RpcType { id, ..RpcType::default() });
        }
        for row in tables.types.iter_mut().filter(|row| row.id == id) {
            row.count = row.count.wrapping_add(count);
            row.time += u64::from(count) * 300;
        }
    }
}

fn seconds(whole: i64) -> f64 {
    whole.to_string().parse().unwrap()
}

/// Adds to a sum that wraps in slurmctld.
fn wrap(sum: &mut Option<u32>, more: u32) {
    *sum = sum.map(|sum| sum.wrapping_add(more));
}
