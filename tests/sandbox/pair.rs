//! A cluster with two controllers on one host. Each slurmctld has its own host name and run folder,
//! and they share the state. There is no node, so jobs wait.

use std::fs;

use anyhow::{Context, Result};

use crate::cables::ADDRESSES;
use crate::{Cables, Folder, Invocation, Process, Slurm, find_program, is_root};

/// Seconds until the backup takes over: the smallest value with which it does not take over in a
/// short pause.
pub const SLURMCTLD_TIMEOUT: u64 = 10;

/// The hosts of the primary and of the backup.
pub const NAMES: [&str; 2] = ["ctl1", "ctl2"];

/// unshare(1) with a separate host name and separate mounts; the first flag is for users other than
/// root.
const OWN_NAME: &[&str] = &["--map-root-user", "--uts", "--mount", "--propagation", "private"];

/// munged and two slurmctlds.
#[derive(Debug)]
pub struct Pair {
    /// The controller.
    pub primary: Process,
    /// The backup controller.
    pub backup: Process,
    /// Only munged is used, not its slurmctld or slurmd.
    pub slurm: Slurm,
    /// The processes that hold the hosts' networks.
    networks: [Option<u32>; 2],
}

impl Pair {
    /// Writes the configuration but starts nothing. `None` if separate host names are not allowed.
    pub fn new(folder: &Folder) -> Result<Option<Self>> {
        Self::at(folder, ["127.0.0.1", "127.0.0.2"], [None; 2])
    }

    /// Writes the configuration for hosts with a network each, but starts nothing. `None` if
    /// separate host names are not allowed.
    pub fn cabled(folder: &Folder, cables: &Cables) -> Result<Option<Self>> {
        Self::at(folder, ADDRESSES, [0, 1].map(|index| Some(cables.network(index))))
    }

    fn at(
        folder: &Folder,
        [one, other]: [&str; 2],
        networks: [Option<u32>; 2],
    ) -> Result<Option<Self>> {
        if !has_own_names(folder)? {
            return Ok(None);
        }
        let slurm = Slurm::new(folder)?;
        let path = folder.path();
        let run = path.join("run");
        fs::create_dir(&run)?;
        fs::write(path.join("hosts"), format!("127.0.0.1 localhost\n{one} ctl1\n{other} ctl2\n"))?;
        let single = "SlurmctldHost=localhost(127.0.0.1)\n";
        let double = &format!("SlurmctldHost=ctl1({one})\nSlurmctldHost=ctl2({other})\n");
        let pid = path.join("slurmctld.pid").display().to_string();
        let text = fs::read_to_string(slurm.conf())?
            .replace(single, double)
            // A slurmctld that starts ends the one whose id is in the file.
            .replace(&pid, &run.join("slurmctld.pid").display().to_string());
        fs::write(slurm.conf(), format!("{text}SlurmctldTimeout={SLURMCTLD_TIMEOUT}\n"))?;
        for (name, line) in NAMES.iter().zip(double.lines()) {
            // With one second libslurm does not retry.
            let alone = text.replace(double, &format!("{line}\nMessageTimeout=1\n"));
            fs::write(path.join(format!("{name}.conf")), alone)?;
        }
        let ([first, second], [net, other_net]) = (NAMES, networks);
        let primary = controller(folder, &slurm, first, net)?;
        let backup = controller(folder, &slurm, second, other_net)?;
        Ok(Some(Self { primary, backup, slurm, networks }))
    }

    /// Whether the slurmctld of this host returns statistics when it is asked alone.
    #[must_use]
    pub fn is_active(&self, index: usize) -> bool {
        let name = NAMES.get(index).copied().unwrap_or_default();
        let alone = self.slurm.conf().with_file_name(format!("{name}.conf"));
        self.on(index, &["env", &format!("SLURM_CONF={}", alone.display()), "sdiag"]).is_ok()
    }

    /// Runs one of Slurm's commands on a host.
    pub fn on(&self, index: usize, words: &[&str]) -> Result<String> {
        self.slurm.question(inside(self.networks.get(index).copied().flatten(), words))()
    }

    /// Cuts the backup off from what the primary writes to the state's folder, or connects it
    /// again.
    pub fn cut_state(&mut self, folder: &Folder, is_cut: bool) -> Result<()> {
        let (state, copy) = (folder.path().join("state"), folder.path().join("state-cut"));
        let (state, copy) = (state.display(), copy.display());
        let pid = self.primary.pid().context("the primary has ended")?.to_string();
        let command = if is_cut {
            format!("rm -rf {copy}; cp -a {state} {copy}; mount --bind {copy} {state}")
        } else {
            format!("umount -l {state}")
        };
        let args = ["-m", "-t", &pid, "--", "sh", "-ec", &command];
        Invocation::of_program(folder, &find_program("nsenter")?, &args)?.succeed().map(drop)
    }
}

/// Whether separate host names are allowed.
pub fn has_own_names(folder: &Folder) -> Result<bool> {
    let unshare = find_program("unshare")?;
    let allowed = [OWN_NAME, &["true"]].concat();
    Ok(is_root() || Invocation::of_program(folder, &unshare, &allowed)?.finish()?.code == Some(0))
}

/// A program on the host of a controller; `log` names its log.
pub(crate) fn on_host(
    folder: &Folder,
    log: &str,
    host: &str,
    network: Option<u32>,
) -> Result<Process> {
    let script = "hostname \"$0\"; mount --bind \"$1\" /etc/hosts; mount -t tmpfs tmpfs \"$2\"; \
        shift 2; exec \"$@\"";
    let flags = if is_root() {
        OWN_NAME.split_first().map_or(OWN_NAME, |(_, flags)| flags)
    } else {
        OWN_NAME
    };
    Ok(Process::new(folder, log, find_program("env")?)
        .args(inside(network, &["unshare"]))
        .args(flags.iter().copied())
        .args(["sh", "-ec", script, host])
        .args(["hosts", "run"].map(|name| folder.path().join(name)))
        .args(as_oneself()))
}

fn controller(
    folder: &Folder,
    slurm: &Slurm,
    name: &'static str,
    network: Option<u32>,
) -> Result<Process> {
    let up = slurm.question(inside(network, &["scontrol", "ping"]));
    Ok(on_host(folder, name, name, network)?
        .args(slurm.words("slurmctld")?)
        .args(["-D", "-f"])
        .args([slurm.conf()])
        .env("SLURM_CONF", slurm.conf())
        .ready(move || up().is_ok_and(|text| text.contains(&format!("{name} is UP")))))
}

/// A command line in the network that this process holds, if there is one.
fn inside(network: Option<u32>, words: &[&str]) -> Vec<String> {
    let pid = network.map(|pid| pid.to_string());
    let enter = pid.iter().flat_map(|pid| ["nsenter", "-n", "-t", pid, "--"]);
    enter.chain(words.iter().copied()).map(str::to_owned).collect()
}

/// A user who had to become root in the namespace is not root for slurmctld.
fn as_oneself() -> Vec<String> {
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let words = [
        "unshare".into(),
        "--user".into(),
        format!("--map-user={user}"),
        format!("--map-group={group}"),
    ];
    if is_root() { Vec::new() } else { words.to_vec() }
}
