//! What other sources do to the ids: numbers that are given again, slurmdbd in slurmctld's place, steps that end behind their jobs.

use slurm_snapshot::{Finished, FinishedJob, Used};

use crate::finished::{FinishedLedger, FinishedRound, HOUR, Levels, RememberedSpan, Tally};

const SPAN: RememberedSpan = RememberedSpan { seconds: 25 * HOUR, ids: 1_000_000 };
const START: i64 = 1_700_000_000 / HOUR * HOUR;

fn job(id: u64, submit: i64, end: i64) -> FinishedJob {
    FinishedJob { id, submit, end, state: 3, tasks: 1, wait: Some(1), ..FinishedJob::default() }
}

/// A round that has read this; what it has counted.
fn round(ledger: &mut FinishedLedger, now: i64, finished: &Finished) -> Tally {
    let total = |ledger: &FinishedLedger| ledger.counts().totals.get("total").copied().unwrap_or_default();
    let before = total(ledger);
    let mut round = FinishedRound::new(now, HOUR, Levels::default());
    (round.efficiency, round.is_complete) = (true, true);
    round.add(finished, 1, ledger);
    let next = ledger.next(round, ledger.slot(now, 60), SPAN);
    ledger.adopt(next);
    let after = total(ledger);
    Tally { started: after.started - before.started, cpu_used: after.cpu_used - before.cpu_used, ..after }
}

fn told(jobs: &[FinishedJob]) -> Finished {
    let jobs = jobs.iter().map(|job| FinishedJob { partition: 0, ..*job });
    Finished { jobs: jobs.collect(), names: vec!["debug".to_owned()], ..Finished::default() }
}

#[test]
fn a_number_that_a_restored_database_gives_again_is_another_job() {
    let mut ledger = FinishedLedger::first("c", START);
    let old = job(7, START + 10, START + 20);
    assert_eq!(round(&mut ledger, START + 60, &told(&[old])).started, 1);
    let its_end_was_changed = job(7, START + 10, START + 5 * HOUR);
    assert_eq!(round(&mut ledger, START + 5 * HOUR, &told(&[its_end_was_changed])).started, 0);
    let mut ledger = FinishedLedger::first("c", START);
    round(&mut ledger, START + 60, &told(&[old]));
    let new = job(7, START + 4 * HOUR, START + 5 * HOUR);
    for counted in [1, 0, 0] {
        assert_eq!(round(&mut ledger, START + 5 * HOUR, &told(&[new])).started, counted);
    }
    // slurmctld's clock was set back while it ran.
    let mut ledger = FinishedLedger::first("c", START);
    for counted in [1, 0, 0] {
        let back = job(8, START + 4 * HOUR, START + 20);
        assert_eq!(round(&mut ledger, START + 60, &told(&[back])).started, counted);
    }
}

#[test]
fn a_job_counts_with_what_its_steps_have_used_and_waits_for_those_that_are_open() {
    let mut ledger = FinishedLedger::first("c", START);
    let jobs = [job(1, START, START + 5), job(2, START, START + 5), job(3, START, START + 5)];
    let used = |id, cpu, is_open| Used { id, cpu, is_open };
    let at = |ledger: &mut FinishedLedger, after: i64, used: &[Used]| {
        let tally = round(ledger, START + after, &Finished { used: used.to_vec(), ..told(&jobs) });
        (tally.started, tally.cpu_used)
    };
    let open = [used(1, 1500, false), used(2, 20, true), used(3, 300, true)];
    assert_eq!(at(&mut ledger, 10, &open), (1, 1500));
    let two_ended = [used(2, 7000, false), used(3, 300, true)];
    assert_eq!(at(&mut ledger, 70, &two_ended), (1, 7000));
    assert_eq!(at(&mut ledger, 189, &[used(3, 300, true)]), (0, 0));
    assert_eq!(at(&mut ledger, 190, &[used(3, 400, true)]), (1, 400), "with what is known");
    assert_eq!(at(&mut ledger, 250, &[]), (0, 0));
    assert!(ledger.counts().efficiency);
}
