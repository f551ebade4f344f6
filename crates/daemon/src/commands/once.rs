//! `once`: one tick as plaintext lines on stdout, and with `--carbon` to Carbon, confirmed by the barrier.

use std::path::Path;

use anyhow::{Result, bail};
use carbon::{Batch, Queue, Sender};
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
    print(&carbon::lines(batch))
}

async fn send(config: &Config, batch: Batch) -> Result<()> {
    let names: Vec<String> = config.carbon.iter().map(|to| to.name.clone()).collect();
    // Never the daemon's own queue: that is the daemon's alone.
    let queue = Queue::open(None, config.queue.limits.clone(), &names);
    queue.push(&batch);
    let mut failed = Vec::new();
    for to in &config.carbon {
        let left = Sender::start(to.clone(), &queue).drain(config.drain_timeout).await;
        if !left.is_complete() {
            failed.push(format!("{}: {left}", to.name));
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("not confirmed: {}", failed.join("; ")) }
}
