//! Rows that ended and go on: of a slurmctld that was started once without its state, and of a job
//! that changed its size and is requeued. The seconds are sacct's at the end.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sandbox::wait;

use super::truth::count;
use super::{MINUTE, Stage, ended, resume_nodes};

/// Seconds of run time, CPUs and nodes, and how many rows are completed, in sacct.
fn in_sacct(stage: &Stage) -> Result<([u64; 3], u64)> {
    let text = stage
        .accounting
        .slurm
        .call("sacct -aDXnP -S now-1day -o State,ElapsedRaw,CPUTimeRAW,AllocTRES")?;
    let (mut seconds, mut completed) = ([0; 3], 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split('|').collect();
        let [state, run, cpu, tres] = words[..] else { anyhow::bail!("a line of sacct: {line}") };
        let run: u64 = run.parse()?;
        // The list of nodes of a row with a resized run may be another run's.
        let nodes = tres.split(',').find_map(|part| part.strip_prefix("node=")).unwrap_or("0");
        for (sum, more) in seconds.iter_mut().zip([run, cpu.parse()?, run * nodes.parse::<u64>()?])
        {
            *sum += more;
        }
        completed += u64::from(state == "COMPLETED");
    }
    Ok((seconds, completed))
}

/// Seconds of CPUs and nodes that sacct has no more. With the end of a step 26.05 writes the TRES
/// that the job has then into the row in which the step began: that of a part that had ended before
/// the resize. What was read before stays counted.
fn lowered(stage: &Stage) -> Result<[u64; 2]> {
    let text = stage.accounting.sql(
        "select j.job_db_inx, j.time_end - j.time_start, j.tres_alloc, v.tres_alloc from \
         slurm_acct_db.sandbox_job_table j join slurm_acct_db.versions v using (job_db_inx) where \
         v.state > 2 and v.time_end > 0 and v.tres_alloc != j.tres_alloc",
    )?;
    let mut rows = BTreeMap::<&str, [u64; 2]>::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let [row, run, now, before] = words[..] else { anyhow::bail!("a version: {line}") };
        let run: u64 = run.parse()?;
        for (most, name) in rows.entry(row).or_default().iter_mut().zip(["1", "4"]) {
            *most = (*most).max(run * count(before, name).saturating_sub(count(now, name)));
        }
    }
    Ok([0, 1].map(|kind| rows.values().map(|row| row[kind]).sum()))
}

const LEAVES: [&str; 3] = ["run_seconds", "cpu_seconds", "node_seconds"];

impl Stage {
    /// The totals that were sent, and the sums of all slots.
    fn seconds(&self) -> Result<([u64; 3], [u64; 3])> {
        let sent = self.sent()?;
        let path = |leaf: &str| format!("total.work.gauge-{leaf}");
        let total = |leaf: &str| sent.last(&format!("{}_total", path(leaf))).unwrap_or(0);
        Ok((LEAVES.map(total), LEAVES.map(|leaf| sent.sum(&path(leaf)))))
    }

    fn state(&self, state: &str) -> Result<u64> {
        let path = format!("total.state.{state}.gauge-jobs_total");
        Ok(self.sent()?.last(&path).unwrap_or(0))
    }

    /// Waits until the seconds are sacct's. Returns how many rows sacct has completed.
    fn compare_seconds(&self) -> Result<u64> {
        ended(&self.accounting)?;
        let (expected, completed) = in_sacct(self)?;
        let [run, cpu, node] = expected;
        let [more_cpu, more_node] = lowered(self)?;
        let expected = [expected, [run, cpu + more_cpu, node + more_node]];
        let limit = MINUTE * 4;
        let _differ = wait::until("sacct's seconds in Carbon", limit, || {
            self.seconds().is_ok_and(|(totals, _)| expected.contains(&totals))
        });
        self.two_more_rounds()?;
        let found = self.seconds()?;
        println!("{}", self.accounting.sql(super::truth::ROWS)?);
        println!("{LEAVES:?}: sent {found:?}, sacct {expected:?}; {completed} completed");
        ensure!(
            found.0 == found.1 && expected.contains(&found.0),
            "{LEAVES:?}: totals and slots are {found:?}, sacct has {expected:?}"
        );
        Ok(completed)
    }

    fn is_in_state(&self, job: u32, state: &str) -> bool {
        let said = self.accounting.slurm.call(&format!("squeue -h -a -j {job} -t all -o %T"));
        said.is_ok_and(|said| said.trim() == state)
    }

