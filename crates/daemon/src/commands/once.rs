//! `once`: prints one tick as plaintext lines. With `--send` also sends it, and waits until Carbon
//! has read it.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use carbon::{Batch, Queue, Sender};
use slurm_points::collecting::{Collecting, DueCollectors};
use slurm_points::collectors::TickOutcome;
use slurm_snapshot::{Reading, ReplyKind, Request, Role};

use super::{block_on, load_quietly, names, note, print, read_or_advise, slot};
use crate::accounting::Plan;
use crate::cli::Options;
use crate::config::Config;
use crate::host::host;
use crate::source::{ReaderMemory, recording};
use crate::survey::{Survey, patient};

/// Reason why `once`, `check` and a daemon that has run for a day do not count the same number of
/// series. docs/install.md has the same words.
pub(super) const MORE_LATER: &str = "a first reading lacks the daemon's own figures and those of \
     an interval, and what was not seen yet adds series later";

pub(super) fn once(options: &Options, replay: Option<&Path>, sends: bool) -> Result<()> {
    let mut config = load_quietly(options)?;
    // Nobody who only looks sends anything: a series keeps the rules that Carbon had when its first
    // point came.
    match sends {
        true => config = config.with_destination()?,
        false => config.carbon.clear(),
    }
    if let Some(file) = replay {
        let mut ticks = Ticks::new(&config);
        return recording::readings(file)?
            .try_for_each(|reading| print(&carbon::lines(&ticks.batch(reading?)?)));
    }
    block_on(async {
        let mut ticks = Ticks::new(&config);
        let reading = read_or_advise(config.slurm.clone(), ticks.request()).await?;
        let mut batch = ticks.batch(*reading)?;
        ticks.survey(&mut batch).await.iter().for_each(|failure| note(failure));
        print(&carbon::lines(&batch))?;
        if Plan::from_config(&config).is_some() {
            note(
                "finished jobs are counted by the daemon alone; `stats --jobs --finished` has \
                    those of the last hour",
            );
        }
        if std::io::stdout().is_terminal() {
            note(&format!("{} points; {MORE_LATER}", batch.points().len()));
        }
        if !sends && !options.flags.carbon.carbon.is_empty() {
            note("printed, not sent; to send it, add --send");
        }
        send(&config, batch).await
    })
}

/// Makes the batch of a tick of each reading, with the timestamp of the slot that the reading is
/// in.
pub(super) struct Ticks<'a> {
    config: &'a Config,
    collecting: Collecting,
    /// The prefix of the last reading's paths.
    pub(super) prefix: String,
}

impl<'a> Ticks<'a> {
    /// Starts the collectors, without an earlier reading and without stored memories.
    pub(super) fn new(config: &'a Config) -> Self {
        let collecting = Collecting::start(config.interval, &config.collectors, |_| None);
        Self { config, collecting, prefix: String::new() }
    }

    /// Returns the request for the statistics, with all that the collectors need of them.
    pub(super) fn request(&self) -> Request {
        Request::new(ReplyKind::Statistics, self.collecting.options())
    }

    /// Reads everything that survey collectors need, due or not, and adds their points to `batch`.
    /// Returns the reasons why some are missing.
    pub(super) async fn survey(&mut self, batch: &mut Batch) -> Vec<String> {
        let mut missing = Vec::new();
        let Config { slurm, collectors, .. } = self.config;
        for role in [Role::Surveys, Role::Accounting] {
            let Some(needs) = self.collecting.needs(role) else { continue };
            let survey =
                Survey::new(patient("surveys", slurm, &ReaderMemory::default()), false, collectors);
            let (done, failures) = survey.all(batch.timestamp(), needs).await;
            missing.extend(failures);
            self.collecting.collect_survey(DueCollectors::All, &done, &self.prefix, batch);
        }
        missing
    }

    /// Makes the batch of the next reading. An error if the prefix needs the cluster's name and the
    /// reading has none.
    pub(super) fn batch(&mut self, reading: Reading) -> Result<Batch> {
        let cluster = reading.cluster.as_deref();
        let prefix = self.config.prefix.expand(cluster, &host());
        self.prefix = prefix
            .context("the prefix needs the cluster's name, which slurmctld has not reported")?;
        let timestamp = slot(reading.time, self.config.interval);
        let mut batch = Batch::new(timestamp);
        let outcome = TickOutcome::Reading(Arc::new(reading));
        self.collecting.collect(timestamp, &outcome, &self.prefix, &mut batch);
        Ok(batch)
    }
}

async fn send(config: &Config, batch: Batch) -> Result<()> {
    // Never the daemon's own queue: that is the daemon's alone.
    let queue = Queue::open(None, config.queue.limits.clone(), &names(&config.carbon));
    queue.push(&batch);
    let failed = drain(config, start_senders(config, &queue)).await;
    for to in config.carbon.iter().filter(|to| !failed.contains_key(&to.name)) {
        let doubt = to.protocol.unusual_port(to.address.port);
        let doubt = doubt.map_or(String::new(), |doubt| {
            format!("; but {doubt}, so it may not have stored them")
        });
        note(&format!(
            "sent {} points to {}, which has read them{doubt}",
            batch.points().len(),
            to.address
        ));
    }
    delivered(&failed)
}

/// A sender for each destination.
pub(super) fn start_senders(config: &Config, queue: &Queue) -> Vec<Sender> {
    config.carbon.iter().map(|to| Sender::start(to.clone(), queue)).collect()
}

/// Waits until every destination has read what is in the queue, for `drain_timeout` each at most.
/// Returns the reasons why some have not, by the destination's name.
pub(super) async fn drain(config: &Config, senders: Vec<Sender>) -> BTreeMap<String, String> {
    let mut failed = BTreeMap::new();
    for (to, sender) in config.carbon.iter().zip(senders) {
        let full = sender.status().dropped.full;
        let left = sender.drain(config.drain_timeout).await;
        let dropped =
            (full > 0).then(|| format!("{full} points were dropped because of queue.max_bytes"));
        let why = [dropped, (!left.is_complete()).then(|| left.to_string())];
        let why: Vec<String> = why.into_iter().flatten().collect();
        if !why.is_empty() {
            failed.insert(to.name.clone(), format!("{}: {}", to.address, why.join("; ")));
        }
    }
    failed
}

/// Returns an error if something was not delivered. `failed`: the reasons, by the destination's
/// name.
pub(super) fn delivered(failed: &BTreeMap<String, String>) -> Result<()> {
    let failed = failed.values().map(String::as_str).collect::<Vec<_>>().join("; ");
    ensure!(
        failed.is_empty(),
        "not delivered: {failed}; `slurm-graphite check --connect` shows why"
    );
    Ok(())
}
