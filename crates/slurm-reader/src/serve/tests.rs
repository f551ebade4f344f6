//! The conversation with a scripted slurmctld.

use std::cell::RefCell;
use std::rc::Rc;

use slurm_snapshot::{Controller, Jobs, PROTOCOL, RpcTables, RpcUser, UserJobs, Visibility};

use super::*;
use crate::conf::Conf;

/// slurmctld, as a list of its answers.
#[derive(Default)]
struct Script {
    statistics: Vec<bool>,
    /// ClusterName in libslurm's own configuration.
    own_cluster: Option<&'static str>,
    /// Says of each request whether slurmctld returns its configuration.
    cluster: Vec<bool>,
    slurmdbd: bool,
    privileged: bool,
    requests_partitions: Vec<bool>,
    /// Number of lines of output at each request.
    lines_before_conf: Vec<usize>,
    output: Rc<RefCell<Vec<u8>>>,
    resets: u32,
    loaded: u32,
    requests_rpc: Vec<bool>,
    /// The results of the next requests to this host's own slurmctld.
    own: Vec<i32>,
    is_alone: bool,
    has_answered: Vec<bool>,
}

fn refusal(call: &'static str) -> CallError {
    CallError { call, errno: 1800, text: "Unable to contact slurm controller".to_owned() }
}

impl Rpcs for Script {
    fn begin_own(&mut self) -> Result<(), CallError> {
        self.is_alone = true;
        Ok(())
    }

    fn end_own(&mut self, has_answered: bool) {
        self.is_alone = false;
        self.has_answered.push(has_answered);
    }

    fn own_cluster(&mut self) -> Option<String> {
        self.own_cluster.map(str::to_owned)
    }

    fn conf(&mut self, _: i64) -> Result<Option<Conf>, CallError> {
        self.lines_before_conf
            .push(self.output.borrow().iter().filter(|&&byte| byte == b'\n').count());
        if self.cluster.remove(0) {
            let private = vec!["jobs".into(), "partitions".into()];
            let visibility = Visibility { private, privileged: Some(self.privileged) };
            let cluster = Some("sandbox".into());
            let slurmdbd = self.slurmdbd;
            Ok(Some(Conf { cluster, visibility, slurmdbd, ..Conf::default() }))
        } else {
            Err(refusal("slurm_load_ctl_conf"))
        }
    }

    fn operator(&mut self) -> Option<bool> {
        None
    }

    fn load(&mut self, request: &Request, reading: &mut Reading) -> Result<(), CallError> {
        let loaded = match request.reply {
            ReplyKind::Reset => {
                self.resets += 1;
                return Ok(());
            }
            ReplyKind::Statistics => {
                reading.statistics = Some(self.statistics(request.options.rpc)?);
                return Ok(());
            }
            ReplyKind::Jobs => {
                let users = vec![UserJobs::default()];
                Reply::Jobs(Box::new(Jobs { users, ..Jobs::default() }))
            }
            ReplyKind::Controllers => Reply::Controllers(vec![Controller::default()]),
            _ => Reply::Unchanged,
        };
        self.loaded += 1;
        self.requests_partitions.push(request.options.partitions);
        reading.reply = Some(loaded);
        Ok(())
    }
}

impl Script {
    fn statistics(&mut self, rpc: bool) -> Result<Statistics, CallError> {
        self.requests_rpc.push(rpc);
        if let Some(errno) = self.own.pop_if(|_| self.is_alone) {
            return Err(CallError { call: "slurm_get_statistics", errno, text: String::new() });
        }
        if !self.statistics.is_empty() && !self.statistics.remove(0) {
            return Err(refusal("slurm_get_statistics"));
        }
        let user = |id| RpcUser { id, ..RpcUser::default() };
        let tables = RpcTables { users: vec![user(0), user(u32::MAX - 7)], ..RpcTables::default() };
        Ok(Statistics { rpc: rpc.then_some(tables), ..Statistics::default() })
    }
}

const HELLO: Hello = Hello { protocol: PROTOCOL, release: Some(Release::new(22, 5)) };

fn answers(script: &mut Script, input: &str) -> (Vec<Answer>, io::Result<()>) {
    let output = Shared(Rc::clone(&script.output));
    let end = serve(script, HELLO, input.as_bytes(), output);
    let output = script.output.take();
    let lines =
        output.split_inclusive(|&byte| byte == b'\n').map(|line| Answer::parse(line).unwrap());
    (lines.collect(), end)
}

