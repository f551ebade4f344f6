//! VictoriaMetrics with a listener for Graphite's plaintext protocol.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::http::{self, encoded};
use crate::{Folder, Process, find_program, free_port, proc};

/// A VictoriaMetrics process.
#[derive(Debug)]
pub struct VictoriaMetrics {
    /// The program.
    pub process: Process,
    /// The port of the plaintext protocol.
    pub line_port: u16,
    /// The port of its API.
    pub http_port: u16,
}

/// Points by timestamp, Unix seconds.
type PointsBySecond = BTreeMap<u64, f64>;

impl VictoriaMetrics {
    /// Starts Debian's VictoriaMetrics without waiting for it.
    pub fn spawn(folder: &Folder, name: &str) -> Result<Self> {
        Self::start_program(folder, name, &find_program("victoria-metrics")?, &[])
    }

    /// Starts this program, a VictoriaMetrics, with additional flags and without waiting for it.
    pub fn start_program(
        folder: &Folder,
        name: &str,
        program: &Path,
        more: &[&str],
    ) -> Result<Self> {
        let (line_port, http_port) = (free_port()?, free_port()?);
        let data = folder.path().join(name);
        let mut process = Process::new(folder, name, program.to_owned())
            .args([
                format!("-storageDataPath={}", data.display()),
                format!("-httpListenAddr=127.0.0.1:{http_port}"),
                format!("-graphiteListenAddr=127.0.0.1:{line_port}"),
            ])
            .args(["-memory.allowedBytes=64MB", "-search.latencyOffset=0s"])
            .args(more.iter().copied())
            .ready(move || [line_port, http_port].into_iter().all(proc::listening));
        process.spawn()?;
        Ok(Self { process, line_port, http_port })
    }

    /// `127.0.0.1:PORT` of the plaintext protocol.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.line_port)
    }

    /// The points of the series that `selector` selects. Names are in Graphite's format, with tags
    /// in alphabetical order.
    pub fn export(&self, selector: &str) -> Result<BTreeMap<String, PointsBySecond>> {
        // Queries do not see what was received just now.
        http::ask(self.http_port, "GET", "/internal/force_flush", "")?;
        let lines = http::ask(
            self.http_port,
            "GET",
            &format!("/api/v1/export?match[]={}", encoded(selector)),
            "",
        )?;
        let lines = String::from_utf8(lines)?;
        let mut all = BTreeMap::new();
        for line in lines.lines() {
            let Exported { mut metric, timestamps, values } =
                serde_json::from_str(line).with_context(|| format!("not a series: {line}"))?;
            let mut name = metric.remove("__name__").with_context(|| format!("no name: {line}"))?;
            for (label, value) in &metric {
                name.extend([";", label, "=", value]);
            }
            let seconds = timestamps.into_iter().map(|time| time / 1000);
            all.entry(name).or_insert_with(PointsBySecond::new).extend(seconds.zip(values));
        }
        Ok(all)
    }
}

/// A line of an export.
#[derive(Deserialize)]
struct Exported {
    metric: BTreeMap<String, String>,
    timestamps: Vec<u64>,
    values: Vec<f64>,
}
