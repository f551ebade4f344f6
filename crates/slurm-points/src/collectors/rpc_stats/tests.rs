//! The tables' tests: what is exact, what is absent, and who has a path.

mod figures;
mod paths;

use std::collections::BTreeMap;
use std::sync::Arc;

use carbon_wire::Batch;
use slurm_snapshot::{Reading, Release, RpcTables, RpcType, RpcUser, Statistics};

use super::{COLLECTOR, Start, TickOutcome};
use crate::collecting::Running;
use crate::collectors::{Begin, TickCollector};
use crate::named_paths::NamedPaths;
use crate::settings::{Settings, Value};

/// Seconds between two ticks.
const INTERVAL: u32 = 30;

/// A Monday, 06:00 UTC.
const START: i64 = 1_700_028_000;

/// A tick's points by their paths behind the prefix.
type TickPoints = BTreeMap<String, f64>;

/// The running collector.
type RpcStats = Running<TickCollector>;

fn rpc_stats(interval: u32, users: usize, memory: Option<&str>) -> RpcStats {
    let mut settings = Settings::new(true, COLLECTOR.settings);
    settings.values.insert("users", Value::Users(users));
    let Start::Tick(start) = COLLECTOR.start else { panic!("it is one of ticks") };
    Running {
        name: COLLECTOR.name,
        role: COLLECTOR.role(),
        replies: COLLECTOR.replies.iter().copied().collect(),
        every: interval,
        paths: NamedPaths::new(&settings, memory),
        collector: start(&Begin { interval, settings: &settings, memory: None }),
    }
}

fn user(id: u32, name: Option<&str>, count: u32, time: u64) -> RpcUser {
    RpcUser { id, name: name.map(str::to_owned), looking_up: false, count, time }
}

fn kind(id: u16, count: u32, time: u64) -> RpcType {
    RpcType { id, count, time, queue: None }
}

fn reading(moment: i64, since: i64, rpc: RpcTables) -> Reading {
    Reading {
        id: 1,
        time: f64::from(u32::try_from(moment).unwrap()) + 0.25,
        elapsed: 400,
        release: Release::new(24, 11),
        cluster: Some("sandbox".into()),
        statistics: Some(Statistics {
            req_time: moment,
            req_time_start: since,
            rpc: Some(rpc),
            ..Statistics::default()
        }),
        ..Reading::default()
    }
}

/// One tick; every point is taken and none is there twice.
fn collect(collector: &mut RpcStats, timestamp: i64, reading: Option<Reading>) -> TickPoints {
    let mut batch = Batch::new(timestamp);
    let outcome =
        reading.map_or(TickOutcome::Failed, |reading| TickOutcome::Reading(Arc::new(reading)));
    collector.collect(timestamp, &outcome, "cluster", &mut batch);
    assert_eq!(batch.refused(), 0);
    let mut found = TickPoints::new();
    for point in batch.points() {
        let path =
            point.path().strip_prefix("cluster.slurm_rpc_stats.").unwrap().replace("gauge-", "");
        assert!(found.insert(path.clone(), point.value()).is_none(), "{path} twice");
    }
    found
}

/// A tick whose tables began long ago.
fn tick(collector: &mut RpcStats, timestamp: i64, rpc: RpcTables) -> TickPoints {
    collect(collector, timestamp, Some(reading(timestamp, START - 600, rpc)))
}

fn users(users: Vec<RpcUser>) -> RpcTables {
    RpcTables { users, ..RpcTables::default() }
}

/// The names below `user`, but not those that have left, whose last figures are 0.
fn members(found: &TickPoints) -> Vec<&str> {
    let counts = found.iter().filter(|(_, count)| **count > 0.0);
    counts.filter_map(|(path, _)| path.strip_prefix("user.")?.strip_suffix(".count")).collect()
}

/// The sum of a leaf over the users and the others.
fn sum(found: &TickPoints, leaf: &str) -> f64 {
    let is_it = |path: &str| {
        path == format!("others.{leaf}")
            || (path.starts_with("user.") && path.ends_with(&format!(".{leaf}")))
    };
    found.iter().filter(|(path, _)| is_it(path)).map(|(_, value)| value).sum()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}
