//! A Slurm cluster with accounting: slurmdbd, a MariaDB that listens only on a socket in the
//! folder, accounts, users, and a second node.
//!
//! slurmdbd knows a second cluster, [`OTHER`], which has no running programs: a test fills its
//! tables with [`Accounting::sql`].

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::folder::{make_open, secret};
use crate::programs::limited;
use crate::root::Root;
use crate::{CPUS, Folder, Process, Slurm, find_program, free_port, is_root, output, proc};

/// The cluster of slurm.conf.
pub const CLUSTER: &str = "sandbox";

/// The other cluster in slurmdbd.
pub const OTHER: &str = "other";

/// The accounts. Every user may use both; a job that names none uses the first.
pub const ACCOUNTS: [&str; 2] = ["physics", "chemistry"];

/// A QOS in addition to `normal`; every user may use it.
pub const QOS: &str = "urgent";

/// Users of every Debian, with their ids, who may submit jobs if the sandbox runs as root
/// ([`Slurm::run_as`]). The user who runs the sandbox may too.
pub const USERS: [(&str, u32); 2] = [("games", 5), ("mail", 8)];

/// The nodes. Each has [`crate::CPUS`] CPUs and two GPUs.
pub const NODES: [&str; 2] = ["c1", "c2"];

/// The cluster, its slurmdbd and its database. Each program can be stopped, killed, frozen and
/// started again on its own.
#[derive(Debug)]
pub struct Accounting {
    /// munged, slurmctld and the slurmd of the first node.
    pub slurm: Slurm,
    /// The slurmd of the second node.
    pub second_slurmd: Process,
    /// Answers sacct and sacctmgr, and stores what slurmctld sends.
    pub slurmdbd: Process,
    /// slurmdbd's database.
    pub mariadbd: Process,
    folder: PathBuf,
}

impl Accounting {
    /// Starts everything and waits until both nodes can run jobs.
    pub fn start(folder: &Folder) -> Result<Self> {
        Self::start_with(folder, "", "")
    }

    /// Starts everything with additional lines in slurm.conf and in slurmdbd.conf, and waits until
    /// both nodes can run jobs.
    pub fn start_with(folder: &Folder, slurm_conf: &str, slurmdbd_conf: &str) -> Result<Self> {
        let mut slurm = Slurm::new(folder)?;
        let path = folder.path();
        let port = free_port()?;
        configure(path, &slurm, port, [free_port()?, free_port()?], slurm_conf)?;
        let slurmdbd = slurmdbd(folder, &slurm, port, slurmdbd_conf)?;
        let mariadbd = mariadbd(folder)?;
        let [first, second] = NODES;
        slurm.slurmd = slurm.slurmd_of(folder, first)?;
        let second_slurmd = slurm.slurmd_of(folder, second)?;
        let mut accounting =
            Self { slurm, second_slurmd, slurmdbd, mariadbd, folder: path.to_owned() };
        accounting.start_all()?;
        Ok(accounting)
    }

    fn start_all(&mut self) -> Result<()> {
        self.slurm.munged.start()?;
        self.mariadbd.start()?;
        self.sql(EMPTY_DATABASE)?;
        self.slurmdbd.start()?;
        self.fill()?;
        self.second_slurmd.spawn()?;
        self.slurm.slurmctld.start()?;
        self.slurm.slurmd.start()?;
        self.second_slurmd.wait_ready()
    }

    /// Adds clusters, accounts and users, before slurmctld registers its own.
    fn fill(&self) -> Result<()> {
        let me = self.slurm.run("id", &["-un"])?;
        let mut users = vec![me.trim()];
        if is_root() {
            users.extend(USERS.map(|(name, _)| name));
        }
        let (users, accounts) = (users.join(","), format!("account={}", ACCOUNTS.join(",")));
        let default = format!("defaultaccount={}", ACCOUNTS[0]);
        for entity in [
            &["cluster", CLUSTER, OTHER][..],
            &["qos", QOS],
            &["account", &ACCOUNTS.join(",")],
            &["user", &users, &accounts, &default, &format!("qos=normal,{QOS}")],
        ] {
            self.slurm.run("sacctmgr", &[&["-i", "add"], entity].concat())?;
        }
        Ok(())
    }

    /// Executes these statements in MariaDB as the database's root. Returns a line for each row,
    /// with columns separated by tabs and no heading. slurmdbd's tables are in `slurm_acct_db`.
    pub fn sql(&self, statements: &str) -> Result<String> {
        sql(&self.folder, statements)
    }
}

pub(crate) const EMPTY_DATABASE: &str = "create database slurm_acct_db; create user \
                                         slurm@localhost identified by 'x'; grant all on \
                                         slurm_acct_db.* to slurm@localhost";

