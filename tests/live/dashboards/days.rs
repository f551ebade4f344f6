//! The alert rules over hours, evaluated once a minute as Grafana does: ordinary days on which none
//! fires, and for each rule an incident in which it fires soon enough, and not before.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use sandbox::unix_seconds;

use super::alerts::{Curve, always, curve, invent, recent, since};
use super::leaves::{
    ACTIVE, AGE, AGENTS, ALL_STARTED, BACKFILL, BACKUP, BUSY, COMPLETED, COUNTED, CYCLES, Curves,
    DBD, DOUBT, DOWN, DRAINED, DRAINING, ENDED, ERRORS, FAILED, HEALTHY, HIDDEN, LOST, MEAN_CYCLE,
    NODES, NOT_LAUNCHED, OUTAGES, OVERFLOW, PENDING, QUEUE, RECORDS, REFUSED, ROLLUP, RPC_TIME,
    SHORT, SKIPPED, STANDBY, STARTED, SUBMITTED, THREADS, TOKEN, TYPES, UNDURABLE, UNPROVED,
    counter, ordinary, with,
};
use super::rules::Court;

/// Seconds from one reading to the next, and how many there are: five hours, of which the rules
/// look at the last three.
const READINGS: (u32, u32) = (30, 600);
const LOOKED_AT: u64 = 3 * 3600;

/// Whether it is in one of the spans of so many seconds that begin this many seconds ago.
fn within(ago: f64, starts: &[f64], seconds: f64) -> bool {
    starts.iter().any(|start| ago <= *start && ago > start - seconds)
}

/// The database is locked twice for eight minutes, the roll-up is late, and Carbon's disk is busy.
fn backup_night() -> Curves {
    let locked = |ago: f64| within(ago, &[9000.0, 5000.0], 480.0);
    with(vec![
        (DBD, curve(move |ago| if locked(ago) { 900.0 } else { 2.0 })),
        (
            ROLLUP,
            curve(|ago| 3600.0 - ago % 3600.0 + if ago % 7200.0 < 3600.0 { 2400.0 } else { 0.0 }),
        ),
        (DOUBT, curve(|ago| f64::from(within(ago, &[8000.0], 180.0)))),
        (AGE, curve(|ago| if within(ago, &[8000.0], 240.0) { 8000.0 - ago } else { 0.0 })),
        (RPC_TIME, curve(|ago| if within(ago, &[8000.0], 90.0) { 1.5e6 } else { 4000.0 })),
        (SKIPPED, since(7000.0, 0.0, 2.0)),
    ])
}

/// 100,000 short jobs a day, submitted in waves. A few dozen cannot be launched.
fn short_jobs() -> Curves {
    let wave = |ago: f64| within(ago, &[9500.0, 6500.0, 3500.0], 240.0);
    with(vec![
        (SUBMITTED, curve(move |ago| if wave(ago) { 3000.0 } else { 20.0 })),
        (PENDING, curve(move |ago| if wave(ago) { 9000.0 } else { 4000.0 })),
        (QUEUE, always(4000.0)),
        (MEAN_CYCLE, curve(move |ago| if wave(ago) { 1_800_000.0 } else { 500_000.0 })),
        (BUSY, curve(move |ago| if wave(ago) { 0.9 } else { 0.3 })),
        (AGENTS, curve(move |ago| if wave(ago) { 3000.0 } else { 60.0 })),
        (DBD, curve(move |ago| if wave(ago) { 2000.0 } else { 10.0 })),
        (THREADS, curve(move |ago| if wave(ago) { 0.7 } else { 0.2 })),
        (RPC_TIME, curve(move |ago| if within(ago, &[6500.0], 100.0) { 1.4e6 } else { 60_000.0 })),
        (RECORDS, curve(move |ago| if wave(ago) { 8800.0 } else { 6000.0 })),
        (NOT_LAUNCHED, counter(2.0, 0.0, 0.0)),
        // bf_max_time is 25 minutes, and a cycle takes all of it.
        (ACTIVE, curve(|ago| f64::from(ago % 1500.0 > 60.0))),
        (BACKFILL, curve(|ago| 1500.0 - ago % 1500.0)),
    ])
}

/// Twelve of 300 nodes are drained every twenty minutes, reboot ten minutes later, and come back.
fn rolling_drain() -> Curves {
    with(vec![
        (DRAINING, curve(|ago| if ago % 1200.0 > 900.0 { 12.0 } else { 0.0 })),
        (DRAINED, curve(|ago| if (600.0..=900.0).contains(&(ago % 1200.0)) { 18.0 } else { 6.0 })),
        (DOWN, curve(|ago| if (300.0..600.0).contains(&(ago % 1200.0)) { 13.0 } else { 2.0 })),
        (
            OUTAGES[0],
            curve(|ago| if (570.0..600.0).contains(&(ago % 1200.0)) { 11.0 } else { 0.0 }),
        ),
    ])
}

