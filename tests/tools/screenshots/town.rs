//! The cluster in the pictures: five nodes in three partitions, some with GPUs, and what happens to them.

use std::fs;
use std::ops::Range;

use anyhow::Result;
use sandbox::{CPUS, Carbon, Folder, Process, Sandbox, Slurm, carbon, free_port, wait};

/// The nodes, and the GPUs of each.
const NODES: [(&str, u32); 5] = [("d1", 0), ("c1", 0), ("c2", 0), ("g1", 4), ("g2", 4)];

/// The collectors that need surveys may do as much as they like, because slurmctld is small.
pub(crate) const COLLECTORS: &str = "[collectors]\nmax_duty = \"100%\"\n\
    [collectors.jobs]\nenabled = true\ninterval = \"2s\"\naccounts = 20\nusers = 5\n\
    [collectors.nodes]\nenabled = true\ninterval = \"2s\"\n\
    [collectors.partitions]\nenabled = true\ninterval = \"2s\"\n";

/// A sandbox with these nodes instead of its default node, and their slurmds.
pub(crate) fn start() -> Result<(Sandbox, Vec<Process>)> {
    let folder = Folder::new()?;
    let mut carbon = Carbon::spawn(&folder, "carbon", &carbon::Options::default())?;
    let mut slurm = Slurm::new(&folder)?;
    configure(&folder, &slurm)?;
    slurm.munged.start()?;
    slurm.slurmctld.start()?;
    let slurmds = NODES.iter().map(|(name, _)| slurm.spawn_slurmd(&folder, name));
    let slurmds = slurmds.collect::<Result<Vec<_>>>()?;
    wait::until("nodes that take jobs", wait::LIMIT, || {
        let idle = slurm.run("sinfo", &["-h", "-N", "-t", "idle", "-o", "%N"]);
        idle.is_ok_and(|idle| idle.lines().count() >= NODES.len())
    })?;
    carbon.process.wait_ready()?;
    Ok((Sandbox { slurm, carbon, folder }, slurmds))
}

/// When so many jobs are submitted at once that the schedulers are slow.
const BURST: u32 = 90;

/// When a node is lost, and when it is back.
const LOST: (u32, u32) = (170, 290);

/// Users of every Debian; they submit jobs.
const USERS: [u32; 4] = [5, 9, 34, 65534];

/// Does the work of these seconds, counted from the beginning: jobs that fill the nodes, a burst of jobs, and a node
/// that is lost.
pub(crate) fn second(slurm: &Slurm, seconds: Range<u32>, slurmds: &mut [Process]) -> Result<()> {
    let length = || format!("sleep {}", fastrand::u32(20..70));
    let any = |every: u32, first: u32| seconds.clone().any(|second| second % every == first);
    if any(6, 2) {
        let tasks = fastrand::u32(2..7).to_string();
        submit(
            slurm,
            &["-p", "compute", "-n", &tasks, "--account=physics", "--time=2", "--wrap", &length()],
        )?;
    }
    if any(8, 3) {
        let gpus = format!("--gpus={}", fastrand::u32(1..4));
        submit(slurm, &["-p", "gpu", "-N1", &gpus, "--account=biology", "--time=2", "--wrap", &length()])?;
    }
    if seconds.contains(&BURST) {
        for minutes in 1..9 {
            let (tasks, time) = (fastrand::u32(3..9).to_string(), format!("--time={minutes}"));
            let array = [
                "-p",
                "compute",
                "-n",
                &tasks,
                &time,
                "--array=1-12",
                "--account=biology",
                "--wrap",
                "sleep 6",
            ];
            submit(slurm, &array)?;
        }
    }
    let [_, _, c2, ..] = slurmds else { return Ok(()) };
    if seconds.contains(&LOST.0) {
        c2.freeze()?;
        slurm.run("scontrol", &["update", "nodename=c2", "state=down", "reason=lost"])?;
    }
    if seconds.contains(&LOST.1) {
        c2.thaw()?;
        slurm.run("scontrol", &["update", "nodename=c2", "state=resume"])?;
    }
    Ok(())
}

/// Submits as one of the users, if the sandbox runs as root.
fn submit(slurm: &Slurm, args: &[&str]) -> Result<()> {
    let args = [&["--output=/dev/null", "--chdir=/"], args].concat();
    let user = USERS.get(fastrand::usize(..8)).filter(|_| rustix::process::getuid().is_root());
    match user {
        Some(uid) => slurm.run_as(*uid, "sbatch", &args),
        None => slurm.run("sbatch", &args),
    }
    .map(drop)
}

fn configure(folder: &Folder, slurm: &Slurm) -> Result<()> {
    let text = fs::read_to_string(slurm.conf())?;
    let replaced = ["NodeName=", "PartitionName=", "SelectTypeParameters="];
    let kept = text.lines().filter(|line| !replaced.iter().any(|start| line.starts_with(start)));
    let mut text: String = kept.map(|line| format!("{line}\n")).collect();
    text += "\
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=2000
GresTypes=gpu
Licenses=matlab:10
PartitionName=debug Nodes=d1 Default=YES MaxTime=INFINITE State=UP
PartitionName=compute Nodes=c[1-2] State=UP
PartitionName=gpu Nodes=g[1-2] State=UP
";
    let mut gres = String::new();
    for (name, gpus) in NODES {
        let port = free_port()?;
        let devices = if gpus > 0 { format!("Gres=gpu:a100:{gpus}") } else { String::new() };
        text += &format!(
            "NodeName={name} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} RealMemory=24000 {devices} State=UNKNOWN\n"
        );
        for gpu in 0..gpus {
            // slurmd checks whether the device exists.
            let device = folder.path().join(format!("{name}-gpu{gpu}"));
            fs::write(&device, "")?;
            gres += &format!("NodeName={name} Name=gpu Type=a100 File={}\n", device.display());
        }
    }
    fs::write(slurm.conf(), text)?;
    fs::write(folder.path().join("gres.conf"), gres)?;
    Ok(())
}
