//! haproxy in front of a Carbon, with its own time-outs.

use std::fs;

use anyhow::Result;

use crate::{Folder, Process, find_program, free_port, proc};

/// A TCP proxy.
#[derive(Debug)]
pub struct Haproxy {
    /// The program.
    pub process: Process,
    /// The port to send to.
    pub port: u16,
}

impl Haproxy {
    /// Starts haproxy, which forwards to the port `to`. It closes a connection after `idle` without a byte, and a
    /// half-closed one after `half`, whatever the other side does. Both are in haproxy's format, such as `5s`.
    pub fn start(folder: &Folder, to: u16, idle: &str, half: &str) -> Result<Self> {
        let port = free_port()?;
        let file = folder.path().join("haproxy.cfg");
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
        fs::write(&file, text)?;
        let mut process = Process::new(folder, "haproxy", find_program("haproxy")?)
            .args(["-db".into(), "-f".into(), file.into_os_string()])
            .ready(move || proc::listening(port));
        process.start()?;
        Ok(Self { process, port })
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}
