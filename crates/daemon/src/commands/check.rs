//! `check`: checks the configuration, and with `--connect` everything that it names: one line each, with advice.
//!
//! `✓` is OK. `✗` is wrong and makes the exit code 1. `–` could not be checked, or is only a note. Nothing is sent but
//! one point with a path of its own, the canary, some hundred times. The daemon's store is never opened.

mod accounting;
mod carbon_conf;
mod delivery;
mod ini;
mod neighbors;
mod rest;
mod rules;
mod slurm;
mod storage;
#[cfg(feature = "tls")]
mod tls;

use std::path::Path;

use anyhow::{Result, bail};
use carbon::Batch;
use serde::Serialize;
use slurm_snapshot::Reading;

pub(super) use self::storage::paths;
use super::{block_on, load, painted, print, slot, start_quiet_log};
use crate::cli::Options;
use crate::config::{Config, default_paths};
use crate::{clock, prefix, self_metrics};

pub(super) fn check(options: &Options, json: bool) -> Result<()> {
    let mut report = Report { json, ..Report::default() };
    let looked = look(options, &mut report);
    report.end(looked)
}

/// A file is for a daemon, which would refuse one without a destination.
fn look(options: &Options, report: &mut Report) -> Result<()> {
    let config = load(options)?;
    let config = if config.file.is_some() { config.with_destination()? } else { config };
    report.good(&configuration(&config))?;
    if config.carbon.is_empty() {
        report
            .unknown("carbon: no destination; `run` needs a file with [[carbon]], or --carbon HOST:2004")?;
    }
    neighbors::look(&config, false, report)?;
    files(&config, false, report)
}

/// What other files the configuration names that can be checked without a connection.
fn files(_config: &Config, _connects: bool, _report: &mut Report) -> Result<()> {
    #[cfg(feature = "tls")]
    tls::files(_config, _connects, _report)?;
    Ok(())
}

/// The same, and everything that the configuration names.
pub(super) fn connect(options: &Options, json: bool, storage_schemas: Option<&Path>) -> Result<()> {
    let mut report = Report { json, ..Report::default() };
    let looked = block_on(look_at_all(options, storage_schemas, &mut report));
    report.end(looked)?;
    print(report.summary())
}

async fn look_at_all(options: &Options, storage_schemas: Option<&Path>, report: &mut Report) -> Result<()> {
    let config = load(options)?;
    start_quiet_log(options, &config);
    report.good(&configuration(&config))?;
    neighbors::look(&config, true, report)?;
    let reading = match &config.slurm.rest.endpoint {
        Some(endpoint) => rest::look(&config, endpoint, report).await?,
        None => slurm::look(&config, report).await?,
    };
    accounting::look(&config, reading.as_ref(), report).await?;
    delivery::queue(&config, report)?;
    files(&config, true, report)?;
    // A Carbon's rules come before its canary, which is a series too.
    storage::look(&config, reading.as_ref(), storage_schemas, report).await?;
    let canary = canary(&config, reading.as_ref());
    delivery::carbons(&config, canary.as_ref(), report).await
}

fn configuration(config: &Config) -> String {
    let from = config.file.as_ref().map_or_else(
        || {
            let missing: Vec<_> = default_paths().iter().map(|path| path.display().to_string()).collect();
            format!("flags and defaults only; there is no {}", missing.join(" or "))
        },
        |file| file.display().to_string(),
    );
    format!("configuration: {from}")
}

/// The lines. Each is printed as soon as it is known; with `json` all of them at the end.
#[derive(Default)]
struct Report {
    json: bool,
    lines: Vec<CheckLine>,
}

/// One line, for a script.
#[derive(Serialize)]
struct CheckLine {
    mark: &'static str,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Report {
    fn good(&mut self, text: &str) -> Result<()> {
        self.add("✓", text, None)
    }

    /// What is wrong, and what to do about it.
    fn wrong(&mut self, text: &str, advice: &str) -> Result<()> {
        self.add("✗", text, Some(advice))
    }

    /// Not checked, and why.
    fn unknown(&mut self, text: &str) -> Result<()> {
        self.add("–", text, None)
    }

    /// What costs something and passes by itself, and how to avoid it.
    fn costs(&mut self, text: &str, advice: &str) -> Result<()> {
        self.add("–", text, Some(advice))
    }

    fn add(&mut self, mark: &'static str, text: &str, advice: Option<&str>) -> Result<()> {
        self.lines.push(CheckLine { mark, text: text.to_owned(), advice: advice.map(str::to_owned) });
        if self.json {
            return Ok(());
        }
        let advice = advice.map_or_else(String::new, |advice| format!("  {advice}\n"));
        print(&format!("{} {text}\n{advice}", painted(mark)))
    }

    /// The last line, if nothing is wrong.
    fn summary(&self) -> &'static str {
        match self.lines.iter().any(|line| line.mark == "–") {
            _ if self.json => "",
            true => "no problem found; see the notes with –\n",
            false => "no problem found\n",
        }
    }

    /// Prints the JSON, also where the checks could not be completed. An error if something is wrong.
    fn end(&mut self, looked: Result<()>) -> Result<()> {
        if self.json {
            let failure = looked.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
            failure.lines().try_for_each(|line| self.add("✗", line, None))?;
        }
        let wrong = self.lines.iter().filter(|line| line.mark == "✗").count();
        if self.json {
            let document = serde_json::json!({ "ok": looked.is_ok() && wrong == 0, "lines": self.lines });
            print(&format!("{document}\n"))?;
        }
        match (looked, wrong) {
            (Err(error), _) => Err(error),
            (Ok(()), 0) => Ok(()),
            (Ok(()), 1) => bail!("1 check failed; see the advice above"),
            (Ok(()), many) => bail!("{many} checks failed; see the advice above"),
        }
    }
}

/// What Carbon's plaintext receiver takes without the end of a line; at more it closes the connection.
const LONGEST_LINE: usize = 16_384;

/// One point whose value is this moment, so that it can be told from an earlier check's, as often as it takes for a
/// plaintext receiver to close over its pickle. `None` where the prefix needs the cluster's name and slurmctld has not
/// told it.
fn canary(config: &Config, reading: Option<&Reading>) -> Option<Batch> {
    let host = prefix::host();
    let cluster = reading.and_then(|reading| reading.cluster.as_deref());
    let prefix = config.prefix.expand(cluster, &host)?;
    let now = clock::now().as_secs_f64().floor();
    let mut batch = Batch::new(slot(now, config.interval));
    let path = self_metrics::canary(&prefix, &host);
    for _ in 0..=LONGEST_LINE / path.len().max(1) {
        batch.push(path.clone(), now);
    }
    Some(batch)
}
