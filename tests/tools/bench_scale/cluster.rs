//! The large cluster: its configuration, its jobs, and what bare C and Slurm's own commands cost.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sandbox::{Folder, Slurm, find_program};
use tools::contender::{compile, median};

use crate::reader::Cost;

/// Keys of the sandbox's slurm.conf that are different in a large cluster.
const OTHERWISE: [&str; 4] = ["NodeName", "PartitionName", "SchedulerParameters", "MessageTimeout"];

/// Starts munged and slurmctld with `nodes` CLOUD nodes that never boot.
pub(crate) fn start(folder: &Folder, nodes: u32) -> Result<Slurm> {
    let mut slurm = Slurm::new(folder)?;
    // The features of each node are other ones than those of the node before.
    let common: Vec<String> = (1..50).map(|feature| format!("feature{feature}")).collect();
    let node = |node| {
        let features = format!("{},rack{}", common.join(","), node % 50);
        format!(
            "NodeName=n{node} NodeAddr=127.0.0.1 CPUs=32 RealMemory=64000 Feature={features} State=CLOUD\n"
        )
    };
    let listed: String = (1..=nodes).map(node).collect();
    let conf = format!(
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
SchedulerParameters=defer,default_queue_depth=20000,partition_job_depth=20000,\\
sched_min_interval=1000000,max_sched_time=50,bf_interval=30,bf_max_time=10,\\
bf_max_job_test=2000,max_rpc_cnt=0
{listed}PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE
PartitionName=blocked Nodes=n1 MaxTime=INFINITE State=DOWN
"
    );
    slurm.replace(&OTHERWISE, &conf)?;
    slurm.start_controller()?;
    Ok(slurm)
}

/// The output of a program that asks this cluster, and must succeed.
fn output(folder: &Folder, slurm: &Slurm, program: &Path, args: &[&str]) -> Result<String> {
    let mut command = sandbox::command(folder.path(), program);
    command.env("SLURM_CONF", slurm.conf());
    sandbox::output(command, args)
}

/// Submits this many separate jobs to a partition.
pub(crate) fn submit(folder: &Folder, slurm: &Slurm, partition: &str, jobs: u32) -> Result<()> {
    let program = compile(folder, "submit", include_str!("submit.c"))?;
    output(folder, slurm, &program, &[partition, &jobs.to_string()]).map(drop)
}

/// The cost of the C loop, which prints a line each round: medians.
pub(crate) fn floor(folder: &Folder, slurm: &Slurm, args: &[&str]) -> Result<Cost> {
    let text = output(folder, slurm, &compile(folder, "floor", include_str!("floor.c"))?, args)?;
    let row =
        |line: &str| line.split(' ').map(|word| word.parse().context("not a figure")).collect();
    let rows: Vec<Vec<f64>> = text.lines().map(row).collect::<Result<_>>()?;
    let column = |index: usize| median(rows.iter().filter_map(|row| row.get(index).copied()));
    let peak = rows.iter().filter_map(|row| row.get(2)).fold(0.0_f64, |most, kib| most.max(*kib));
    Ok(Cost { cpu: column(0), wall: column(1), peak_kib: peak })
}

/// The cost of Slurm's own commands, run one after the other, each a line: medians, the wall time
/// with reading their output; and the CPU for splitting their lines, µs.
pub(crate) fn forked(
    folder: &Folder,
    slurm: &Slurm,
    rounds: usize,
    commands: &str,
) -> Result<(Cost, f64)> {
    let args = ["-c", include_str!("forked.py"), &rounds.to_string(), commands];
    let text = output(folder, slurm, &find_program("python3")?, &args)?;
    let words: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [cpu, reading, wall, peak_kib] = *words.as_slice() else {
        bail!("not four figures: {text}")
    };
    Ok((Cost { cpu, wall, peak_kib }, reading))
}

/// The message that asks for all jobs.
pub(crate) const DUMP: &str = "REQUEST_JOB_INFO";

/// Number of times that slurmctld has got this message, from its own table.
pub(crate) fn calls(slurm: &Slurm, message: &str) -> Result<f64> {
    let rows = slurm.sdiag()?.by_type;
    Ok(rows.iter().find(|row| row.name == message).map_or(0.0, |row| row.count as f64))
}

/// Makes a small change, so that the next reply is complete.
pub(crate) fn touch(slurm: &Slurm, round: usize) -> Result<()> {
    slurm.run("scontrol", &["update", "jobid=1", &format!("comment=round{round}")])?;
    slurm.run("scontrol", &["update", "nodename=n2", &format!("comment=round{round}")])?;
    slurm.run(
        "scontrol",
        &["update", "partitionname=debug", &format!("maxnodes={}", 1000 + round)],
    )?;
    // Times are whole seconds: a change in the same second as the last reply would not be noticed.
    sandbox::wait::pause(Duration::from_millis(1100));
    Ok(())
}