    /// What slurmctld says of a job that does not run, and of the nodes.
    fn what_holds(&self, job: u32) -> String {
        let job = format!("scontrol show job {job}");
        let said = |line: &str| self.accounting.slurm.call(line).unwrap_or_default();
        format!("{}{}", said(&job), said("sinfo -N -o %N|%T|%E"))
    }

    /// Waits until the job runs, on nodes that may have been down.
    fn until_runs(&self, job: u32) -> Result<()> {
        let runs = || {
            resume_nodes(&self.accounting);
            wait::pause(Duration::from_secs(1));
            self.is_in_state(job, "RUNNING")
        };
        wait::until("a job that runs", MINUTE * 2, runs)
            .map(drop)
            .with_context(|| self.what_holds(job))
    }

    /// Lets requeued jobs begin after 10 s. By default slurmctld waits for 120 s after their nodes
    /// are free, so long are credentials valid.
    fn requeue_soon(&mut self) -> Result<()> {
        let conf = fs::read_to_string(self.accounting.slurm.conf())?;
        let socket = conf.lines().find(|line| line.starts_with("AuthInfo=")).context("AuthInfo")?;
        let line = format!("{socket},cred_expire=10\n");
        self.accounting.slurm.replace(&["AuthInfo="], &line)?;
        self.restart_controller()
    }

    fn restart_controller(&mut self) -> Result<()> {
        self.accounting.slurm.slurmctld.stop()?;
        self.accounting.slurm.slurmctld.start()
    }
}

/// StateSaveLocation was not mounted: slurmctld ends all rows of its cluster, and with its state it
/// goes on with them.
#[test]
fn rows_that_a_slurmctld_without_its_state_has_ended_count_until_they_end() -> Result<()> {
    let mut stage = Stage::start()?;
    let submit = |stage: &Stage, args: &[&str]| stage.accounting.slurm.submit(args);
    let done = submit(&stage, &["--wrap", "sleep 2"])?;
    let first = submit(&stage, &["--wrap", "sleep 30"])?;
    let second = submit(&stage, &["-N2", "-n2", "--wrap", "sleep 35"])?;
    let third = submit(&stage, &["-N2", "-n2", "--exclusive", "--wrap", "sleep 4"])?;
    for job in [first, second] {
        wait::until("a job that runs", MINUTE, || stage.is_in_state(job, "RUNNING"))?;
    }
    wait::until("a job that has ended", MINUTE, || stage.is_in_state(done, "COMPLETED"))?;
    wait::until("a job that waits", MINUTE, || stage.is_in_state(third, "PENDING"))?;
    stage.accounting.slurm.slurmctld.stop()?;
    stage.accounting.slurm.slurmd.freeze()?;
    stage.accounting.second_slurmd.freeze()?;
    let conf = fs::read_to_string(stage.accounting.slurm.conf())?;
    let state = conf.lines().find_map(|line| line.strip_prefix("StateSaveLocation="));
    let state = state.context("StateSaveLocation")?.to_owned();
    let empty = format!("{state}-not-mounted");
    fs::create_dir(&empty)?;
    let line = |folder: &str| format!("StateSaveLocation={folder}\n");
    stage.accounting.slurm.replace(&["StateSaveLocation="], &line(&empty))?;
    stage.accounting.slurm.slurmctld.start()?;
    let cancelled = "select count(*) from slurm_acct_db.sandbox_job_table where state = 4";
    let are_ended = || stage.accounting.sql(cancelled).is_ok_and(|count| count.trim() == "3");
    let are_ended = wait::until("cancelled rows in slurmdbd", MINUTE, are_ended);
    let release = stage.accounting.slurm.release()?;
    if are_ended.is_err() && release.as_str() >= "25.05" {
        // Seen with 26.05: their state stays RUNNING or PENDING, and nothing goes on.
        println!("slurmctld {release} without its state ends no row");
        return stage.daemon.stop().map(drop);
    }
    are_ended?;
    wait::until("the cancelled rows in Carbon", MINUTE, || {
        stage.state("cancelled").is_ok_and(|jobs| jobs >= 3)
    })?;
    stage.accounting.slurm.slurmctld.stop()?;
    stage.accounting.slurm.replace(&["StateSaveLocation="], &line(&state))?;
    stage.accounting.slurm.slurmctld.start()?;
    stage.accounting.slurm.slurmd.thaw()?;
    stage.accounting.second_slurmd.thaw()?;
    resume_nodes(&stage.accounting);
    let completed = stage.compare_seconds()?;
    let changed = stage.sent()?.last("reading.gauge-changed_total");
    let cancelled = stage.state("cancelled")?;
    println!(
        "completed {} of {completed}, cancelled {cancelled}, changed {changed:?}",
        stage.state("completed")?
    );
    ensure!(completed == 4, "sacct has {completed} completed jobs");
    // Those that ran count as what they were first; the one that waited counts again.
    ensure!(
        (stage.state("completed")?, cancelled) == (2, 3) && changed >= Some(2),
        "{} completed, {cancelled} cancelled, {changed:?} changed",
        stage.state("completed")?
    );
    stage.daemon.stop()?;
    Ok(())
}

