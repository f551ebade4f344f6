//! A cluster of 320 nodes over some hours: jobs come, start and end, slurmctld's two schedulers and
//! its RPCs take their time, and one thing goes wrong. Its statistics are those that slurmctld
//! would report; everything else is derived from them by slurm-graphite.

use slurm_snapshot::{PendingRpc, RpcTables, RpcType, RpcUser, Statistics};

/// Seconds of a tick.
pub(crate) const TICK: u32 = 30;

/// Nodes with 64 CPUs; the last have four GPUs each, too.
pub(crate) const NODES: u32 = 320;
pub(crate) const GPU_NODES: u32 = 20;
pub(crate) const CPUS: u32 = 64;

/// How many jobs the user submits: README.md and docs/incident.md say so.
const FLOOD: u32 = 20_000;

/// An incident in the picture's cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incident {
    /// A file system hangs, and the health check drains every node.
    FileSystem,
    /// A user submits [`FLOOD`] jobs.
    Flood,
    /// slurmdbd is away.
    Slurmdbd,
    /// slurmctld does not answer.
    Hang,
    /// Carbon was away.
    Carbon,
    /// Carbon is away: nothing is stored from then on.
    CarbonStill,
    /// A night a week ago, on which nothing happened.
    Nothing,
}

/// A job, or the part of it that counts here. Times are ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) cpus: u32,
    pub(crate) gpus: u32,
    pub(crate) submitted: u32,
    length: u32,
    ends: u32,
}

/// The cluster after some ticks.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    tick: u32,
    pub(crate) pending: Vec<Job>,
    pub(crate) running: Vec<Job>,
    /// Nodes that the health check has drained.
    pub(crate) drained: u32,
    /// For how many seconds, all together.
    pub(crate) drained_seconds: u32,
    pub(crate) statistics: Statistics,
    owed: f64,
    /// Jobs of the flood that were submitted.
    flooded: u32,
}

/// Message types: id, calls a minute, mean time in µs, and of how many of them root is the sender,
/// in tenths.
const RPCS: [(u16, f64, f64, u32); 14] = [
    (1002, 20.0, 240.0, 10),
    (1008, 4.0, 60.0, 10),
    (2003, 38.0, 9000.0, 3),
    (2007, 24.0, 2600.0, 6),
    (2009, 60.0, 700.0, 4),
    (2021, 34.0, 420.0, 1),
    (2035, 2.0, 120.0, 10),
    (2039, 44.0, 900.0, 0),
    (3002, 0.1, 900.0, 10),
    (4003, 0.0, 2400.0, 0),
    (5018, 0.0, 700.0, 10),
    (5032, 1.0, 600.0, 0),
    (6012, 0.0, 350.0, 10),
    (6018, 0.0, 300.0, 10),
];

/// Users, and their parts of what root does not send, in hundredths.
const USERS: [(u32, &str, u32); 7] = [
    (1001, "adeyemi", 34),
    (1002, "bauer", 22),
    (1003, "chen", 16),
    (1004, "duarte", 12),
    (1005, "eriksen", 8),
    (1006, "fujita", 5),
    (1007, "garcia", 3),
];

impl Cluster {
    /// A full cluster in the evening, at this time, which is a multiple of [`TICK`].
    pub(crate) fn new(now: i64) -> Self {
        let mut cluster = Self::default();
        let statistics = &mut cluster.statistics;
        (statistics.req_time, statistics.req_time_start) = (now, now - now % 86_400);
        statistics.schedule_exit = Some(vec![0; 6]);
        statistics.bf_exit = Some(vec![0; 6]);
        statistics.gettimeofday_latency = 21;
        let types = RPCS.map(|(id, ..)| RpcType { id, ..RpcType::default() });
        let user = |(id, name): (u32, &str)| RpcUser {
            id,
            name: Some(name.to_owned()),
            ..RpcUser::default()
        };
        let users =
            USERS.iter().map(|(id, name, _)| (*id, *name)).chain([(0, "root")]).map(user).collect();
        statistics.rpc = Some(RpcTables {
            types: types.into(),
            users,
            pending: Some(Vec::new()),
            dumped: Vec::new(),
        });
        // Until jobs wait, and as many end as start.
        for _ in 0..600 {
            cluster.flow(11.0, 0, 1.0);
            cluster.tick += 1;
        }
        cluster
    }

