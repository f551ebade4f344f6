//! `metrics --count`: how many series this configuration makes on this cluster, told before anything is sent.
//!
//! Two readings are made, because some figures want two, and every enabled collector of the cluster itself is asked
//! once; the paths are counted, not sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::once::Ticks;
use super::{IMPATIENT, block_on, load, log_errors, print};
use crate::cli::Options;
use crate::config::Config;
use crate::health;
use crate::source::Source;

/// What carbon.conf is shipped with: MAX_CREATES_PER_MINUTE.
const SHIPPED_CREATES: usize = 50;

/// Between the two readings; a little over Slurm's own second.
const BETWEEN: Duration = Duration::from_millis(1100);

pub(super) fn count(options: &Options) -> Result<()> {
    let config = load(options)?;
    log_errors(options, &config);
    block_on(async {
        let paths = paths(&config).await?;
        print(&document(&config, &paths))
    })
}

async fn paths(config: &Config) -> Result<BTreeSet<String>> {
    let mut ticks = Ticks::new(config);
    let mut source = Source::start(config.slurm.clone(), IMPATIENT);
    let mut paths = BTreeSet::new();
    for is_first in [true, false] {
        source.ask(ticks.wanted());
        let reading =
            source.outcome().await.map_err(|error| anyhow!("no reading: {error}\n{}", error.advice()))?;
        let mut batch = ticks.batch(*reading)?;
        if is_first {
            ticks.survey(&mut batch).await;
            tokio::time::sleep(BETWEEN).await;
        }
        paths.extend(batch.points().iter().map(|point| point.path().to_owned()));
    }
    Ok(paths)
}

fn document(config: &Config, paths: &BTreeSet<String>) -> String {
    let mut families: BTreeMap<&str, usize> = BTreeMap::new();
    for path in paths {
        let family = path.split('.').find(|component| component.starts_with("slurm_")).unwrap_or(path);
        let counted = families.entry(family).or_default();
        *counted = counted.saturating_add(1);
    }
    families.insert("slurm_graphite", health::series(config));
    let total = families.values().fold(0_usize, |sum, more| sum.saturating_add(*more));
    let mut text: String =
        families.iter().map(|(family, series)| format!("{series:>8} {family}\n")).collect();
    let minutes = total.div_ceil(SHIPPED_CREATES);
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "{total:>8} series in all, now; states, users and partitions that come later add theirs.\n\n\
         Carbon makes no more new ones a minute than carbon.conf's MAX_CREATES_PER_MINUTE, and drops the points of those \
         that it has not made yet. At the {SHIPPED_CREATES} that it is shipped with these take {minutes} min; raise it \
         until they are there, or live with that many minutes of holes.\n"
    );
    text
}