/// Output that the script can read too.
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn cluster(answer: &Answer) -> Option<&str> {
    match answer {
        Answer::Reading(reading) => reading.cluster.as_deref(),
        _ => None,
    }
}

#[test]
fn hello_then_one_answer_for_each_request_in_order() {
    let statistics = vec![false, true];
    let own_cluster = Some("sandbox");
    let mut script = Script { statistics, own_cluster, ..Script::default() };
    let input = "{\"statistics\":{\"id\":1}}\n{\"statistics\":{\"id\":2,\
        \"options\":{\"rpc\":true}}}\n{\"reset\":{\"id\":3}}";
    let (answers, end) = answers(&mut script, input);
    assert!(end.is_ok());
    let [hello, failure, reading, reset] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(*hello, Answer::Hello(HELLO));
    let Answer::Failure(failure) = failure else { panic!("{failure:?}") };
    assert_eq!((failure.id, failure.errno), (1, 1800));
    let Answer::Reading(reading) = reading else { panic!("{reading:?}") };
    assert_eq!((reading.id, reading.cluster.as_deref()), (2, Some("sandbox")));
    assert!(reading.time > 1_600_000_000.0);
    let Answer::Reading(reset) = reset else { panic!("{reset:?}") };
    assert_eq!((reset.id, &reset.statistics, script.resets), (3, &None, 1));
    assert_eq!(script.requests_rpc, [false, true]);
}

/// slurmctld needs the scheduler's locks for its configuration, but not for statistics.
#[test]
fn a_reading_is_one_rpc_also_the_first_where_libslurm_itself_knows_the_cluster() {
    let mut script = Script { own_cluster: Some("sandbox"), ..Script::default() };
    let (answers, _) = answers(&mut script, &"{\"statistics\":{\"id\":1}}\n".repeat(2));
    assert_eq!(answers.iter().skip(1).map(cluster).collect::<Vec<_>>(), [Some("sandbox"); 2]);
    assert_eq!(script.lines_before_conf, [0; 0]);
}

#[test]
fn the_cluster_is_asked_for_behind_an_answer_and_never_before_one() {
    let mut script = Script { statistics: vec![false], cluster: vec![true], ..Script::default() };
    let (answers, _) = answers(&mut script, &"{\"statistics\":{\"id\":1}}\n".repeat(3));
    let clusters: Vec<_> = answers.iter().skip(1).map(cluster).collect();
    assert_eq!(
        clusters,
        [None, None, Some("sandbox")],
        "a failure, then a reading, then one with the name"
    );
    assert_eq!(script.lines_before_conf, [3], "the hello and two answers were out");
}

#[test]
fn names_are_resolved_only_on_request() {
    let mut script = Script { own_cluster: Some("sandbox"), ..Script::default() };
    let input = "{\"statistics\":{\"id\":1,\"options\":{\"rpc\":true}}}\n\
        {\"statistics\":{\"id\":2,\"options\":{\"rpc\":true,\"users\":true}}}\n";
    let (answers, _) = answers(&mut script, input);
    let names: Vec<Vec<Option<String>>> = answers
        .into_iter()
        .filter_map(|answer| match answer {
            Answer::Reading(reading) => reading.statistics?.rpc,
            _ => None,
        })
        .map(|tables| tables.users.into_iter().map(|user| user.name).collect())
        .collect();
    assert_eq!(names, [vec![None, None], vec![Some("root".to_owned()), None]]);
}

#[test]
fn what_a_reply_may_lack_is_asked_first_and_unknown_it_costs_slurmctld_no_dump() {
    let mut script = Script { cluster: vec![false], ..Script::default() };
    let input = "{\"jobs\":{\"id\":1}}\n{\"nodes\":{\"id\":2}}\n{\"reservations\":{\"id\":3}}\n";
    let (refused, _) = answers(&mut script, input);
    for answer in &refused[1..] {
        let Answer::Failure(failure) = answer else { panic!("{answer:?}") };
        assert_eq!((failure.call.as_str(), failure.errno), ("slurm_load_ctl_conf", 1800));
    }
    assert_eq!((refused.len(), script.loaded), (4, 0));

    let mut script = Script { cluster: vec![true], privileged: true, ..Script::default() };
    let input = "{\"jobs\":{\"id\":1}}\n{\"jobs\":{\"id\":2,\"options\":{\"users\":true}}}\n\
        {\"licenses\":{\"id\":3}}\n";
    let (answers, _) = answers(&mut script, input);
    let readings: Vec<_> = answers
        .into_iter()
        .filter_map(
            |answer| if let Answer::Reading(reading) = answer { Some(*reading) } else { None },
        )
        .collect();
    let [first, second, third] = readings.as_slice() else { panic!("{readings:?}") };
    assert_eq!(first.visibility.as_ref().unwrap().private, ["jobs", "partitions"]);
    assert_eq!(first.visibility, second.visibility);
    assert_eq!((&third.visibility, &third.reply), (&None, &Some(Reply::Unchanged)));
    let name = |reading: &Reading| match &reading.reply {
        Some(Reply::Jobs(jobs)) => jobs.users[0].name.clone(),
        _ => panic!("{reading:?}"),
    };
    assert_eq!((name(first), name(second)), (None, Some("root".to_owned())));
}

