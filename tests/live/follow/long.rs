//! Either slurmctld and either daemon are killed, stopped, frozen and restarted, one after the
//! other, and the backup is told to take over. Every slot in which the active slurmctld's host had
//! a daemon is published, and by only one, or its points are counted as superseded.
//!
//! A slurmctld counts as active from its first answer to an sdiag that asks only this slurmctld. So
//! each gap is Slurm's own takeover plus less than an interval. A daemon is up when its reader is.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::pair::Pair;
use sandbox::{Folder, FollowingDaemon, Process, now, unix_seconds, wait};

use super::{SOON, hosts, written_twice};

const NAMES: [&str; 4] = ["primary", "backup", "the primary's daemon", "the backup's daemon"];

#[derive(Clone, Copy, Debug)]
enum Kind {
    Kill,
    Stop,
    Freeze,
    /// `scontrol takeover` ends the primary.
    Takeover,
}

/// The first faults. In each of them the backup has taken over when the primary comes back. A
/// primary that was frozen believes that it is still active. After a planned takeover the primary
/// comes back within SlurmctldTimeout, and later.
const ALWAYS: [(usize, Kind, f64); 5] = [
    (0, Kind::Freeze, 24.0),
    (0, Kind::Kill, 18.0),
    (0, Kind::Freeze, 17.0),
    (0, Kind::Takeover, 5.0),
    (0, Kind::Takeover, 16.0),
];

/// Periods in which something was true, Unix seconds; the last one is open.
type Spans = Vec<(f64, f64)>;

struct Hosts {
    pair: Pair,
    daemons: [FollowingDaemon; 2],
    /// The times in which each slurmctld was active, and each daemon up.
    active: [Spans; 2],
    up: [Spans; 2],
    /// Slurmctlds and daemons that will soon be active or up.
    awaited: [bool; 4],
    /// Number of lines of each log that have been read.
    read: [usize; 4],
}

impl Hosts {
    /// Updates the state of all four.
    fn look(&mut self) {
        for target in 0..4 {
            if target >= 2 && !self.awaited[target] {
                continue;
            }
            let lines = self.process(target).lines();
            for line in &lines[self.read[target]..] {
                let says = |words: &[&str]| words.iter().any(|words| line.contains(words));
                if target >= 2 && says(&["reader started"]) {
                    self.begins(target);
                } else if says(&["Running as primary controller"]) {
                    self.awaited[target] = true;
                } else if says(&["RPC: REQUEST_CONTROL", "in background mode"]) {
                    self.ends(target);
                }
            }
            self.read[target] = lines.len();
            if target < 2 && self.awaited[target] && self.pair.is_active(target) {
                self.begins(target);
            }
        }
    }

    fn begins(&mut self, target: usize) {
        self.awaited[target] = false;
        let spans = self.spans(target);
        if spans.last().is_none_or(|(_, end)| end.is_finite()) {
            spans.push((now(), f64::INFINITY));
        }
    }

    fn ends(&mut self, target: usize) {
        self.awaited[target] = false;
        if let Some((_, end)) = self.spans(target).last_mut().filter(|(_, end)| end.is_infinite()) {
            *end = now();
        }
    }

    fn until(
        &mut self,
        what: &str,
        limit: f64,
        mut is_so: impl FnMut(&mut Self) -> bool,
    ) -> Result<()> {
        let end = Instant::now() + Duration::from_secs_f64(limit);
        loop {
            self.look();
            if is_so(self) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{what} took longer than {limit} s");
            wait::pause(Duration::from_millis(50));
        }
    }

    fn pause(&mut self, seconds: f64) {
        let end = now() + seconds;
        // It ends when the time is over.
        let _ = self.until("a pause", seconds + 60.0, |_| now() >= end);
    }

    fn process(&mut self, target: usize) -> &mut Process {
        match target {
            0 => &mut self.pair.primary,
            1 => &mut self.pair.backup,
            daemon => &mut self.daemons[daemon - 2].process,
        }
    }

    fn spans(&mut self, target: usize) -> &mut Spans {
        if target < 2 { &mut self.active[target] } else { &mut self.up[target - 2] }
    }

    fn fault(&mut self, target: usize, kind: Kind, seconds: f64) -> Result<()> {
        self.look();
        let was_active = self.spans(target).last().is_some_and(|(_, end)| end.is_infinite());
        // Recorded before the fault, which may take effect at once.
        self.ends(target);
        match kind {
            Kind::Kill => drop(self.process(target).kill()?),
            Kind::Stop => drop(self.process(target).stop()?),
            Kind::Freeze => self.process(target).freeze()?,
            Kind::Takeover => {
                self.pair.on(1, &["scontrol", "takeover"])?;
                self.process(target).wait(SOON)?;
            }
        }
        self.look();
        self.ends(target);
        self.pause(seconds);
        if target >= 2 {
            self.read[target] = self.process(target).lines().len();
        }
        match kind {
            Kind::Freeze => self.process(target).thaw()?,
            Kind::Kill | Kind::Stop | Kind::Takeover => self.process(target).spawn()?,
        }
        match (kind, target) {
            (Kind::Freeze, 2..) => self.begins(target),
            // Log lines about the others' answers come later.
            (Kind::Freeze, _) => self.awaited[target] = was_active,
            (_, 2..) => self.awaited[target] = true,
            _ => {}
        }
        Ok(())
    }

