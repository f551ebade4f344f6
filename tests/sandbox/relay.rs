//! Programs between the daemon and the stores: carbon-relay and carbon-c-relay, which distribute
//! points over caches by consistent hashing, vmagent, haproxy and stunnel.

use std::path::Path;

use anyhow::Result;

use crate::carbon::{carbon_section, under_carbons_flags};
use crate::tls::Identity;
use crate::{Carbon, Folder, Process, VictoriaMetrics, find_program, free_port, proc};

/// Points that a relay keeps for each cache; its default is far below the size of a large tick.
const QUEUE: u32 = 1_000_000;

/// A program that passes on what it gets: carbon-relay reads pickle, carbon-c-relay and vmagent
/// read lines.
#[derive(Debug)]
pub struct Relay {
    /// The program.
    pub process: Process,
    /// The port to send to.
    pub port: u16,
}

impl Relay {
    fn start(port: u16, process: Process) -> Result<Self> {
        let mut relay = Self { process: process.ready(move || proc::listening(port)), port };
        relay.process.start()?;
        Ok(relay)
    }

    /// Starts carbon-relay.
    pub fn carbon(folder: &Folder, caches: &[&Carbon]) -> Result<Self> {
        let home = folder.path().join("relay");
        let (port, line) = (free_port()?, free_port()?);
        let to: Vec<String> = caches
            .iter()
            .zip('a'..)
            .map(|(cache, name)| format!("{}:{name}", cache.address()))
            .collect();
        let text = format!(
            "\
{}\
CARBON_METRIC_INTERVAL = 0
LINE_RECEIVER_INTERFACE = 127.0.0.1
LINE_RECEIVER_PORT = {line}
PICKLE_RECEIVER_INTERFACE = 127.0.0.1
PICKLE_RECEIVER_PORT = {port}
RELAY_METHOD = consistent-hashing
REPLICATION_FACTOR = 1
DESTINATIONS = {}
USE_FLOW_CONTROL = True
MAX_QUEUE_SIZE = {QUEUE}
",
            carbon_section("relay", &home),
            to.join(", ")
        );
        let conf = folder.write("relay/carbon.conf", &text)?;
        folder.write("relay/storage-schemas.conf", "")?;
        let process = Process::new(folder, "relay", find_program("carbon-relay")?);
        Self::start(port, under_carbons_flags(process, conf.as_ref()))
    }

    /// Starts carbon-c-relay.
    pub fn c(folder: &Folder, caches: &[&Carbon]) -> Result<Self> {
        Self::c_over(folder, caches, "")
    }

    /// Starts carbon-c-relay; `transport` is the transport in its configuration.
    pub fn c_over(folder: &Folder, caches: &[&Carbon], transport: &str) -> Result<Self> {
        let port = free_port()?;
        let to = caches
            .iter()
            .zip('a'..)
            .map(|(cache, name)| format!("127.0.0.1:{}={name}", cache.line_port));
        let text = format!(
            "cluster ring carbon_ch replication 1 {} ;\nmatch * send to ring stop ;\nlisten type \
             linemode {transport} 127.0.0.1:{port} proto tcp ;\nstatistics submit every 3600 \
             seconds prefix with relays ;\n",
            to.collect::<Vec<_>>().join(" ")
        );
        let conf = folder.write("c-relay.conf", &text)?;
        let process = Process::new(folder, "c-relay", find_program("carbon-c-relay")?);
        Self::start(port, process.args(["-q", &QUEUE.to_string(), "-f"]).args([conf]))
    }

    /// Starts vmagent, with a queue in the folder for each store.
    pub fn vmagent(folder: &Folder, program: &Path, stores: &[VictoriaMetrics]) -> Result<Self> {
        let (port, http_port) = (free_port()?, free_port()?);
        let urls = stores.iter().map(|store| {
            format!("-remoteWrite.url=http://127.0.0.1:{}/api/v1/write", store.http_port)
        });
        let process = Process::new(folder, "vmagent", program.to_owned())
            .args([
                format!("-httpListenAddr=127.0.0.1:{http_port}"),
                format!("-graphiteListenAddr=127.0.0.1:{port}"),
                format!("-remoteWrite.tmpDataPath={}", folder.path().join("vmagent").display()),
            ])
            .args(["-remoteWrite.shardByURL", "-memory.allowedBytes=256MB"])
            .args(urls);
        Self::start(port, process)
    }

    /// Starts haproxy, which forwards to the port `to`. It closes a connection after `idle` without
    /// a byte, and a half-closed one after `half`, whatever the other side does. Both are in
    /// haproxy's format, such as `5s`.
    pub fn haproxy(folder: &Folder, to: u16, idle: &str, half: &str) -> Result<Self> {
        let port = free_port()?;
        let text = format!(
            "\
defaults
    mode tcp
    timeout connect 2s
    retries 60
    timeout client {idle}
    timeout server {idle}
    timeout client-fin {half}
    timeout server-fin {half}
listen carbon
    bind 127.0.0.1:{port}
    server cache 127.0.0.1:{to}
"
        );
        let file = folder.write("haproxy.cfg", &text)?;
        let process = Process::new(folder, "haproxy", find_program("haproxy")?);
        Self::start(port, process.args(["-db", "-f"]).args([file]))
    }

    /// Starts nginx, which forwards to the port `to`; `more` are additional lines for its server.
    pub fn nginx(folder: &Folder, to: u16, more: &str) -> Result<Self> {
        let (port, path) = (free_port()?, folder.path().display());
        let text = format!(
            "\
load_module modules/ngx_stream_module.so;
daemon off;
master_process off;
pid {path}/nginx.pid;
error_log stderr;
events {{}}
stream {{
    server {{
        listen 127.0.0.1:{port};
        proxy_pass 127.0.0.1:{to};
        {more}
    }}
}}
"
        );
        let file = folder.write("nginx.conf", &text)?;
        let process = Process::new(folder, "nginx", find_program("nginx")?);
        Self::start(port, process.args(["-e", "stderr", "-c"]).args([file]))
    }

    /// Starts stunnel in front of the port `to`; `more` are additional lines for its service.
    pub fn stunnel(
        folder: &Folder,
        name: &str,
        to: u16,
        server: &Identity,
        more: &str,
    ) -> Result<Self> {
        let port = free_port()?;
        let text = format!(
            "foreground = yes\npid =\n[tls]\naccept = 127.0.0.1:{port}\nconnect = 127.0.0.1:{to}\n\
                cert = {}\nkey = {}\n{more}",
            server.certificate.display(),
            server.key.display()
        );
        let conf = folder.write(&format!("{name}.conf"), &text)?;
        Self::start(port, Process::new(folder, name, find_program("stunnel")?).args([conf]))
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}
