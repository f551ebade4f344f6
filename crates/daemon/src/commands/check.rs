//! `check`: the configuration, and with `--connect` everything that it leads to: a line each, with what to do.
//!
//! `✓` is OK, `✗` is not and makes the exit code 1, `–` is what could not be checked, or what only costs something. Nothing is sent
//! but one point of a path of its own, the canary, some hundred times; the daemon's store is never opened.

mod accounting;
mod carbon_conf;
mod delivery;
mod ini;
mod neighbors;
mod read_back;
mod rest;
mod rules;
mod slurm;
mod storage;
#[cfg(feature = "tls")]
mod tls;

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Result, bail};
use carbon::Batch;
use slurm_snapshot::Reading;

pub(super) use self::storage::paths;
use super::once::Ticks;
use super::{block_on, load, print, slot, start_quiet_log};
use crate::cli::Options;
use crate::config::{Config, default_paths};
use crate::url::Url;
use crate::{prefix, self_metrics};

/// A file is for a daemon, which would refuse one without a destination.
pub(super) fn check(options: &Options) -> Result<()> {
    let config = load(options)?;
    let config = if config.file.is_some() { config.with_destination()? } else { config };
    print(&configuration(&config))?;
    let mut report = Report::default();
    if config.carbon.is_empty() {
        report
            .unknown("carbon: no destination; `run` needs a file with [[carbon]], or --carbon HOST:2004")?;
    }
    neighbors::look(&config, false, &mut report)?;
    files(&config, false, &mut report)?;
    report.end()
}

/// What other files the configuration names that can be checked without a connection.
fn files(_config: &Config, _connects: bool, _report: &mut Report) -> Result<()> {
    #[cfg(feature = "tls")]
    tls::files(_config, _connects, _report)?;
    Ok(())
}

pub(super) fn connect(
    options: &Options,
    storage_schemas: Option<&Path>,
    read_back: Option<&Url>,
) -> Result<()> {
    let config = load(options)?;
    print(&configuration(&config))?;
    start_quiet_log(options, &config);
    block_on(async {
        let mut report = Report::default();
        neighbors::look(&config, true, &mut report)?;
        let reading = match &config.slurm.rest.endpoint {
            Some(endpoint) => rest::look(&config, endpoint, &mut report).await?,
            None => slurm::look(&config, &mut report).await?,
        };
        accounting::look(&config, reading.as_ref(), &mut report).await?;
        delivery::queue(&config, &mut report)?;
        files(&config, true, &mut report)?;
        // A Carbon's rules come before its canary, which is a series too.
        storage::look(&config, reading.as_ref(), storage_schemas, &mut report).await?;
        let canary = canary(&config, reading.as_ref());
        let has_read = delivery::carbons(&config, canary.as_ref(), &mut report).await?;
        if let Some(url) = read_back {
            let canary = canary.as_ref().filter(|_| has_read);
            read_back::look(url, canary, config.has_tags_only(), &mut report).await?;
        }
        report.end()
    })
}

fn configuration(config: &Config) -> String {
    let from = config.file.as_ref().map_or_else(
        || {
            let missing: Vec<_> = default_paths().iter().map(|path| path.display().to_string()).collect();
            format!("flags and defaults alone; there is no {}", missing.join(" or "))
        },
        |file| file.display().to_string(),
    );
    format!("✓ configuration: {from}\n")
}

/// The lines, as they become known.
#[derive(Default)]
struct Report {
    wrong: u32,
}

impl Report {
    fn good(&mut self, text: &str) -> Result<()> {
        print(&format!("✓ {text}\n"))
    }

    /// What is wrong, and what to do about it.
    fn wrong(&mut self, text: &str, advice: &str) -> Result<()> {
        self.wrong += 1;
        print(&format!("✗ {text}\n  {advice}\n"))
    }

    /// Not checked, and why.
    fn unknown(&mut self, text: &str) -> Result<()> {
        print(&format!("– {text}\n"))
    }

    /// What costs something and passes by itself, and how to avoid it.
    fn costs(&mut self, text: &str, advice: &str) -> Result<()> {
        print(&format!("– {text}\n  {advice}\n"))
    }

    /// An error where something is wrong.
    fn end(self) -> Result<()> {
        match self.wrong {
            0 => Ok(()),
            1 => bail!("1 check failed; see the advice above"),
            many => bail!("{many} checks failed; see the advice above"),
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
    let now =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64().floor();
    let mut batch = Batch::new(slot(now, config.interval));
    let path = self_metrics::canary(&prefix, &host);
    for _ in 0..=LONGEST_LINE / path.len().max(1) {
        batch.push(path.clone(), now);
    }
    Some(batch)
}

/// What a tick would be, for what can be said of its paths.
fn dry_tick(config: &Config, reading: &Reading) -> Option<Batch> {
    Ticks::new(config).batch(reading.clone()).ok()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
