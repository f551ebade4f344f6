//! Every job is counted once: a model of a daemon that is killed between any two steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use slurm_snapshot::{Finished, FinishedJob, RESIZING};

use crate::finished::{
    Counts, FinishedLedger, FinishedRound, Found, HOUR, Levels, Next, RememberedSpan, Tally,
};

const LEVELS: Levels = Levels { accounts: 2, qos: 0, users: 9 };
const SPAN: RememberedSpan = RememberedSpan { seconds: 25 * HOUR, ids: 1_000_000 };
const EVERY: i64 = 60;
const START: i64 = 1_700_000_000;

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn one_in(&mut self, most: u64) -> bool {
        self.below(most) == 0
    }

    fn seconds(&mut self, most: u64) -> i64 {
        i64::try_from(self.below(most)).unwrap()
    }
}

type Disk = BTreeMap<String, Arc<[u8]>>;

fn finished(jobs: &[FinishedJob]) -> Finished {
    let names = ["debug", "long", "physics", "chemistry", "biology", "ann", "bob"]
        .map(str::to_owned)
        .to_vec();
    Finished { jobs: jobs.to_vec(), names, ..Finished::default() }
}

fn job(random: &mut Random, id: u64, end: i64) -> FinishedJob {
    let state = [3, 4, 5, 6, 1024][usize::try_from(random.below(5)).unwrap()];
    let wait = (!random.one_in(4)).then(|| random.below(100));
    let tasks = if wait.is_none() { 1 + random.below(40) } else { 1 };
    let number = |of| u32::try_from(of).unwrap();
    FinishedJob {
        id,
        job: number(id & 0xffff_ffff),
        end,
        state,
        tasks,
        wait,
        run: random.below(5000),
        limit: Some(3600),
        partition: number(random.below(2)),
        account: number(2 + random.below(3)),
        user: number(5 + random.below(2)),
        cpus: 2,
        ..FinishedJob::default()
    }
}

/// slurmdbd, the disk, what Carbon has, and a daemon or none.
struct FinishedModel {
    random: Random,
    now: i64,
    /// Jobs that slurmdbd has.
    reported: Vec<FinishedJob>,
    /// Those that slurmctld has not sent to it yet.
    unreported: Vec<FinishedJob>,
    /// Jobs that run after two resizes in one second, as they end.
    resized: Vec<FinishedJob>,
    /// Ids of rows that have ended and go on.
    ended_once: Vec<u64>,
    /// How many jobs such rows may count as more than one.
    most_again: u64,
    goes_on: bool,
    next_id: u64,
    disk: Disk,
    /// What was sent under each timestamp last.
    sent: BTreeMap<i64, Counts>,
    daemon: Option<FinishedLedger>,
    catch_up: bool,
    /// When the last round began that read all it had to.
    read_at: i64,
}

impl FinishedModel {
    fn new(seed: u64) -> Self {
        // Both users have a level of their own from the start: a job of each has started.
        let of_user =
            |user| FinishedJob { user, partition: 0, account: 2, ..plain(u64::from(user), START) };
        let reported = vec![of_user(5), of_user(6)];
        let unreported = Vec::new();
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let disk = Disk::new();
        let sent = BTreeMap::new();
        let resized = Vec::new();
        let ended_once = Vec::new();
        Self {
            random,
            now: START,
            reported,
            unreported,
            resized,
            ended_once,
            most_again: 0,
            goes_on: false,
            next_id: 1 << 62,
            disk,
            sent,
            daemon: None,
            catch_up: true,
            read_at: START,
        }
    }

    fn start(&mut self) {
        let (mut ledger, found) = FinishedLedger::open("c", self.now, &self.disk);
        if found == Found::Nothing {
            self.disk.extend([ledger.record().unwrap()]);
        } else {
            assert_eq!(found, Found::Whole);
            if self.random.one_in(4) {
                // A host that starts with the clock of another year, for more than ten minutes.
                ledger.lower_floor(self.now - 1000 * 24 * HOUR);
                ledger.raise_floor(self.now);
            }
        }
        self.daemon = Some(ledger);
        self.catch_up = true;
    }

    /// Counts, ids and batch are on the disk together; the queue sends the batch until it is read.
    fn commit(&mut self, ledger: &FinishedLedger, next: &Next) {
        self.disk.extend(ledger.records(next).unwrap());
        let counts = next.counts().clone();
        if let Some(before) = self.sent.insert(counts.slot, counts.clone()) {
            assert_eq!(before.round, counts.round, "a slot was used for two rounds");
        }
    }

