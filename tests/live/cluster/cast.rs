//! A cluster with nodes in every state, and about a hundred jobs in every state that can be
//! produced in half a minute.
//!
//! A job's name says how many GPUs it has or requests, because squeue has no such figure.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use sandbox::{Folder, Process, Slurm, free_port, is_root, wait};

/// Number of nodes with a slurmd: c1 to c21.
const NODES: usize = 21;

/// From 22.05 on slurmctld has this many node records, including room for nodes that are created
/// while it runs.
pub(crate) const MAX_NODE_COUNT: u64 = 40;

pub(crate) struct Cast {
    pub(crate) slurm: Slurm,
    release: String,
    /// The one of c1 is the first.
    slurmds: Vec<Process>,
    _odd: Process,
    /// The folder of all of it. It is the last field, so that it is dropped last.
    pub(crate) folder: Folder,
}

impl Cast {
    /// The cluster with its nodes, and no job.
    pub(crate) fn start() -> Result<Self> {
        let folder = Folder::new()?;
        let mut slurm = Slurm::new(&folder)?;
        let ports = (0..=NODES).map(|_| free_port()).collect::<Result<Vec<_>>>()?;
        let release = slurm.release()?;
        configure(&folder, &slurm, &ports, free_port()?, &release)?;
        slurm.start_controller()?;
        let named = (1..=NODES).map(|node| format!("c{node}"));
        let slurmds =
            named.map(|name| slurm.spawn_slurmd(&folder, &name)).collect::<Result<Vec<_>>>()?;
        let odd = slurm.spawn_slurmd(&folder, "odd")?;
        let cast = Self { slurm, release, slurmds, _odd: odd, folder };
        wait::until("nodes that take jobs", wait::LIMIT, || {
            let idle = cast.slurm.call("sinfo -h -N -n c[1-21] -t idle -o %N");
            idle.is_ok_and(|idle| idle.split_whitespace().collect::<BTreeSet<_>>().len() == NODES)
        })
        .with_context(|| cast.slurm.call("sinfo -a -N -l").unwrap_or_default())?;
        Ok(cast)
    }

    /// Fills the queue and puts the nodes into their states.
    pub(crate) fn play(&mut self) -> Result<()> {
        self.reserve_nodes()?;
        let completing = self.start_jobs()?;
        self.queue_jobs()?;
        self.end_jobs(&completing)?;
        self.disable_nodes()?;
        self.change_features()?;
        self.change_power()?;
        self.leave_nodes()
    }

    fn reserve_nodes(&self) -> Result<()> {
        for reservation in [
            "upkeep starttime=now duration=600 nodes=c6 flags=maint",
            "course starttime=now duration=600 nodes=c7 flags=ignore_jobs",
            "later starttime=now+2hours duration=60 nodes=cl1",
        ] {
            self.control(&format!("create reservation user=root reservationname={reservation}"))?;
        }
        Ok(())
    }

    /// Starts the jobs. Returns the job that will end slowly, on a node of its own.
    fn start_jobs(&self) -> Result<String> {
        self.submit("g2", "-p gpu -w c1 -n2 --gres=gpu:a100:2")?;
        self.submit("g1", "-p gpu -w c1 -n1 --gpus=1")?;
        self.submit("g2", "-p gpu -w c3 -n2 --gpus-per-task=1")?;
        self.submit("g2", "-p last -w c9 -n1 --gres=gpu:2")?;
        self.submit("g0", "-p last -n1 : -p last -n1")?;
        self.submit("g0", "-p debug -w c10 -L matlab:2 --mem-per-cpu=700")?;
        self.submit("g0", "-p cloud -w cl3 -n3")?;
        let completing = self.submit("g0", "-p gpu -w c2")?;
        self.started(9)?;
        // For its waiting tasks backfill keeps the node reserved, so jobs that come later wait.
        self.submit("g0", "-p debug -w c10 --array=1-20%3")?;
        self.started(12)?;
        // Backfill reserves c13 for the job that needs both nodes.
        self.submit("g0", "-p plan -w c12 -n8 -t 60")?;
        self.submit("g0", "-p low -n8")?;
        self.started(14)?;
        self.submit("g0", "-p plan -N2 --exclusive -t 60")?;
        self.submit("g0", "-p high -n8")?;
        Ok(completing)
    }

