//! A Slurm cluster of one node: munged with its own key and socket, slurmctld, and a slurmd that
//! really runs jobs.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};

use crate::folder::{key, make_open, secret};
use crate::ports::free_ports;
use crate::programs::limited;
use crate::root::Root;
use crate::{Folder, Process, Sdiag, free_port, output, proc, slurm_graphite};

/// The CPUs that slurmd claims to have: enough for some jobs to run and some to wait.
pub const CPUS: u32 = 8;

/// munged, slurmctld and slurmd. Each can be stopped, killed, frozen and started again on its own.
#[derive(Debug)]
pub struct Slurm {
    /// Runs the jobs.
    pub slurmd: Process,
    /// The controller.
    pub slurmctld: Process,
    /// munged; without it slurmctld answers nobody.
    pub munged: Process,
    /// The port of slurmctld on 127.0.0.1.
    pub slurmctld_port: u16,
    conf: PathBuf,
    client: Client,
}

/// The facts needed to run one of Slurm's commands, also in readiness checks.
#[derive(Debug, Clone)]
struct Client {
    folder: PathBuf,
    conf: PathBuf,
    root: Root,
}

impl Slurm {
    /// Starts the three programs and waits until the node can run jobs.
    pub fn start(folder: &Folder) -> Result<Self> {
        Self::start_with(folder, "")
    }

    /// Starts the three programs with additional lines in slurm.conf, and waits until the node can
    /// run jobs.
    pub fn start_with(folder: &Folder, lines: &str) -> Result<Self> {
        let mut slurm = Self::new(folder)?;
        slurm.configure(lines)?;
        slurm.start_all()?;
        Ok(slurm)
    }

    /// Starts munged and slurmctld alone, for tests that need no job.
    pub fn controller(folder: &Folder) -> Result<Self> {
        let mut slurm = Self::new(folder)?;
        slurm.start_controller()?;
        Ok(slurm)
    }

    /// Starts munged and slurmctld.
    pub fn start_controller(&mut self) -> Result<()> {
        self.munged.start()?;
        self.slurmctld.start().map_err(|error| unresolved_host().unwrap_or(error))
    }

    /// Starts the three programs and waits until the node can run jobs.
    pub fn start_all(&mut self) -> Result<()> {
        self.start_controller()?;
        self.slurmd.start()
    }

    /// Writes the configuration but starts nothing.
    pub fn new(folder: &Folder) -> Result<Self> {
        Self::in_root(folder, Root::wanted())
    }

    /// Writes the configuration for the Slurm in the Debian at `root`, but starts nothing.
    pub fn in_chroot(folder: &Folder, root: &Path) -> Result<Self> {
        Self::in_root(folder, Root::Chroot(root.to_owned()))
    }

    fn in_root(folder: &Folder, root: Root) -> Result<Self> {
        // A test may make a range of slurmctld's port and the next three.
        let (slurmctld_port, slurmd_port) = (free_ports(4)?, free_port()?);
        let path = folder.path();
        for name in ["munge", "state", "spool"] {
            make_open(&path.join(name))?;
        }
        let conf = path.join("slurm.conf");
        fs::write(&conf, slurm_conf(path, slurmctld_port, slurmd_port))?;
        let munged = munged(folder, &root, "munge")?;
        let client = Client { folder: path.to_owned(), conf: conf.clone(), root };
        // Otherwise slurmd needs a cgroup of its own, or at least to find cgroups mounted.
        let plugin = match client.release()?.as_str() {
            release if release >= "24.05" => Some("disabled"),
            release if release >= "22.05" => Some("cgroup/v1"),
            _ => None,
        };
        if let Some(plugin) = plugin {
            fs::write(path.join("cgroup.conf"), format!("CgroupPlugin={plugin}\n"))?;
        }

        let asked = client.clone();
        let slurmctld =
            Process::with_words(folder, "slurmctld", client.root.start(path, "slurmctld")?)
                .args(["-D", "-f"])
                .args([&conf])
                .env("SLURM_CONF", &conf)
                // A client that finds the port closed retries for 10 s, so the port is checked first.
                .ready(move || {
                    proc::listening(slurmctld_port) && asked.run("scontrol", &["ping"]).is_ok()
                });
        let asked = client.clone();
        let slurmd = client
            .slurmd(folder, "slurmd", "localhost")?
            .ready(move || proc::listening(slurmd_port) && asked.is_usable("localhost"));
        Ok(Self { slurmd, slurmctld, munged, slurmctld_port, conf, client })
    }

    /// The path of slurm.conf.
    pub fn conf(&self) -> &Path {
        &self.conf
    }

    /// The key of `[slurm]` that names it.
    pub fn toml(&self) -> String {
        format!("conf = {:?}\n", self.conf)
    }

    /// Appends lines to slurm.conf.
    pub fn configure(&self, lines: &str) -> Result<()> {
        Ok(OpenOptions::new().append(true).open(&self.conf)?.write_all(lines.as_bytes())?)
    }