    fn jobs_end(&mut self) {
        for _ in 0..self.random.below(20) {
            let end = self.now - self.random.seconds(90);
            self.next_id = self.next_id.wrapping_add(self.random.below(1 << 40) + 1);
            let job = job(&mut self.random, self.next_id, end.max(START));
            if self.random.one_in(4) {
                self.unreported.push(job)
            } else {
                self.reported.push(job)
            }
            if self.random.one_in(9) {
                self.lose_two_nodes_at_once(job);
            }
        }
        if self.random.one_in(6) {
            self.reported.append(&mut self.unreported);
        }
    }

    /// The rows of a job that is resized twice in one second: a part that ended with the first, and
    /// one row for both the second part, which has no time, and the rest of the job.
    fn lose_two_nodes_at_once(&mut self, like: FinishedJob) {
        let at = self.now;
        self.next_id = self.next_id.wrapping_add(2);
        let part = FinishedJob {
            tasks: 1,
            wait: Some(3),
            end: at,
            submit: at - 50,
            state: RESIZING,
            run: 40,
            ..like
        };
        let begun = FinishedJob { id: self.next_id, wait: Some(0), submit: at, run: 0, ..part };
        self.reported.push(FinishedJob { id: self.next_id.wrapping_sub(1), ..part });
        self.reported.push(begun);
        self.resized.push(FinishedJob { state: 3, ..begun });
    }

    /// Resized jobs that end: their rows change.
    fn resized_end(&mut self) {
        while let Some(job) = if self.random.one_in(2) { self.resized.pop() } else { None } {
            // It is not reported later than `catch_up`.
            let end = self.now.max(job.submit);
            let row = self.reported.iter_mut().find(|row| row.id == job.id).unwrap();
            *row = FinishedJob { end, run: u64::try_from(end - job.submit).unwrap(), ..job };
        }
    }

    /// A row that ends and goes on: of a job that a slurmctld without its state has ended, running
    /// or not, or of one that was resized and is requeued.
    fn end_for_now(&mut self) {
        self.next_id = self.next_id.wrapping_add(self.random.below(1 << 40) + 1);
        let start = self.now - self.random.seconds(500) - 1;
        let like = FinishedJob { tasks: 1, ..job(&mut self.random, self.next_id, self.now) };
        let run = u64::try_from(self.now - start).unwrap();
        let row = match self.random.below(3) {
            0 => FinishedJob { state: 4, start, submit: start - 9, wait: Some(9), run, ..like },
            1 => FinishedJob { state: 4, submit: start, wait: None, run: 0, ..like },
            _ => {
                let state = [1024, 7, 8][usize::try_from(self.random.below(3)).unwrap()];
                // Its second run has another size.
                FinishedJob { state, start, submit: start, wait: Some(0), run, cpus: 1, ..like }
            }
        };
        self.reported.push(row);
        self.ended_once.push(row.id);
    }

    /// Rows that ended go on, and end later; of a job that runs again, the row may have another id
    /// before.
    fn go_on(&mut self) {
        let ids = std::mem::take(&mut self.ended_once);
        for id in ids {
            let place = self.reported.iter().position(|row| row.id == id).unwrap();
            let row = &mut self.reported[place];
            // Longer than its id is remembered.
            if self.now - row.end > 20 * HOUR {
                continue;
            }
            let runs_again = row.wait == Some(0);
            match self.random.below(6) {
                0 if runs_again => {
                    self.next_id = self.next_id.wrapping_add(3);
                    row.id = self.next_id;
                    self.ended_once.push(row.id);
                }
                1 | 2 if self.now > row.end => {
                    if row.wait.is_none() {
                        row.start = row.end + self.random.seconds(1 + self.now.abs_diff(row.end));
                        row.wait = Some(u64::try_from(row.start - row.submit).unwrap());
                        self.most_again += 1;
                    }
                    self.most_again += u64::from(runs_again);
                    let run = u64::try_from(self.now - row.start).unwrap();
                    *row = FinishedJob { end: self.now, state: 3, cpus: 2, run, ..*row };
                }
                _ => self.ended_once.push(id),
            }
        }
    }

    fn rows_since(&self, from: i64) -> Finished {
        let to = self.now + 300;
        let in_time = self.reported.iter().filter(|job| (from..=to).contains(&job.end));
        // slurmctld's word of a job's start may come behind that of its end.
        let is_incomplete =
            |job: &FinishedJob| job.id.is_multiple_of(7) && self.now < job.end + 150;
        let jobs = in_time.map(|job| match is_incomplete(job) {
            true => FinishedJob { partition: u32::MAX, tasks: 1, ..*job },
            false => *job,
        });
        finished(&jobs.collect::<Vec<_>>())
    }

