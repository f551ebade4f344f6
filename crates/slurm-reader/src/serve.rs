//! The conversation: says hello, then a request line in, one RPC, an answer line out, until the input ends.
//!
//! Every request has exactly one answer, in order. The hot path reads once, calls once and writes once. Knows
//! libslurm only as [`Rpcs`], so that tests have it without a cluster.

#[cfg(test)]
mod tests;

use std::io::{Read, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use reader_process::{Conversation, ServeError, log};
use slurm_snapshot::{Answer, Failure, Hello, Reading, Release, Reply, Request, Statistics, Visibility};

use crate::client::{CallError, Client};
use crate::conf::Conf;
use crate::fold::Wishes;
use crate::known::Known;
use crate::names::{self, UserNames};
use crate::version;

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
    /// See [`Client::own_cluster`].
    fn own_cluster(&mut self) -> Option<String>;
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

    fn own_cluster(&mut self) -> Option<String> {
        self.own_cluster()
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
    output: impl Write,
) -> Result<(), ServeError> {
    let mut daemon = Conversation::new(input, output);
    let known = Known::new(rpcs.own_cluster(), Instant::now);
    let release = hello.release.unwrap_or_else(version::built_for);
    let mut server = Server { rpcs, release, known, users };
    daemon.answer(&Answer::Hello(hello))?;
    while let Some(request) = daemon.request()? {
        let answer = server.answer(&request);
        daemon.answer(&answer)?;
        server.answered(&request, &answer);
    }
    Ok(())
}

struct Server<'a, R> {
    rpcs: &'a mut R,
    release: Release,
    known: Known,
    users: UserNames,
}

impl<R: Rpcs> Server<'_, R> {
    fn answer(&mut self, request: &Request) -> Answer {
        match self.reading(request) {
            Ok(reading) => Answer::Reading(Box::new(reading)),
            Err(CallError { call, errno, text }) => Answer::Failure(Failure {
                id: request.id(),
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
            cluster: self.known.cluster(),
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
        if let (Request::Statistics { .. }, Answer::Reading(_)) = (request, answer)
            && let Err(error) = self.known.learn_cluster(self.rpcs)
        {
            log(&error);
        }
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
