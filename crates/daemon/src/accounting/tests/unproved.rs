//! Rounds of which some piece is not proved: what the log says, what is published, and how they
//! end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use slurm_points::finished::{Counts, HOUR};
use slurm_snapshot::Finished;

use super::{Disk, accounting, asked, has_read_all, job, piece, whole};
use crate::accounting::Accounting;
use crate::accounting::plan::AHEAD;
use crate::accounting::report::SlurmdbdReport;

const START: i64 = 1_700_000_000 / HOUR * HOUR;

/// slurmdbd with these rows, whose other queries fail in the database or are too wide.
struct Dbd {
    ends: Vec<i64>,
    /// Questions that begin before this fail.
    works_since: i64,
    /// MaxQueryTimeRange, s.
    range: i64,
    /// How many statements it took.
    asked: usize,
}

impl Dbd {
    fn with_ends(ends: &[i64]) -> Self {
        Self { ends: ends.to_vec(), works_since: i64::MIN, range: i64::MAX, asked: 0 }
    }

    fn rows(&mut self, from: i64, to: i64) -> Vec<i64> {
        self.asked += 1;
        let answers = from >= self.works_since && to - from <= self.range;
        self.ends.iter().copied().filter(|end| answers && (from..=to).contains(end)).collect()
    }

    /// The reader's rule: towards a row before the piece by an hour more each time.
    fn answer(&mut self, from: i64, to: i64, known: &[i64]) -> Finished {
        let mut rows = self.rows(from, to);
        if let (true, Some(after)) =
            (rows.is_empty(), known.iter().filter(|known| **known >= from).min())
        {
            rows = self.rows(from, to.max(*after));
        }
        let nearest = known.iter().copied().filter(|known| *known < from).max();
        let mut since = from;
        while rows.is_empty() && nearest.is_some_and(|nearest| nearest < since) {
            since = (since - HOUR).max(nearest.unwrap());
            rows = self.rows(since, to);
        }
        for before in known.iter().filter(|known| **known < since) {
            rows = if rows.is_empty() { self.rows(*before, to) } else { rows };
        }
        let unproved = rows.is_empty();
        let jobs = rows.into_iter().map(|end| job(u64::try_from(end).unwrap(), end, end - 9));
        piece(jobs.collect(), from, to, unproved)
    }
}

/// A round at `now`, which is on disk when it ends. Returns the slots that are only said to be
/// unproved, and whether its counts are published; `each` looks at the daemon after each answer.
async fn round(
    daemon: &mut Accounting,
    disk: &mut Disk,
    dbd: &mut Dbd,
    now: i64,
    counts: bool,
    mut each: impl FnMut(&Accounting),
) -> (Vec<i64>, bool) {
    let (mut unproved, mut is_published) = (Vec::new(), false);
    daemon.note_statistics(0, 0, now);
    daemon.begin_round(now, now, counts);
    while let Some((from, to, known)) = asked(daemon) {
        let finished = dbd.answer(from, to, &known);
        // There is no reader behind the request.
        drop(daemon.source.outcome().await);
        let reading = whole(finished);
        let keep = |counts: Option<&Counts>, records: Vec<(String, Arc<[u8]>)>| {
            is_published = counts.is_some();
            disk.extend(records);
            2
        };
        unproved.extend(daemon.take_reply(Ok(reading), now, keep));
        each(daemon);
    }
    daemon.commit();
    (unproved, is_published)
}

/// A daemon that has counted a job of `START`.
async fn after_a_job(disk: &mut Disk) -> (Accounting, Dbd) {
    let mut daemon = accounting(disk, START - 10);
    daemon.commit();
    let mut dbd = Dbd::with_ends(&[START]);
    let (unproved, published) = round(&mut daemon, disk, &mut dbd, START + 10, true, |_| {}).await;
    assert_eq!((unproved, published, has_read_all(&daemon)), (vec![], true, true));
    (daemon, dbd)
}

fn jobs(daemon: &Accounting) -> u64 {
    daemon.ledger().unwrap().counts().totals["total"].jobs()
}