    /// A round, which may end anywhere.
    fn round(&mut self) {
        let Some(mut ledger) = self.daemon.take() else { return };
        let is_before = |end: i64| end < self.now - HOUR;
        self.catch_up |=
            is_before(self.read_at) || ledger.oldest_incomplete().is_some_and(is_before);
        let mut round = FinishedRound::new(self.now, HOUR, LEVELS);
        round.add(&self.rows_since(ledger.floor().max(self.now - HOUR)), 1, &ledger);
        // The older pieces may fail: then what was read counts, and the catch-up is still due.
        if self.catch_up && !self.random.one_in(3) {
            round.add(&self.rows_since(ledger.unread_from(self.now)), 1, &ledger);
            self.catch_up = false;
            round.is_full = true;
        }
        round.is_complete = !self.catch_up;
        self.read_at = if self.catch_up { self.read_at } else { self.now };
        let slot = ledger.slot(self.now, EVERY);
        let next = ledger.next(round, slot, SPAN);
        match self.random.below(8) {
            // Killed before the commit.
            0 | 1 => {}
            step => {
                self.commit(&ledger, &next);
                // Killed behind it.
                if step > 2 {
                    ledger.adopt(next);
                    self.daemon = Some(ledger);
                }
            }
        }
        if self.daemon.is_some() && self.random.one_in(10) {
            self.daemon = None;
        }
    }

    fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            match self.random.below(60) {
                // A daemon that is off for days. slurmdbd may learn of a job later than `catch_up`;
                // that job cannot be counted.
                0 => {
                    self.reported.append(&mut self.unreported);
                    self.now += self.random.seconds(72 * 3600);
                }
                _ => self.now += self.random.seconds(120),
            }
            self.jobs_end();
            self.resized_end();
            if self.goes_on {
                self.end_for_now();
                self.go_on();
            }
            if self.daemon.is_none() {
                self.start();
            }
            self.catch_up |= self.random.one_in(5);
            self.round();
        }
    }

    /// A whole round of a daemon that nobody kills.
    fn settle(&mut self) {
        self.reported.append(&mut self.unreported);
        while self.daemon.is_none() {
            self.start();
        }
        let Some(mut ledger) = self.daemon.take() else { return };
        let mut round = FinishedRound::new(self.now, HOUR, LEVELS);
        round.add(&self.rows_since(ledger.unread_from(self.now)), 1, &ledger);
        (round.is_complete, round.is_full) = (true, true);
        let next = ledger.next(round, ledger.slot(self.now, EVERY), SPAN);
        self.commit(&ledger, &next);
        ledger.adopt(next);
        self.daemon = Some(ledger);
    }

    /// What all jobs come to, by level; of jobs that no level of its own is for, at none.
    fn truth(&self) -> BTreeMap<String, Tally> {
        let all = finished(&[]);
        let mut truth: BTreeMap<String, Tally> = BTreeMap::new();
        for job in &self.reported {
            let levels = [
                "total".to_owned(),
                format!("partition.{}", all.name(job.partition)),
                format!("user.{}", all.name(job.user)),
            ];
            for level in levels {
                truth.entry(level).or_default().add(&Tally::from_job(job).unwrap());
            }
        }
        truth
    }
}

#[test]
fn every_job_is_counted_once_wherever_the_daemon_is_killed() {
    for seed in 0..60 {
        let mut world = FinishedModel::new(seed);
        // The first start ever.
        world.settle();
        world.run(80);
        world.now += 300;
        world.settle();
        // What is waited for has settled by now.
        world.now += 200;
        world.settle();
        let ledger = world.daemon.as_ref().unwrap();
        let mut slots: BTreeMap<String, Tally> = BTreeMap::new();
        for (level, figures) in world.sent.values().flat_map(|counts| &counts.round) {
            slots.entry(level.clone()).or_default().add(&figures.sums);
        }
        for (level, truth) in world.truth() {
            assert_eq!(ledger.counts().totals[&level], truth, "seed {seed}: the totals of {level}");
            assert_eq!(slots[&level], truth, "seed {seed}: the sum of all slots of {level}");
        }
        let accounts = ledger.counts().totals.iter().filter(|(level, _)| level.contains("account"));
        let jobs: u64 = accounts.clone().map(|(_, tally)| tally.jobs()).sum();
        assert_eq!(
            jobs,
            ledger.counts().totals["total"].jobs(),
            "seed {seed}: all accounts together"
        );
        assert!(accounts.count() <= 3, "seed {seed}: two, and the others");
    }
}

