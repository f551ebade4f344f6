//! Separate namespaces, held by a sleeping process, in which other processes are started: a network
//! that can be cut, a small disk, another /etc/hosts. Root is not needed for most if the kernel
//! allows user namespaces for everybody.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{Folder, Invocation, Process, find_program};

/// The process that holds the namespaces.
#[derive(Debug)]
pub struct Space {
    /// Its id.
    pub(crate) pid: u32,
    /// The flags with which nsenter(1) enters them.
    flags: &'static [&'static str],
    folder: PathBuf,
    _holder: Process,
}

impl Space {
    /// Creates the namespaces and runs `script` in them. `None` if that is not allowed.
    pub fn new(folder: &Folder, script: &str) -> Result<Option<Self>> {
        if !is_allowed(folder, "-rnm", "true")? {
            return Ok(None);
        }
        // Whether a separate network can be joined is checked at each start.
        let flags = &["--preserve-credentials", "-U", "-m", "-n"];
        Self::hold(folder, "", "-rnm", flags, &format!("ip link set lo up && {script}")).map(Some)
    }

    /// Creates only a mount namespace, in which `script` makes mounts, including those of devices,
    /// which only the host's root may do. `None` if that is not allowed or there are no loop
    /// devices.
    pub fn of_root(folder: &Folder, script: &str) -> Result<Option<Self>> {
        let file = folder.path().join("probe");
        fs::write(&file, [0; 4096])?;
        let attach =
            format!("device=$(losetup --find --show {}); losetup --detach $device", file.display());
        if !is_allowed(folder, "-m", &attach)? {
            return Ok(None);
        }
        Self::hold(folder, "", "-m", &["-m"], script).map(Some)
    }

    /// Creates only a network namespace, as root; a folder may have several with different names.
    pub fn network(folder: &Folder, name: &str) -> Result<Self> {
        Self::hold(folder, name, "-n", &["-n"], "ip link set lo up")
    }

    fn hold(
        folder: &Folder,
        name: &str,
        namespaces: &str,
        flags: &'static [&'static str],
        script: &str,
    ) -> Result<Self> {
        let script = format!("{script} && echo made && exec sleep 100000");
        let holder =
            Process::new(folder, &format!("space{namespaces}{name}"), find_program("unshare")?);
        let log = holder.log().to_owned();
        let is_made = move || {
            fs::read_to_string(&log).is_ok_and(|text| text.lines().any(|line| line == "made"))
        };
        let mut holder = holder.args([namespaces, "sh", "-ec", &script]).ready(is_made);
        holder.start()?;
        let pid = holder.pid().context("the holder has ended")?;
        Ok(Self { pid, flags, folder: folder.path().to_owned(), _holder: holder })
    }

    /// A program that will run in the mount namespace and, if `net`, in the network namespace.
    pub fn process(
        &self,
        folder: &Folder,
        name: &str,
        program: &Path,
        net: bool,
    ) -> Result<Process> {
        let process = Process::new(folder, name, find_program("nsenter")?).args(self.flags(net));
        Ok(process.args([program]))
    }

    /// Runs a shell command to its end, in all of the namespaces.
    pub fn run(&self, folder: &Folder, command: &str) -> Result<()> {
        let args = self.words(command);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Invocation::of_program(folder, &find_program("nsenter")?, &args)?.succeed().map(drop)
    }

    /// The arguments of nsenter(1) for a shell command in all of the namespaces.
    pub fn words(&self, command: &str) -> Vec<String> {
        let mut args = self.flags(true);
        args.extend(["sh".to_owned(), "-ec".to_owned(), command.to_owned()]);
        args
    }

    /// Whether something listens on this port of its network.
    pub fn listening(&self) -> impl Fn(u16) -> bool + Send + Sync + 'static {
        let table = format!("/proc/{}/net/tcp", self.pid);
        move |port| {
            let table = fs::read_to_string(&table).unwrap_or_default();
            table.contains(&format!(":{port:04X} 00000000:0000 0A"))
        }
    }

    /// A file below the folder, as seen in the mount namespace.
    pub fn path(&self, name: &str) -> PathBuf {
        let inside = self.folder.strip_prefix("/").unwrap_or(&self.folder);
        PathBuf::from(format!("/proc/{}/root", self.pid)).join(inside).join(name)
    }

    fn flags(&self, net: bool) -> Vec<String> {
        let namespaces = self.flags.iter().filter(|flag| net || **flag != "-n");
        let pid = self.pid.to_string();
        namespaces.copied().chain(["-t", &pid, "--"]).map(str::to_owned).collect()
    }
}

fn is_allowed(folder: &Folder, flags: &str, probe: &str) -> Result<bool> {
    let finished =
        Invocation::of_program(folder, &find_program("unshare")?, &[flags, "sh", "-ec", probe])?
            .finish()?;
    Ok(finished.code == Some(0))
}