/// 19 rows came after 52, because slurmdbd failed in the middle of the window.
#[tokio::test]
async fn a_window_that_was_read_in_part_has_no_number_of_rows() {
    let mut disk = BTreeMap::new();
    let (mut daemon, mut dbd) = after_a_job(&mut disk).await;
    let rows = |daemon: &Accounting| daemon.ledger().unwrap().counts().reading.window_jobs;
    assert_eq!(rows(&daemon), Some(1));
    let now = START + daemon.plan.window - 10;
    dbd.ends.push(now - 5);
    for (tick, works_since, expected) in [(0, now - HOUR / 2, None), (1, i64::MIN, Some(2))] {
        dbd.works_since = works_since;
        daemon.piece = 60;
        round(&mut daemon, &mut disk, &mut dbd, now + tick, true, |_| {}).await;
        assert_eq!((rows(&daemon), jobs(&daemon)), (expected, 2));
    }
}

/// Each round wrote "returns jobs again" after its newest piece, and "returns no job" after the
/// older one.
#[tokio::test]
async fn the_log_says_once_that_an_older_piece_is_not_proved_and_once_that_all_are() {
    let mut disk = BTreeMap::new();
    let (mut daemon, mut dbd) = after_a_job(&mut disk).await;
    let now = START + 30 * HOUR;
    dbd.ends.push(now - 5);
    dbd.works_since = now - HOUR;
    let since = |daemon: &Accounting| {
        if let SlurmdbdReport::Unproved(since) = daemon.report.slurmdbd {
            Some(since)
        } else {
            None
        }
    };
    round(&mut daemon, &mut disk, &mut dbd, now, true, |_| {}).await;
    let begun = since(&daemon);
    assert!(begun.is_some() && jobs(&daemon) == 2, "{:?}", daemon.report);
    for tick in 1..4 {
        let mut said = Vec::new();
        round(&mut daemon, &mut disk, &mut dbd, now + tick, true, |daemon| {
            said.push(since(daemon))
        })
        .await;
        assert!(said.len() > 1 && said.iter().all(|since| *since == begun), "{said:?}");
    }
    dbd.works_since = i64::MIN;
    let mut all = false;
    round(&mut daemon, &mut disk, &mut dbd, now + 5, true, |daemon| all |= since(daemon).is_none())
        .await;
    assert!(all && daemon.report.slurmdbd == SlurmdbdReport::Good, "{:?}", daemon.report);
}

/// The log and `status` said that jobs are not counted, while each new one was.
#[tokio::test(start_paused = true)]
async fn an_older_piece_that_is_not_proved_for_hours_is_no_sign_that_new_jobs_do_not_count() {
    let mut disk = BTreeMap::new();
    let (mut daemon, mut dbd) = after_a_job(&mut disk).await;
    for (pass, is_behind) in [(1, false), (2, true)] {
        for half_hours in 0..3 {
            let now = START + 30 * pass * HOUR + half_hours * HOUR / 2;
            daemon.note_statistics(0, u64::try_from(now).unwrap(), now);
            dbd.ends.push(now - 5);
            dbd.works_since = if is_behind { i64::MAX } else { now - 3 * HOUR };
            round(&mut daemon, &mut disk, &mut dbd, now, true, |_| {}).await;
            tokio::time::advance(Duration::from_secs(1801)).await;
        }
        let now = START + 30 * pass * HOUR + 2 * HOUR;
        daemon.note_statistics(0, u64::try_from(now).unwrap(), now);
        assert_eq!(daemon.behind().is_some(), is_behind, "{} jobs count", jobs(&daemon));
    }
}

