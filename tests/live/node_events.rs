//! `slurm_nodes.events`: a script of outages on 20 nodes, counted by a daemon with a round every
//! second, and by this test from `scontrol show nodes` ten times a second. Each phase of the script
//! lasts longer than two rounds.

mod count;

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::daemon::surveys;
use sandbox::{Daemon, Folder, Process, Slurm, free_port, now, wait};

use self::count::{Count, Look, Rounds};

/// Their names are n1 to n20.
const NODES: usize = 20;

/// Longer than two rounds, also of a busy machine.
const PHASE: Duration = Duration::from_secs(4);

/// slurmd started again counts as a reboot only if the machine was booted more than a minute after
/// its last boot.
const REBOOTABLE: Duration = Duration::from_secs(70);

const EVENTS: &str = "cluster.slurm_nodes.events";

struct Play {
    slurm: Slurm,
    slurmds: Vec<Process>,
    daemon: Daemon,
    began: Instant,
    _folder: Folder,
}

impl Play {
    fn start() -> Result<Self> {
        let folder = Folder::new()?;
        let mut slurm = Slurm::new(&folder)?;
        configure(&slurm)?;
        slurm.start_controller()?;
        let began = Instant::now();
        let slurmds = (1..=NODES).map(|node| {
            // With -b a machine is booted whenever its slurmd starts.
            let flags: &[&str] = if node <= 11 { &["-b"] } else { &[] };
            let mut slurmd =
                slurm.slurmd_process(&folder, &format!("n{node}"))?.args(flags.iter().copied());
            slurmd.spawn()?;
            Ok(slurmd)
        });
        let slurmds = slurmds.collect::<Result<Vec<_>>>()?;
        let dir = folder.path().join("queue");
        let nodes = surveys(&["nodes"]).replace("2s", "1s");
        let collectors = format!("[queue]\ndir = {dir:?}\n{nodes}events = true\n");
        until_idle(&slurm, NODES)?;
        let daemon = Daemon::start_surveying(&folder, &slurm.toml(), &collectors)?;
        Ok(Self { slurm, slurmds, daemon, began, _folder: folder })
    }

    fn set(&self, node: usize, state: &str) -> Result<()> {
        self.slurm
            .call(&format!("scontrol update nodename=n{node} state={state} reason=test"))
            .map(drop)
    }

    fn slurmd(&mut self, node: usize) -> Result<&mut Process> {
        self.slurmds.get_mut(node - 1).context("a node")
    }

    /// Waits until scontrol shows these words in the node's state, and then for a phase.
    fn is(&self, node: usize, words: &str) -> Result<()> {
        wait::until(&format!("n{node} {words}"), wait::LIMIT, || {
            let state = state(&self.slurm, node).unwrap_or_default();
            words.split(' ').all(|word| state.iter().any(|its| its == word))
        })
        .with_context(|| format!("{:?}", state(&self.slurm, node)))?;
        wait::pause(PHASE);
        Ok(())
    }

    /// The timestamps of the rounds so far.
    fn rounds(&mut self) -> Result<Vec<u64>> {
        let path = format!("{EVENTS}.total.gauge-begun");
        Ok(self.daemon.recorded()?.series(&path).into_keys().collect())
    }

    fn two_rounds(&mut self) -> Result<()> {
        let before = self.rounds()?.len();
        let path = format!("{EVENTS}.total.gauge-begun");
        self.daemon.until("two rounds", wait::LIMIT, |recorded| {
            (recorded.series(&path).len() >= before + 2).then_some(())
        })
    }

    /// Kills the daemon and starts it again. Events from before are remembered only if they still
    /// last, because the memory is stored once a minute. Returns the moment of the end.
    fn kill_daemon(&mut self) -> Result<f64> {
        self.daemon.process.kill()?;
        let killed = now();
        wait::pause(PHASE);
        self.daemon.process.spawn()?;
        self.two_rounds()?;
        Ok(killed)
    }

    fn restart_daemon(&mut self) -> Result<()> {
        self.daemon.process.stop()?;
        wait::pause(PHASE);
        self.daemon.process.spawn()?;
        self.two_rounds()?;
        // What happens now has rounds before it and after it.
        wait::pause(PHASE);
        Ok(())
    }

    fn restart_slurmctld(&mut self) -> Result<()> {
        self.slurm.slurmctld.stop()?;
        wait::pause(PHASE);
        self.slurm.slurmctld.start()?;
        self.two_rounds()
    }