/// Nobody is there. One job is held, no job starts, and slurmdbd has no row of the last hour. The
/// two jobs that ended have failed.
fn holidays() -> Curves {
    let none =
        [SUBMITTED, STARTED, COMPLETED, QUEUE, MEAN_CYCLE, BUSY].map(|leaf| (leaf, always(0.0)));
    let mut curves = with(vec![
        (PENDING, always(1.0)),
        (BACKFILL, curve(|ago| 90_000.0 - ago)),
        (CYCLES, curve(|ago| f64::from(ago % 60.0 < 30.0))),
        (ALL_STARTED, always(7000.0)),
        (NOT_LAUNCHED, always(3.0)),
        (ENDED, curve(|ago| f64::from(within(ago, &[6000.0], 60.0)))),
        (FAILED, curve(|ago| f64::from(within(ago, &[6000.0], 60.0)))),
        (UNPROVED, always(1.0)),
    ]);
    curves.extend(none);
    curves
}

/// An incident begins so many minutes ago.
const BEGAN: u32 = 100 * 60;

/// The seconds of an incident that have passed so many seconds ago.
fn passed(ago: f64) -> f64 {
    (f64::from(BEGAN) - ago).max(0.0)
}

/// `before` the incident, then `after`.
fn from_now_on(before: f64, after: f64) -> Curve {
    since(f64::from(BEGAN), before, after)
}

/// `then` for the first seconds of the incident, otherwise `usual`.
fn at_first(seconds: f64, usual: f64, then: f64) -> Curve {
    curve(move |ago| if within(ago, &[f64::from(BEGAN)], seconds) { then } else { usual })
}

/// The rule that must fire, how many minutes after the beginning at the latest, the rules that may
/// fire too, and what happens.
type Incident = (&'static str, u64, &'static [&'static str], Vec<(&'static str, Curve)>);

fn incidents() -> Vec<Incident> {
    vec![
        ("slurmctld", 4, &[], vec![(HEALTHY, from_now_on(1.0, 0.0))]),
        ("backfill", 17, &[], vec![(BACKFILL, curve(|ago| passed(ago) + 20.0))]),
        ("main", 9, &[], vec![(CYCLES, from_now_on(6.0, 0.0))]),
        ("main-slow", 18, &[], vec![(MEAN_CYCLE, from_now_on(40_000.0, 1_400_000.0))]),
        ("main-busy", 17, &[], vec![(BUSY, from_now_on(0.05, 0.75))]),
        ("background", 14, &[], vec![(COUNTED, from_now_on(20.0, 90.0))]),
        // A node that fails each job takes every second one.
        ("launch", 5, &[], vec![(NOT_LAUNCHED, counter(0.2, f64::from(BEGAN), 35.0))]),
        ("agents", 16, &[], vec![(AGENTS, from_now_on(3.0, 2000.0))]),
        // slurmdbd is away: 100 messages a minute on a quiet cluster, 400 on a busy one.
        ("dbd", 18, &["dbd-full"], vec![(DBD, curve(|ago| 2.0 + passed(ago) / 60.0 * 50.0))]),
        ("dbd-full", 70, &["dbd"], vec![(DBD, curve(|ago| 2.0 + passed(ago) / 60.0 * 30.0))]),
        (
            "dbd-full",
            27,
            &["dbd"],
            vec![(DBD, curve(|ago| 2.0 + (passed(ago) / 60.0 * 400.0).min(10_000.0)))],
        ),
        ("threads", 8, &[], vec![(THREADS, from_now_on(0.1, 0.98))]),
        ("rpc-time", 6, &[], vec![(RPC_TIME, from_now_on(3000.0, 2_000_000.0))]),
        ("rpc-tables", 11, &[], vec![(TYPES, from_now_on(60.0, 100.0))]),
        // A tenth of a small cluster, and a rack of a large one.
        ("nodes", 6, &[], vec![(DOWN, from_now_on(2.0, 30.0))]),
        // A switch: 24 nodes are down for two minutes.
        (
            "outages",
            4,
            &[],
            vec![(OUTAGES[0], at_first(30.0, 0.0, 24.0)), (DOWN, at_first(120.0, 2.0, 26.0))],
        ),
        ("nodes", 6, &[], vec![(NODES, always(5000.0)), (DOWN, from_now_on(60.0, 132.0))]),
        // A file system hangs: the health check drains all nodes within five minutes. Those with
        // jobs are draining.
        (
            "drained",
            5,
            &[],
            vec![
                (DRAINED, curve(|ago| 6.0 + (passed(ago).min(300.0) * 0.3).floor())),
                (DRAINING, curve(|ago| (passed(ago).min(300.0) * 0.6).floor())),
            ],
        ),
        ("controller", 6, &[], vec![(BACKUP, from_now_on(1.0, 0.0))]),
        ("failing", 50, &[], vec![(FAILED, from_now_on(4.0, 30.0))]),
        ("job-count", 7, &[], vec![(RECORDS, from_now_on(3000.0, 9600.0))]),
        (
            "rollup",
            66,
            &[],
            vec![(ROLLUP, curve(|ago| 3600.0 + (f64::from(BEGAN) - ago).max(-3600.0)))],
        ),
        ("unproved", 62, &[], vec![(UNPROVED, from_now_on(0.0, 1.0))]),
        ("lost", 2, &[], vec![(LOST, from_now_on(0.0, 500.0))]),
        ("doubt", 7, &[], vec![(DOUBT, from_now_on(0.0, 1.0))]),
        ("backlog", 21, &[], vec![(AGE, curve(passed))]),
        ("carbon-errors", 2, &[], vec![(ERRORS, from_now_on(0.0, 40.0))]),
        ("carbon-errors", 2, &[], vec![(OVERFLOW, from_now_on(0.0, 40.0))]),
        ("undurable", 2, &[], vec![(UNDURABLE, from_now_on(0.0, 1.0))]),
        ("window", 11, &[], vec![(SHORT, from_now_on(0.0, 1.0))]),
        ("skipped", 2, &[], vec![(SKIPPED, from_now_on(0.0, 9.0))]),
        ("reload", 6, &[], vec![(REFUSED, from_now_on(0.0, 1.0))]),
        ("hidden", 6, &[], vec![(HIDDEN, from_now_on(0.0, 1.0))]),
        ("follow", 6, &[], vec![(STANDBY[0], always(0.0)), (STANDBY[1], from_now_on(1.0, 0.0))]),
        ("token", 2, &[], vec![(TOKEN, curve(|ago| 600.0 - (f64::from(BEGAN) - ago)))]),
    ]
}

