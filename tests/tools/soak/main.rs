//! `make soak`: random faults in random order for one daemon and one Carbon, without a single lost
//! or wrong datapoint.
//!
//! SOAK_FAULTS sets their number (200), and SOAK_SEED repeats a run's order and durations. Most
//! faults are short; some have their maximum length. With SOAK_LONGEST each kind occurs once, at
//! its maximum length, in the table's order. With SOAK_ONLY there are only kinds with this text in
//! their names. With SOAK_TLS the daemon speaks TLS to a stunnel in front of that Carbon, which has
//! additional faults. The daemon has two more destinations, which are always ill, and with each
//! fault in another way. The program starts itself again in separate namespaces, where it can cut
//! the loopback network, fill a small disk and remove a host name.

#![forbid(unsafe_code)]

mod faults;
mod ill;
mod queue;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::carbon::Options;
use sandbox::{
    Ahead, Folder, Forwarder, Manner, Stage, TlsProxy, command, destination, find_program, wait,
};
use tools::{exit_code, number, say};

use self::faults::faults;
use self::ill::Ill;

/// Set for the run inside the namespaces.
const INSIDE: &str = "SOAK_INSIDE";
/// Number of faults between two checks of everything.
const CHECK_EVERY: usize = 25;
/// The size of the queue's disk.
const VOLUME_SIZE: &str = "64m";
/// The part of the paths of every destination's figures.
const ALL: &str = ".carbon.";
/// A destination that has sent something is not connected to for a minute.
const PATIENCE: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    exit_code("soak", if std::env::var_os(INSIDE).is_some() { soak() } else { enter() })
}

/// Runs this program in separate namespaces.
fn enter() -> Result<()> {
    let seed = number("SOAK_SEED", fastrand::u64(..))?;
    let mut inside = command(&std::env::temp_dir(), &find_program("unshare")?);
    inside.args(["-rnm", "--"]).arg(std::env::current_exe()?);
    let passed = [
        "SOAK_FAULTS",
        "SOAK_LONGEST",
        "SOAK_TLS",
        "SOAK_ONLY",
        "SLURM_GRAPHITE_BIN",
        "SANDBOX_KEEP",
    ]
    .into_iter();
    inside.envs(passed.filter_map(|name| Some((name, std::env::var_os(name)?))));
    inside.env(INSIDE, "1").env("SOAK_SEED", seed.to_string()).env("TMPDIR", std::env::temp_dir());
    let status = inside.status().context("unshare")?;
    ensure!(status.success(), "not passed; repeat it with SOAK_SEED={seed}");
    Ok(())
}

/// The programs that the faults affect.
struct Soak {
    stage: Stage,
    /// The forwarder between the daemon and Carbon, on `port`; `None`: the port refuses
    /// connections.
    forwarder: Option<Forwarder>,
    port: u16,
    ill: Ill,
    /// TLS in front of Carbon.
    tls: Option<TlsProxy>,
    /// The daemon's clock.
    clock: Ahead,
    /// `stall_timeout`.
    stall: &'static str,
    random: fastrand::Rng,
    /// Whether everything takes as long as it may.
    longest: bool,
    /// Seconds that the current fault lasts, if it has a fixed length.
    length: Option<f64>,
}

impl Soak {
    fn start(seed: u64, longest: bool) -> Result<Self> {
        let folder = Folder::new()?;
        fs::create_dir(folder.path().join("volume"))?;
        // A point of tomorrow must not push today's out of the archive.
        let options = Options::keeping("1s:26h");
        let path = folder.path().display();
        fs::write(folder.path().join("hosts"), faults::KNOWN)?;
        fs::write(folder.path().join("switch"), "hosts: files\n")?;
        shell(&folder, "ip link set lo up")?;
        shell(&folder, &format!("mount -t tmpfs -o size={VOLUME_SIZE} tmpfs {path}/volume"))?;
        shell(&folder, &format!("mount --bind {path}/hosts /etc/hosts"))?;
        shell(&folder, &format!("mount --bind {path}/switch /etc/nsswitch.conf"))?;
        let mut stage = Stage::in_folder(folder, &options)?;
        let (folder, to) = (&stage.folder, stage.carbon.pickle_port);
        let tls = std::env::var_os("SOAK_TLS");
        let tls =
            tls.map(|_| TlsProxy::with(folder, "tls", to, "carbon.sandbox", "")).transpose()?;
        let forwarder = Forwarder::start(tls.as_ref().map_or(to, |proxy| proxy.port))?;
        let port = forwarder.port;
        let (clock, ill) = (Ahead::new(folder)?, Ill::start(folder)?);
        stage.plan.dir = Some(folder.path().join("volume/queue"));
        // The window is shorter than many faults: the passing of time must prove nothing. The age
        // is longer than any; it limits what is kept for the destinations that are ill.
        stage.plan.queue =
            "resend_window = \"5s\"\nmax_age = \"5m\"\nreplay_rate = \"20000\"\n".to_owned();
        stage.under(&clock)?;
        let mut random = fastrand::Rng::with_seed(seed);
        // During a shorter cut the connection survives.
        let stall = random.choice(["2s", "10s"]).unwrap_or("2s");
        say(&format!("stall_timeout = {stall}\n"))?;
        let forwarder = Some(forwarder);
        let mut soak =
            Self { stage, forwarder, port, ill, tls, clock, stall, random, longest, length: None };
        soak.address();
        soak.stage.configure()?;
        soak.stage.daemon.spawn()?;
        soak.stage.steady()?;
        Ok(soak)
    }

