//! A cluster with nodes in every state, and about a hundred jobs in every state that can be had in half a minute.
//!
//! A job's name says how many GPUs it holds or asks for: squeue knows no such figure.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use sandbox::{Folder, Process, Slurm, find_program, free_port, wait};

/// How many slurmds there are: c1 to c10.
const NODES: usize = 10;

/// The cluster. Dropping it ends everything.
pub(crate) struct Cast {
    /// slurmctld, munged, and how to run Slurm's commands.
    pub(crate) slurm: Slurm,
    _slurmds: Vec<Process>,
    /// Where it lies. Last, so that it is dropped last.
    pub(crate) folder: Folder,
}

impl Cast {
    /// The cluster with its nodes, and no job.
    pub(crate) fn start() -> Result<Self> {
        let folder = Folder::new()?;
        let mut slurm = Slurm::new(&folder)?;
        let ports = (0..NODES).map(|_| free_port()).collect::<Result<Vec<_>>>()?;
        configure(folder.path(), slurm.conf(), &ports, free_port()?)?;
        slurm.munged.start()?;
        slurm.slurmctld.start()?;
        let slurmds = (1..=NODES).map(|node| slurmd(&folder, &slurm, node)).collect::<Result<Vec<_>>>()?;
        let cast = Self { slurm, _slurmds: slurmds, folder };
        wait::until("ten nodes that take jobs", wait::LIMIT, || {
            let idle = cast.slurm.run("sinfo", &["-h", "-p", "wide", "-t", "idle", "-o", "%D"]);
            idle.is_ok_and(|idle| idle.trim() == NODES.to_string())
        })?;
        Ok(cast)
    }

    /// Fills the queue, and puts the nodes into their states.
    pub(crate) fn play(&self) -> Result<()> {
        self.reserve_nodes()?;
        let completing = self.start_jobs()?;
        self.queue_jobs()?;
        self.end_jobs(&completing)?;
        self.disable_nodes()
    }

    fn reserve_nodes(&self) -> Result<()> {
        for (name, nodes, flags) in [("upkeep", "c6", "maint"), ("course", "c7", "ignore_jobs")] {
            let name = format!("reservationname={name}");
            let nodes = format!("nodes={nodes}");
            let flags = format!("flags={flags}");
            let common = ["create", "reservation", "starttime=now", "duration=600", "user=root"];
            self.control(&[&common[..], &[&name, &nodes, &flags]].concat())?;
        }
        let later = ["create", "reservation", "reservationname=later", "starttime=now+2hours", "duration=60"];
        self.control(&[&later[..], &["user=root", "nodes=cl1"]].concat())
    }

    /// Gives the one that is to end slowly, on a node of its own.
    fn start_jobs(&self) -> Result<String> {
        self.submit("g2", "-p gpu -w c1 -n2 --gres=gpu:a100:2")?;
        self.submit("g1", "-p gpu -w c1 -n1 --gpus=1")?;
        self.submit("g2", "-p gpu -w c3 -n2 --gpus-per-task=1")?;
        self.submit("g2", "-p last -w c9 -n1 --gres=gpu:2")?;
        self.submit("g0", "-p last -n1 : -p last -n1")?;
        self.submit("g0", "-p debug -w c10 -L matlab:2")?;
        self.submit("g0", "-p cloud -w cl3 -n3")?;
        let completing = self.submit("g0", "-p gpu -w c2")?;
        self.started(9)?;
        // Its waiting tasks have backfill keep the node for them: whoever comes later waits.
        self.submit("g0", "-p debug -w c10 --array=1-20%3")?;
        self.started(12)?;
        Ok(completing)
    }

    fn queue_jobs(&self) -> Result<()> {
        self.submit("g12", "-p gpu -N3 --gres=gpu:4 --exclusive")?;
        self.submit("g3", "-p wide -w c2 --gpus-per-node=3 --begin=now+1hour")?;
        let held = self.submit("g0", "-p debug -H --array=1-30")?;
        self.submit("g1", "-p debug,gpu --gres=gpu:1 --begin=now+1hour --array=1,5,7-9")?;
        self.submit("g0", &format!("-p debug -d afterany:{held}"))?;
        self.submit("g0", "-p debug -w c10 -L matlab:1")?;
        self.submit("g0", "-p stopped -n4")?;
        let stopped = self.submit("g0", "-p debug,wide -n2 --begin=now+1hour")?;
        self.control(&["hold", &stopped])?;
        for cpus in 1..=24 {
            self.submit("g0", &format!("-p debug -w c10 -N1 --exclusive -n{}", cpus % 8 + 1))?;
        }
        Ok(())
    }

    fn end_jobs(&self, completing: &str) -> Result<()> {
        let failed = self.submit_script("g0", "-p debug -w c9", "exit 1")?;
        self.submit_script("g0", "-p debug -w c9", "true")?;
        self.submit_script("g0", "-p debug -w c9", "true")?;
        self.submit("g0", &format!("-p debug -d afterok:{failed}"))?;
        let cancelled = self.submit("g0", "-p debug -H --array=1-7")?;
        self.slurm.run("scancel", &[&cancelled])?;
        self.submit("g0", "-p debug -w c8 --no-requeue -n2")?;
        let special = self.submit("g0", "-p debug -w c9")?;
        let frozen = self.submit("g0", "-p debug -w c9 -n2")?;
        self.started(15)?;
        self.control(&["requeuehold", "State=SpecialExit", &special])?;
        self.control(&["suspend", &frozen])?;
        // The epilog of this one waits until its file is gone.
        fs::write(self.folder.path().join(format!("hold-{completing}")), "")?;
        self.slurm.run("scancel", &[completing]).map(drop)
    }