    fn queue_jobs(&self) -> Result<()> {
        self.submit("g12", "-p gpu -N3 --gres=gpu:4 --exclusive")?;
        self.submit("g3", "-p wide -w c2 --gpus-per-node=3 --begin=now+1hour")?;
        self.submit("g0", "-p wide -n2 --mem=1500 --begin=now+1hour --array=1-3")?;
        self.submit("g0", "-p wide -N2 --mem=1280 --begin=now+1hour")?;
        self.submit("g0", "-p wide --mem=0 --begin=now+1hour")?;
        let held = self.submit("g0", "-p debug -H --array=1-30")?;
        self.submit("g0", "-p debug,gpu,debug -H")?;
        self.submit("g0", "-p debug -H --qos=Later,URGENT,later")?;
        self.submit("g1", "-p debug,gpu --gres=gpu:1 --begin=now+1hour --array=1,5,7-9")?;
        self.submit("g0", &format!("-p debug -d afterany:{held}"))?;
        self.submit("g0", "-p debug -w c10 -L matlab:1")?;
        self.submit("g0", "-p stopped -n4")?;
        let stopped = self.submit("g0", "-p debug,wide -n2 --begin=now+1hour")?;
        self.control(&format!("hold {stopped}"))?;
        self.submit("g0", "-p high -n8 -t 60 --deadline=now+3605")?;
        self.submit("g0", "-p faulty")?;
        // Its reservation ends before the job can start.
        let user = rustix::process::getuid().as_raw();
        let short =
            format!("reservationname=gone starttime=now endtime=now+5 user={user} nodes=cl7");
        self.control(&format!("create reservation {short}"))?;
        self.submit("g0", "-p cloud --reservation=gone --begin=now+1hour")?;
        if !self.knows("21.08") {
            // The reservation exists as long as a job waits for it.
            self.control("delete reservationname=gone")?;
        }
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
        let late = self.submit("g0", "-p last -w c9 -t 60")?;
        let stopped = self.submit("g0", "-p power -w c16")?;
        let again = self.submit("g0", "-p power -w c16")?;
        let mut others =
            vec![stopped.clone(), again.clone(), late.clone(), frozen.clone(), special.clone()];
        for node in ["c14", "c15", "c18", "c19"] {
            others.push(self.submit("g0", &format!("-p power -w {node}"))?);
        }
        others.push(self.submit("g0", "-p failing -n8")?);
        if self.knows("21.08") {
            // Root cannot have a burst buffer.
            let somebody = if is_root() { "--uid=65534 --gid=65534" } else { "" };
            self.submit_script("g0", &format!("-p debug -w c9 {somebody}"), "#BB_LUA\ntrue")?;
        }
        self.until_running("the jobs that run", |running| {
            others.iter().all(|job| running.contains(&job.as_str()))
        })?;
        // slurmctld refuses a time that has already passed when it sees it.
        self.control(&format!("update jobid={late} endtime=now+2"))?;
        self.slurm.run("scancel", &["--signal=STOP", &stopped])?;
        self.control(&format!("requeuehold State=SpecialExit {special}"))?;
        self.control(&format!("requeue {again}"))?;
        self.control(&format!("suspend {frozen}"))?;
        // Its epilog waits until this file is gone.
        self.folder.write(&format!("hold-{completing}"), "")?;
        self.slurm.run("scancel", &[completing]).map(drop)
    }

    fn disable_nodes(&self) -> Result<()> {
        for (nodes, state) in
            [("c3,c4", "drain"), ("c5,c21", "fail"), ("c8", "down"), ("cl2", "drain")]
        {
            self.set(nodes, state)?;
        }
        Ok(())
    }

    /// Changes features by command, and gives a node those that make bad paths.
    fn change_features(&self) -> Result<()> {
        let bad = format!("ib,a.b,c/d,e;f,größe,other,ib,{}", "n".repeat(300));
        for (nodes, features) in [("c2", "new,ib"), ("c9", bad.as_str()), ("c10", "")] {
            self.control(&format!(
                "update nodename={nodes} availablefeatures={features} activefeatures={features}"
            ))?;
        }
        Ok(())
    }