    /// The next tick. `since` is how many seconds ago the incident began.
    pub(crate) fn step(&mut self, incident: Incident, since: Option<f64>) {
        let now = self.statistics.req_time + i64::from(TICK);
        self.statistics.req_time = now;
        if now % 86_400 == 0 {
            self.reset(now);
        }
        let submitted = if now % 86_400 < 6 * 3600 { 9.0 } else { 9.5 };
        let (mut burst, mut alive) = (0, 1.0);
        self.statistics.dbd_agent_queue_size = fastrand::u32(0..4);
        self.statistics.agent_queue_size = fastrand::u32(0..25);
        match (incident, since) {
            (Incident::FileSystem, Some(since)) => {
                // The health check runs every five minutes, on one node after the other.
                self.drained = whole(f64::from(NODES) * (since / 300.0).min(1.0));
                alive = 0.04;
                self.statistics.agent_queue_size += whole(since * 1.6);
            }
            (Incident::Flood, Some(_)) => {
                let most = whole(1800.0 + 1600.0 * fastrand::f64());
                burst = most.min(FLOOD - self.flooded);
                self.flooded += burst;
            }
            (Incident::Slurmdbd, Some(since)) => {
                self.statistics.dbd_agent_queue_size += whole(since * 2.6)
            }
            _ => {}
        }
        self.drained_seconds += self.drained * TICK;
        let moved = self.flow(submitted, burst, alive);
        self.count(moved);
        self.schedule(moved);
        self.rpcs(moved, since.is_some() && incident == Incident::FileSystem);
        self.tick += 1;
    }

    /// Seconds that the pending jobs have waited, the shortest first.
    pub(crate) fn waits(&self) -> Vec<u32> {
        let mut waits: Vec<u32> =
            self.pending.iter().map(|job| (self.tick - job.submitted) * TICK).collect();
        waits.sort_unstable();
        waits
    }

    /// Midnight UTC.
    fn reset(&mut self, now: i64) {
        let old = std::mem::take(&mut self.statistics);
        self.statistics = Statistics {
            req_time: now,
            req_time_start: now,
            gettimeofday_latency: old.gettimeofday_latency,
            schedule_exit: Some(vec![0; 6]),
            bf_exit: Some(vec![0; 6]),
            bf_backfilled_jobs: old.bf_backfilled_jobs,
            rpc: old.rpc,
            ..Statistics::default()
        };
    }

    /// Jobs end, come and start: how many have been submitted, started, started out of turn,
    /// completed. `submitted` is how many come a minute, `burst` how many of the flood come now.
    fn flow(&mut self, submitted: f64, burst: u32, alive: f64) -> [u32; 4] {
        let before = self.running.len();
        let tick = self.tick;
        // Where the file system hangs, hardly any job ends.
        self.running.retain(|job| job.ends > tick || fastrand::f64() > alive);
        let completed = number(before - self.running.len());
        self.owed += submitted / 60.0 * f64::from(TICK) * (0.6 + 0.8 * fastrand::f64());
        let submitted = whole(self.owed);
        self.owed -= f64::from(submitted);
        self.pending.extend((0..submitted).map(|_| job(tick, false)));
        self.pending.extend((0..burst).map(|_| job(tick, true)));
        let submitted = submitted + burst;
        // Seven nodes are out for days, and there are always some gaps.
        let usable = NODES.saturating_sub(self.drained + 7) * CPUS * 96 / 100;
        let mut free = usable.saturating_sub(self.running.iter().map(|job| job.cpus).sum());
        let (mut started, mut out_of_turn, mut waits) = (0, 0, false);
        let looked_at = self.pending.len().min(1000);
        let (first, later) = self.pending.split_at(looked_at);
        let mut left = Vec::with_capacity(self.pending.len());
        for job in first {
            if job.cpus <= free && started < 120 {
                free -= job.cpus;
                started += 1;
                out_of_turn += u32::from(waits);
                self.running.push(Job { ends: tick + job.length, ..*job });
            } else {
                waits = true;
                left.push(*job);
            }
        }
        left.extend_from_slice(later);
        self.pending = left;
        [submitted, started, out_of_turn, completed]
    }

    fn count(&mut self, [submitted, started, out_of_turn, completed]: [u32; 4]) {
        let cancelled = u32::from(completed > 0 && fastrand::u32(..9) == 0);
        let statistics = &mut self.statistics;
        statistics.jobs_submitted += submitted;
        statistics.jobs_started += started;
        statistics.jobs_completed += completed - cancelled;
        statistics.jobs_canceled += cancelled;
        statistics.jobs_failed += u32::from(fastrand::u32(..200) == 0);
        statistics.bf_backfilled_jobs += out_of_turn;
        statistics.bf_last_backfilled_jobs += out_of_turn;
        statistics.jobs_pending = number(self.pending.len());
        statistics.jobs_running = number(self.running.len());
        statistics.job_states_ts = Some(statistics.req_time - fastrand::i64(1..29));
    }