    /// Puts the port, which may change, into the daemon's configuration; the name does not change.
    fn address(&mut self) {
        let healthy = destination("carbon", &format!("carbon.sandbox:{}", self.port));
        let healthy = healthy.replace("\"3s\"", &format!("\"{}\"", self.stall));
        let tls = self
            .tls
            .as_ref()
            .map(|proxy| format!("tls = true\nca_file = {:?}\n", proxy.authority.ca));
        self.stage.plan.destinations = healthy + &tls.unwrap_or_default() + &self.ill.destinations;
    }

    /// The port that the forwarder forwards to.
    fn receiver(&self) -> u16 {
        self.tls.as_ref().map_or(self.stage.carbon.pickle_port, |proxy| proxy.port)
    }

    /// Waits for a random time between these, in seconds.
    fn pause(&mut self, shortest: f64, longest: f64) {
        let random = if self.longest { 1.0 } else { self.random.f64() };
        wait::pause(Duration::from_secs_f64(shortest + random * (longest - shortest)));
    }

    /// The length of the fault, in seconds: usually a little more than the shortest, sometimes up
    /// to the longest.
    fn lasts(&mut self, shortest: f64, longest: f64) {
        let random = if self.longest { 1.0 } else { self.random.f64().powi(4) };
        let length = shortest + random * (longest - shortest);
        self.length = Some(length);
        wait::pause(Duration::from_secs_f64(length));
    }

    /// The disk that has the queue's folder.
    fn volume(&self) -> PathBuf {
        self.stage.folder.path().join("volume")
    }

    /// Waits until a tick shows that the healthy destination has a connection and nothing queued.
    fn recovered(&mut self) -> Result<()> {
        self.have_recovered(".carbon.carbon.")
    }

    /// Waits until a tick shows that all destinations with this in their paths, of which none may
    /// be ill, have a connection and nothing queued.
    fn have_recovered(&mut self, which: &str) -> Result<()> {
        let limit = Instant::now() + PATIENCE;
        loop {
            self.stage.tick()?;
            let points = self.stage.collected.last_points().context("no tick")?;
            let are = |end: &str, value: f64| {
                let mut figures =
                    points.iter().filter(|(path, _)| path.contains(which) && path.ends_with(end));
                figures.all(|(_, figure)| (*figure - value).abs() < 0.5)
            };
            let nothing_waits = are("gauge-queue_ticks", 0.0) && are("gauge-queue_resend", 0.0);
            if are("gauge-connected", 1.0) && nothing_waits {
                return Ok(());
            }
            ensure!(Instant::now() < limit, "{which} did not recover within {PATIENCE:?}");
        }
    }
}

fn soak() -> Result<()> {
    let seed = number("SOAK_SEED", 0)?;
    let mut table = faults(std::env::var_os("SOAK_TLS").is_some());
    let only = std::env::var("SOAK_ONLY").unwrap_or_default();
    table.retain(|(name, _)| name.contains(&only));
    let longest = std::env::var_os("SOAK_LONGEST").is_some();
    let faults = if longest { table.len() } else { number("SOAK_FAULTS", 200)? };
    let kind = if longest { "of each kind the longest" } else { "mostly short, some long" };
    say(&format!("soak: {faults} faults, {kind}, SOAK_SEED={seed}, "))?;
    let mut soak = Soak::start(seed, longest)?;
    let start = Instant::now();
    for n in 1..=faults {
        let chosen = if longest { table.get(n - 1) } else { soak.random.choice(&table) };
        let Some(&(name, fault)) = chosen else { break };
        soak.stage.collected.look()?;
        let ticks = soak.stage.collected.counted().count();
        say(&format!("{n:4}  {:5.0} s  {ticks:5} ticks  {name}", start.elapsed().as_secs_f64()))?;
        soak.length = None;
        soak.ill.change(&mut soak.random)?;
        fault(&mut soak).with_context(|| format!("fault {n}, {name}"))?;
        let length = soak.length.map(|length| format!(", {length:.0} s")).unwrap_or_default();
        say(&format!("{length}\n"))?;
        // Often the next fault comes while the daemon is still busy with the last one.
        if soak.random.u8(..3) == 0 {
            soak.recovered().with_context(|| format!("after fault {n}, {name}"))?;
        }
        soak.pause(0.0, 2.0);
        if n % CHECK_EVERY == 0 {
            soak.recovered()?;
            let findings =
                soak.stage.settled()?.clean().with_context(|| format!("after {n} faults"))?;
            say(&format!("      {findings}\n"))?;
        }
    }
    soak.ill.behave(Some(Manner::Discard))?;
    soak.have_recovered(ALL)?;
    let findings = soak.stage.finish()?;
    say(&format!(
        "\n{faults} faults in {:.0} s, SOAK_SEED={seed}\n",
        start.elapsed().as_secs_f64()
    ))?;
    let counted = soak.stage.counted_as_lost();
    say(&format!("{counted} counted as lost; {findings}\n"))?;
    ensure!(counted == 0.0, "datapoints are counted as lost");
    findings.clean().map(drop)
}

fn shell(folder: &Folder, text: &str) -> Result<()> {
    sandbox::Invocation::of_program(folder, &find_program("sh")?, &["-ec", text])?
        .succeed()
        .map(drop)
}