impl Court {
    /// The rules that fire in the last three hours, with the minutes from the beginning of an
    /// incident to the first alert; none if it was earlier.
    fn alerts(&self, cluster: &str, curves: Curves) -> Result<BTreeMap<String, Option<u64>>> {
        invent(&self.carbon, cluster, recent(), READINGS, curves)?;
        let until = unix_seconds();
        let began = until - u64::from(BEGAN) - 1;
        let mut alerts = BTreeMap::new();
        for rule in &self.rules {
            let firing = rule.fires_between(&self.web, cluster, (until - LOOKED_AT, until))?;
            if let Some(first) = firing.first() {
                let after = first.checked_sub(began).map(|seconds| seconds.div_ceil(60));
                alerts.insert(rule.name(), after);
            }
        }
        Ok(alerts)
    }
}

#[test]
fn on_an_ordinary_day_no_rule_wakes_anybody() {
    let court = Court::open("30s:8h").unwrap();
    let days = [
        ("ordinary", ordinary()),
        ("backup", backup_night()),
        ("short", short_jobs()),
        ("drain", rolling_drain()),
        ("holidays", holidays()),
    ];
    for (name, day) in days {
        assert_eq!(court.alerts(name, day).unwrap(), BTreeMap::new(), "{name}");
    }
}

#[test]
fn each_rule_fires_in_its_incident_and_soon_enough() {
    let court = Court::open("30s:8h").unwrap();
    let mut fired = BTreeSet::new();
    for (number, (rule, latest, too, differences)) in incidents().into_iter().enumerate() {
        let alerts = court.alerts(&format!("incident{number}"), with(differences)).unwrap();
        judge(rule, latest, too, &alerts).unwrap();
        fired.insert(rule.to_owned());
    }
    // And everything that is sent ends: all that the other rules look at stays as it was.
    let stopped = ordinary()
        .into_iter()
        .map(|(leaf, curve)| {
            (leaf, Box::new(move |ago| curve(ago).filter(|_| ago > f64::from(BEGAN))) as Curve)
        })
        .collect();
    let alerts = court.alerts("stopped", stopped).unwrap();
    judge("no-data", 11, &[], &alerts).unwrap();
    fired.insert("no-data".to_owned());
    assert_eq!(fired, court.all(), "a rule without an incident");
}

/// An alert may come a minute later, because a reading and an evaluation each come some time after
/// what they are about.
fn judge(
    rule: &str,
    latest: u64,
    too: &[&str],
    alerts: &BTreeMap<String, Option<u64>>,
) -> Result<()> {
    let after =
        alerts.get(rule).with_context(|| format!("{rule} does not fire, but {alerts:?}"))?;
    ensure!(
        after.is_some_and(|after| after <= latest + 1),
        "{rule} fires after {after:?} minutes, not {latest}"
    );
    let others = alerts.keys().filter(|other| *other != rule && !too.contains(&other.as_str()));
    ensure!(others.count() == 0, "not only {rule}: {alerts:?}");
    Ok(())
}