/// A host that has become active said nothing while it could not see what another has counted.
#[tokio::test]
async fn a_new_active_host_says_that_it_could_not_see_what_another_has_counted_and_a_standby_says_nothing()
 {
    for older in [false, true] {
        let mut disk = BTreeMap::new();
        let (mut daemon, mut dbd) = after_a_job(&mut disk).await;
        let now = START + 30 * HOUR;
        dbd.ends.push(now - 5);
        dbd.works_since = if older { now - HOUR } else { i64::MAX };
        daemon.rebuild(now);
        let published = round(&mut daemon, &mut disk, &mut dbd, now, true, |_| {}).await;
        assert_eq!(published, (vec![now], false), "its figures are another's; older: {older}");
        assert_eq!(
            daemon.rebuild,
            Some(now + 1),
            "what another host may have counted ends with a round"
        );
        let standby = round(&mut daemon, &mut disk, &mut dbd, now + 1, false, |_| {}).await;
        assert_eq!(standby, (vec![], false));
        dbd.works_since = i64::MIN;
        // Ended when this host was active: while slurmdbd was away such jobs were in no round.
        dbd.ends.push(now + 2);
        let seen = round(&mut daemon, &mut disk, &mut dbd, now + 2, true, |_| {}).await;
        assert_eq!((seen, daemon.rebuild, jobs(&daemon)), ((vec![], false), None, 2));
        assert!(!has_read_all(&daemon), "what ended since is still to be read");
        dbd.ends.push(now + 3);
        let next = round(&mut daemon, &mut disk, &mut dbd, now + 3, true, |_| {}).await;
        assert_eq!((next, has_read_all(&daemon), jobs(&daemon)), ((vec![], true), true, 4));
        assert!(daemon.ledger().unwrap().counts().slot > now, "no slot twice");
    }
}

/// Of a time without jobs that was longer than MaxQueryTimeRange, only the newer half was proved,
/// until ten days had passed.
#[tokio::test]
async fn a_time_without_jobs_is_proved_from_both_sides() {
    let mut disk = BTreeMap::new();
    let (mut daemon, mut dbd) = after_a_job(&mut disk).await;
    dbd.range = 24 * HOUR;
    let now = START + 40 * HOUR;
    dbd.ends.push(now - 5);
    round(&mut daemon, &mut disk, &mut dbd, now, true, |_| {}).await;
    assert!(has_read_all(&daemon) && jobs(&daemon) == 2, "{:?}", daemon.report);
    // Also by a daemon that knows only what is on disk.
    let mut again = accounting(&mut disk, now + 1);
    again.commit();
    round(&mut again, &mut disk, &mut dbd, now + 1, true, |_| {}).await;
    assert!(has_read_all(&again) && jobs(&again) == 2, "{:?}", again.report);
}

/// Nothing was known that proved the time since then, and the first jobs counted with the next one.
#[tokio::test]
async fn the_first_job_of_a_ledger_counts_though_nothing_has_ended_for_hours() {
    let mut disk = BTreeMap::new();
    let mut daemon = accounting(&mut disk, START);
    daemon.commit();
    let mut dbd = Dbd::with_ends(&[START + HOUR]);
    let now = START + 9 * HOUR;
    round(&mut daemon, &mut disk, &mut dbd, now, true, |_| {}).await;
    assert!(has_read_all(&daemon) && jobs(&daemon) == 1, "{:?}", daemon.report);
    assert!(dbd.asked < 20, "{} statements", dbd.asked);
}

/// The rule for every hour of a long time without jobs would ask slurmdbd thousands of times.
#[tokio::test]
async fn a_long_time_without_jobs_costs_a_statement_an_hour_once_and_few_afterwards() {
    let mut disk = BTreeMap::new();
    let (mut daemon, mut dbd) = after_a_job(&mut disk).await;
    let now = START + 9 * 24 * HOUR;
    dbd.asked = 0;
    daemon.watermark.read_until = None;
    round(&mut daemon, &mut disk, &mut dbd, now, true, |_| {}).await;
    assert!(has_read_all(&daemon));
    assert!((9 * 24..10 * 24).contains(&dbd.asked), "{} statements", dbd.asked);
    for reads_all in [false, true] {
        dbd.asked = 0;
        if reads_all {
            daemon.watermark.read_all();
        }
        round(&mut daemon, &mut disk, &mut dbd, now + AHEAD, true, |_| {}).await;
        assert!(has_read_all(&daemon) && dbd.asked < 10, "{} statements", dbd.asked);
    }
}
