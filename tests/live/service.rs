//! The daemon as a service: what it reports to systemd, what a signal does, what it logs, and the units that start it.

mod logs;
mod notifications;
mod reload;
mod units;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use sandbox::{Folder, Process, slurm_graphite, wait};

const SOON: Duration = wait::LIMIT;

/// A daemon that is not started yet, with this configuration file.
fn daemon(folder: &Folder, name: &str, toml: &str) -> Result<Process> {
    let path = write(folder, name, toml)?.display().to_string();
    Ok(Process::new(folder, name, slurm_graphite()?).args(["run", "--config", &path]))
}

/// Writes the configuration of a daemon.
fn write(folder: &Folder, name: &str, toml: &str) -> Result<PathBuf> {
    let path = folder.path().join(format!("{name}.toml"));
    fs::write(&path, toml)?;
    Ok(path)
}

/// An interval, a slurm.conf and destinations as name and address.
fn toml(interval: &str, conf: &Path, carbon: &[(&str, &str)]) -> String {
    let mut text = format!("interval = \"{interval}\"\n[slurm]\nconf = \"{}\"\n", conf.display());
    for (name, address) in carbon {
        text +=
            &format!("[[carbon]]\nname = \"{name}\"\naddress = \"{address}\"\nprotocol = \"plaintext\"\n");
    }
    text
}
