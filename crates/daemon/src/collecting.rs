//! The collectors of a configuration at work: who takes part in which round.

use std::collections::{BTreeMap, HashSet};

use carbon::Batch;

use crate::collectors::{COLLECTORS, Collect, Round, Settings};
use crate::config::Collectors;
use crate::figure::Points;
use crate::source::Wanted;
use crate::survey::Needs;

/// The collectors of a configuration.
#[derive(Default)]
pub(crate) struct Collecting(Vec<(&'static str, Box<dyn Collect>)>);

impl Collecting {
    /// Begins with those that are on; `memory` gives what each had to remember.
    pub(crate) fn start(
        interval: u32,
        collectors: &Collectors,
        memory: impl Fn(&'static str) -> Option<String>,
    ) -> Self {
        Self(Vec::new()).restart(interval, collectors, |_| false, memory)
    }

    /// The same with other settings: those that are the same for `stays` go on with all that they have counted.
    pub(crate) fn restart(
        self,
        interval: u32,
        collectors: &Collectors,
        stays: impl Fn(&'static str) -> bool,
        memory: impl Fn(&'static str) -> Option<String>,
    ) -> Self {
        let mut before: BTreeMap<_, _> = self.0.into_iter().collect();
        let started = COLLECTORS.iter().filter_map(|collector| {
            let kept = before.remove(collector.name).filter(|_| stays(collector.name));
            let running = kept.or_else(|| {
                let memory = memory(collector.name);
                (collector.start)(&Settings { interval, collectors, memory: memory.as_deref() })
            });
            running.map(|running| (collector.name, running))
        });
        Self(started.collect())
    }

    /// What a reading must hold for all of them.
    pub(crate) fn wanted(&self) -> Wanted {
        self.0.iter().map(|(_, collector)| collector.wanted()).fold(Wanted::default(), Wanted::and)
    }

    /// Every collector's points of a tick's own round.
    pub(crate) fn collect(&mut self, round: &Round<'_>, prefix: &str, batch: &mut Batch) {
        self.collect_from(|collector| collector.needs().is_empty(), round, prefix, batch);
    }

    /// The points of a survey's round that asked for `asked`, of the collectors that it was for and whose slot is not over
    /// at `now`, Unix seconds: not of one that a reload has made since, to which what was not asked for would look like
    /// nothing.
    pub(crate) fn collect_survey(
        &mut self,
        due: Due,
        asked: Needs,
        now: i64,
        round: &Round<'_>,
        prefix: &str,
        batch: &mut Batch,
    ) {
        let was_asked = |collector: &dyn Collect| collector.needs().and(asked) == asked;
        let in_time =
            |collector: &dyn Collect| now < round.timestamp.saturating_add(collector.every().into());
        let which = |it: &dyn Collect| due.includes(it) && was_asked(it) && in_time(it);
        self.collect_from(which, round, prefix, batch);
    }

    /// What a survey must find out: for each collector that it would be for, and every how many seconds that is due.
    pub(crate) fn survey(&self, due: Due) -> Vec<(Needs, u32)> {
        let running = self.0.iter().map(|(_, running)| &**running);
        running.filter(|running| due.includes(*running)).map(|it| (it.needs(), it.every())).collect()
    }

    /// What all collectors together need to know of the cluster itself.
    pub(crate) fn needs(&self) -> Needs {
        self.survey(Due::Always).into_iter().fold(Needs::default(), |all, (needs, _)| all.and(needs))
    }

    fn collect_from(
        &mut self,
        which: impl Fn(&dyn Collect) -> bool,
        round: &Round<'_>,
        prefix: &str,
        batch: &mut Batch,
    ) {
        let mut points = Points::new(prefix, batch);
        let running = self.0.iter_mut().map(|(_, collector)| collector);
        running.filter(|running| which(&***running)).for_each(|running| running.collect(round, &mut points));
        debug_assert_eq!(
            repeated(batch),
            None,
            "a path that is twice in one batch: Carbon keeps the last value"
        );
    }

    /// What must be remembered, by the collector's name, where it has changed.
    pub(crate) fn changed_memories(&mut self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.0
            .iter_mut()
            .filter_map(|(name, collector)| collector.changed_memory().map(|memory| (*name, memory)))
    }
}

/// A path that is in the batch more than once.
fn repeated(batch: &Batch) -> Option<&str> {
    let mut seen = HashSet::new();
    batch.points().map(|point| point.path()).find(|path| !seen.insert(*path))
}

/// The collectors that a survey is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Those whose interval divides this tick, Unix seconds.
    At(i64),
    /// All that take part in surveys.
    Always,
}

impl Due {
    fn includes(self, collector: &dyn Collect) -> bool {
        let is_due = match self {
            Self::At(timestamp) => timestamp.rem_euclid(i64::from(collector.every().max(1))) == 0,
            Self::Always => true,
        };
        is_due && !collector.needs().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use slurm_snapshot::{
        Answer, Controller, Jobs, License, Licenses, NodeRow, Nodes, Partition, Partitions, Reading, Reply,
    };

    use super::*;
    use crate::config::Config;
    use crate::survey::{Findings, Kind};

    #[test]
    fn out_of_the_box_slurmctld_is_asked_for_its_statistics_alone() {
        let config = crate::config::Config::default();
        let collecting = Collecting::start(30, &config.collectors, |_| None);
        assert_eq!(collecting.survey(Due::Always), []);
    }

    #[test]
    fn a_survey_is_for_those_whose_interval_divides_the_tick() {
        let config = crate::config::Config::of(
            "[collectors.nodes]\nenabled = true\n[collectors.jobs]\nenabled = true\ninterval = \"5m\"",
        );
        let collecting = Collecting::start(30, &config.collectors, |_| None);
        let due = |at| -> Vec<(bool, bool, u32)> {
            let due = collecting.survey(Due::At(at)).into_iter();
            due.map(|(needs, every)| (needs.jobs, needs.nodes, every)).collect()
        };
        assert_eq!(due(30), []);
        assert_eq!(due(60), [(false, true, 60)]);
        assert_eq!(due(300), [(true, false, 300), (false, true, 60)]);
    }

    #[test]
    fn a_collector_that_a_reload_leaves_alone_keeps_what_it_has_counted() {
        let lines = |collecting: &mut Collecting, timestamp| {
            let mut batch = Batch::new(timestamp);
            collecting.collect(&Round::tick(timestamp, None), "c", &mut batch);
            carbon::lines(&batch)
        };
        let mut reading: Reading =
            serde_json::from_str(r#"{"id":1,"time":30.0,"elapsed":1,"release":"24.11"}"#).unwrap();
        reading.statistics = Some(slurm_snapshot::Statistics::default());
        let reading = Arc::new(reading);
        let (config, none) = (Config::default(), |_: &'static str| None);
        let mut collecting = Collecting::start(30, &config.collectors, none);
        collecting.collect(&Round::tick(30, Some(&reading)), "c", &mut Batch::new(30));
        let other = Config::of("[collectors.rpc_stats]\nusers = 3").collectors;
        let mut collecting =
            collecting.restart(30, &other, |name| other.is_same(&config.collectors, name), none);
        assert!(lines(&mut collecting, 90).contains("seconds_since_reading 60 90"));
        assert!(collecting.wanted().names, "the new settings are in use");
        let mut anew = collecting.restart(30, &other, |_| false, none);
        assert!(!lines(&mut anew, 120).contains("seconds_since_reading"));
    }

    /// In each list whatever slurmctld, or a file that a person wrote, may have twice.
    #[test]
    fn no_collector_makes_a_path_twice_in_a_batch() {
        let names = ["jobs", "nodes", "partitions", "licenses", "reservations", "controllers"];
        let tables = names.map(|name| format!("[collectors.{name}]\nenabled = true\n")).concat();
        let more = "[collectors.rpc_stats]\nusers = 9\n";
        let config = Config::of(&(tables.replace("nodes]\n", "nodes]\neach = true\n") + more));
        let mut collecting = Collecting::start(30, &config.collectors, |_| None);
        let reading = |name: &str| {
            let file = format!("{}/tests/recordings/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(file).unwrap();
            let Answer::Reading(reading) = Answer::parse(text.lines().last().unwrap().as_bytes()).unwrap()
            else {
                panic!("{name} has no reading")
            };
            Arc::new(*reading)
        };
        for name in ["20.11", "22.05", "24.11", "26.05"] {
            let mut batch = Batch::new(30);
            collecting.collect(&Round::tick(30, Some(&reading(name))), "c", &mut batch);
            assert_eq!(repeated(&batch), None, "{name}");
        }
        let tallies = || [("mixed".to_owned(), Default::default())].into();
        let license = |nodes: Option<&str>| License {
            name: "flat".to_owned(),
            nodes: nodes.map(str::to_owned),
            ..License::default()
        };
        let partition = Partition { name: "debug".to_owned(), states: tallies(), ..Partition::default() };
        let row = NodeRow { name: "n1".to_owned(), ..NodeRow::default() };
        let mut findings = Findings::of(Reply::Licenses(Licenses {
            licenses: vec![
                license(None),
                license(Some("n[1-2]")),
                license(Some("n[1-2]")),
                license(Some("n1")),
                license(None),
            ],
            ..Licenses::default()
        }));
        findings.add(
            Kind::Nodes,
            Reply::Nodes(Box::new(Nodes {
                states: tallies(),
                flags: tallies(),
                gpus: [(String::new(), Default::default()), ("a100".to_owned(), Default::default())].into(),
                rows: vec![row],
                partitions: Some(Partitions { partitions: vec![partition], ..Partitions::default() }),
                ..Nodes::default()
            })),
        );
        findings.add(
            Kind::Jobs,
            Reply::Jobs(Box::new(Jobs {
                qos: [(String::new(), Default::default()), ("no_qos".to_owned(), Default::default())].into(),
                partitions: [("debug".to_owned(), Default::default())].into(),
                ..Jobs::default()
            })),
        );
        let controller = |index| Controller { host: "ctl".to_owned(), index, ..Controller::default() };
        findings.add(Kind::Controllers, Reply::Controllers(vec![controller(0), controller(1)]));
        let mut batch = Batch::new(60);
        let (needs, round) = (collecting.needs(), Round::survey(60, &findings));
        collecting.collect_survey(Due::Always, needs, 60, &round, "c", &mut batch);
        assert!(batch.points().any(|point| point.path().contains("licenses.flat.layer")));
        assert_eq!(repeated(&batch), None);
    }

    #[test]
    fn a_round_that_asked_for_less_than_a_new_collector_needs_is_not_its() {
        let config = Config::of("[collectors.jobs]\nenabled = true\naccounts = true");
        let mut collecting = Collecting::start(30, &config.collectors, |_| None);
        let needs = collecting.needs();
        let findings = Findings::of(slurm_snapshot::Reply::Jobs(Box::default()));
        let mut points = |asked| {
            let mut batch = Batch::new(60);
            collecting.collect_survey(Due::At(60), asked, 61, &Round::survey(60, &findings), "c", &mut batch);
            batch.points().len()
        };
        assert_eq!(points(Needs { accounts: false, ..needs }), 0);
        assert!(points(Needs { nodes: true, ..needs }) > 0);
    }
}