    fn set(&self, nodes: &str, state: &str) -> Result<()> {
        self.control(&format!("update nodename={nodes} state={state} reason=test"))
    }

    /// Puts nodes with and without a job into the states between on and off.
    fn change_power(&self) -> Result<()> {
        let mut changes = vec![("cl4", "power_up"), ("cl5", "power_down"), ("c14", "power_down")];
        if self.knows("21.08") {
            changes.push(("c15", "power_down_asap"));
        }
        for (node, state) in changes {
            self.set(node, state)?;
        }
        self.control("reboot c16,c17")?;
        if self.knows("22.05") {
            let dynamic = "nodename=dyn nodeaddr=127.0.0.1 cpus=8 realmemory=2000 feature=dynamic \
                state=cloud";
            self.control(&format!("create {dynamic}"))?;
        }
        if self.knows("24.05") {
            self.submit("g0", "-p cloud -w cl6 --exclusive=topo")?;
        }
        Ok(())
    }

    /// c18 does not answer, so a signal to its job stays pending; c19 is gone, and a signal to it
    /// finds that out.
    fn leave_nodes(&mut self) -> Result<()> {
        let [.., c18, c19, _, _] = &mut self.slurmds[..] else { bail!("too few nodes") };
        c18.freeze()?;
        c19.kill()?;
        for (node, signal) in [("c18", "STOP"), ("c19", "USR1")] {
            let job = self.slurm.call(&format!("squeue -h -w {node} -o %i"))?;
            self.slurm.call(&format!("scancel --signal={signal} {job}"))?;
        }
        Ok(())
    }

    pub(crate) fn knows(&self, release: &str) -> bool {
        self.release.as_str() >= release
    }

    fn started(&self, count: usize) -> Result<()> {
        self.until_running(&format!("{count} jobs that run"), |running| running.len() >= count)
    }

    fn until_running(&self, what: &str, enough: impl Fn(&[&str]) -> bool) -> Result<()> {
        wait::until(what, wait::LIMIT, || {
            let lines = self.slurm.call("squeue -h -r -t R,CF -o %i");
            lines.is_ok_and(|lines| enough(&lines.lines().collect::<Vec<_>>()))
        })
        .with_context(|| self.slurm.call("squeue -a -t all").unwrap_or_default())
        .with_context(|| self.slurm.call("sinfo -a -N -l").unwrap_or_default())
        .map(drop)
    }

    fn submit(&self, name: &str, args: &str) -> Result<String> {
        self.submit_script(name, args, "exec sleep 3000")
    }

    fn submit_script(&self, name: &str, args: &str, script: &str) -> Result<String> {
        let name = format!("--job-name={name}");
        let args: Vec<&str> = args.split_whitespace().collect();
        // Each component of a het job has its own name.
        let parts: Vec<&[&str]> = args.split(|arg| *arg == ":").collect();
        let named: Vec<Vec<&str>> =
            parts.iter().map(|part| [&[name.as_str()], *part].concat()).collect();
        let all = [named.join(&":"), vec!["--wrap", script]].concat();
        Ok(self.slurm.submit(&all).with_context(|| format!("{all:?}"))?.to_string())
    }

    fn control(&self, words: &str) -> Result<()> {
        self.slurm.call(&format!("scontrol {words}")).map(drop)
    }
}