    fn schedule(&mut self, [submitted, started, _, completed]: [u32; 4]) {
        let statistics = &mut self.statistics;
        let queue = number(self.pending.len());
        // A submission or an end begins a cycle of 100 jobs; once a minute there is one of the
        // whole queue.
        let quick = ((submitted + completed) / 3).clamp(1, 9);
        let of_all = 1;
        let time = |jobs: u32, each: f64| {
            whole((1800.0 + f64::from(jobs) * each) * (0.8 + 0.5 * fastrand::f64()))
        };
        for cycle in 0..quick + of_all {
            let jobs = if cycle < quick { queue.min(100) } else { queue };
            let time = time(jobs + started * 4, 220.0);
            statistics.schedule_cycle_last = time;
            statistics.schedule_cycle_max = statistics.schedule_cycle_max.max(time);
            *statistics.schedule_cycle_sum.get_or_insert(0) += u64::from(time);
            *statistics.schedule_cycle_depth.get_or_insert(0) += jobs;
            let reason = usize::from(jobs < queue);
            statistics
                .schedule_exit
                .iter_mut()
                .flatten()
                .skip(reason)
                .take(1)
                .for_each(|count| *count += 1);
        }
        statistics.schedule_cycle_counter += quick + of_all;
        statistics.schedule_queue_len = queue;
        let tried = queue.min(1000);
        let time = time(tried, 1300.0);
        statistics.bf_cycle_counter += 1;
        *statistics.bf_cycle_sum.get_or_insert(0) += u64::from(time);
        statistics.bf_cycle_last = time;
        statistics.bf_cycle_max = Some(statistics.bf_cycle_max.unwrap_or(0).max(time));
        (statistics.bf_last_depth, statistics.bf_last_depth_try) = (Some(tried + 8), Some(tried));
        *statistics.bf_depth_sum.get_or_insert(0) += tried + 8;
        *statistics.bf_depth_try_sum.get_or_insert(0) += tried;
        statistics.bf_queue_len = queue;
        *statistics.bf_queue_len_sum.get_or_insert(0) += queue;
        statistics.bf_table_size = Some(40 + tried / 12);
        *statistics.bf_table_size_sum.get_or_insert(0) += 40 + tried / 12;
        statistics.bf_when_last_cycle = Some(statistics.req_time - fastrand::i64(2..28));
        let reason = if tried < queue { 2 } else { 0 };
        statistics.bf_exit.iter_mut().flatten().skip(reason).take(1).for_each(|count| *count += 1);
    }

    /// RPCs wait for the locks that cycles and submissions hold.
    fn rpcs(&mut self, [submitted, started, _, completed]: [u32; 4], is_draining: bool) {
        let statistics = &mut self.statistics;
        let flood = f64::from(submitted) / 2400.0;
        let locked = f64::from(statistics.schedule_cycle_last) * 0.02 + flood * flood * 3_600_000.0;
        let Some(tables) = &mut statistics.rpc else { return };
        let mut total = 0.0;
        for (row, (id, a_minute, mean, of_root)) in tables.types.iter_mut().zip(RPCS) {
            let calls = match id {
                4003 => f64::from(submitted),
                5018 | 6012 => f64::from(completed),
                6018 => f64::from(started),
                3002 if is_draining => 32.0,
                // People look when nothing moves.
                2003 | 2039 if is_draining => a_minute * 1.4,
                _ => a_minute / 60.0 * f64::from(TICK),
            };
            let calls = (calls * (0.8 + 0.4 * fastrand::f64())).round();
            let time = calls * (mean + locked) * (0.8 + 0.5 * fastrand::f64());
            row.count += whole(calls);
            row.time += u64::from(whole(time));
            total += time;
            for user in &mut tables.users {
                let root = f64::from(of_root) / 10.0;
                let part =
                    USERS.iter().find(|(id, ..)| *id == user.id).map_or(root, |(id, _, part)| {
                        match row.id {
                            4003 if flood > 0.1 => f64::from(*id == 1004),
                            _ => (1.0 - root) * f64::from(*part) / 100.0,
                        }
                    });
                user.count += whole(calls * part);
                user.time += u64::from(whole(time * part));
            }
        }
        statistics.server_thread_count =
            1 + whole(total / f64::from(TICK) / 1e6 * (0.5 + fastrand::f64())).min(255);
        statistics.agent_count = (completed + started).min(12) + statistics.agent_queue_size / 40;
        statistics.agent_thread_count = statistics.agent_count * 3;
        let waiting = statistics.agent_queue_size;
        tables.pending = Some(
            [(6011, waiting * 2 / 3), (1008, waiting / 3)]
                .map(|(id, count)| PendingRpc { id, count })
                .into(),
        );
    }
}

/// Mostly small jobs, and some large ones; those of the flood are all small.
fn job(tick: u32, is_flood: bool) -> Job {
    let sizes = [1, 1, 2, 4, 4, 8, 16, 32, 64, 64, 128, 256];
    let cpus =
        if is_flood { 1 } else { sizes.get(fastrand::usize(..sizes.len())).copied().unwrap_or(1) };
    let hours = if is_flood { 0.15 } else { 0.05 - 0.7 * (1.0 - fastrand::f64()).ln() };
    let length = whole(hours * 3600.0 / f64::from(TICK)).max(1);
    let gpus = if cpus == 8 || cpus == 16 { fastrand::u32(0..4) } else { 0 };
    Job { cpus, gpus, submitted: tick, length, ends: 0 }
}

/// The whole part of a figure that is never negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float becomes the nearest number of the other type"
)]
fn whole(value: f64) -> u32 {
    value as u32
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