    /// Appends lines to slurm.conf while slurmctld runs, which then reads it again.
    pub fn reconfigure(&self, lines: &str) -> Result<()> {
        self.configure(lines)?;
        self.run("scontrol", &["reconfigure"]).map(drop)
    }

    /// Replaces the lines of slurm.conf that begin with these words by others.
    pub fn replace(&self, starts: &[&str], lines: &str) -> Result<()> {
        let text = fs::read_to_string(&self.conf)?;
        let kept = text.lines().filter(|line| !starts.iter().any(|start| line.starts_with(start)));
        let kept: String = kept.map(|line| format!("{line}\n")).collect();
        Ok(fs::write(&self.conf, kept + lines)?)
    }

    /// A copy of slurm.conf in the folder in which `with` stands for `what`.
    pub fn changed(&self, name: &str, what: &str, with: &str) -> Result<PathBuf> {
        let (text, copy) = (fs::read_to_string(&self.conf)?, self.conf.with_file_name(name));
        ensure!(text.contains(what), "{what} is not in {text}");
        fs::write(&copy, text.replace(what, with))?;
        Ok(copy)
    }

    /// A munged with another key, not started yet, and a slurm.conf that names its socket.
    pub fn other_munged(&self, folder: &Folder) -> Result<(Process, PathBuf)> {
        make_open(&folder.path().join("other-munge"))?;
        let munged = munged(folder, &self.client.root, "other-munge")?;
        Ok((munged, self.changed("other-munge.conf", "/munge/sock", "/other-munge/sock")?))
    }

    /// Starts the slurmd of another node in slurm.conf, without waiting for it.
    pub fn spawn_slurmd(&self, folder: &Folder, node: &str) -> Result<Process> {
        let mut slurmd = self.slurmd_process(folder, node)?;
        slurmd.spawn()?;
        Ok(slurmd)
    }

    /// The slurmd of another node in slurm.conf, not started yet.
    pub fn slurmd_process(&self, folder: &Folder, node: &str) -> Result<Process> {
        self.client.slurmd(folder, node, node)
    }

    /// The slurmd of another node, not started yet; it is ready when its node can run jobs.
    pub(crate) fn slurmd_of(&self, folder: &Folder, node: &'static str) -> Result<Process> {
        let client = self.client.clone();
        Ok(self.client.slurmd(folder, node, node)?.ready(move || client.is_usable(node)))
    }

    /// slurmctld of another release, in the Debian at `root`, on this port, with the same key and
    /// states of its own; not started yet.
    pub fn controller_of(&self, folder: &Folder, root: &Path, port: u16) -> Result<Process> {
        let path = folder.path();
        fs::create_dir(path.join("other-state"))?;
        let line = |port| format!("SlurmctldPort={port}\n");
        let conf = self.changed("other.conf", &line(self.slurmctld_port), &line(port))?;
        let text = fs::read_to_string(&conf)?.replace("/state\n", "/other-state\n");
        fs::write(&conf, text.replace("/slurmctld.pid", "/other.pid"))?;
        let root = Root::Chroot(root.to_owned());
        let words = root.start(path, "slurmctld")?;
        let client = Client { folder: path.to_owned(), conf: conf.clone(), root };
        let slurmctld =
            Process::with_words(folder, "other", words).args(["-D", "-f"]).args([&conf]);
        Ok(slurmctld
            .env("SLURM_CONF", &conf)
            .ready(move || client.run("scontrol", &["ping"]).is_ok()))
    }

    /// Runs one of Slurm's commands against this cluster and returns its stdout. It is ended after
    /// 60 s.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        self.client.run(program, args)
    }

    /// Runs a command line whose words have no blanks.
    pub fn call(&self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (program, args) = words.split_first().context("no command")?;
        self.run(program, args)
    }

    /// Runs one of Slurm's commands as another user, which only root can do, and returns its
    /// stdout.
    pub fn run_as(&self, user: u32, program: &str, args: &[&str]) -> Result<String> {
        let [setpriv, flags @ ..] = as_user(user);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.run(&setpriv, &[&flags[..], &[program], args].concat())
    }

    /// The reader for this Slurm's libslurm, as any user. `SLURM_GRAPHITE_READER` names one to use
    /// instead of the one next to `slurm-graphite`. It is copied into the folder, because other
    /// users or a chroot may have no access to where it was built.
    pub fn reader(&self, user: Option<u32>) -> Result<Command> {
        let copy = self.client.folder.join("reader");
        if !copy.exists() {
            let built = match std::env::var_os("SLURM_GRAPHITE_READER") {
                Some(path) => path.into(),
                None => slurm_graphite()?.with_file_name("slurm-graphite-reader"),
            };
            crate::copy_program(&built, &copy)?;
        }
        let user = user.map(as_user).into_iter().flatten();
        let mut words = user.chain([copy.display().to_string()]);
        let mut start = self.words(&words.next().unwrap_or_default())?.into_iter();
        let mut command =
            crate::command(&self.client.folder, Path::new(&start.next().unwrap_or_default()));
        command.args(start).args(words);
        Ok(command)
    }

    /// The command line that starts a program of this Slurm.
    pub(crate) fn words(&self, program: &str) -> Result<Vec<OsString>> {
        self.client.root.start(&self.client.folder, program)
    }

    /// One of Slurm's commands, to be run in a readiness check, or by another thread.
    pub fn question(
        &self,
        words: Vec<String>,
    ) -> impl Fn() -> Result<String> + Send + Sync + 'static {
        let client = self.client.clone();
        move || {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (program, args) = words.split_first().context("no command")?;
            client.run(program, args)
        }
    }

    /// Submits a job with sbatch and returns its id.
    pub fn submit(&self, args: &[&str]) -> Result<u32> {
        let mut all = vec!["--parsable", "--output=/dev/null"];
        all.extend(args);
        let id = self.run("sbatch", &all)?;
        id.trim().parse().with_context(|| format!("sbatch said {id:?}"))
    }

    /// The current output of sdiag.
    pub fn sdiag(&self) -> Result<Sdiag> {
        Ok(Sdiag::parse(&self.run("sdiag", &[])?))
    }

    /// Slurm's release, as slurmctld reports it.
    pub fn release(&self) -> Result<String> {
        self.client.release()
    }
}