/// A slurmctld that was killed before it had saved a cancellation lets the job run, in the same row.
/// sacct then shows one job. The daemon, which has read the row twice, counts a cancelled job and a
/// completed one.
#[test]
fn a_job_that_runs_because_its_cancellation_was_forgotten_counts_again() -> Result<()> {
    let mut stage = Stage::start()?;
    // Only after a job that starts its names have paths.
    stage.accounting.slurm.submit(&["--wrap", "true"])?;
    wait::until("the first job in Carbon", MINUTE, || {
        stage.state("completed").is_ok_and(|jobs| jobs == 1)
    })?;
    let job = stage.accounting.slurm.submit(&["-H", "--wrap", "sleep 2"])?;
    stage.accounting.slurm.slurmctld.stop()?;
    let conf = fs::read_to_string(stage.accounting.slurm.conf())?;
    let state = conf.lines().find_map(|line| line.strip_prefix("StateSaveLocation="));
    let state = state.context("StateSaveLocation")?.to_owned();
    let copy = |stage: &Stage, from: &str, to: &str| {
        stage.accounting.slurm.call(&format!("cp -a {from}/. {to}"))
    };
    let saved = format!("{state}-saved");
    copy(&stage, &state, &saved)?;
    stage.accounting.slurm.slurmctld.start()?;
    stage.accounting.slurm.call(&format!("scancel {job}"))?;
    wait::until("the cancelled job in Carbon", MINUTE, || {
        stage.state("cancelled").is_ok_and(|jobs| jobs == 1)
    })?;
    stage.accounting.slurm.slurmctld.kill()?;
    copy(&stage, &saved, &state)?;
    stage.accounting.slurm.slurmctld.start()?;
    stage.accounting.slurm.call(&format!("scontrol release {job}"))?;
    let (truth, compared) = stage.check()?;
    println!("{compared}");
    let counted = ["cancelled", "completed"].map(|state| stage.state(state).unwrap_or(0));
    ensure!((counted, truth.jobs()) == ([1, 2], 2), "{counted:?}, sacct {}", truth.jobs());
    stage.daemon.stop().map(drop)
}

/// slurmctld keeps the moment of the resize, which is slurmdbd's key, so all later runs have one
/// row.
#[test]
fn every_run_of_a_job_that_was_resized_and_requeued_counts() -> Result<()> {
    let mut stage = Stage::start()?;
    stage.requeue_soon()?;
    let args = ["-N2", "-n2", "--no-kill", "--requeue", "--wrap", "sleep 10"];
    let by_hand = stage.accounting.slurm.submit(&args)?;
    stage.until_runs(by_hand)?;
    wait::pause(Duration::from_secs(3));
    stage.accounting.slurm.call(&format!("scontrol update jobid={by_hand} numnodes=1"))?;
    wait::pause(Duration::from_secs(4));
    stage.accounting.slurm.call(&format!("scontrol requeue {by_hand}"))?;
    wait::until("the requeued run in Carbon", MINUTE, || {
        stage.state("requeued").is_ok_and(|jobs| jobs == 1)
    })?;
    stage.until_runs(by_hand)?;
    wait::until("its end", MINUTE, || stage.is_in_state(by_hand, "COMPLETED"))?;

    let by_nodes = stage.accounting.slurm.submit(&args)?;
    stage.until_runs(by_nodes)?;
    let fail = |node: &str| {
        wait::pause(Duration::from_secs(3));
        let line = format!("scontrol update nodename={node} state=down reason=test");
        stage.accounting.slurm.call(&line)
    };
    fail("c2")?;
    fail("c1")?;
    wait::until("the failed run in Carbon", MINUTE, || {
        stage.state("node_fail").is_ok_and(|jobs| jobs == 1)
    })?;
    stage.restart_controller()?;
    stage.until_runs(by_nodes)?;
    let completed = stage.compare_seconds()?;
    let states = ["completed", "requeued", "node_fail"].map(|state| stage.state(state));
    println!("completed, requeued, node_fail: {states:?}, sacct {completed} completed");
    ensure!(stage.state("completed")? == completed && completed == 2, "{states:?}");
    stage.daemon.stop()?;
    Ok(())
}