    /// Waits until the primary publishes again and the backup waits.
    fn settled(&mut self) -> Result<()> {
        let since = unix_seconds();
        self.until("the return to the primary", 120.0, |hosts| {
            let mut are = hosts.daemons.iter_mut().zip([0.0, 1.0]).map(|(daemon, expected)| {
                let standby = daemon.recorded().own("standby");
                standby
                    .range(since + 1..)
                    .rev()
                    .take(3)
                    .filter(|(_, value)| **value == expected)
                    .count()
                    == 3
            });
            are.all(|is| is)
        })
    }

    /// Slots that should have been published and were not, and how many should have been.
    fn missing(&mut self, from: u64, to: u64) -> (Vec<u64>, usize) {
        let slots = self.daemons.each_mut().map(FollowingDaemon::slots);
        let covers = |spans: &Spans, at: f64| {
            spans.iter().any(|(start, end)| *start <= at && at + 1.0 <= *end)
        };
        let must = |at: &u64| {
            (0..2).any(|host| {
                [&self.active, &self.up].iter().all(|its| covers(&its[host], *at as f64))
            })
        };
        let due: Vec<u64> = (from..to).filter(must).collect();
        let missing = due
            .iter()
            .filter(|at| !slots.iter().any(|slots| slots.contains(at)))
            .copied()
            .collect();
        (missing, due.len())
    }
}

/// Every slot in which a host began to publish is marked by it, or one right before whose figures
/// were superseded.
fn marked(hosts: &mut Hosts) -> Result<usize> {
    let slots = hosts.daemons.each_mut().map(FollowingDaemon::slots);
    let published: BTreeSet<u64> = slots[0].union(&slots[1]).copied().collect();
    let mut changes = 0;
    for (slots, daemon) in slots.iter().zip(&mut hosts.daemons) {
        let handovers = daemon.handovers();
        for at in slots {
            let before = published.range(..at).next_back().copied().unwrap_or_default();
            if !slots.contains(&before) {
                changes += 1;
                let is_marked = handovers.range(before + 1..=*at).next().is_some();
                ensure!(is_marked, "{at} is not marked as a hand-over: {handovers:?}");
            }
        }
    }
    Ok(changes)
}

/// Every tick that a daemon has made has arrived, including those of a daemon that was killed:
/// ticks are numbered from its start.
fn nothing_is_lost(daemon: &mut FollowingDaemon) {
    let ticks = daemon.recorded().own("ticks_run");
    let mut before = 0.0;
    for (at, run) in &ticks {
        assert!(*run == before + 1.0 || *run == 1.0, "tick {run} at {at} comes behind {before}");
        before = *run;
    }
}

fn faults(seed: u64, count: u64) -> Result<()> {
    let folder = Folder::new()?;
    let Some((mut pair, mut daemons)) = hosts(&folder)? else { return Ok(()) };
    let mut random = fastrand::Rng::with_seed(seed);
    pair.primary.start()?;
    pair.backup.start()?;
    daemons.iter_mut().try_for_each(|daemon| daemon.process.spawn())?;
    let (active, up) = Default::default();
    let mut hosts =
        Hosts { pair, daemons, active, up, awaited: [false, false, true, true], read: [0; 4] };
    hosts.settled()?;
    let from = unix_seconds();
    for number in 1..=count {
        let (target, kind) =
            (random.usize(0..4), [Kind::Kill, Kind::Stop, Kind::Freeze][random.usize(0..3)]);
        // SlurmctldTimeout is 10 s: some faults end before the backup takes over, and some long
        // after.
        let seconds = 1.0 + random.f64() * 24.0;
        let (target, kind, seconds) =
            ALWAYS.get(usize::try_from(number)? - 1).copied().unwrap_or((target, kind, seconds));
        let what = format!("{kind:?} {}", NAMES[target]);
        println!("{number:3} {what}, {seconds:.1} s");
        hosts.fault(target, kind, seconds).with_context(|| what.clone())?;
        hosts.settled().with_context(|| what)?;
        hosts.pause(4.0);
    }
    let to = unix_seconds() - 2;
    let mut holes = BTreeSet::new();
    for daemon in &mut hosts.daemons {
        holes.append(&mut daemon.check()?);
    }
    written_twice(&mut hosts.daemons);
    let changes = marked(&mut hosts)?;
    let (mut missing, due) = hosts.missing(from, to);
    missing.retain(|at| !holes.contains(at));
    hosts.daemons.iter_mut().for_each(nothing_is_lost);
    ensure!(missing.is_empty(), "{missing:?}; active {:?}, up {:?}", hosts.active, hosts.up);
    ensure!(
        changes >= 2 * ALWAYS.len().min(usize::try_from(count)?),
        "only {changes} changes of the host that publishes"
    );
    ensure!(due as f64 > 0.3 * (to - from) as f64, "only {due} slots were looked at");
    Ok(())
}

/// `make ha-long` runs it; `SOAK_SEED=` repeats a run.
#[test]
#[ignore = "takes some minutes: make ha-long"]
fn twenty_kills_stops_freezes_takeovers_and_returns() {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let seed = number("SOAK_SEED").unwrap_or_else(|| fastrand::u64(..));
    let count = number("SOAK_FAULTS").unwrap_or(20);
    faults(seed, count).with_context(|| format!("SOAK_SEED={seed}")).unwrap();
}
