//! The large cluster: its configuration, its jobs, and what bare C and Slurm's own commands cost.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::{Folder, Slurm, find_program};
use tools::contender::{compile, median};

use crate::reader::Cost;

/// Keys of the sandbox's slurm.conf that are different in a large cluster.
const OTHERWISE: [&str; 4] = ["NodeName", "PartitionName", "SchedulerParameters", "MessageTimeout"];

/// Starts munged and slurmctld with `nodes` CLOUD nodes that never boot.
pub(crate) fn start(folder: &Folder, nodes: u32) -> Result<Slurm> {
    let mut slurm = Slurm::new(folder)?;
    let text = fs::read_to_string(slurm.conf())?;
    let mut conf: String = text
        .lines()
        .filter(|line| !OTHERWISE.iter().any(|key| line.starts_with(key)))
        .map(|line| format!("{line}\n"))
        .collect();
    conf.push_str(&format!(
        "\
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=86400
ResumeTimeout=65000
SuspendRate=0
ResumeRate=0
SlurmdTimeout=0
TreeWidth=65533
PrivateData=cloud
MessageTimeout=100
MaxJobCount=250000
Licenses=matlab:10
SchedulerParameters=defer,default_queue_depth=20000,partition_job_depth=20000,sched_min_interval=1000000,max_sched_time=50,bf_interval=30,bf_max_time=10,bf_max_job_test=2000,max_rpc_cnt=0
NodeName=n[1-{nodes}] NodeAddr=127.0.0.1 CPUs=32 RealMemory=64000 State=CLOUD
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE
PartitionName=blocked Nodes=n1 MaxTime=INFINITE State=DOWN
"
    ));
    fs::write(slurm.conf(), conf)?;
    slurm.start_controller()?;
    Ok(slurm)
}

/// Submits this many separate jobs to a partition.
pub(crate) fn submit(folder: &Folder, slurm: &Slurm, partition: &str, jobs: u32) -> Result<()> {
    let program = compile(folder, "submit", include_str!("submit.c"))?;
    let output = sandbox::command(folder.path(), &program)
        .args([partition, &jobs.to_string()])
        .env("SLURM_CONF", slurm.conf())
        .output()?;
    ensure!(output.status.success(), "submit: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The cost of the bare C loop: medians.
pub(crate) fn floor(folder: &Folder, slurm: &Slurm, rounds: usize) -> Result<Cost> {
    bare(folder, slurm, "floor", include_str!("floor.c"), &[&rounds.to_string()])
}

/// The cost of a C loop that prints a line each round: medians.
pub(crate) fn bare(folder: &Folder, slurm: &Slurm, name: &str, source: &str, args: &[&str]) -> Result<Cost> {
    let program = compile(folder, name, source)?;
    let output =
        sandbox::command(folder.path(), &program).args(args).env("SLURM_CONF", slurm.conf()).output()?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows: Vec<Vec<f64>> = text
        .lines()
        .map(|line| line.split(' ').map(|word| word.parse().context("not a figure")).collect())
        .collect::<Result<_>>()?;
    let column = |index: usize| median(rows.iter().filter_map(|row| row.get(index).copied()));
    let peak = rows.iter().filter_map(|row| row.get(3)).fold(0.0_f64, |most, kib| most.max(*kib));
    Ok(Cost { cpu: column(1), wall: column(2), peak_kib: peak })
}

/// The cost of Slurm's commands: medians.
pub(crate) struct Forked {
    /// The cost of the commands; the wall time includes reading their output.
    pub(crate) cost: Cost,
    /// CPU for splitting their lines, µs.
    pub(crate) reading: f64,
}

/// Runs Slurm's own commands one after the other; each is a line.
pub(crate) fn forked(folder: &Folder, slurm: &Slurm, rounds: usize, commands: &str) -> Result<Forked> {
    let output = sandbox::command(folder.path(), &find_program("python3")?)
        .args(["-c", include_str!("forked.py"), &rounds.to_string(), commands])
        .env("SLURM_CONF", slurm.conf())
        .output()?;
    ensure!(output.status.success(), "forked.py: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace().map(str::parse::<f64>);
    let mut word = || words.next().context("a figure is missing")?.context("not a figure");
    let (cpu, reading, wall, kib) = (word()?, word()?, word()?, word()?);
    Ok(Forked { cost: Cost { cpu, wall, peak_kib: kib }, reading })
}

/// How often slurmctld was asked for all jobs.
pub(crate) fn dumps(slurm: &Slurm) -> Result<f64> {
    Ok(calls(slurm)?.get("REQUEST_JOB_INFO").map_or(0.0, |&count| count as f64))
}

/// Calls by message type, from slurmctld's own table.
pub(crate) fn calls(slurm: &Slurm) -> Result<BTreeMap<String, u64>> {
    Ok(slurm.sdiag()?.by_type.into_iter().map(|row| (row.name, row.count)).collect())
}

/// Makes a small change, so that the next reply is complete.
pub(crate) fn touch(slurm: &Slurm, round: usize) -> Result<()> {
    slurm.run("scontrol", &["update", "jobid=1", &format!("comment=round{round}")])?;
    slurm.run("scontrol", &["update", "nodename=n2", &format!("comment=round{round}")])?;
    slurm.run("scontrol", &["update", "partitionname=debug", &format!("maxnodes={}", 1000 + round)])?;
    // Times are whole seconds: a change in the same second as the last reply would not be noticed.
    sandbox::wait::pause(Duration::from_millis(1100));
    Ok(())
}