/// Changes the sandbox's slurm.conf, and writes the files next to it.
///
/// Nobody listens on the port `mute`: that node never reports its state.
fn configure(
    folder: &Folder,
    slurm: &Slurm,
    ports: &[u16],
    mute: u16,
    release: &str,
) -> Result<()> {
    let path = folder.path().display();
    let mut text = format!(
        "\
ReturnToService=0
Epilog={path}/epilog
Prolog={path}/prolog
RebootProgram=/bin/true
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=10
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
MessageTimeout=100
GresTypes=gpu
Licenses=matlab:2,ansys:4
MinJobAge=3000
PrivateData=cloud
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=86400
SuspendTimeout=600
ResumeTimeout=600
NodeName=cl[1-7] NodeAddr=127.0.0.1 CPUs=8 RealMemory=2000 State=CLOUD
NodeName=f[1-2] NodeAddr=127.0.0.1 CPUs=8 RealMemory=2000 State=FUTURE
NodeName=mute NodeAddr=127.0.0.1 Port={mute} CPUs=8 RealMemory=2000 State=UNKNOWN
PartitionName=debug Nodes=c[5-10] Default=YES State=UP
PartitionName=gpu Nodes=c[1-4] State=UP
PartitionName=wide Nodes=c[1-10] State=UP
PartitionName=cloud Nodes=cl[1-7] State=UP
PartitionName=low Nodes=c11 PriorityTier=1
PartitionName=high Nodes=c11 PriorityTier=10
PartitionName=plan Nodes=c[12-13]
PartitionName=power Nodes=c[14-19]
PartitionName=faulty Nodes=c20,odd
PartitionName=failing Nodes=c21
PartitionName=last Nodes=c[9-10] State=UP
PartitionName=stopped Nodes=c10 State=DOWN
PartitionName=secret Nodes=c[7-8] State=DRAIN Hidden=YES
PartitionName=off Nodes=c8 State=INACTIVE
PartitionName=silent Nodes=mute State=UP
"
    );
    for (node, port) in (0..).zip(ports) {
        let gres = match node {
            // More GPUs than the node has, of one type.
            0 => "Gres=gpu:a100:1,gpu:v100:1",
            1..=4 => "Gres=gpu:a100:4",
            9 => "Gres=gpu:3",
            _ => "",
        };
        let features = match node {
            1..=9 => "Feature=ib,a100",
            10 => "Feature=ib,slow",
            _ => "",
        };
        let name = if node == 0 { "odd".to_owned() } else { format!("c{node}") };
        text += &format!(
            "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=8 \
             RealMemory=2000 {gres} {features} State=UNKNOWN\n"
        );
    }
    if release >= "21.08" {
        text += "BurstBufferType=burst_buffer/lua\n";
        folder.write("burst_buffer.lua", &burst_buffer(folder.path()))?;
    }
    if release >= "22.05" {
        text += &format!("MaxNodeCount={MAX_NODE_COUNT}\n");
        text += "NodeSet=dynamic Feature=dynamic\nPartitionName=dynamic Nodes=dynamic\n";
    }
    if release >= "24.05" {
        text += "TopologyPlugin=topology/tree\n";
        let topology = "SwitchName=block Nodes=cl[6-7]\nSwitchName=rest \
            Nodes=c[1-21],cl[1-5],f[1-2],mute,odd\nSwitchName=top Switches=block,rest\n";
        folder.write("topology.conf", topology)?;
    }
    slurm.replace(
        &["NodeName=", "PartitionName=", "ReturnToService=", "SelectTypeParameters="],
        &text,
    )?;
    for gpu in 0..4 {
        folder.write(&format!("gpu{gpu}"), "")?;
    }
    let gres = format!(
        "NodeName=c[1-4] Name=gpu Type=a100 File={path}/gpu[0-3]\nNodeName=c9 Name=gpu \
         File={path}/gpu[0-2] Cores=0-7\nNodeName=odd Name=gpu Type=a100 File={path}/gpu[0-1]\n"
    );
    folder.write("gres.conf", &gres)?;
    folder.script(
        "epilog",
        &format!("while test -e {path}/hold-$SLURM_JOB_ID; do sleep 0.1; done"),
    )?;
    folder.script("prolog", "test $SLURMD_NODENAME != c20").map(drop)
}

/// A burst buffer whose stage-out lasts as long as the sandbox.
fn burst_buffer(folder: &Path) -> String {
    let calls = "job_process pools job_teardown setup data_in test_data_in real_size paths pre_run \
                 post_run test_data_out get_status";
    let function = |call, before: &str| {
        format!("function slurm_bb_{call}()\n{before}return slurm.SUCCESS, \"\"\nend\n")
    };
    let conf = folder.join("slurm.conf");
    let wait = format!("while os.rename({conf:?}, {conf:?}) do os.execute(\"sleep 0.5\") end\n");
    calls.split_whitespace().map(|call| function(call, "")).collect::<String>()
        + &function("data_out", &wait)
}
