//! The test's own count, from what `scontrol show nodes` printed, by the words of a state.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use sandbox::Recorded;

use crate::cluster::value;

/// From the mildest to the worst.
const CLASSES: [&str; 4] = ["drained", "reboot", "fail", "down"];

/// Seconds that a look and a round may be apart at the beginning and at the end of a phase: a round
/// a second, which asks at its beginning, and may be left out once; seconds are whole.
const SLACK: f64 = 2.0;

pub(super) struct Look {
    at: f64,
    nodes: BTreeMap<String, Shown>,
}

#[derive(Clone, Debug)]
struct Shown {
    words: Vec<String>,
    slurmd: Option<i64>,
    boot: Option<i64>,
}

/// The words of the state in a line of scontrol, as 22.05 has them: 20.11 has signs for some, only
/// one word for an idle node under maintenance, and another for one that will be rebooted or is:
/// its reason says which. Then it is down and no more: Debian's 20.11.4 has no flag for it yet.
pub(super) fn words(line: &str) -> Vec<String> {
    let state = value(line, "State");
    let bits = |word: &str| -> String {
        let mut words =
            match word.trim_end_matches(['*', '~', '#', '!', '%', '$', '@', '^', '-']) {
                "MAINT" => "IDLE+MAINTENANCE",
                "REBOOT" if line.contains("reboot issued") => "DOWN",
                "REBOOT" => "IDLE",
                "POWER" => "POWERED_DOWN",
                word => word,
            }
            .to_owned();
        if word.ends_with('*') {
            words += "+NOT_RESPONDING";
        }
        if word.ends_with('#') {
            words += "+POWERING_UP";
        }
        words
    };
    let all: Vec<String> = state.unwrap_or_default().split('+').map(bits).collect();
    all.join("+").split('+').map(str::to_owned).collect()
}

impl Look {
    pub(super) fn parse(at: f64, text: &str) -> Self {
        let node = |line: &str| {
            let words = words(line);
            let moment = |key| value(line, key)?.parse().ok().filter(|at: &i64| *at > 0);
            let shown =
                Shown { words, slurmd: moment("SlurmdStartTime"), boot: moment("BootTime") };
            (value(line, "NodeName").unwrap_or_default().to_owned(), shown)
        };
        Self { at, nodes: text.lines().filter(|line| !line.trim().is_empty()).map(node).collect() }
    }
}

impl Shown {
    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|its| its == word)
    }

    /// `Some(None)`: in service; `None`: as before.
    fn class(&self) -> Option<Option<usize>> {
        let has_job = ["ALLOCATED", "MIXED", "COMPLETING"].iter().any(|word| self.has(word));
        if self.has("UNKNOWN") {
            None
        } else if self.has("DOWN") {
            Some(Some(if self.has("REBOOT_ISSUED") { 1 } else { 3 }))
        } else if self.has("FAIL") && !has_job {
            Some(Some(2))
        } else if self.has("DRAIN") && !has_job {
            Some(Some(0))
        } else if self.has("NOT_RESPONDING") && !self.has_power_flag() {
            // No phase of the script is silent for a minute.
            None
        } else {
            Some(None)
        }
    }

    fn has_power_flag(&self) -> bool {
        self.words.iter().any(|word| word.starts_with("POWER"))
    }
}

/// The daemon's rounds, of which only the timestamps are believed.
pub(super) struct Rounds(Vec<f64>);

impl Rounds {
    /// The rounds whose counts survive the SIGKILL. Those of the rounds before it are lost, except
    /// for the first: it was stored at once.
    pub(super) fn surviving_kill(timestamps: &[u64], killed: f64) -> Self {
        let all = timestamps.iter().map(|&at| at as f64).enumerate();
        Self(all.filter(|(index, at)| *index == 0 || *at > killed).map(|(_, at)| at).collect())
    }

    /// Whether the daemon has surely, and has perhaps seen when this happened. The round after it
    /// may have asked before, and scontrol may have answered late, so the round that saw it is one
    /// of three.
    fn saw(&self, at: f64) -> (bool, bool) {
        let after = self.0.partition_point(|round| *round < at);
        let is_near =
            |round: usize| self.0.get(round).is_some_and(|moment| (moment - at).abs() < SLACK);
        let others =
            [after.saturating_sub(1), after + 1].into_iter().filter(|round| is_near(*round));
        let seen: Vec<bool> = others.chain([after]).map(|round| self.is_in_time(round)).collect();
        (seen.iter().all(|seen| *seen), seen.contains(&true))
    }

    /// Seconds of this time that it saw.
    fn seen(&self, from: f64, to: f64) -> f64 {
        let pairs = self.0.windows(2).enumerate().filter(|(before, _)| self.is_in_time(before + 1));
        pairs.map(|(_, pair)| (pair[1].min(to) - pair[0].max(from)).max(0.0)).sum()
    }

