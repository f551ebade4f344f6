//! CPU time that jobs have used, added up from their steps as sacct does it, and counted together
//! with the job, even if the job ends before its steps.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sandbox::wait;

use super::{MINUTE, Stage, ended};

/// A command that uses a CPU for this many seconds.
fn busy(seconds: u32) -> String {
    format!("timeout {seconds} sh -c 'while :; do :; done'")
}

/// `00:01.234`, `01:02:03` or `2-01:02:03` in ms.
fn milliseconds(text: &str) -> Option<u64> {
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let (clock, ms) = clock.split_once('.').unwrap_or((clock, "0"));
    let minutes = clock
        .split(':')
        .try_fold(0, |sum: u64, part| Some(sum * 60 + part.parse::<u64>().ok()?))?;
    Some((days.parse::<u64>().ok()? * 86_400 + minutes) * 1000 + ms.parse::<u64>().ok()?)
}

/// CPU time used in ms and seconds allocated for all jobs, and the number of jobs, according to
/// sacct.
fn in_sacct(stage: &Stage) -> Result<(u64, u64, usize)> {
    let text =
        stage.accounting.slurm.call("sacct -aDnP -S now-1day -o JobID,TotalCPU,CPUTimeRAW")?;
    let jobs =
        text.lines().filter(|line| !line.split('|').next().is_some_and(|id| id.contains('.')));
    let mut sums = (0, 0, 0);
    for line in jobs {
        let words: Vec<&str> = line.split('|').collect();
        let [_, used, allocated] = words[..] else { anyhow::bail!("a line of sacct: {line}") };
        sums.0 += milliseconds(used).with_context(|| line.to_owned())?;
        sums.1 += allocated.parse::<u64>()?;
        sums.2 += 1;
    }
    Ok(sums)
}

#[test]
fn what_jobs_have_used_is_what_sacct_says_and_counts_with_the_job() -> Result<()> {
    let mut stage = Stage::start_with("efficiency = true\n", "KillWait=5")?;
    let slurm = &stage.accounting.slurm;
    let submit = |args: &[&str], script: &str| slurm.submit(&[args, &["--wrap", script]].concat());
    submit(&[], &format!("{}; srun -n1 {}; srun -n1 true", busy(1), busy(2)))?;
    submit(&["--array=1-3"], &busy(1))?;
    submit(&[], "sleep 1")?;
    submit(&["-H", "--array=1-4"], "true")?;
    // It ignores SIGTERM, so its steps end KillWait after it.
    let stubborn = submit(&["-n2", "--job-name=stubborn"], "trap '' TERM; while :; do :; done")?;
    let runs = || {
        let time = slurm.call("squeue -h -n stubborn -t running -o %M");
        time.is_ok_and(|time| !["", "0:00", "0:01"].contains(&time.trim()))
    };
    wait::until("a job that has run for some seconds", MINUTE, runs)?;
    stage.daemon.kill()?;
    stage.accounting.slurm.call(&format!("scancel {stubborn}"))?;
    stage.accounting.slurm.call("scancel --state=PENDING")?;
    stage.daemon.spawn()?;
    ended(&stage.accounting)?;
    let open = "select count(*) from slurm_acct_db.sandbox_step_table where time_end = 0";
    wait::until("the end of all steps", MINUTE * 2, || {
        stage.accounting.sql(open).is_ok_and(|count| count.trim() == "0")
    })?;
    let (used, allocated, jobs) = in_sacct(&stage)?;
    // It does not show those that could never run.
    ensure!(used > 1000 && jobs >= 6, "{used} ms of {jobs} jobs are too little to tell anything");
    let last = |path: &str| stage.sent().ok().and_then(|sent| sent.last(path));
    // The stubborn one is counted when its steps have ended.
    wait::until("all of them in Carbon", MINUTE * 4, || {
        last("total.work.gauge-cpu_seconds_total") == Some(allocated)
    })
    .with_context(|| {
        format!("{allocated} allocated; {:?}", last("total.work.gauge-cpu_seconds_total"))
    })?;
    wait::pause(Duration::from_secs(3));
    let sent = stage.sent()?;
    for (leaf, expected) in [("cpu_used_seconds", used), ("cpu_seconds", allocated)] {
        let path = format!("total.work.gauge-{leaf}");
        let found = (sent.last(&format!("{path}_total")), sent.sum(&path));
        ensure!(
            found == (Some(expected), expected),
            "{path}: total and slots {found:?}, sacct {expected}"
        );
    }
    stage.daemon.stop()?;
    Ok(())
}

#[test]
fn times_of_sacct_are_read() {
    for (text, ms) in [
        ("00:01.234", 1234),
        ("10:00", 600_000),
        ("01:02:03", 3_723_000),
        ("2-00:00:01", 172_801_000),
    ] {
        assert_eq!(milliseconds(text), Some(ms), "{text}");
    }
    assert_eq!(milliseconds("INVALID"), None);
}