pub(crate) fn sql(folder: &Path, statements: &str) -> Result<String> {
    let mut command = limited(folder)?;
    command.arg(find_program("mariadb")?);
    let socket = format!("--socket={}", socket(folder).display());
    output(command, ["--no-defaults", "--user=root", &socket, "-N", "-B", "-e", statements])
}

/// slurmdbd on this port, not started yet.
pub(crate) fn slurmdbd(folder: &Folder, slurm: &Slurm, port: u16, conf: &str) -> Result<Process> {
    // slurmdbd.conf needs the user's name, not the number.
    let user = slurm.run("id", &["-un"])?;
    write_slurmdbd_conf(folder.path(), port, &format!("SlurmUser={user}{conf}"))?;
    let answers = slurm.question(["sacctmgr", "-n", "show", "cluster"].map(str::to_owned).to_vec());
    Ok(Process::with_words(folder, "slurmdbd", slurm.words("slurmdbd")?)
        .args(["-D"])
        .env("SLURM_CONF", slurm.conf())
        .env("MYSQL_UNIX_PORT", socket(folder.path()))
        .ready(move || proc::listening(port) && answers().is_ok()))
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("db/sock")
}

/// Nothing is synced to disk: commits survive a SIGKILL of MariaDB, and nobody cuts the power.
/// Otherwise the start would take ten times as long.
const SMALL: [&str; 5] = [
    "--innodb-flush-method=nosync",
    "--innodb-doublewrite=0",
    "--aria-sync-log-dir=NEVER",
    "--innodb-log-file-size=8M",
    "--innodb-undo-tablespaces=0",
];

/// This machine's MariaDB, whichever Slurm the sandbox runs.
pub(crate) fn mariadbd(folder: &Folder) -> Result<Process> {
    let path = folder.path().join("db");
    // slurmdbd may run as another user in a chroot.
    make_open(&path)?;
    let data = format!("--datadir={}", path.join("data").display());
    // MariaDB refuses to run as root without --user=root.
    let user = is_root().then_some("--user=root");
    let install = crate::command(folder.path(), &find_program("mariadb-install-db")?);
    let flags =
        ["--no-defaults", &data, "--auth-root-authentication-method=normal", "--skip-test-db"];
    output(install, flags.into_iter().chain(SMALL).chain(user))?;
    let at = socket(folder.path());
    let args = [
        "--no-defaults".to_owned(),
        data,
        format!("--socket={}", at.display()),
        format!("--pid-file={}", path.join("pid").display()),
        "--skip-networking".to_owned(),
        "--innodb-buffer-pool-size=64M".to_owned(),
        // Written to the kernel at each commit, and to the disk once a second.
        "--innodb-flush-log-at-trx-commit=2".to_owned(),
    ];
    let mut mariadbd =
        Process::with_words(folder, "mariadbd", Root::Here.start(folder.path(), "mariadbd")?)
            .args(args);
    if let Some(user) = user {
        mariadbd = mariadbd.args([user]);
    }
    Ok(mariadbd.ready(move || std::os::unix::net::UnixStream::connect(&at).is_ok()))
}

/// Adds accounting and the nodes to the sandbox's slurm.conf.
fn configure(
    folder: &Path,
    slurm: &Slurm,
    dbd_port: u16,
    node_ports: [u16; 2],
    more: &str,
) -> Result<()> {
    let path = folder.display();
    let mut text = format!(
        "\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd_port}
AccountingStoragePass={path}/munge/sock
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/linux
PriorityType=priority/multifactor
GresTypes=gpu
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=long Nodes=ALL MaxTime=INFINITE State=UP
{more}
"
    );
    for (name, port) in NODES.into_iter().zip(node_ports) {
        text += &format!(
            "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} \
             RealMemory=2000 Gres=gpu:2 State=UNKNOWN\n"
        );
    }
    slurm.replace(
        &["AccountingStorageType=", "JobAcctGatherType=", "NodeName=", "PartitionName="],
        &text,
    )?;
    for gpu in ["gpu0", "gpu1"] {
        fs::write(folder.join(gpu), "")?;
    }
    fs::write(folder.join("gres.conf"), format!("Name=gpu File={path}/gpu[0-1]\n"))?;
    Ok(())
}

/// slurmdbd refuses a file that others may read.
fn write_slurmdbd_conf(folder: &Path, port: u16, more: &str) -> Result<()> {
    let path = folder.display();
    let text = format!(
        "\
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
AuthType=auth/munge
AuthInfo=socket={path}/munge/sock
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=x
StorageLoc=slurm_acct_db
PidFile={path}/slurmdbd.pid
CommunicationParameters=NoInAddrAny
{more}
"
    );
    secret(&folder.join("slurmdbd.conf"), text.as_bytes())
}
