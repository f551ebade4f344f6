//! A throw-away Slurm cluster and Carbon in a temporary folder, for the live tests, the demo and
//! the benchmarks.
//!
//! Everything listens on 127.0.0.1 on ports that were free a moment before, writes only below its
//! [`Folder`], and runs as root or as an ordinary user. Nothing outlives the folder; [`Folder`]
//! says how.
//!
//! About `slurm-graphite` it knows only how to start it, and which line of sdiag each of its
//! metrics equals.

#![forbid(unsafe_code)]
#![expect(
    clippy::missing_errors_doc,
    reason = "a program is missing, or what the name says does not happen: the error says which"
)]

pub mod accounting;
mod ahead;
mod bustle;
mod cables;
pub mod carbon;
mod carbonapi;
mod collected;
mod collector;
pub mod daemon;
mod folder;
pub mod following;
mod forwarder;
pub mod grafana;
pub mod graphite_web;
pub mod http;
mod imitation;
mod influxdb;
mod invocation;
pub mod log;
pub mod metrics;
mod notify;
pub mod pair;
pub mod panels;
mod ports;
pub mod proc;
mod process;
mod programs;
mod reader;
mod recorded;
mod relay;
mod root;
mod route;
mod sdiag;
mod server;
mod sink;
mod slurm;
mod slurmdbd;
mod slurmrestd;
mod space;
mod stage;
pub mod tls;
mod victoria_metrics;
pub mod wait;
mod whisper;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

pub use accounting::Accounting;
pub use ahead::Ahead;
pub use bustle::Bustle;
pub use cables::Cables;
pub use carbon::Carbon;
pub use carbonapi::Carbonapi;
pub use collected::{Collected, Findings, Points};
pub use collector::slurm_graphite;
pub use daemon::{Daemon, now, unix_seconds};
pub use folder::Folder;
pub use following::FollowingDaemon;
pub use forwarder::Forwarder;
pub use grafana::{Dashboard, Panel};
pub use graphite_web::{GraphiteWeb, Rendered};
pub use imitation::Imitation;
pub use influxdb::InfluxDb;
pub use invocation::{Finished, Invocation, printed, run};
pub use log::Entry;
pub use notify::Notify;
pub use ports::free_port;
pub use process::{Ended, Process};
pub use programs::{command, copy_program, find_program, output};
pub use reader::Reader;
pub use recorded::{Recorded, Values};
pub use relay::Relay;
pub use root::prefix;
pub use route::{PathFault, Route};
pub use sdiag::{RpcRow, Sdiag, section};
pub use sink::{Manner, Sink};
pub use slurm::{CPUS, NOBODY, Slurm, as_user, is_root};
pub use slurmdbd::Slurmdbd;
pub use slurmrestd::{Slurmrestd, Way};
pub use space::Space;
pub use stage::{ALL_READ, IN_USE, Plan, Stage, destination};
pub use tls::TlsProxy;
pub use victoria_metrics::VictoriaMetrics;
pub use whisper::Series;

/// A cluster of one node, a Carbon, and the folder they use. Dropping it ends and removes
/// everything.
#[derive(Debug)]
pub struct Sandbox {
    /// munged, slurmctld and slurmd.
    pub slurm: Slurm,
    /// carbon-cache.
    pub carbon: Carbon,
    /// The folder of all of it. It is the last field, so that it is dropped last.
    pub folder: Folder,
}

impl Sandbox {
    /// Starts everything, with one point a second for an hour in Carbon, and returns when all
    /// programs answer.
    pub fn start() -> Result<Self> {
        Self::with(&carbon::Options::default())
    }

    /// Starts everything, with these options for Carbon, and returns when all programs answer.
    pub fn with(options: &carbon::Options) -> Result<Self> {
        let folder = Folder::new()?;
        // Python takes longest to start, so Carbon is started first and waited for last.
        let mut carbon = Carbon::spawn(&folder, "carbon", options)?;
        let slurm = Slurm::start(&folder)?;
        carbon.process.wait_ready()?;
        Ok(Self { slurm, carbon, folder })
    }

    /// Starts `slurm-graphite run` against this cluster and this Carbon; `more` are additional
    /// flags.
    ///
    /// This does not wait for it: use [`Process::line`].
    pub fn collector(&self, more: &[&str]) -> Result<Process> {
        let address = self.carbon.address();
        let conf = self.slurm.conf().display().to_string();
        let mut args = vec!["run", "--carbon", &address, "--slurm-conf", &conf];
        args.extend(more);
        self.slurm_graphite("collector", &args)
    }

    /// Starts `slurm-graphite` with exactly these arguments; `name` names its log.
    pub fn slurm_graphite(&self, name: &str, args: &[&str]) -> Result<Process> {
        let mut process = Process::new(&self.folder, name, slurm_graphite()?).args(args);
        process.spawn()?;
        Ok(process)
    }

    /// Waits until Carbon has written `path`'s value for the second `timestamp` to disk, and
    /// returns it.
    pub fn value_at(&self, path: &str, timestamp: u64, limit: Duration) -> Result<f64> {
        let what = format!("{path} at {timestamp} in whisper");
        wait::until_some(&what, limit, || self.carbon.series(path).ok()?.at(timestamp))
    }

    /// A path below the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