    /// Everything that happens; returns when the daemon was killed.
    fn play(&mut self) -> Result<f64> {
        self.two_rounds()?;
        self.set(1, "drain")?;
        self.is(1, "DRAIN")?;
        let killed = self.kill_daemon()?;
        self.set(1, "resume")?;
        // Killed, frozen, drained, failing, drained while a job runs, drained in a maintenance.
        self.slurmd(2)?.kill()?;
        self.slurmd(3)?.freeze()?;
        self.set(4, "drain")?;
        self.set(10, "fail")?;
        let job = self.slurm.submit(&["-p", "low", "-w", "n9", "--wrap", "exec sleep 3000"])?;
        self.is(9, "MIXED")?;
        self.set(9, "drain")?;
        self.is(9, "MIXED DRAIN")?;
        let maintenance =
            "starttime=now duration=600 user=root nodes=n7,n8 flags=maint,ignore_jobs";
        self.slurm
            .call(&format!("scontrol create reservation reservationname=upkeep {maintenance}"))?;
        self.set(8, "drain")?;
        self.is(7, "IDLE MAINTENANCE")?;
        self.slurm.call(&format!("scancel {job}"))?;
        self.is(9, "IDLE DRAIN")?;
        // Powered down, and their slurmds are gone.
        for node in [5, 6] {
            self.slurmd(node)?.kill()?;
            self.set(node, "power_down")?;
        }
        self.is(2, "DOWN")?;
        self.is(3, "DOWN")?;
        // One that was down is drained, and back, but not in service.
        self.set(2, "drain")?;
        self.slurmd(2)?.spawn()?;
        self.is(2, "IDLE DRAIN")?;
        self.restart_slurmctld()?;
        self.is(4, "IDLE DRAIN")?;
        self.set(4, "resume")?;
        self.is(4, "IDLE")?;
        self.restart_daemon()?;
        self.slurmd(3)?.thaw()?;
        for node in [2, 8, 9, 10] {
            self.set(node, "resume")?;
        }
        self.is(3, "IDLE")?;
        self.is(5, "POWERED_DOWN")?;
        self.is(6, "POWERED_DOWN")?;
        self.set(5, "power_up")?;
        self.set(6, "power_up")?;
        self.is(5, "POWERING_UP")?;
        self.slurmd(5)?.spawn()?;
        // Its slurmd does not come.
        self.is(6, "DOWN POWERED_DOWN")?;
        self.set(6, "resume")?;
        wait::pause(REBOOTABLE.saturating_sub(self.began.elapsed()));
        self.slurm.call("scontrol reboot n11")?;
        self.is(
            11,
            if self.slurm.release()?.starts_with("20.11") { "DOWN" } else { "DOWN REBOOT_ISSUED" },
        )?;
        self.start_slurmd_again(11)?;
        self.start_slurmd_again(12)?;
        self.is(11, "IDLE")?;
        self.slurm.call("scontrol delete reservationname=upkeep")?;
        until_idle(&self.slurm, NODES)?;
        wait::pause(PHASE);
        Ok(killed)
    }

    fn start_slurmd_again(&mut self, node: usize) -> Result<()> {
        let slurmd = self.slurmd(node)?;
        slurmd.kill()?;
        slurmd.spawn()
    }
}

#[test]
fn a_script_of_outages_is_counted_as_scontrol_showed_it() {
    let mut play = Play::start().unwrap();
    let words = "env SLURM_TIME_FORMAT=%s scontrol -o show nodes".split(' ').map(str::to_owned);
    let ask = play.slurm.question(words.collect());
    let (looks, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let killed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // slurmctld is away for some seconds.
                if let Ok(text) = ask() {
                    looks.lock().unwrap().push(Look::parse(now(), &text));
                }
                wait::pause(Duration::from_millis(100));
            }
        });
        let killed = play.play();
        is_over.store(true, Ordering::Relaxed);
        killed.unwrap()
    });
    play.two_rounds().unwrap();
    let looks = looks.into_inner().unwrap();
    let rounds = Rounds::surviving_kill(&play.rounds().unwrap(), killed);
    let recorded = play.daemon.recorded().unwrap();
    let is_in = |range: std::ops::RangeInclusive<usize>| {
        move |node: &str| {
            node.trim_start_matches('n').parse().is_ok_and(|node| range.contains(&node))
        }
    };
    let all = Count::from_looks(&looks, &rounds, is_in(1..=NODES));
    all.shows_the_script().unwrap();
    all.compare(recorded, EVENTS, killed).unwrap();
    for (partition, range) in [("low", 1..=10), ("high", 5..=NODES)] {
        let of_it = Count::from_looks(&looks, &rounds, is_in(range));
        of_it.compare(recorded, &format!("{EVENTS}.partition.{partition}"), killed).unwrap();
    }
}

fn state(slurm: &Slurm, node: usize) -> Result<Vec<String>> {
    Ok(count::words(&slurm.call(&format!("scontrol -o show node n{node}"))?))
}

fn until_idle(slurm: &Slurm, count: usize) -> Result<()> {
    wait::until("idle nodes", wait::LIMIT, || {
        let states = slurm.call("sinfo -h -N -p all -o %T");
        states.is_ok_and(|states| {
            states.lines().filter(|state| state.trim().trim_end_matches('~') == "idle").count()
                == count
        })
    })
    .with_context(|| slurm.call("sinfo -a -N -l").unwrap_or_default())
    .map(drop)
}

fn configure(slurm: &Slurm) -> Result<()> {
    let text = fs::read_to_string(slurm.conf())?;
    ensure!(text.contains("ReturnToService=2"), "a node that is back returns to service");
    let mut text = "\
SlurmdTimeout=25
RebootProgram=/bin/true
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=86400
SuspendTimeout=6
ResumeTimeout=20
PartitionName=all Nodes=n[1-20] Default=YES
PartitionName=low Nodes=n[1-10]
PartitionName=high Nodes=n[5-20]
"
    .to_owned();
    for node in 1..=NODES {
        let port = free_port()?;
        text += &format!(
            "NodeName=n{node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=8 \
                RealMemory=2000 State=UNKNOWN\n"
        );
    }
    slurm.replace(&["NodeName=", "PartitionName="], &text)
}