/// What a row was counted as was not known: it was never counted as what it became, and none of its
/// later seconds were.
#[test]
fn every_second_of_rows_that_end_and_go_on_is_counted_once() {
    for seed in 0..30 {
        let mut world = FinishedModel::new(seed);
        world.goes_on = true;
        world.settle();
        world.run(80);
        world.now += 300;
        world.settle();
        world.now += 300;
        world.settle();
        // slurmdbd's rows at the end, as sacct adds them up.
        let mut truth = [0; 5];
        let mut jobs = 0;
        for row in &world.reported {
            let run = if row.wait.is_some() { row.run } else { 0 };
            let seconds = [1, row.cpus, row.gpus, row.nodes, row.billing].map(|n| n * run);
            truth.iter_mut().zip(seconds).for_each(|(sum, more)| *sum += more);
            jobs += if row.state == RESIZING { 0 } else { row.tasks };
        }
        let seconds = |sums: &Tally| [sums.run, sums.cpu, sums.gpu, sums.node, sums.billing];
        let total = world.daemon.as_ref().unwrap().counts().totals["total"];
        assert_eq!(seconds(&total), truth, "seed {seed}: the totals");
        let mut slots = Tally::default();
        let rounds = world.sent.values().filter_map(|counts| counts.round.get("total"));
        rounds.for_each(|figures| slots.add(&figures.sums));
        assert_eq!(slots, total, "seed {seed}: the sum of all slots");
        assert!(
            (jobs..=jobs + world.most_again).contains(&total.jobs()),
            "seed {seed}: {} jobs, of {jobs} rows",
            total.jobs()
        );
    }
}

fn counted(
    ledger: &mut FinishedLedger,
    now: i64,
    jobs: &[FinishedJob],
    span: RememberedSpan,
) -> (u64, bool) {
    let before = ledger.counts().totals.get("total").map_or(0, Tally::jobs);
    let mut round = FinishedRound::new(now, HOUR, LEVELS);
    round.add(&finished(jobs), 1, ledger);
    round.is_complete = true;
    let next = ledger.next(round, ledger.slot(now, EVERY), span);
    let is_short = next.is_short;
    ledger.adopt(next);
    (ledger.counts().totals["total"].jobs() - before, is_short)
}

#[test]
fn a_row_that_may_grow_counts_when_it_has_looked_the_same_for_three_minutes() {
    let rest = |tasks| FinishedJob { tasks, wait: None, state: 4, ..plain(1, START) };
    let unnamed = FinishedJob { partition: u32::MAX, ..plain(1, START) };
    for looks in [
        &[(5, rest(9), 0), (34, rest(7), 0), (213, rest(7), 0), (214, rest(7), 7)][..],
        &[(5, unnamed, 0), (184, unnamed, 0), (185, unnamed, 1), (700, unnamed, 0)],
        &[(5, unnamed, 0), (100, plain(1, START), 1), (300, plain(1, START), 0)],
    ] {
        let mut ledger = FinishedLedger::first("c", START);
        for (after, row, count) in looks {
            let counted = counted(&mut ledger, START + after, &[*row], SPAN).0;
            assert_eq!(counted, *count, "after {after} s: {row:?}");
        }
    }
}

/// While slurmctld's queue was never empty, the rest of a cancelled array was never counted.
#[test]
fn a_row_that_never_looks_the_same_counts_after_ten_minutes() {
    let mut ledger = FinishedLedger::first("c", START);
    for after in (0..900_i64).step_by(60) {
        let tasks = 1000 - after.unsigned_abs();
        let row = FinishedJob { tasks, wait: None, state: 4, ..plain(1, START) };
        let counted = counted(&mut ledger, START + after, &[row], SPAN).0;
        assert_eq!(counted, if after == 600 { tasks } else { 0 }, "after {after} s");
    }
}

