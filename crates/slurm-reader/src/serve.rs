//! The conversation: says hello, then a request line in, one RPC, an answer line out, until the input ends.
//!
//! Every request has exactly one answer, in order. The hot path reads once, calls once and writes once. Knows
//! libslurm only as [`Rpcs`], so that tests have it without a cluster.

mod lines;
#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use slurm_snapshot::{
    Answer, Failure, Hello, LineError, Reading, Release, Reply, ReplyKind, Request, Statistics, Visibility,
};

use self::lines::{MAX_LINE, Requests};
use crate::client::CallError;
use crate::conf_cache::ConfCache;
use crate::names::{self, UserNames};
use crate::rpcs::Rpcs;
use crate::version;

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
    let mut requests = Requests::new(input);
    let conf_cache = ConfCache::new(rpcs.own_cluster(), Instant::now);
    let release = hello.release.unwrap_or_else(version::built_for);
    let mut server = Server { rpcs, release, conf_cache, users };
    let mut line = Vec::with_capacity(16 * 1024);
    send(&Answer::Hello(hello), &mut line, &mut output)?;
    while let Some(request) = requests.next()? {
        let answer = server.answer(&request);
        send(&answer, &mut line, &mut output)?;
        server.answered(&request, &answer);
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
    conf_cache: ConfCache,
    users: UserNames,
}

impl<R: Rpcs> Server<'_, R> {
    fn answer(&mut self, request: &Request) -> Answer {
        match self.reading(request) {
            Ok(reading) => Answer::Reading(Box::new(reading)),
            Err(CallError { call, errno, text }) => Answer::Failure(Failure {
                id: request.id,
                call: call.to_owned(),
                errno,
                text,
                ..Failure::default()
            }),
        }
    }

    fn reading(&mut self, request: &Request) -> Result<Reading, CallError> {
        let visibility = self.visibility(request)?;
        let before = Instant::now();
        let (mut statistics, mut reply) = (None, None);
        match request.reply {
            ReplyKind::Statistics => statistics = Some(self.rpcs.statistics(request.options.rpc)?),
            ReplyKind::Reset => self.rpcs.reset()?,
            _ => reply = Some(self.rpcs.load(request)?),
        }
        let elapsed = before.elapsed();
        // Right behind each other: the daemon holds them against each other to see that the first was set.
        let (time, uptime) = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), uptime());
        if request.options.users {
            if let Some(Statistics { rpc: Some(tables), .. }) = &mut statistics {
                self.users.fill(&mut tables.users, Instant::now());
            }
            if let Some(Reply::Jobs(jobs)) = &mut reply {
                self.users.fill(&mut jobs.users, Instant::now());
            }
        }
        Ok(Reading {
            id: request.id,
            time: time.as_secs_f64(),
            uptime: Some(uptime),
            elapsed: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            release: self.release,
            cluster: self.conf_cache.cluster(),
            // slurmctld has such a limit (256, less where it may open fewer files) but tells nobody.
            max_server_threads: None,
            statistics,
            reply,
            visibility,
            rest: None,
        })
    }

    /// Where libslurm's own configuration has no ClusterName, slurmctld is asked for it: behind an answer, because it may
    /// take long, and while slurmctld answers, because it would be in vain.
    fn answered(&mut self, request: &Request, answer: &Answer) {
        if let (ReplyKind::Statistics, Answer::Reading(_)) = (request.reply, answer)
            && let Err(error) = self.conf_cache.learn_cluster(self.rpcs)
        {
            log(&error);
        }
    }

    /// What a reply to this may lack. Without that nobody could use the reply, so that it is asked for first.
    fn visibility(&mut self, request: &Request) -> Result<Option<Visibility>, CallError> {
        request.reply.row().private.map_or(Ok(None), |_| self.conf_cache.visibility(self.rpcs))
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