    fn disable_nodes(&self) -> Result<()> {
        for (nodes, state) in [("c3,c4", "drain"), ("c5", "fail"), ("c8", "down"), ("cl2", "drain")] {
            let nodes = format!("nodename={nodes}");
            self.control(&["update", &nodes, &format!("state={state}"), "reason=for the test"])?;
        }
        Ok(())
    }

    /// Waits until so many jobs run.
    fn started(&self, count: usize) -> Result<()> {
        wait::until(&format!("{count} jobs that run"), wait::LIMIT, || {
            let lines = self.slurm.run("squeue", &["-h", "-r", "-t", "R,CF", "-o", "%i"]);
            lines.is_ok_and(|lines| lines.lines().count() >= count)
        })
        .with_context(|| self.slurm.run("squeue", &["-a", "-t", "all"]).unwrap_or_default())
        .with_context(|| self.slurm.run("sinfo", &["-a", "-N", "-l"]).unwrap_or_default())
        .map(drop)
    }

    fn submit(&self, name: &str, args: &str) -> Result<String> {
        self.submit_script(name, args, "exec sleep 3000")
    }

    fn submit_script(&self, name: &str, args: &str, script: &str) -> Result<String> {
        let name = format!("--job-name={name}");
        let args: Vec<&str> = args.split_whitespace().collect();
        // Each component of a het job has a name of its own.
        let parts: Vec<&[&str]> = args.split(|arg| *arg == ":").collect();
        let named: Vec<Vec<&str>> = parts.iter().map(|part| [&[name.as_str()], *part].concat()).collect();
        let all = [named.join(&":"), vec!["--wrap", script]].concat();
        Ok(self.slurm.submit(&all).with_context(|| format!("{all:?}"))?.to_string())
    }

    fn control(&self, args: &[&str]) -> Result<()> {
        self.slurm.run("scontrol", args).map(drop)
    }
}

fn slurmd(folder: &Folder, slurm: &Slurm, node: usize) -> Result<Process> {
    let name = format!("c{node}");
    fs::create_dir_all(folder.path().join("spool").join(&name))?;
    let mut slurmd = Process::new(folder, &name, find_program("slurmd")?)
        .args(["-D", "-N", &name, "-f"])
        .args([slurm.conf()])
        .env("SLURM_CONF", slurm.conf());
    slurmd.spawn()?;
    Ok(slurmd)
}

/// Changes the sandbox's slurm.conf, and writes the files beside it.
///
/// At the port `mute` listens nobody: that node never tells its state.
fn configure(folder: &Path, conf: &Path, ports: &[u16], mute: u16) -> Result<()> {
    let path = folder.display();
    let kept = fs::read_to_string(conf)?;
    let replaced = ["NodeName=", "PartitionName=", "SlurmdSpoolDir=", "SlurmdPidFile=", "ReturnToService="];
    let kept = kept.lines().filter(|line| !replaced.iter().any(|start| line.starts_with(start)));
    let mut text: String = kept.map(|line| format!("{line}\n")).collect();
    text += &format!(
        "\
SlurmdSpoolDir={path}/spool/%n
SlurmdPidFile={path}/%n.pid
ReturnToService=0
Epilog={path}/epilog
GresTypes=gpu
Licenses=matlab:2,ansys:4
MinJobAge=3000
PrivateData=cloud
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=86400
ResumeTimeout=600
NodeName=cl[1-3] NodeAddr=127.0.0.1 CPUs=8 RealMemory=2000 State=CLOUD
NodeName=f[1-2] NodeAddr=127.0.0.1 CPUs=8 RealMemory=2000 State=FUTURE
NodeName=mute NodeAddr=127.0.0.1 Port={mute} CPUs=8 RealMemory=2000 State=UNKNOWN
PartitionName=debug Nodes=c[5-10] Default=YES State=UP
PartitionName=gpu Nodes=c[1-4] State=UP
PartitionName=wide Nodes=c[1-10] State=UP
PartitionName=cloud Nodes=cl[1-3] State=UP
PartitionName=last Nodes=c[9-10] State=UP
PartitionName=stopped Nodes=c10 State=DOWN
PartitionName=secret Nodes=c[7-8] State=DRAIN Hidden=YES
PartitionName=off Nodes=c8 State=INACTIVE
PartitionName=silent Nodes=mute State=UP
"
    );
    for (node, port) in (1..).zip(ports) {
        let gres = match node {
            1..=4 => "Gres=gpu:a100:4",
            9 => "Gres=gpu:3",
            _ => "",
        };
        text += &format!(
            "NodeName=c{node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=2000 {gres} \
             State=UNKNOWN\n"
        );
    }
    fs::write(conf, text)?;
    for gpu in 0..4 {
        fs::write(folder.join(format!("gpu{gpu}")), "")?;
    }
    fs::write(
        folder.join("gres.conf"),
        format!(
            "NodeName=c[1-4] Name=gpu Type=a100 File={path}/gpu[0-3]\nNodeName=c9 Name=gpu File={path}/gpu[0-2] Cores=0-7\n"
        ),
    )?;
    let epilog = folder.join("epilog");
    let script = format!("#!/bin/sh\nwhile test -e {path}/hold-$SLURM_JOB_ID; do sleep 0.1; done\n");
    fs::write(&epilog, script)?;
    fs::set_permissions(&epilog, Permissions::from_mode(0o755))?;
    Ok(())
}