#[test]
fn a_job_of_another_cluster_with_the_same_id_counts_also_after_a_restart() {
    let mut disk = Disk::new();
    let mut commit = |ledger: &mut FinishedLedger, jobs: &[FinishedJob]| {
        let mut round = FinishedRound::new(START, HOUR, LEVELS);
        round.add(&finished(jobs), 1, ledger);
        let next = ledger.next(round, ledger.slot(START, EVERY), SPAN);
        disk.extend(ledger.records(&next).unwrap());
        ledger.adopt(next);
        (
            ledger.counts().totals["total"].jobs(),
            FinishedLedger::open(ledger.counts().cluster.as_str(), START, &disk).0,
        )
    };
    let mut old = FinishedLedger::first("old", START);
    let (count, old) = commit(&mut old, &[plain(7, START)]);
    assert_eq!(count, 1);
    let mut new = old.first_of_another("new", START);
    let (_, mut again) = commit(&mut new, &[]);
    assert_ne!(again.counts().slot, old.counts().slot, "their paths may be the same");
    assert_eq!(commit(&mut again, &[plain(7, START)]).0, 1);
}

/// They stayed on the disk for ever.
#[test]
fn the_hours_of_another_cluster_are_emptied() {
    let mut disk = Disk::new();
    let mut commit = |ledger: &mut FinishedLedger, now: i64, jobs: &[FinishedJob]| {
        let mut round = FinishedRound::new(now, HOUR, LEVELS);
        round.add(&finished(jobs), 1, ledger);
        let next = ledger.next(round, ledger.slot(now, EVERY), SPAN);
        disk.extend(ledger.records(&next).unwrap());
        ledger.adopt(next);
        disk.values().filter(|record| !record.is_empty()).count()
    };
    let mut old = FinishedLedger::first("old", START);
    assert_eq!(commit(&mut old, START, &[plain(7, START)]), 2, "the counts and an hour");
    let mut new = old.first_of_another("new", START + 3 * HOUR);
    assert_eq!(commit(&mut new, START + 3 * HOUR, &[]), 1);
}

#[test]
fn a_clock_that_is_years_behind_at_a_start_counts_nothing_twice() {
    let mut ledger = FinishedLedger::first("c", START);
    let jobs: Vec<_> =
        (0..60).map(|id| plain(id, START + i64::try_from(id).unwrap() * HOUR)).collect();
    let now = START + 60 * HOUR;
    assert_eq!(counted(&mut ledger, now, &jobs, SPAN).0, 60);
    ledger.lower_floor(1000);
    ledger.raise_floor(now);
    let since = ledger.unread_from(now);
    let read: Vec<_> = jobs.into_iter().filter(|job| job.end >= since).collect();
    assert_eq!(counted(&mut ledger, now, &read, SPAN).0, 0);
    let mut nothing = FinishedLedger::first("c", now);
    nothing.lower_floor(START);
    assert_eq!(nothing.floor(), START, "nothing was counted by the clock that was ahead");
    // When the clock had walked there, what had not been counted yet was below the floor.
    nothing.raise_floor(now);
    assert_eq!(nothing.floor(), START, "no id is missing");
}

fn plain(id: u64, end: i64) -> FinishedJob {
    FinishedJob { id, end, state: 3, tasks: 1, wait: Some(1), ..FinishedJob::default() }
}

#[test]
fn the_first_start_ever_counts_nothing_that_ended_before_it() {
    let mut ledger = FinishedLedger::first("c", START);
    let jobs = [plain(1, START - 1), plain(2, START)];
    assert_eq!(counted(&mut ledger, START + 5, &jobs, SPAN).0, 1);
}

#[test]
fn a_job_whose_end_was_changed_afterwards_is_not_counted_again() {
    let mut ledger = FinishedLedger::first("c", START - 10 * HOUR);
    assert_eq!(counted(&mut ledger, START, &[plain(1, START - 9 * HOUR)], SPAN).0, 1);
    // sacctmgr fixes runaway jobs so.
    for now in [START, START + 20 * HOUR, START + 40 * HOUR] {
        let jobs = [plain(1, START), plain(2 + u64::try_from(now).unwrap(), now)];
        assert_eq!(counted(&mut ledger, now, &jobs, SPAN).0, 1, "only the other one");
    }
}

#[test]
fn ids_that_do_not_fit_cost_what_comes_late_and_never_count_a_job_twice() {
    let mut ledger = FinishedLedger::first("c", START);
    let span = RememberedSpan { ids: 30, ..SPAN };
    let jobs: Vec<_> =
        (0..100).map(|id| plain(id, START + i64::try_from(id).unwrap() * HOUR / 10)).collect();
    assert_eq!(counted(&mut ledger, START + 10 * HOUR, &jobs, span), (100, true));
    assert!(ledger.ids() <= 30, "{}", ledger.ids());
    assert_eq!(counted(&mut ledger, START + 10 * HOUR, &jobs, span).0, 0);
    let late = [plain(500, START + HOUR), plain(501, START + 10 * HOUR)];
    assert_eq!(counted(&mut ledger, START + 10 * HOUR, &late, span).0, 1);
}

