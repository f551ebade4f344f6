//! `slurm_health`: a few figures for alerts, also at ticks without a reading.

use std::sync::Arc;

use slurm_snapshot::{Reading, ReplyKind, Statistics};

use super::{Collect, Collector, Start, TickOutcome};
use crate::derive;
use crate::levels::Table;
use crate::named_paths::Points;

pub(super) const COLLECTOR: Collector = Collector {
    name: "health",
    comment: "Figures for alerts: slurm_health.",
    settings: &[],
    levels: &[LEVELS],
    replies: &[ReplyKind::Statistics],
    start: Start::Tick(|begin| Box::new(Health { tick: begin.interval, before: None, last: None })),
};

levels! {
    LEVELS:
    ALL: Level<Table<HealthValues>, 0> = ("slurm_health", [], METRICS,
        "Figures for alerts, with thresholds. `up` and `seconds_since_reading` have a point at \
         every tick: if there is none, the daemon or Carbon is down.");
}

struct Health {
    /// Seconds between two ticks.
    tick: u32,
    before: Option<Arc<Reading>>,
    /// The tick of the last good reading, Unix seconds.
    last: Option<i64>,
}

#[derive(Default)]
struct HealthValues {
    up: Option<bool>,
    seconds_since_reading: Option<u64>,
    threads_fraction: Option<f64>,
    agent_queue_per_minute: Option<f64>,
    dbd_agent_queue_per_minute: Option<f64>,
}

impl Collect<TickOutcome> for Health {
    fn collect(&mut self, timestamp: i64, outcome: &TickOutcome, points: &mut Points<'_>) {
        let values = match outcome.statistics() {
            Some((reading, statistics)) => {
                self.last = Some(timestamp);
                let before = self.before.replace(Arc::clone(reading));
                let unbroken = before
                    .as_deref()
                    .and_then(|before| derive::unbroken(before, reading, self.tick));
                // Below 0 where a queue became shorter.
                let growth = |of: fn(&Statistics) -> u32| {
                    let (old, seconds) = unbroken?;
                    Some((f64::from(of(statistics)) - f64::from(of(old))) * 60.0 / seconds)
                };
                HealthValues {
                    up: Some(true),
                    seconds_since_reading: Some(0),
                    threads_fraction: derive::threads_fraction(reading, statistics),
                    agent_queue_per_minute: growth(|s| s.agent_queue_size),
                    dbd_agent_queue_per_minute: growth(|s| s.dbd_agent_queue_size),
                }
            }
            None => HealthValues {
                up: (!matches!(outcome, TickOutcome::GivenUp)).then_some(false),
                seconds_since_reading: self.last.map(|last| derive::seconds_since(last, timestamp)),
                ..HealthValues::default()
            },
        };
        points.push(&ALL, [], &values);
    }
}

metrics! {
    METRICS: HealthValues =
        average(up, "0 or 1",
            "whether slurmctld answered at this tick; no point if a reload cut the reading short. \
             Alert: 0 for 3 minutes"),
        max(seconds_since_reading, "s",
            "time since the last tick with an answer of slurmctld; no point before the first \
             answer. Alert: above 300"),
        average(threads_fraction, "0-1",
            "server_thread_count divided by 256, slurmctld's limit up to 24.05; no point from \
             24.11 on. Warn: above 0.5 for 5 minutes; alert: above 0.9"),
        average(agent_queue_per_minute, "1/min",
            "growth of agent_queue_size, below 0 while the queue gets shorter. Warn: above 0 for \
             15 minutes, nodes do not answer"),
        average(dbd_agent_queue_per_minute, "1/min",
            "growth of dbd_agent_queue_size. Warn: above 0 for 15 minutes, slurmdbd or its \
             database is slow; at MaxDBDMsgs accounting is lost");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named_paths::NamedPaths;
    use carbon_wire::Batch;
    use slurm_snapshot::Release;

    fn lines(health: &mut Health, timestamp: i64, reading: Option<&Arc<Reading>>) -> String {
        let mut batch = Batch::new(timestamp);
        health.collect(
            timestamp,
            &reading.cloned().map_or(TickOutcome::Failed, TickOutcome::Reading),
            &mut Points::new("c", &mut batch, &mut NamedPaths::default()),
        );
        carbon_wire::lines(&batch)
    }

    fn reading(time: f64, threads: u32, dbd: u32) -> Arc<Reading> {
        let text = format!(
            r#"{{"reading":{{"id":1,"time":{time},"elapsed":400,"release":"22.05","statistics":{}}}}}"#,
            serde_json::to_string(&Statistics {
                #[expect(clippy::cast_possible_truncation, reason = "whole seconds")]
                req_time: time as i64,
                req_time_start: 100,
                server_thread_count: threads,
                dbd_agent_queue_size: dbd,
                ..Statistics::default()
            })
            .unwrap()
        );
        match slurm_snapshot::Answer::parse(text.as_bytes()).unwrap() {
            slurm_snapshot::Answer::Reading(reading) => Arc::from(reading),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_outage_is_told_at_every_tick_and_never_as_a_success() {
        let mut health = Health { tick: 30, before: None, last: None };
        assert_eq!(
            lines(&mut health, 960, None),
            "c.slurm_health.gauge-up 0 960\n",
            "nothing was read yet"
        );
        lines(&mut health, 990, Some(&reading(990.0, 64, 0)));
        let away = lines(&mut health, 1020, None) + &lines(&mut health, 1050, None);
        assert!(
            away.contains("gauge-up 0 1050") && away.contains("seconds_since_reading 60 1050"),
            "{away}"
        );
        assert!(!away.contains("threads"), "{away}");
        let back = lines(&mut health, 1080, Some(&reading(1080.0, 64, 45)));
        assert!(back.contains("gauge-up 1 ") && back.contains("since_reading 0 "), "{back}");
        assert!(back.contains("threads_fraction 0.25 "), "{back}");
        assert!(back.contains("gauge-dbd_agent_queue_per_minute 30 "), "over 90 s: {back}");
        let newer = Arc::new(Reading {
            release: Release::new(24, 11),
            ..(*reading(1090.0, 64, 45)).clone()
        });
        let newer = lines(&mut health, 1090, Some(&newer));
        assert!(!newer.contains("threads_fraction"), "no such limit: {newer}");
        let late = lines(&mut health, 2000, Some(&reading(2000.0, 64, 45)));
        assert!(!late.contains("per_minute"), "too far apart: {late}");
    }

    #[test]
    fn a_reading_that_a_reload_cut_short_is_no_outage() {
        let mut health = Health { tick: 30, before: None, last: None };
        lines(&mut health, 990, Some(&reading(990.0, 64, 0)));
        let mut batch = Batch::new(1020);
        health.collect(
            1020,
            &TickOutcome::GivenUp,
            &mut Points::new("c", &mut batch, &mut NamedPaths::default()),
        );
        assert_eq!(
            carbon_wire::lines(&batch),
            "c.slurm_health.gauge-seconds_since_reading 30 1020\n"
        );
    }

    #[test]
    fn a_queue_that_becomes_shorter_is_below_zero() {
        let mut health = Health { tick: 30, before: None, last: None };
        lines(&mut health, 990, Some(&reading(990.0, 1, 90)));
        let shorter = lines(&mut health, 1020, Some(&reading(1020.0, 1, 30)));
        assert!(shorter.contains("gauge-dbd_agent_queue_per_minute -120 "), "{shorter}");
    }
}