/// slurmctld would log a security violation for each, or dump its jobs for nothing.
#[test]
fn what_is_hidden_from_this_user_is_not_requested_and_the_answer_says_that_it_is_hidden() {
    let mut script = Script { cluster: vec![true], ..Script::default() };
    let nodes = "{\"nodes\":{\"id\":2,\"options\":{\"partitions\":true}}}\n";
    let (answers, _) = answers(&mut script, &format!("{{\"jobs\":{{\"id\":1}}}}\n{nodes}"));
    let [_, Answer::Reading(jobs), Answer::Reading(nodes)] = answers.as_slice() else {
        panic!("{answers:?}")
    };
    assert_eq!(jobs.reply, None);
    assert!(jobs.visibility.as_ref().unwrap().may_hide("jobs"));
    assert_eq!(nodes.reply, Some(Reply::Unchanged), "nodes are not hidden");
    assert_eq!((script.loaded, script.requests_partitions), (1, vec![false]));
}

/// slurmctld 24.05 crashed: the RPC walks a list that may be NULL.
#[test]
fn associations_are_asked_for_only_where_slurmdbd_keeps_them() {
    for (slurmdbd, loaded) in [(false, 0), (true, 1)] {
        let mut script = Script { cluster: vec![true], slurmdbd, ..Script::default() };
        let (answers, end) = answers(&mut script, "{\"associations\":{\"id\":1}}");
        assert!(end.is_ok());
        assert!(
            matches!(answers.as_slice(), [_, Answer::Reading(reading)] if reading.reply.is_some()),
            "{answers:?}"
        );
        assert_eq!(script.loaded, loaded);
    }
}

#[test]
fn controllers_are_asked_also_while_none_answers() {
    let mut script = Script { cluster: vec![false; 9], ..Script::default() };
    let (answers, _) = answers(&mut script, "{\"controllers\":{\"id\":1}}\n");
    let [_, Answer::Reading(reading)] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(reading.reply, Some(Reply::Controllers(vec![Controller::default()])));
}

#[test]
fn a_name_service_that_never_answers_holds_up_no_answer() {
    let hung = UserNames::new(|_| {
        loop {
            std::thread::park();
        }
    });
    let mut script = Script { cluster: vec![true], ..Script::default() };
    let input = "{\"statistics\":{\"id\":1,\"options\":{\"rpc\":true,\"users\":true}}}\n".repeat(3);
    let mut output = Vec::new();
    serve_with(&mut script, hung, HELLO, input.as_bytes(), &mut output).unwrap();
    let text = String::from_utf8(output).unwrap();
    assert_eq!(text.matches("\"looking_up\":true").count(), 6, "{text}");
}

/// A backup that waits has answered: that is no failure that would replace the reader.
#[test]
fn a_backup_that_waits_has_said_so_and_is_asked_only_where_that_was_asked_for() {
    let own_cluster = Some("sandbox");
    let mut script = Script { own: vec![1800, 2027], own_cluster, ..Script::default() };
    let own = "{\"statistics\":{\"id\":1,\"options\":{\"follow\":true}}}\n";
    let (answers, _) =
        answers(&mut script, &format!("{own}{{\"statistics\":{{\"id\":1}}}}\n{own}{own}"));
    let [
        _,
        Answer::Reading(standby),
        Answer::Reading(anybody),
        Answer::Failure(down),
        Answer::Reading(active),
    ] = answers.as_slice()
    else {
        panic!("{answers:?}")
    };
    assert_eq!((&standby.statistics, &standby.reply), (&None, &Some(Reply::Standby)));
    assert_eq!(cluster(&answers[1]), own_cluster);
    assert!(anybody.statistics.is_some() && active.statistics.is_some());
    assert_eq!(down.errno, 1800);
    // A slurmctld that has answered with figures is not checked first.
    assert_eq!(script.has_answered, [false, false, true]);
}
