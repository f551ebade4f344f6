//! InfluxDB 1 with its listener for Graphite's plaintext protocol.

use anyhow::{Context, Result};

use crate::http::{self, encoded};
use crate::{Folder, Process, find_program, free_port, proc};

/// An InfluxDB.
#[derive(Debug)]
pub struct InfluxDb {
    /// The program.
    pub process: Process,
    line_port: u16,
    http_port: u16,
}

impl InfluxDb {
    /// Starts Debian's InfluxDB, and waits for it.
    pub fn start(folder: &Folder) -> Result<Self> {
        let [rpc_port, line_port, http_port] = [free_port()?, free_port()?, free_port()?];
        let data = folder.path().join("influxdb").display().to_string();
        let conf = folder.write(
            "influxdb.conf",
            &format!(
                "reporting-disabled = true
bind-address = \"127.0.0.1:{rpc_port}\"
[meta]
dir = \"{data}/meta\"
[data]
dir = \"{data}/data\"
wal-dir = \"{data}/wal\"
[http]
bind-address = \"127.0.0.1:{http_port}\"
log-enabled = false
[[graphite]]
enabled = true
bind-address = \"127.0.0.1:{line_port}\"
protocol = \"tcp\"
database = \"graphite\"
# So that it dies with ticks in its memory.
batch-timeout = \"3s\"
"
            ),
        )?;
        let mut process = Process::new(folder, "influxdb", find_program("influxd")?)
            .args(["-config".to_owned(), conf])
            .ready(move || [line_port, http_port].into_iter().all(proc::listening));
        process.start()?;
        Ok(Self { process, line_port, http_port })
    }

    /// `127.0.0.1:PORT` of the plaintext protocol.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.line_port)
    }

    /// The points of a series, oldest first: Unix seconds and value.
    pub fn series(&self, path: &str) -> Result<Vec<(u64, f64)>> {
        let query = encoded(&format!("SELECT value FROM \"{path}\""));
        let found = http::json(
            self.http_port,
            "GET",
            &format!("/query?db=graphite&epoch=s&q={query}"),
            "",
        )?;
        let Some(points) = found.pointer("/results/0/series/0/values") else {
            return Ok(Vec::new());
        };
        let points = points.as_array().context("no list")?.iter();
        points
            .map(|point| Some((point.get(0)?.as_u64()?, point.get(1)?.as_f64()?)))
            .collect::<Option<_>>()
            .context("not a point")
    }
}