impl Client {
    fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        // A frozen munged blocks a client for ever.
        let mut command = limited(&self.folder)?;
        command.env("SLURM_CONF", &self.conf).args(self.root.start(&self.folder, program)?);
        output(command, args)
    }

    fn release(&self) -> Result<String> {
        let text = self.run("slurmctld", &["-V"])?;
        Ok(text.split_whitespace().last().unwrap_or_default().to_owned())
    }

    /// Whether this node can run jobs.
    fn is_usable(&self, node: &str) -> bool {
        let usable = |state: &str| ["idle", "mixed", "allocated"].contains(&state);
        // One line for each state of a partition's nodes.
        let states = self.run("sinfo", &["-h", "-n", node, "-o", "%T"]).unwrap_or_default();
        !states.is_empty() && states.lines().all(usable)
    }

    /// A node's slurmd, not started yet.
    fn slurmd(&self, folder: &Folder, name: &str, node: &str) -> Result<Process> {
        fs::create_dir_all(self.folder.join("spool").join(node))?;
        let slurmd = Process::with_words(folder, name, self.root.start(&self.folder, "slurmd")?);
        Ok(slurmd.args(["-D", "-N", node, "-f"]).args([&self.conf]).env("SLURM_CONF", &self.conf))
    }
}

/// Says that this host's name does not resolve, if so: slurmctld's log does not, and ends.
fn unresolved_host() -> Option<anyhow::Error> {
    let system = rustix::system::uname();
    let name = system.nodename().to_str().ok()?;
    (name, 0).to_socket_addrs().err().map(|error| {
        anyhow!(
            "slurmctld has ended, because this host's name, {name}, does not resolve ({error}); as root: \
                echo '127.0.1.1 {name}' >> /etc/hosts"
        )
    })
}

/// Whether this is root, who alone can act as other users.
pub fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// A user without any right, whom slurmdbd does not know either.
pub const NOBODY: u32 = 65534;

/// The command line to put in front of a program that another user runs.
pub fn as_user(user: u32) -> [String; 4] {
    let (user, group) = (format!("--reuid={user}"), format!("--regid={user}"));
    ["setpriv".to_owned(), user, group, "--clear-groups".to_owned()]
}

/// A munged with a key of its own and everything else in this folder.
fn munged(folder: &Folder, root: &Root, name: &str) -> Result<Process> {
    let path = folder.path().join(name);
    secret(&path.join("key"), &key::<128>()?)?;
    let socket = path.join("sock");
    let files = [
        ("key-file", "key"),
        ("socket", "sock"),
        ("pid-file", "pid"),
        ("log-file", "log"),
        ("seed-file", "seed"),
    ];
    let args = files.map(|(flag, file)| format!("--{flag}={}", path.join(file).display()));
    Ok(Process::with_words(folder, &format!("{name}d"), root.start(folder.path(), "munged")?)
        // --force: after a SIGKILL the old socket is still there.
        .args(["--foreground".to_owned(), "--force".to_owned()])
        .args(args)
        .ready(move || std::os::unix::net::UnixStream::connect(&socket).is_ok()))
}

/// A slurm.conf that works for every Slurm from 20.11 to 26.11. Scheduling cycles run every two
/// seconds so that figures change.
fn slurm_conf(path: &Path, slurmctld_port: u16, slurmd_port: u16) -> String {
    let user = rustix::process::getuid().as_raw();
    let path = path.display();
    format!(
        "\
ClusterName=sandbox
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={slurmctld_port}
SlurmdPort={slurmd_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={path}/munge/sock
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MpiDefault=none
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,bf_max_job_test=500,sched_interval=2
StateSaveLocation={path}/state
SlurmdSpoolDir={path}/spool/%n
SlurmctldPidFile={path}/slurmctld.pid
SlurmdPidFile={path}/%n.pid
SlurmdParameters=config_overrides
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=localhost NodeAddr=127.0.0.1 CPUs={CPUS} RealMemory=2000 State=UNKNOWN
PartitionName=debug Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"
    )
}
