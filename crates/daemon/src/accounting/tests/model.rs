//! The rule of a round against a slurmdbd that fails without a word: its queries fail, it is silent
//! until the reader is killed, its rows are requeued and purged, nothing ends for hours, and the
//! daemon is killed before and after commits. The truth is a list of the jobs that ended.

use std::collections::BTreeMap;

use slurm_points::finished::{Counts, HOUR};
use slurm_snapshot::{Finished, FinishedJob};

use super::{Disk, accounting, asked, job, killed, piece, whole};
use crate::accounting::plan::AHEAD;
use crate::accounting::{Accounting, Records};

const START: i64 = 1_700_000_000 / HOUR * HOUR;

/// slurmdbd, the disk, what was sent, and a daemon or none.
struct World {
    random: fastrand::Rng,
    now: i64,
    /// Rows that slurmdbd has, and those that slurmctld has not sent yet.
    rows: Vec<FinishedJob>,
    untold: Vec<FinishedJob>,
    /// Whether any job runs: it proves an answer.
    runs: bool,
    /// How many of eight statements fail: they return nothing, and no error.
    failing: u8,
    /// How many of eight requests cost the reader its life, because slurmdbd is silent.
    silent: u8,
    /// How many jobs it returns before the reader is killed.
    most: usize,
    /// MaxQueryTimeRange, s.
    range: i64,
    /// Every row that has ended, once.
    truth: u64,
    /// Everything that ended before this has been counted, so that a purge loses nothing.
    settled: i64,
    disk: Disk,
    sent: BTreeMap<i64, Counts>,
    daemon: Option<Accounting>,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            now: START,
            rows: Vec::new(),
            untold: Vec::new(),
            runs: false,
            failing: 0,
            silent: 0,
            most: if seed.is_multiple_of(3) { 25 } else { usize::MAX },
            range: if seed.is_multiple_of(2) { i64::MAX } else { 48 * HOUR },
            truth: 0,
            settled: START,
            disk: Disk::new(),
            sent: BTreeMap::new(),
            daemon: None,
        }
    }

    fn end_a_job(&mut self, is_told: bool) {
        self.truth += 1;
        let end = self.now - self.random.i64(0..50);
        let id = self.truth;
        let end = end.max(START);
        let submit = end - self.random.i64(0..1000);
        let job = job(id, end, submit);
        if is_told { self.rows.push(job) } else { self.untold.push(job) }
    }

    fn something_happens(&mut self) {
        self.now += if self.random.u8(0..12) == 0 {
            self.random.i64(HOUR..5 * HOUR)
        } else {
            self.random.i64(1..90)
        };
        match self.random.u8(0..16) {
            0..4 => (0..self.random.u8(0..9)).for_each(|_| self.end_a_job(true)),
            4 => self.end_a_job(false),
            5 => self.rows.append(&mut self.untold),
            6 | 7 => self.failing = [0, 4, 8][self.random.usize(0..3)],
            8 => (self.failing, self.silent) = (0, 0),
            9 => self.runs = !self.runs,
            10 => {
                // The newest one is requeued: its row changes, and another run begins.
                let newest = self.rows.iter_mut().max_by_key(|job| job.end);
                newest.into_iter().for_each(|job| (job.state, job.end) = (1024, self.now));
            }
            // Without the rows on one side of it, a long time without jobs is not proved.
            11 if self.range == i64::MAX => self.rows.retain(|job| job.end >= self.settled),
            12 => self.daemon = None,
            13 | 14 => self.silent = [0, 4, 8][self.random.usize(0..3)],
            _ => {}
        }
    }

    /// What slurmdbd returns in the time, if the statement does not fail.
    fn statement(&mut self, from: i64, to: i64) -> Vec<FinishedJob> {
        let fails = self.random.u8(0..8) < self.failing || to - from > self.range;
        let rows = self.rows.iter().filter(|job| !fails && (from..=to).contains(&job.end));
        rows.copied().collect()
    }

    /// The reader's answer. It goes back to a known row in as many statements, which are all alike
    /// here.
    fn answer(&mut self, from: i64, to: i64, known: &[i64]) -> Finished {
        let mut rows = self.statement(from, to);
        let mut is_proved = !rows.is_empty();
        if !is_proved && self.runs {
            let fails = self.random.u8(0..8) < self.failing;
            rows = if fails { Vec::new() } else { self.rows.clone() };
            rows.retain(|job| (from..=to).contains(&job.end));
            is_proved = !fails;
        }
        let (mut before, after): (Vec<i64>, Vec<i64>) =
            known.iter().partition(|known| **known < from);
        before.sort_unstable_by_key(|known| -known);
        let wider = after.into_iter().min().map(|known| [from, to.max(known)]);
        for [from, to] in wider.into_iter().chain(before.into_iter().map(|known| [known, to])) {
            if !is_proved {
                rows = self.statement(from, to);
                is_proved = !rows.is_empty();
            }
        }
        piece(rows, from, to, !is_proved)
    }

    /// A round, which the daemon may not survive.
    async fn round(&mut self, may_die: bool) {
        let mut daemon = match self.daemon.take() {
            Some(daemon) => daemon,
            None => accounting(&mut self.disk, self.now),
        };
        daemon.commit();
        daemon.note_statistics(u64::try_from(self.untold.len()).unwrap(), 0, self.now);
        daemon.begin_round(self.now, self.now, true);
        let mut kept: Option<(Option<Counts>, Records)> = None;
        let mut is_newest = true;
        while let Some((from, to, known)) = asked(&daemon) {
            let finished = self.answer(from, to, &known);
            let is_silent = self.random.u8(0..8) < self.silent || finished.jobs.len() > self.most;
            let is_proved = !is_silent && !finished.unproved;
            let outcome = if is_silent { Err(killed()) } else { Ok(whole(finished)) };
            // There is no reader behind the request.
            drop(daemon.source.outcome().await);
            let keep = |counts: Option<&Counts>, records: Records| {
                kept = Some((counts.cloned(), records));
                2
            };
            let unproved = daemon.take_reply(outcome, self.now, keep);
            assert!(
                is_proved || !is_newest || kept.is_none(),
                "a round that is not proved counts nothing"
            );
            assert!(unproved.is_none() || !is_proved);
            is_newest &= !is_proved;
            if may_die && self.random.u8(0..60) == 0 {
                return;
            }
        }
        let Some((counts, records)) = kept else {
            self.daemon = Some(daemon);
            return;
        };
        let fate = if may_die { self.random.u8(0..10) } else { 9 };
        if fate == 0 {
            return;
        }
        // Counts, ids and batch are on the disk together.
        self.disk.extend(records);
        if let Some(counts) = counts
            && let Some(before) = self.sent.insert(counts.slot, counts.clone())
        {
            assert_eq!(before.round, counts.round, "a slot was used twice");
        }
        if fate > 2 {
            daemon.commit();
            self.daemon = Some(daemon);
        }
    }

    /// Everything works again, and one more job ends: then all is counted, within a few rounds.
    async fn settle(&mut self) {
        (self.failing, self.silent) = (0, 0);
        self.rows.append(&mut self.untold);
        self.end_a_job(true);
        // Each request that was too much ends a round.
        for _ in 0..if self.most == usize::MAX { 20 } else { 60 } {
            // What came more than an hour late is counted within one.
            self.now += 200;
            self.round(false).await;
        }
        // What was too much for a request is tried as a whole again every six hours.
        let since = if self.most == usize::MAX { self.now } else { self.now - HOUR };
        let read_until = self.daemon.as_ref().and_then(|daemon| daemon.watermark.read_until);
        assert!(read_until >= Some(since), "it is stuck at {read_until:?}");
        self.settled = self.now - AHEAD;
    }

    fn check(&self, seed: u64) {
        let counts = self.daemon.as_ref().unwrap().ledger().unwrap().counts();
        assert_eq!(counts.totals["total"].jobs(), self.truth, "seed {seed}: the total");
        let slots = self.sent.values().filter_map(|counts| counts.round.get("total"));
        let slots: u64 = slots.map(|figures| figures.sums.jobs()).sum();
        assert_eq!(slots, self.truth, "seed {seed}: the sum of all slots");
    }
}

#[tokio::test]
async fn every_job_is_counted_once_whatever_fails_inside_slurmdbd_and_no_round_is_stuck() {
    for seed in 0..25 {
        let mut world = World::new(seed);
        world.round(false).await;
        for _ in 0..6 {
            // Also before any job is known.
            for _ in 0..world.random.u8(1..50) {
                // What waits for longer than `catch_up` may be lost.
                if world.now - world.settled > 18 * HOUR {
                    break;
                }
                world.something_happens();
                world.round(true).await;
            }
            world.settle().await;
            world.check(seed);
        }
    }
}
