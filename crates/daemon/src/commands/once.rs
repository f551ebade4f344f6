//! `once`: one tick as plaintext lines on stdout, and with `--carbon` to Carbon, confirmed by the barrier.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use carbon::{Batch, Protocol, Sender};
use slurm_snapshot::Reading;

use super::{block_on, collect, load, log_errors, no_cluster, print, read_or_advise, slot};
use crate::cli::Options;
use crate::config::Config;
use crate::naming;
use crate::source::{Wanted, recording};

pub(super) fn once(options: &Options, replay: Option<&Path>) -> Result<()> {
    let config = load(options)?;
    log_errors(options, &config);
    if let Some(file) = replay {
        return recording::readings(file)?.try_for_each(|reading| print_lines(&batch(&config, &reading?)?));
    }
    block_on(async {
        let reading = read_or_advise(config.slurm.clone(), Wanted::default()).await?;
        let batch = batch(&config, &reading)?;
        print_lines(&batch)?;
        send(&config, batch).await
    })
}

/// The points of `reading` under the timestamp of its slot.
pub(super) fn batch(config: &Config, reading: &Reading) -> Result<Batch> {
    let prefix = config.prefix.fill(reading.cluster.as_deref(), &naming::host()).ok_or_else(no_cluster)?;
    let mut batch = Batch::new(slot(reading.time, config.interval));
    collect(&mut batch, &prefix, reading);
    Ok(batch)
}

fn print_lines(batch: &Batch) -> Result<()> {
    carbon::frames(batch, Protocol::Plaintext)?
        .iter()
        .try_for_each(|lines| print(&String::from_utf8_lossy(lines)))
}

async fn send(config: &Config, batch: Batch) -> Result<()> {
    let batch = Arc::new(batch);
    let mut failed = Vec::new();
    for to in &config.carbon {
        let sender = Sender::start(to.clone());
        sender.push(Arc::clone(&batch));
        let left = sender.drain(config.drain_timeout).await;
        if !left.is_complete() {
            failed.push(format!("{}: {left}", to.name));
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("not confirmed: {}", failed.join("; ")) }
}
