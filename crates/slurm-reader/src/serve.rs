//! The conversation: says hello, then a request line in, one RPC, an answer line out, until the input ends.
//!
//! Every request has exactly one answer, in order. The hot path reads once, calls once and writes once. Knows
//! libslurm only as [`Rpcs`], so that tests have it without a cluster.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use slurm_snapshot::{
    Answer, Failure, Hello, LineError, Reading, Release, Reply, Request, Statistics, Visibility,
};

use crate::client::{CallError, Client};
use crate::conf::Conf;
use crate::fold::Wishes;
use crate::known::Known;
use crate::names::{self, UserNames};

/// The longest request line; the daemon's have less than 100 bytes.
const MAX_LINE: usize = 64 * 1024;

/// How often ClusterName is asked for in vain before readings go without it for good.
const MAX_TRIES: u8 = 3;

/// The calls that requests are carried out with.
pub trait Rpcs {
    /// See [`Client::statistics`].
    ///
    /// # Errors
    /// The call failed.
    fn statistics(&mut self, rpc: bool) -> Result<Statistics, CallError>;
    /// See [`Client::reset`].
    ///
    /// # Errors
    /// The call failed.
    fn reset(&mut self) -> Result<(), CallError>;
    /// See [`Client::conf`].
    ///
    /// # Errors
    /// The call failed.
    fn conf(&mut self, since: i64) -> Result<Option<Conf>, CallError>;
    /// See [`Client::operator`].
    fn operator(&mut self) -> Option<bool>;
    /// What `request` wants of the cluster itself.
    ///
    /// # Errors
    /// A call failed.
    fn load(&mut self, request: &Request) -> Result<Reply, CallError>;
}

impl Rpcs for Client {
    fn statistics(&mut self, rpc: bool) -> Result<Statistics, CallError> {
        self.statistics(rpc)
    }

    fn reset(&mut self) -> Result<(), CallError> {
        self.reset()
    }

    fn conf(&mut self, since: i64) -> Result<Option<Conf>, CallError> {
        self.conf(since)
    }

    fn operator(&mut self) -> Option<bool> {
        self.operator()
    }

    fn load(&mut self, request: &Request) -> Result<Reply, CallError> {
        let reply = match *request {
            Request::Jobs { since, accounts, qos, users, .. } => {
                self.jobs(Wishes { since, accounts, qos, users })?
            }
            Request::Nodes { since, partitions, rows, .. } => self.nodes(since, partitions, rows)?,
            Request::Licenses { since, .. } => self.licenses(since)?,
            Request::Reservations { since, .. } => self.reservations(since)?,
            Request::Controllers { .. } => Some(self.controllers()),
            Request::Statistics { .. } | Request::Reset { .. } => None,
        };
        Ok(reply.unwrap_or(Reply::Unchanged))
    }
}