#[test]
fn a_slot_is_never_used_twice_also_when_the_clock_is_set_back() {
    let mut ledger = FinishedLedger::first("c", START);
    let slots: Vec<i64> = [0, 5, 61, -600, 62, 500]
        .into_iter()
        .map(|after| {
            counted(&mut ledger, START + after, &[], SPAN);
            ledger.counts().slot - START / EVERY * EVERY
        })
        .collect();
    assert!(slots.windows(2).all(|pair| pair[0] < pair[1]), "{slots:?}");
    // A clock that went far ahead does not silence it for as long.
    counted(&mut ledger, START + 400 * 24 * HOUR, &[], SPAN);
    counted(&mut ledger, START + 600, &[], SPAN);
    assert_eq!(ledger.counts().slot, (START + 600) / EVERY * EVERY);
}

#[test]
fn what_comes_in_the_round_after_its_own_is_not_late_and_what_comes_later_is() {
    let mut ledger = FinishedLedger::first("c", START - HOUR);
    counted(&mut ledger, START, &[plain(1, START - 5)], SPAN);
    assert_eq!(ledger.counts().reading.late_jobs, 0, "there was no round before");
    counted(&mut ledger, START + 60, &[plain(2, START - 5), plain(3, START - 100)], SPAN);
    let reading = ledger.counts().reading;
    assert_eq!((reading.late_jobs, reading.oldest_late, ledger.counts().late_total), (1, 160, 1));
    assert_eq!(reading.window_jobs, Some(2));
}

#[test]
fn an_hour_leaves_the_disk_when_nothing_of_it_is_read_any_more() {
    let mut ledger = FinishedLedger::first("c", START);
    let mut disk = Disk::new();
    for hour in 0..100 {
        let now = START + hour * HOUR;
        let mut round = FinishedRound::new(now, HOUR, LEVELS);
        round.add(&finished(&[plain(u64::try_from(hour).unwrap(), now)]), 1, &ledger);
        round.is_complete = true;
        let next = ledger.next(round, ledger.slot(now, EVERY), SPAN);
        disk.extend(ledger.records(&next).unwrap());
        ledger.adopt(next);
    }
    let full =
        disk.iter().filter(|(name, bytes)| name.contains("hour") && !bytes.is_empty()).count();
    assert!((25..=30).contains(&full), "{full}");
    let (again, _) = FinishedLedger::open("c", START, &disk);
    assert_eq!(again.counts(), ledger.counts());
    assert_eq!(again.ids(), ledger.ids());
}

/// One host's daemon before, at and after a hand-over: slurmdbd tells all of them the same jobs.
#[test]
fn what_ended_while_a_daemon_waited_is_in_its_totals_and_in_no_round_that_it_publishes() {
    let mut ledger = FinishedLedger::first("c", START);
    let mut reported = Vec::new();
    let mut round = |now: i64, jobs: u64, is_silent: bool| {
        for _ in 0..jobs {
            let id = u64::try_from(reported.len()).unwrap() + 1;
            reported.push(FinishedJob {
                id,
                end: now - 1,
                state: 3,
                tasks: 1,
                partition: 0,
                ..FinishedJob::default()
            });
        }
        let mut round = FinishedRound::new(now, HOUR, Levels::default());
        round.is_silent = is_silent;
        round.is_complete = true;
        round.add(&finished(&reported), 0, &ledger);
        let next = ledger.next(round, ledger.slot(now, EVERY), SPAN);
        assert_eq!(next.is_silent, is_silent);
        ledger.adopt(next);
        let counts = ledger.counts();
        let added = counts.round.get("total").map_or(0, |figures| figures.sums.jobs());
        (counts.slot, added, counts.totals["total"].jobs())
    };
    let slot = |minutes| (START.div_euclid(EVERY) + minutes) * EVERY;
    assert_eq!(round(START + 60, 3, true), (0, 3, 3), "nothing was ever published");
    assert_eq!(round(START + 120, 2, true), (0, 2, 5));
    assert_eq!(round(START + 180, 4, false), (slot(3), 4, 9), "those that are first seen now");
    // It waits again.
    assert_eq!(round(START + 240, 7, true), (slot(3), 7, 16));
    assert_eq!(round(START + 300, 1, false), (slot(5), 1, 17));
}
