//! `run --replay`: sends a recording to Carbon with its own timestamps, as fast as Carbon reads.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use carbon::{Limits, Queue};
use tracing::info;

use super::{block_on, load, names, once};
use crate::cli::Options;
use crate::source::recording;
use crate::telemetry::Logging;

/// Number of ticks that may be due to a destination before the reading of the recording pauses.
const AHEAD: u64 = 100;

pub(super) fn run(options: &Options, file: &Path) -> Result<()> {
    let config = load(options)?.with_destination()?;
    Logging::start(config.log);
    block_on(async {
        // The timestamps are the recording's: nothing in it is too old.
        let limits = Limits { max_age: Duration::MAX, ..config.queue.limits.clone() };
        let queue = Queue::open(None, limits, &names(&config.carbon));
        let senders = once::start_senders(&config, &queue);
        let mut ticks = once::Ticks::new(&config);
        let mut sent = 0_u64;
        for reading in recording::readings(file)? {
            while senders.iter().any(|sender| sender.status().due() >= AHEAD) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            queue.push(&ticks.batch(reading?)?);
            sent += 1;
        }
        once::delivered(&once::drain(&config, senders).await)?;
        info!(ticks = sent, "the recording was sent, and every destination has read it");
        Ok(())
    })
}
