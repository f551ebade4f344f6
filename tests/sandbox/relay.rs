//! carbon-relay and carbon-c-relay, which distribute points over caches by consistent hashing.

use std::fs;

use anyhow::Result;

use crate::{Carbon, Folder, Process, find_program, free_port, proc};

/// Points that a relay keeps for each cache; its default is far below the size of a large tick.
const QUEUE: u32 = 1_000_000;

/// A relay: carbon-relay reads pickle, carbon-c-relay reads lines.
#[derive(Debug)]
pub struct Relay {
    /// The program.
    pub process: Process,
    /// The port to send to.
    pub port: u16,
}

impl Relay {
    /// Starts carbon-relay.
    pub fn carbon(folder: &Folder, caches: &[&Carbon]) -> Result<Self> {
        let home = folder.path().join("relay");
        fs::create_dir_all(&home)?;
        let (port, line) = (free_port()?, free_port()?);
        let to: Vec<String> =
            caches.iter().zip('a'..).map(|(cache, name)| format!("{}:{name}", cache.address())).collect();
        let text = format!(
            "\
[relay]
STORAGE_DIR = {0}
LOCAL_DATA_DIR = {0}
CONF_DIR = {0}
LOG_DIR = {0}
PID_DIR = {0}
USER =
CARBON_METRIC_INTERVAL = 0
LINE_RECEIVER_INTERFACE = 127.0.0.1
LINE_RECEIVER_PORT = {line}
PICKLE_RECEIVER_INTERFACE = 127.0.0.1
PICKLE_RECEIVER_PORT = {port}
RELAY_METHOD = consistent-hashing
REPLICATION_FACTOR = 1
DESTINATIONS = {1}
USE_FLOW_CONTROL = True
MAX_QUEUE_SIZE = {QUEUE}
",
            home.display(),
            to.join(", ")
        );
        let conf = home.join("carbon.conf");
        fs::write(&conf, text)?;
        fs::write(home.join("storage-schemas.conf"), "")?;
        let mut process = Process::new(folder, "relay", find_program("carbon-relay")?)
            .args([format!("--config={}", conf.display())])
            .args(["--nodaemon", "--logfile=-", "start"])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .ready(move || proc::listening(port));
        process.start()?;
        Ok(Self { process, port })
    }

    /// Starts carbon-c-relay.
    pub fn c(folder: &Folder, caches: &[&Carbon]) -> Result<Self> {
        Self::c_over(folder, caches, "")
    }

    /// Starts carbon-c-relay; `transport` is the transport in its configuration.
    pub fn c_over(folder: &Folder, caches: &[&Carbon], transport: &str) -> Result<Self> {
        let port = free_port()?;
        let to: Vec<String> = caches
            .iter()
            .zip('a'..)
            .map(|(cache, name)| format!("127.0.0.1:{}={name}", cache.line_port))
            .collect();
        let conf = folder.path().join("c-relay.conf");
        let text = format!(
            "cluster ring carbon_ch replication 1 {} ;\nmatch * send to ring stop ;\nlisten type linemode {transport} 127.0.0.1:{port} proto tcp ;\n\
             statistics submit every 3600 seconds prefix with relays ;\n",
            to.join(" ")
        );
        fs::write(&conf, text)?;
        let mut process = Process::new(folder, "c-relay", find_program("carbon-c-relay")?)
            .args(["-q".into(), QUEUE.to_string().into(), "-f".into(), conf.into_os_string()])
            .ready(move || proc::listening(port));
        process.start()?;
        Ok(Self { process, port })
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}