/// Why a conversation ended before its input did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Requests could not be read.
    #[error("reading a request: {0}")]
    Input(#[source] io::Error),
    /// An answer could not be written.
    #[error("writing an answer: {0}")]
    Output(#[source] io::Error),
    /// An answer could not be put into JSON.
    #[error("encoding an answer: {0}")]
    Encoding(#[source] serde_json::Error),
    /// Nobody can know which request this was.
    #[error("malformed request: {0}")]
    Request(#[from] LineError),
    /// A line without an end.
    #[error("malformed request: no end after {MAX_LINE} bytes")]
    TooLong,
}

/// Serves requests until `input` ends.
///
/// # Errors
/// The input or the output broke, or a request was malformed.
pub fn serve(
    rpcs: &mut impl Rpcs,
    hello: Hello,
    input: impl Read,
    output: impl Write,
) -> Result<(), ServeError> {
    serve_with(rpcs, UserNames::new(names::host), hello, input, output)
}

fn serve_with(
    rpcs: &mut impl Rpcs,
    users: UserNames,
    hello: Hello,
    input: impl Read,
    mut output: impl Write,
) -> Result<(), ServeError> {
    let mut requests = Requests { input, bytes: Vec::with_capacity(4096) };
    let mut server =
        Server { rpcs, release: hello.release, known: Known::new(Instant::now), tries: 0, users };
    let mut line = Vec::with_capacity(16 * 1024);
    send(&Answer::Hello(hello), &mut line, &mut output)?;
    while let Some(request) = requests.next()? {
        send(&server.answer(&request), &mut line, &mut output)?;
    }
    Ok(())
}

/// Writes one answer with one call, from a buffer that is used again.
fn send(answer: &Answer, line: &mut Vec<u8>, output: &mut impl Write) -> Result<(), ServeError> {
    line.clear();
    serde_json::to_writer(&mut *line, answer).map_err(ServeError::Encoding)?;
    line.push(b'\n');
    output.write_all(line).and_then(|()| output.flush()).map_err(ServeError::Output)
}

struct Server<'a, R> {
    rpcs: &'a mut R,
    release: Release,
    known: Known,
    tries: u8,
    users: UserNames,
}

impl<R: Rpcs> Server<'_, R> {
    fn answer(&mut self, request: &Request) -> Answer {
        match self.reading(request) {
            Ok(reading) => Answer::Reading(Box::new(reading)),
            Err(CallError { call, errno, text }) => {
                Answer::Failure(Failure { id: request.id(), call: call.to_owned(), errno, text })
            }
        }
    }

    fn reading(&mut self, request: &Request) -> Result<Reading, CallError> {
        let visibility = self.visibility(request)?;
        let before = Instant::now();
        let (mut statistics, mut reply) = (None, None);
        match *request {
            Request::Statistics { rpc, .. } => statistics = Some(self.rpcs.statistics(rpc)?),
            Request::Reset { .. } => self.rpcs.reset()?,
            _ => reply = Some(self.rpcs.load(request)?),
        }
        let elapsed = before.elapsed();
        // Right behind each other: the daemon holds them against each other to see that the first was set.
        let (time, uptime) = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), uptime());
        match (request, &mut statistics, &mut reply) {
            (Request::Statistics { names: true, .. }, Some(Statistics { rpc: Some(tables), .. }), _) => {
                self.users.fill(&mut tables.users, Instant::now());
            }
            (Request::Jobs { names: true, .. }, _, Some(Reply::Jobs(jobs))) => {
                self.users.fill(&mut jobs.users, Instant::now());
            }
            _ => {}
        }
        Ok(Reading {
            id: request.id(),
            time: time.as_secs_f64(),
            uptime: Some(uptime),
            elapsed: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            release: self.release,
            cluster: self.cluster(),
            // slurmctld has such a limit (256, less where it may open fewer files) but tells nobody.
            max_server_threads: None,
            statistics,
            reply,
            visibility,
        })
    }

    /// ClusterName: asked for once slurmctld has answered something else, and a few times only.
    fn cluster(&mut self) -> Option<String> {
        if !self.known.is_told() && self.tries < MAX_TRIES {
            self.tries += 1;
            if let Err(error) = self.known.ask(self.rpcs) {
                log(&error);
            }
        }
        self.known.cluster()
    }

    /// What a reply to this may lack. Without that nobody could use the reply, so that it is asked for first.
    fn visibility(&mut self, request: &Request) -> Result<Option<Visibility>, CallError> {
        match request {
            Request::Jobs { .. } | Request::Nodes { .. } | Request::Reservations { .. } => {
                self.known.visibility(self.rpcs)
            }
            Request::Statistics { .. }
            | Request::Reset { .. }
            | Request::Licenses { .. }
            | Request::Controllers { .. } => Ok(None),
        }
    }
}

/// Seconds since this host was started.
fn uptime() -> f64 {
    // libc's: rustix looks for its own road to the clock where valgrind cannot follow.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0.0, |now| Duration::from(now).as_secs_f64())
}

