//! The daemon as a service: what it reports to systemd, what a signal does, what it logs, and the
//! units that start it.

mod logs;
mod notifications;
mod reload;
mod units;

use std::path::Path;

use anyhow::Result;
use sandbox::{Folder, Process, slurm_graphite};

use super::SOON;

/// A daemon that is not started yet, with this configuration file.
fn daemon(folder: &Folder, name: &str, toml: &str) -> Result<Process> {
    let path = folder.write(&format!("{name}.toml"), toml)?;
    Ok(Process::new(folder, name, slurm_graphite()?).args(["run", "--config", &path]))
}

fn toml(interval: &str, conf: &Path, carbon: &[(&str, &str)]) -> String {
    let mut text = format!("interval = \"{interval}\"\n[slurm]\nconf = \"{}\"\n", conf.display());
    for (name, address) in carbon {
        text += &format!(
            "[[carbon]]\nname = \"{name}\"\naddress = \"{address}\"\nprotocol = \"plaintext\"\n"
        );
    }
    text
}
