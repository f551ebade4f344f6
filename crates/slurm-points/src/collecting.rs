//! The configured collectors, and which of them take part in which round.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use carbon_wire::Batch;
use slurm_snapshot::{PublishedJobs, Reply, ReplyKind, ReplyOptions, Role};

use crate::collectors::{Begin, Collect, Start, SurveyCollector, TickCollector, TickOutcome};
use crate::configured::Collectors;
use crate::named_paths::{NamedPaths, Points};
use crate::replies::{Needs, RoundResult};

/// The collectors that run.
#[derive(Default)]
pub struct Collecting {
    ticks: Vec<Running<TickCollector>>,
    surveys: Vec<Running<SurveyCollector>>,
    /// The `last_update` of the last reply whose starts of jobs were published, Unix seconds on
    /// slurmctld's clock; `None` before the first. It outlives failures and reloads, after which
    /// the last reply itself is gone.
    started_since: Option<i64>,
}

pub(crate) struct Running<C: ?Sized> {
    pub(crate) name: &'static str,
    /// The role of the reader that asks for the collector's replies.
    pub(crate) role: Role,
    pub(crate) replies: BTreeSet<ReplyKind>,
    /// Seconds between two rounds.
    pub(crate) every: u32,
    pub(crate) paths: NamedPaths,
    pub(crate) collector: Box<C>,
}

/// The name under which the memory of a collector's names is stored.
fn of_names(collector: &str) -> String {
    format!("{collector}.names")
}

impl Collecting {
    /// Starts the enabled collectors; `memory` returns what each one remembered.
    pub fn start(
        interval: u32,
        collectors: &Collectors,
        memory: impl Fn(&str) -> Option<String>,
    ) -> Self {
        Self::default().restart(interval, collectors, |_| false, memory)
    }

