//! `check`: the configuration, and with `--connect` slurmctld and every Carbon, each with what to do.

use anyhow::{Result, bail};
use carbon::{Connection, ConnectionError, Destination};

use super::{block_on, load, log_errors, print, read_once};
use crate::cli::Options;
use crate::config::Config;
use crate::source::Wanted;

pub(super) fn check(options: &Options, connect: bool) -> Result<()> {
    let config = load(options)?;
    let from =
        options.config.as_ref().map_or_else(|| "flags and defaults".to_owned(), |f| f.display().to_string());
    print(&format!("✓ configuration: {from}\n"))?;
    if !connect {
        return Ok(());
    }
    log_errors(options, &config);
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
            print(&format!("✗ slurmctld: {error}\n  {}\n", error.advice()))?;
            Ok(false)
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
    let (error, hint) = match passed {
        Ok(()) => {
            print(&format!("✓ carbon {}: takes connections, and reads them\n", to.name))?;
            return Ok(true);
        }
        Err(ConnectionError::Stalled(_)) => (
            "takes connections, and does not read them".to_owned(),
            "Is carbon-cache stopped, or its cache full (USE_FLOW_CONTROL)?",
        ),
        Err(error) => {
            (error.to_string(), "Is carbon-cache running, with its PICKLE_RECEIVER_PORT open to this host?")
        }
    };
    print(&format!("✗ carbon {}: {error}\n  {hint}\n", to.name))?;
    Ok(false)
}
