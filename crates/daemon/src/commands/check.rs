//! `check`: the configuration, and with `--connect` slurmctld and every Carbon, each with what to do.

use anyhow::{Result, bail};
use carbon::{Connection, ConnectionError, Destination};

use super::{block_on, load, print, read_once};
use crate::cli::Options;
use crate::config::Config;
use crate::source::{SourceError, Wanted};
use crate::telemetry::Logging;

pub(super) fn check(options: &Options, connect: bool) -> Result<()> {
    let mut config = load(options)?;
    let from =
        options.config.as_ref().map_or_else(|| "flags and defaults".to_owned(), |f| f.display().to_string());
    print(&format!("✓ configuration: {from}\n"))?;
    if !connect {
        return Ok(());
    }
    config.log.level = config.log.level.min(tracing::level_filters::LevelFilter::ERROR);
    Logging::start(config.log);
    block_on(async {
        let mut good = check_slurm(&config).await?;
        if config.carbon.is_empty() {
            good = false;
            print("✗ carbon: no destination; say --carbon HOST:2004, or [[carbon]] address in the file\n")?;
        }
        for to in &config.carbon {
            good &= check_carbon(to).await?;
        }
        if good { Ok(()) } else { bail!("not everything answers; what to do is said above") }
    })
}

async fn check_slurm(config: &Config) -> Result<bool> {
    match read_once(config.slurm.clone(), Wanted::default()).await {
        Ok(reading) => {
            let cluster = reading.cluster.as_deref().unwrap_or("(not told)");
            let (release, took) = (reading.release, reading.elapsed);
            print(&format!("✓ slurmctld: cluster {cluster} answers libslurm {release} in {took} µs\n"))?;
            Ok(true)
        }
        Err(error) => {
            print(&format!("✗ slurmctld: {error}\n  {}\n", advice(&error)))?;
            Ok(false)
        }
    }
}

/// What an administrator would look at first.
pub(super) fn advice(error: &SourceError) -> &'static str {
    match error {
        SourceError::NoConf(_) => "Copy slurm.conf to this host, or run on one that has it.",
        SourceError::NoReader(_) => "Each reader is built for one libslurm: see README, Install.",
        SourceError::Refused(failure) => match failure.errno {
            // slurm_errno.h: SLURM_COMMUNICATIONS_CONNECTION_ERROR, SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR
            1001 | 1800 => "Is slurmctld running, and its port open to this host? Try `scontrol ping`.",
            // SLURM_PROTOCOL_AUTHENTICATION_ERROR, SLURM_AUTH_…
            1007 => {
                "Is munged running here, with the cluster's key, and the clocks alike? Try `munge -n | unmunge`."
            }
            5004 => {
                "slurmctld takes connections and does not answer: is it overloaded or stopped? Try `scontrol ping`."
            }
            _ => "Does `sdiag` work on this host, as this user?",
        },
        SourceError::Reader(_) | SourceError::Resting(_) => {
            "Does `sdiag` work on this host, as this user? It stands on the same slurm.conf and munge."
        }
    }
}

async fn check_carbon(to: &Destination) -> Result<bool> {
    let passed = match Connection::open(&to.address, to.timeouts).await {
        Ok(connection) => tokio::time::timeout(to.timeouts.connect, connection.barrier())
            .await
            .unwrap_or(Err(ConnectionError::Stalled(to.timeouts.connect))),
        Err(error) => Err(error),
    };
    match passed {
        Ok(()) => print(&format!("✓ carbon {}: takes connections, and reads them\n", to.name))?,
        Err(ConnectionError::Stalled(_)) => print(&format!(
            "✗ carbon {}: takes connections, and does not read them\n  Is carbon-cache stopped, or its cache full (USE_FLOW_CONTROL)?\n",
            to.name
        ))?,
        Err(error) => {
            print(&format!(
                "✗ carbon {}: {error}\n  Is carbon-cache running, with its PICKLE_RECEIVER_PORT open to this host?\n",
                to.name
            ))?;
            return Ok(false);
        }
    }
    Ok(true)
}
