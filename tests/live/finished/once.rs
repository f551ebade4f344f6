//! Many jobs of all kinds under faults of all kinds: each is counted once, and every figure is
//! sacct's.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sandbox::wait;

use super::faults::{Fault, LONG, SHORT};
use super::jobs::Cast;
use super::{MINUTE, Stage, ended, resume_nodes, seed};

pub(super) struct Play {
    pub(super) stage: Stage,
    pub(super) cast: Cast,
    pub(super) random: fastrand::Rng,
    least: usize,
}

impl Play {
    fn start(mut stage: Stage, random: fastrand::Rng, least: usize) -> Result<Self> {
        let mut cast = Cast::default();
        cast.is_long = stage.carbon.is_some();
        cast.introduce(&stage.accounting)?;
        if cast.is_long {
            cast.submit_resized(&stage.accounting)?;
        }
        let jobs = cast.submitted.len() as u64;
        wait::until("the first jobs of everybody", MINUTE * 2, || {
            let counted =
                stage.sent().ok().and_then(|sent| sent.last("total.work.gauge-started_total"));
            counted.is_some_and(|counted| counted >= jobs)
        })?;
        if cast.is_long {
            // Then it has saved that they have ended.
            stage.accounting.slurm.slurmctld.stop()?;
            stage.accounting.slurm.slurmctld.start()?;
        }
        Ok(Self { stage, cast, random, least })
    }

    pub(super) fn submit(&mut self) -> Result<()> {
        self.cast.submit(&self.stage.accounting, &mut self.random, self.least)
    }

    pub(super) fn pause(&mut self, most: f64) {
        wait::pause(Duration::from_secs_f64(self.random.f64() * most));
    }

    fn strike(&mut self, (name, fault): Fault) -> Result<()> {
        self.stage.revive()?;
        resume_nodes(&self.stage.accounting);
        fault(self).with_context(|| name.to_owned())
    }

    /// Jobs that end while no daemon runs: its first round counts all of them, and their
    /// percentiles are correct.
    fn check_percentiles(&mut self) -> Result<usize> {
        let (before, slot) = (ended(&self.stage.accounting)?, self.stage.sent()?.last_slot());
        self.stage.daemon.kill()?;
        self.cast.submit(&self.stage.accounting, &mut self.random, 60)?;
        self.cast.submit_resized(&self.stage.accounting)?;
        self.cast.end(&self.stage.accounting)?;
        ended(&self.stage.accounting)?;
        self.stage.daemon.spawn()?;
        let (truth, _, sent) = self.stage.settle()?;
        let slot = sent.first_after(slot).context("no round after the start")?;
        let (mut new, mut compared) = (truth.since(&before), 0);
        // Tasks that never started count three minutes after they are first seen: in a later round.
        new.rows.retain(|row| row.tasks == 1);
        let mut expected = new.percentiles();
        for (path, value) in new.rows.iter().flat_map(|row| row.figures()) {
            *expected.entry(path).or_default() += value;
        }
        for ((level, leaf), value) in expected {
            let its = sent.at(&format!("{level}.{leaf}"), slot);
            ensure!(
                its == Some(value),
                "{level}.{leaf} at {slot} is {its:?}, sacct's lines have {value}"
            );
            compared += 1;
        }
        Ok(compared)
    }
}

#[test]
fn every_job_is_counted_once_while_slurmdbd_mariadb_and_the_daemon_end_or_hang() {
    let seed = seed();
    short(seed).with_context(|| format!("SOAK_SEED={seed}")).unwrap();
}

/// The tasks of a cancelled array are counted three minutes after slurmdbd knows them. So the
/// faults that only end the daemon come last, and much of this time passes meanwhile.
fn short(seed: u64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (ends_the_daemon, others) = SHORT.split_at(3);
    let mut others = others.to_vec();
    random.shuffle(&mut others);
    let mut play = Play::start(Stage::start()?, random, 4)?;
    for fault in others {
        play.strike(fault)?;
    }
    // A busy machine takes fewer jobs in the time of the faults.
    while play.cast.submitted.values().sum::<u64>() < 90 {
        play.submit()?;
    }
    play.cast.end(&play.stage.accounting)?;
    for fault in ends_the_daemon {
        play.strike(*fault)?;
    }
    play.stage.revive()?;
    let (truth, _) = play.stage.check()?;
    ensure!(truth.jobs() >= 60, "{} jobs are too few", truth.jobs());
    play.stage.daemon.stop().map(drop)
}

const TIMES: usize = 3;

/// `make finished-long` runs it; `SOAK_SEED=` repeats a run.
#[test]
#[ignore = "takes some minutes: make finished-long"]
fn a_thousand_jobs_are_counted_once() {
    let seed = seed();
    long(seed).with_context(|| format!("SOAK_SEED={seed}")).unwrap();
}

fn long(seed: u64) -> Result<()> {
    let start = Instant::now();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut faults = [&SHORT[..], &LONG].concat().repeat(TIMES);
    random.shuffle(&mut faults);
    let mut play = Play::start(Stage::start_long()?, random, 6)?;
    for fault in &faults {
        let seconds = start.elapsed().as_secs_f64();
        println!("{seconds:6.0} s  {:5} jobs  {}", play.cast.submitted.len(), fault.0);
        play.strike(*fault)?;
    }
    play.stage.revive()?;
    // slurmctld 22.05, after it was killed, may list tasks of an array that it cannot find by their
    // numbers.
    play.stage.accounting.slurm.slurmctld.stop()?;
    play.stage.accounting.slurm.slurmctld.start()?;
    play.cast.end(&play.stage.accounting)?;
    let (_, compared) = play.stage.check()?;
    let truth = ended(&play.stage.accounting)?;
    truth.check(&play.stage.accounting, &play.cast)?;
    let states = truth.states();
    for state in ["timeout", "requeued", "node_fail", "deadline", "resizing"] {
        ensure!(truth.rows.iter().any(|row| row.state == state), "no job is {state}: {states:?}");
    }
    let percentiles = play.check_percentiles()?;
    println!(
        "SOAK_SEED={seed}: {} faults, {} jobs, {states:?}; {compared}; {percentiles} figures of \
            one round; {:.0} s",
        faults.len(),
        truth.jobs(),
        start.elapsed().as_secs_f64()
    );
    ensure!(start.elapsed() < MINUTE * 30, "{:?}", start.elapsed());
    play.stage.daemon.stop().map(drop)
}