    /// Whether it came within two rounds' time: of a second, or of the shorter of the two distances
    /// before it.
    fn is_in_time(&self, round: usize) -> bool {
        let distance = |round: usize| Some(self.0.get(round)? - self.0.get(round.checked_sub(1)?)?);
        let before = |back: usize| round.checked_sub(back).and_then(distance).unwrap_or(0.0);
        distance(round).is_some_and(|seconds| seconds <= 2.0 * before(1).min(before(2)).max(1.0))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct OfClass {
    reached: u32,
    ended: u32,
    /// At least, and at most.
    timed: [f64; 2],
    seconds: [f64; 2],
    node_seconds: f64,
    /// Phases in it: each has a beginning and an end.
    phases: f64,
}

#[derive(Debug, Default)]
pub(super) struct Count {
    begun: u32,
    restarts: u32,
    reboots: u32,
    classes: [OfClass; 4],
    /// Each that ended: from when to when, and whether the daemon saw both moments, surely and
    /// perhaps.
    ended: Vec<(f64, f64, [bool; 2])>,
}

struct Outage {
    since: f64,
    worst: usize,
    /// The class of the moment, and since when.
    now: (usize, f64),
}

impl Count {
    pub(super) fn from_looks(
        looks: &[Look],
        rounds: &Rounds,
        is_in: impl Fn(&str) -> bool,
    ) -> Self {
        let mut count = Self::default();
        let names =
            looks.first().into_iter().flat_map(|look| look.nodes.keys()).filter(|name| is_in(name));
        for name in names {
            let seen = looks.iter().filter_map(|look| Some((look.at, look.nodes.get(name)?)));
            count.add_outages(
                rounds,
                seen.clone().filter_map(|(at, shown)| Some((at, shown.class()?))),
            );
            count.add_starts(seen.map(|(_, shown)| shown));
        }
        count
    }

    fn add_outages(&mut self, rounds: &Rounds, seen: impl Iterator<Item = (f64, Option<usize>)>) {
        let mut outage: Option<Outage> = None;
        for (at, class) in seen {
            match (&mut outage, class) {
                (None, None) => {}
                (None, Some(class)) => {
                    self.begun += 1;
                    self.classes[class].reached += 1;
                    outage = Some(Outage { since: at, worst: class, now: (class, at) });
                }
                (Some(out), class) if class != Some(out.now.0) => {
                    let present = &mut self.classes[out.now.0];
                    present.node_seconds += rounds.seen(out.now.1, at);
                    present.phases += 1.0;
                    let Some(class) = class else {
                        let worst = &mut self.classes[out.worst];
                        worst.ended += 1;
                        let (begin, end) = (rounds.saw(out.since), rounds.saw(at));
                        let timed = [begin.0 && end.0, begin.1 && end.1];
                        self.ended.push((out.since, at, timed));
                        for (bound, is_timed) in timed.into_iter().enumerate() {
                            worst.timed[bound] += f64::from(is_timed);
                            worst.seconds[bound] += f64::from(is_timed) * (at - out.since);
                        }
                        outage = None;
                        continue;
                    };
                    self.classes[class].reached += u32::from(class > out.worst);
                    (out.now, out.worst) = ((class, at), out.worst.max(class));
                }
                (Some(_), _) => {}
            }
        }
    }

    fn add_starts<'a>(&mut self, seen: impl Iterator<Item = &'a Shown>) {
        let mut before = None;
        for shown in seen {
            if shown.has_power_flag() {
                before = None;
            } else if let (Some(slurmd), Some(boot)) = (shown.slurmd, shown.boot)
                && let Some((old_slurmd, old_boot)) = before.replace((slurmd, boot))
            {
                self.restarts += u32::from(slurmd != old_slurmd);
                self.reboots += u32::from(boot > old_boot + 60);
            }
        }
    }

    /// The script had what it is about.
    pub(super) fn shows_the_script(&self) -> Result<()> {
        let [drained, reboot, fail, down] = self.classes;
        let worst = reboot.ended + down.ended;
        ensure!(drained.ended >= 4 && worst >= 4 && fail.ended >= 1 && down.ended >= 3, "{self:?}");
        ensure!(self.reboots >= 1 && self.restarts > self.reboots, "{self:?}");
        let is_mixed = drained.timed[1] < drained.ended.into()
            && drained.timed[0] > 0.0
            && down.timed[0] > 0.0;
        ensure!(is_mixed, "ends with a time, and one without: {self:?}");
        Ok(())
    }

    /// Compares it with what the daemon has published at this level.
    pub(super) fn compare(&self, recorded: &Recorded, level: &str, killed: f64) -> Result<()> {
        let total = |path: &str| -> f64 {
            let values = recorded.series(&format!("{level}.{path}_total"));
            let last = values.last_key_value().map_or(f64::NAN, |(_, last)| *last);
            let rounds = recorded.series(&format!("{level}.{path}"));
            // The first round had nothing to compare with, and what was counted until the SIGKILL
            // is lost.
            let sum: f64 =
                rounds.iter().filter(|(at, _)| **at as f64 > killed).map(|(_, value)| value).sum();
            if (sum - last).abs() < 1e-6 { last } else { f64::NAN }
        };
        let within = |path: &str, [least, most]: [f64; 2], slack: f64| {
            let found = total(path);
            let fits = (least - slack..=most + slack).contains(&found);
            let mut rounds = recorded.series(&format!("{level}.{path}"));
            rounds.retain(|_, value| *value != 0.0);
            ensure!(fits, "{level}.{path}: {found}, not {least} to {most}: {self:?} {rounds:?}");
            Ok(())
        };
        let equal = |path: &str, expected: u32| within(path, [expected.into(); 2], 0.0);
        equal("total.gauge-begun", self.begun)?;
        equal("total.gauge-ended", self.classes.iter().map(|class| class.ended).sum())?;
        equal("total.gauge-reboots", self.reboots)?;
        equal("total.gauge-slurmd_restarts", self.restarts)?;
        for (word, of) in CLASSES.iter().zip(&self.classes) {
            let path = |leaf: &str| format!("class.{word}.gauge-{leaf}");
            equal(&path("reached"), of.reached)?;
            equal(&path("ended"), of.ended)?;
            within(&path("ended_timed"), of.timed, 0.0)?;
            within(&path("outage_seconds"), of.seconds, of.timed[1] * SLACK)?;
            within(&path("node_seconds"), [of.node_seconds; 2], of.phases * SLACK)?;
        }
        Ok(())
    }
}