    /// Starts the enabled collectors with other settings; `memory` returns what each one
    /// remembered. Collectors that `stays` accepts continue with everything that they have counted.
    pub fn restart(
        self,
        interval: u32,
        collectors: &Collectors,
        stays: impl Fn(&'static str) -> bool,
        memory: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let mut ticks = staying_by_name(self.ticks, &stays);
        let mut surveys = staying_by_name(self.surveys, &stays);
        let mut all = Self::default();
        for (collector, settings) in collectors.enabled() {
            let name = collector.name;
            let replies = collectors.replies(collector, settings);
            let role = collector.role();
            let names = || NamedPaths::new(settings, memory(&of_names(name)).as_deref());
            let own = memory(name);
            let begin = Begin { interval, settings, memory: own.as_deref() };
            match collector.start {
                // Not made of ticks or surveys: the daemon's accounting.rs.
                Start::Finished => {}
                Start::Tick(start) => {
                    all.ticks.push(ticks.remove(name).unwrap_or_else(|| Running {
                        name,
                        role,
                        replies,
                        every: interval,
                        paths: names(),
                        collector: start(&begin),
                    }))
                }
                Start::Survey(start) => {
                    all.surveys.push(surveys.remove(name).unwrap_or_else(|| {
                        let every = settings.interval(interval);
                        Running {
                            name,
                            role,
                            replies,
                            every,
                            paths: names(),
                            collector: start(&begin),
                        }
                    }))
                }
            }
        }
        let has_jobs = all.surveys.iter().any(|running| running.name == ReplyKind::Jobs.name());
        all.started_since = self.started_since.filter(|_| has_jobs);
        all
    }

    /// The options that the statistics of a tick must have for all collectors.
    pub fn options(&self) -> ReplyOptions {
        self.ticks.iter().fold(ReplyOptions::default(), |all, it| all | it.collector.options())
    }

    /// Adds the points of a tick.
    pub fn collect(
        &mut self,
        timestamp: i64,
        outcome: &TickOutcome,
        prefix: &str,
        batch: &mut Batch,
    ) {
        self.ticks.iter_mut().for_each(|it| it.collect(timestamp, outcome, prefix, batch));
        debug_check(batch);
    }

    /// Adds the points of a survey's round, of each collector that was due and whose slot was not
    /// over when the round ended. A reload may have made a collector since that needs more than was
    /// requested. It makes no points, because what was not requested would look like nothing.
    pub fn collect_survey(
        &mut self,
        due: DueCollectors,
        done: &RoundResult,
        prefix: &str,
        batch: &mut Batch,
    ) {
        let RoundResult { timestamp, ended, requested, replies } = done;
        for running in &mut self.surveys {
            let was_requested = running.needs().and(requested) == *requested;
            let in_time = *ended < timestamp.saturating_add(running.every.into());
            if due.includes(running.every) && was_requested && in_time {
                running.collect(*timestamp, replies, prefix, batch);
                let jobs =
                    replies.get(ReplyKind::Jobs).filter(|_| running.name == ReplyKind::Jobs.name());
                self.started_since = jobs.and_then(Reply::last_update).or(self.started_since);
            }
        }
        // Names in lists are what another program sent, which may repeat them.
        batch.refuse_repeated();
    }

    /// Returns what each collector that is due needs in a survey of this role, with the seconds
    /// between two of its rounds.
    pub fn survey(&self, role: Role, due: DueCollectors) -> Vec<(Needs, u32)> {
        let due = self.surveys_of_role(role).filter(|running| due.includes(running.every));
        due.map(|running| (running.needs(), running.every)).collect()
    }

    /// The needs of all collectors together in this role's surveys; `None` if none takes part.
    pub fn needs(&self, role: Role) -> Option<Needs> {
        self.surveys_of_role(role).map(Running::needs).reduce(|all, needs| all.and(&needs))
    }

    fn surveys_of_role(&self, role: Role) -> impl Iterator<Item = &Running<SurveyCollector>> {
        self.surveys.iter().filter(move |running| running.role == role)
    }

    /// Returns the accounts and QOS that have paths whatever their jobs do, and since when starts
    /// of jobs are counted.
    pub fn published_jobs(&self) -> PublishedJobs {
        let names = self
            .surveys
            .iter()
            .find_map(|running| running.collector.published_jobs(&running.paths));
        PublishedJobs { started_since: self.started_since, ..names.unwrap_or_default() }
    }

    /// Counts starts of jobs from the next reply on. Called when slurmctld's clock was set back.
    pub const fn forget_starts(&mut self) {
        self.started_since = None;
    }

    /// Takes the notices of all collectors for an administrator, each once.
    pub fn notices(&mut self) -> Vec<String> {
        let ticks = self.ticks.iter_mut().flat_map(Running::notices);
        ticks.chain(self.surveys.iter_mut().flat_map(Running::notices)).collect()
    }

    /// The memories of collectors that have changed since the last call, by the collector's name.
    pub fn changed_memories(&mut self) -> impl Iterator<Item = (String, String)> + '_ {
        let ticks = self.ticks.iter_mut().flat_map(Running::changed_memories);
        ticks.chain(self.surveys.iter_mut().flat_map(Running::changed_memories))
    }
}

impl<Input> Running<dyn Collect<Input>> {
    /// Adds the points of one collector's round.
    pub(crate) fn collect(
        &mut self,
        timestamp: i64,
        input: &Input,
        prefix: &str,
        batch: &mut Batch,
    ) {
        self.collector.collect(timestamp, input, &mut Points::new(prefix, batch, &mut self.paths));
    }

    pub(crate) fn notices(&mut self) -> impl Iterator<Item = String> + use<'_, Input> {
        let full = self.paths.full_levels().map(|(level, most)| {
            format!("{level}: more than {most} names; docs/metrics.md says where the others count")
        });
        self.collector.notice().into_iter().chain(full)
    }

    fn changed_memories(&mut self) -> impl Iterator<Item = (String, String)> + use<Input> {
        let own = self.collector.changed_memory().map(|memory| (self.name.to_owned(), memory));
        let names = self.paths.changed_memory().map(|memory| (of_names(self.name), memory));
        own.into_iter().chain(names)
    }
}

impl Running<SurveyCollector> {
    fn needs(&self) -> Needs {
        Needs { replies: self.replies.clone(), options: self.collector.options() }
    }
}

fn staying_by_name<C: ?Sized>(
    running: Vec<Running<C>>,
    stays: impl Fn(&'static str) -> bool,
) -> BTreeMap<&'static str, Running<C>> {
    running
        .into_iter()
        .filter(|running| stays(running.name))
        .map(|running| (running.name, running))
        .collect()
}