/// A line for the daemon's log. That nobody reads it is no reason to stop.
pub fn log(message: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// Lines of the input, as requests.
struct Requests<R> {
    input: R,
    bytes: Vec<u8>,
}

impl<R: Read> Requests<R> {
    fn next(&mut self) -> Result<Option<Request>, ServeError> {
        loop {
            if let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
                let request = Request::parse(self.bytes.get(..end).unwrap_or_default())?;
                self.bytes.drain(..=end);
                return Ok(Some(request));
            }
            if self.bytes.len() > MAX_LINE {
                return Err(ServeError::TooLong);
            }
            let mut chunk = [0; 1024];
            match self.input.read(&mut chunk) {
                // By hand, the last line may lack its newline.
                Ok(0) if self.bytes.is_empty() => return Ok(None),
                Ok(0) => self.bytes.push(b'\n'),
                Ok(count) => self.bytes.extend_from_slice(chunk.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ServeError::Input(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::{Controller, Jobs, PROTOCOL, RpcTables, RpcUser, UserJobs};

    use super::*;

    /// slurmctld, as a list of what it will say.
    #[derive(Default)]
    struct Script {
        statistics: Vec<bool>,
        cluster: Vec<bool>,
        resets: u32,
        loaded: u32,
        asked_for_rpc: Vec<bool>,
    }

    fn refusal(call: &'static str) -> CallError {
        CallError { call, errno: 1800, text: "Unable to contact slurm controller".to_owned() }
    }

    impl Rpcs for Script {
        fn statistics(&mut self, rpc: bool) -> Result<Statistics, CallError> {
            self.asked_for_rpc.push(rpc);
            if !self.statistics.is_empty() && !self.statistics.remove(0) {
                return Err(refusal("slurm_get_statistics"));
            }
            let user = |id| RpcUser { id, ..RpcUser::default() };
            let tables = RpcTables { users: vec![user(0), user(u32::MAX - 7)], ..RpcTables::default() };
            Ok(Statistics { rpc: rpc.then_some(tables), ..Statistics::default() })
        }

        fn reset(&mut self) -> Result<(), CallError> {
            self.resets += 1;
            Ok(())
        }

        fn conf(&mut self, _: i64) -> Result<Option<Conf>, CallError> {
            if self.cluster.remove(0) {
                let visibility = Visibility { private: vec!["jobs".into()], privileged: Some(false) };
                Ok(Some(Conf { cluster: Some("sandbox".into()), visibility, ..Conf::default() }))
            } else {
                Err(refusal("slurm_load_ctl_conf"))
            }
        }

        fn operator(&mut self) -> Option<bool> {
            None
        }

        fn load(&mut self, request: &Request) -> Result<Reply, CallError> {
            self.loaded += 1;
            Ok(match request {
                Request::Jobs { .. } => {
                    let users = vec![UserJobs::default()];
                    Reply::Jobs(Box::new(Jobs { users, ..Jobs::default() }))
                }
                Request::Controllers { .. } => Reply::Controllers(vec![Controller::default()]),
                _ => Reply::Unchanged,
            })
        }
    }

    const HELLO: Hello = Hello { protocol: PROTOCOL, release: Release::new(22, 5), api_version: 0x26_0000 };

    fn answers(script: &mut Script, input: &str) -> (Vec<Answer>, Result<(), ServeError>) {
        let mut output = Vec::new();
        let end = serve(script, HELLO, input.as_bytes(), &mut output);
        let lines = output.split_inclusive(|&byte| byte == b'\n').map(|line| Answer::parse(line).unwrap());
        (lines.collect(), end)
    }

    fn cluster(answer: &Answer) -> Option<&str> {
        match answer {
            Answer::Reading(reading) => reading.cluster.as_deref(),
            _ => None,
        }
    }

    #[test]
    fn hello_then_one_answer_for_each_request_in_order() {
        let mut script = Script { statistics: vec![false, true], cluster: vec![true], ..Script::default() };
        let input =
            "{\"statistics\":{\"id\":1}}\n{\"statistics\":{\"id\":2,\"rpc\":true}}\n{\"reset\":{\"id\":3}}";
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
        assert_eq!(script.asked_for_rpc, [false, true]);
    }

    #[test]
    fn the_cluster_is_asked_for_once_and_at_most_three_times() {
        let input = "{\"statistics\":{\"id\":1}}\n".repeat(4);
        let mut script = Script { cluster: vec![false, true], ..Script::default() };
        let (told, _) = answers(&mut script, &input);
        let clusters: Vec<_> = told.iter().skip(1).map(cluster).collect();
        assert_eq!(clusters, [None, Some("sandbox"), Some("sandbox"), Some("sandbox")]);
        let mut script = Script { cluster: vec![false, false, false], ..Script::default() };
        let (told, _) = answers(&mut script, &input);
        assert_eq!(told.iter().filter(|answer| matches!(answer, Answer::Reading(_))).count(), 4);
    }

    #[test]
    fn names_are_resolved_only_on_request() {
        let mut script = Script { cluster: vec![true], ..Script::default() };
        let input = "{\"statistics\":{\"id\":1,\"rpc\":true}}\n{\"statistics\":{\"id\":2,\"rpc\":true,\"names\":true}}\n";
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

        let mut script = Script { cluster: vec![true], ..Script::default() };
        let input =
            "{\"jobs\":{\"id\":1}}\n{\"jobs\":{\"id\":2,\"names\":true}}\n{\"licenses\":{\"id\":3}}\n";
        let (answers, _) = answers(&mut script, input);
        let readings: Vec<_> = answers
            .into_iter()
            .filter_map(|answer| if let Answer::Reading(reading) = answer { Some(*reading) } else { None })
            .collect();
        let [first, second, third] = readings.as_slice() else { panic!("{readings:?}") };
        assert!(first.visibility.as_ref().unwrap().may_hide("jobs"));
        assert_eq!(first.visibility, second.visibility);
        assert_eq!((&third.visibility, &third.reply), (&None, &Some(Reply::Unchanged)));
        let name = |reading: &Reading| match &reading.reply {
            Some(Reply::Jobs(jobs)) => jobs.users[0].name.clone(),
            _ => panic!("{reading:?}"),
        };
        assert_eq!((name(first), name(second)), (None, Some("root".to_owned())));
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
        let input = "{\"statistics\":{\"id\":1,\"rpc\":true,\"names\":true}}\n".repeat(3);
        let mut output = Vec::new();
        serve_with(&mut script, hung, HELLO, input.as_bytes(), &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        assert_eq!(text.matches("\"looking_up\":true").count(), 6, "{text}");
    }

    #[test]
    fn a_malformed_request_ends_the_conversation() {
        for input in
            ["\n", "{}\n", "{\"statistics\":{}}\n", "{\"statistics\":{\"id\":1,\"x\":2}}\n", "x", "\u{ff}\n"]
        {
            let (answers, end) = answers(&mut Script::default(), input);
            assert!(matches!(end, Err(ServeError::Request(_))), "{input:?}");
            assert_eq!(answers.len(), 1, "only the hello");
        }
        let (_, end) = answers(&mut Script::default(), &"x".repeat(MAX_LINE + 2000));
        assert!(matches!(end, Err(ServeError::TooLong)));
    }

    #[test]
    fn a_request_may_come_in_pieces() {
        struct Pieces<'a>(&'a [u8]);
        impl Read for Pieces<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let (now, later) = self.0.split_at(self.0.len().min(5));
                self.0 = later;
                buffer[..now.len()].copy_from_slice(now);
                Ok(now.len())
            }
        }
        let mut script = Script { cluster: vec![true], ..Script::default() };
        let mut output = Vec::new();
        let input = b"{\"statistics\":{\"id\":1}}\n{\"reset\":{\"id\":2}}\n";
        serve(&mut script, HELLO, Pieces(input), &mut output).unwrap();
        assert_eq!(output.iter().filter(|&&byte| byte == b'\n').count(), 3);
    }
}
