//! The conversation: says hello, then a request line in, one RPC, an answer line out, until the input ends.
//!
//! Every request has exactly one answer, in order. The hot path reads once, calls once and writes once. Knows
//! libslurm only as [`Rpcs`], so that tests have it without a cluster.

use std::io::{self, Read, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use slurm_snapshot::{Answer, Failure, Hello, LineError, Reading, Release, Request, Statistics};

use crate::client::{CallError, Client};
use crate::names::UserNames;

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
    /// See [`Client::cluster`].
    ///
    /// # Errors
    /// The call failed.
    fn cluster(&mut self) -> Result<Option<String>, CallError>;
}

impl Rpcs for Client {
    fn statistics(&mut self, rpc: bool) -> Result<Statistics, CallError> {
        self.statistics(rpc)
    }

    fn reset(&mut self) -> Result<(), CallError> {
        self.reset()
    }

    fn cluster(&mut self) -> Result<Option<String>, CallError> {
        self.cluster()
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
    mut output: impl Write,
) -> Result<(), ServeError> {
    let mut requests = Requests { input, bytes: Vec::with_capacity(4096) };
    let mut server =
        Server { rpcs, release: hello.release, cluster: None, tries: 0, users: UserNames::default() };
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
    cluster: Option<String>,
    tries: u8,
    users: UserNames,
}

impl<R: Rpcs> Server<'_, R> {
    fn answer(&mut self, request: &Request) -> Answer {
        let id = request.id();
        let before = Instant::now();
        let result = match *request {
            Request::Statistics { rpc, .. } => self.rpcs.statistics(rpc).map(Some),
            Request::Reset { .. } => self.rpcs.reset().map(|()| None),
            _ => Err(CallError { call: "slurm_load", errno: 0, text: "not asked for yet".to_owned() }),
        };
        let elapsed = before.elapsed();
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match result {
            Ok(mut statistics) => {
                if let (Request::Statistics { names: true, .. }, Some(statistics)) =
                    (request, &mut statistics)
                {
                    self.name_users(statistics);
                }
                Answer::Reading(Box::new(Reading {
                    id,
                    time: time.as_secs_f64(),
                    elapsed: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
                    release: self.release,
                    cluster: self.cluster(),
                    // slurmctld has such a limit (256, less where it may open fewer files) but tells nobody.
                    max_server_threads: None,
                    statistics,
                    reply: None,
                    visibility: None,
                }))
            }
            Err(CallError { call, errno, text }) => {
                Answer::Failure(Failure { id, call: call.to_owned(), errno, text })
            }
        }
    }

    /// ClusterName: asked for once slurmctld has answered something else, and a few times only.
    fn cluster(&mut self) -> Option<String> {
        if self.cluster.is_none() && self.tries < MAX_TRIES {
            self.tries += 1;
            match self.rpcs.cluster() {
                Ok(cluster) => self.cluster = cluster,
                Err(error) => log(&error),
            }
        }
        self.cluster.clone()
    }

    fn name_users(&mut self, statistics: &mut Statistics) {
        let now = Instant::now();
        for user in statistics.rpc.iter_mut().flat_map(|tables| &mut tables.users) {
            user.name = self.users.name(user.id, now);
        }
    }
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
    use slurm_snapshot::{PROTOCOL, RpcTables, RpcUser};

    use super::*;

    /// slurmctld, as a list of what it will say.
    #[derive(Default)]
    struct Script {
        statistics: Vec<bool>,
        cluster: Vec<bool>,
        resets: u32,
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

        fn cluster(&mut self) -> Result<Option<String>, CallError> {
            if self.cluster.remove(0) {
                Ok(Some("sandbox".into()))
            } else {
                Err(refusal("slurm_load_ctl_conf"))
            }
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