fn debug_check(batch: &Batch) {
    debug_assert_eq!(
        repeated(batch),
        None,
        "a path is twice in one batch: Carbon keeps the last value"
    );
}

fn repeated(batch: &Batch) -> Option<&str> {
    let mut seen = HashSet::new();
    batch.points().map(|point| point.path()).find(|path| !seen.insert(*path))
}

/// The collectors that a survey is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueCollectors {
    /// The collectors whose interval divides this tick, Unix seconds.
    At(i64),
    /// All collectors.
    All,
}

impl DueCollectors {
    fn includes(self, every: u32) -> bool {
        match self {
            Self::At(timestamp) => timestamp.rem_euclid(i64::from(every.max(1))) == 0,
            Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use slurm_snapshot::{
        Answer, Controller, Jobs, License, Licenses, NamedJobs, NamedRows, NodeRow, Nodes,
        Partition, Partitions, Reading, Reply,
    };

    use super::*;
    use crate::replies::SurveyReplies;
    use crate::settings::Value;

    #[test]
    fn out_of_the_box_slurmctld_is_asked_for_its_statistics_alone() {
        let collecting = Collecting::start(30, &Collectors::default(), |_| None);
        assert_eq!(collecting.survey(Role::Surveys, DueCollectors::All), []);
    }

    #[test]
    fn a_survey_is_for_those_whose_interval_divides_the_tick() {
        let mut collectors = Collectors::default().with("nodes", &[]).with("jobs", &[]);
        collectors.settings_mut("jobs").unwrap().interval = Some(300);
        let collecting = Collecting::start(30, &collectors, |_| None);
        let due = |at| -> Vec<(Vec<ReplyKind>, u32)> {
            let due = collecting.survey(Role::Surveys, DueCollectors::At(at)).into_iter();
            due.map(|(needs, every)| (needs.replies.into_iter().collect(), every)).collect()
        };
        assert_eq!(due(30), []);
        let jobs = vec![ReplyKind::Jobs];
        let nodes = vec![ReplyKind::Nodes];
        assert_eq!(due(60), [(nodes.clone(), 60)]);
        assert_eq!(due(300), [(jobs, 300), (nodes, 60)]);
    }

    #[test]
    fn a_collector_that_a_reload_leaves_alone_keeps_what_it_has_counted() {
        let lines = |collecting: &mut Collecting, timestamp| {
            let mut batch = Batch::new(timestamp);
            collecting.collect(timestamp, &TickOutcome::Failed, "c", &mut batch);
            carbon_wire::lines(&batch)
        };
        let mut reading: Reading =
            serde_json::from_str(r#"{"id":1,"time":30.0,"elapsed":1,"release":"24.11"}"#).unwrap();
        reading.statistics = Some(slurm_snapshot::Statistics::default());
        let outcome = TickOutcome::Reading(Arc::new(reading));
        let (collectors, none) = (Collectors::default(), |_: &str| None);
        let mut collecting = Collecting::start(30, &collectors, none);
        collecting.collect(30, &outcome, "c", &mut Batch::new(30));
        let other = Collectors::default().with("rpc_stats", &[("users", Value::Users(3))]);
        let mut collecting =
            collecting.restart(30, &other, |name| other.is_same(&collectors, name), none);
        assert!(lines(&mut collecting, 90).contains("seconds_since_reading 60 90"));
        assert!(collecting.options().users, "the new settings are in use");
        let mut anew = collecting.restart(30, &other, |_| false, none);
        assert!(!lines(&mut anew, 120).contains("seconds_since_reading"));
    }

    /// Every list has twice whatever slurmctld, or a file that a person wrote, may have twice.
    #[test]
    fn no_collector_makes_a_path_twice_in_a_batch() {
        let names = ["jobs", "nodes", "partitions", "licenses", "reservations", "controllers"];
        let collectors =
            names.into_iter().fold(Collectors::default(), |all, name| all.with(name, &[]));
        let collectors = collectors
            .with("nodes", &[("each", Value::Flag(true))])
            .with("rpc_stats", &[("users", Value::Users(9))]);
        let mut collecting = Collecting::start(30, &collectors, |_| None);
        let reading = |name: &str| {
            let file =
                format!("{}/../daemon/tests/recordings/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(file).unwrap();
            let Answer::Reading(reading) =
                Answer::parse(text.lines().last().unwrap().as_bytes()).unwrap()
            else {
                panic!("{name} has no reading")
            };
            TickOutcome::Reading(Arc::new(*reading))
        };
        for name in ["20.11", "22.05", "24.11", "26.05"] {
            let mut batch = Batch::new(30);
            collecting.collect(30, &reading(name), "c", &mut batch);
            assert_eq!(repeated(&batch), None, "{name}");
        }
        let tallies = || [("mixed".to_owned(), Default::default())].into();
        let license = |nodes: Option<&str>| License {
            name: "flat".to_owned(),
            nodes: nodes.map(str::to_owned),
            used: Some(1),
            ..License::default()
        };
        let partition =
            Partition { name: "debug".to_owned(), states: tallies(), ..Partition::default() };
        let row = NodeRow { name: "n1".to_owned(), ..NodeRow::default() };
        let mut replies = SurveyReplies::with_only(
            ReplyKind::Licenses,
            Reply::Licenses(Licenses {
                licenses: vec![
                    license(None),
                    license(Some("n[1-2]")),
                    license(Some("n[1-2]")),
                    license(Some("n1")),
                    license(None),
                ],
                ..Licenses::default()
            }),
        );
        replies.add(
            ReplyKind::Nodes,
            Reply::Nodes(Box::new(Nodes {
                states: tallies(),
                flags: tallies(),
                gpus: [
                    (String::new(), Default::default()),
                    ("a100".to_owned(), Default::default()),
                ]
                .into(),
                rows: vec![row.clone(), row],
                partitions: Some(Partitions {
                    partitions: vec![partition.clone(), partition],
                    ..Partitions::default()
                }),
                ..Nodes::default()
            })),
        );
        let started_job = NamedJobs { has_started: true, ..NamedJobs::default() };
        replies.add(
            ReplyKind::Jobs,
            Reply::Jobs(Box::new(Jobs {
                qos: NamedRows {
                    names: ["", "no_qos"].map(|name| (name.to_owned(), started_job.clone())).into(),
                    ..NamedRows::default()
                },
                partitions: [("debug".to_owned(), Default::default())].into(),
                ..Jobs::default()
            })),
        );
        let controller = |index| Controller { index, ..Controller::default() };
        replies.add(
            ReplyKind::Controllers,
            Reply::Controllers(vec![controller(0), controller(1), controller(0)]),
        );
        let mut batch = Batch::new(60);
        let requested = collecting.needs(Role::Surveys).unwrap();
        let done = RoundResult { timestamp: 60, ended: 60, requested, replies };
        collecting.collect_survey(DueCollectors::All, &done, "c", &mut batch);
        assert!(batch.points().any(|point| point.path().contains("qos.no_qos")));
        assert!(batch.points().any(|point| point.path().contains("licenses.flat.layer")));
        assert_eq!(repeated(&batch), None);
        assert!(batch.refused() > 0, "what was repeated is counted");
    }

    #[test]
    fn a_round_that_asked_for_less_than_a_new_collector_needs_is_not_its() {
        let collectors = Collectors::default().with("jobs", &[("accounts", Value::Names(9))]);
        let mut collecting = Collecting::start(30, &collectors, |_| None);
        let needs = collecting.needs(Role::Surveys).unwrap();
        let replies = SurveyReplies::with_only(ReplyKind::Jobs, Reply::Jobs(Box::default()));
        let mut points = |requested| {
            let mut batch = Batch::new(60);
            let done =
                RoundResult { timestamp: 60, ended: 61, requested, replies: replies.clone() };
            collecting.collect_survey(DueCollectors::At(60), &done, "c", &mut batch);
            batch.points().len()
        };
        let without = ReplyOptions { accounts: false, ..needs.options };
        assert_eq!(points(Needs { options: without, ..needs.clone() }), 0);
        let more = Needs { replies: [ReplyKind::Nodes].into(), ..Needs::default() };
        assert!(points(needs.and(&more)) > 0);
    }
}
