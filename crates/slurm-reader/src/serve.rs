//! The conversation: a hello, then for each request line its RPCs and an answer line, until the
//! input ends.
//!
//! Every request has exactly one answer, in order. A normal request reads once, calls once and
//! writes once for each 16 KiB. Knows libslurm only as [`Rpcs`], so that tests need no cluster.

#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};
use std::time::Instant;

use reader_process::{converse, log, micros, stamped};
use slurm_snapshot::{
    Answer, Failure, Hello, Reading, Release, Reply, ReplyKind, Request, Stage, Statistics, errno,
};

use crate::advice::advice;
use crate::calls::CallError;
use crate::conf_cache::ConfCache;
use crate::listeners::TOKEN;
use crate::rpcs::Rpcs;
use crate::version;
use reader_process::names::{self, UserNames, rpc_user};

/// Serves requests until `input` ends.
///
/// # Errors
/// The input or the output broke, or a request was malformed.
pub fn serve(
    rpcs: &mut impl Rpcs,
    hello: Hello,
    input: impl Read,
    output: impl Write,
) -> io::Result<()> {
    serve_with(rpcs, UserNames::new(names::host), hello, input, output)
}

fn serve_with(
    rpcs: &mut impl Rpcs,
    users: UserNames,
    hello: Hello,
    input: impl Read,
    output: impl Write,
) -> io::Result<()> {
    let conf_cache = ConfCache::new(rpcs.own_cluster(), Instant::now);
    let release = hello.release.unwrap_or_else(version::built_for);
    let mut server = ReaderServer { rpcs, release, conf_cache, users };
    converse(input, output, hello, |request, send| {
        let answer = server.answer(request);
        send(&answer)?;
        server.after_answer(request, &answer);
        Ok(())
    })
}

struct ReaderServer<'a, R> {
    rpcs: &'a mut R,
    release: Release,
    conf_cache: ConfCache,
    users: UserNames,
}

impl<R: Rpcs> ReaderServer<'_, R> {
    fn answer(&mut self, request: &Request) -> Answer {
        match self.guarded_reading(request) {
            Ok(reading) => Answer::Reading(Box::new(reading)),
            Err(CallError { call, errno, text }) => Answer::Failure(Failure {
                id: request.id,
                call: call.to_owned(),
                errno,
                text,
                advice: advice(call, errno).map(Into::into),
                stage: (call == TOKEN).then_some(Stage::Listener),
                ..Failure::default()
            }),
        }
    }

    /// Returns the reading of a request, or an error if somebody else may have got a token that
    /// went with it.
    fn guarded_reading(&mut self, request: &Request) -> Result<Reading, CallError> {
        let guard = |error: CallError, what: &str| CallError {
            text: format!("{}, so the token in SLURM_JWT {what}", error.text),
            ..error
        };
        let role = request.reply.row().role;
        self.rpcs.check_listeners(role).map_err(|error| guard(error, "is not sent"))?;
        let reading = self.reading(request);
        self.rpcs
            .check_listeners(role)
            .map_err(|error| guard(error, "may have been sent there: replace it"))?;
        reading
    }

    /// Reads the reply to a request. With `follow` all calls go only to this host's own slurmctld,
    /// except pings, which go to the controllers as needed.
    fn reading(&mut self, request: &Request) -> Result<Reading, CallError> {
        if !request.options.follow || request.reply == ReplyKind::Controllers {
            return self.read_reply(request);
        }
        self.rpcs.begin_own()?;
        let read = self.read_reply(request);
        self.rpcs.end_own(read.as_ref().is_ok_and(|reading| reading.reply != Some(Reply::Standby)));
        read
    }

    fn read_reply(&mut self, request: &Request) -> Result<Reading, CallError> {
        let kind = request.reply;
        let mut options = request.options;
        let visibility = self.conf_cache.visibility(self.rpcs, request)?;
        let is_hidden =
            visibility.as_ref().is_some_and(|visibility| kind.row().is_hidden(visibility));
        // slurmctld would refuse them.
        options.partitions &=
            !visibility.as_ref().is_some_and(|visibility| visibility.may_hide("partitions"));
        let id = request.id;
        let release = self.release;
        let mut reading = Reading { id, release, visibility, ..Reading::default() };
        let before = Instant::now();
        match kind {
            // Not requested: nobody may use it, slurmctld would walk its lists for nothing, and for
            // nodes it would log a security violation. Of associations, a user whom slurmdbd does
            // not know gets an empty answer from slurmctld, which libslurm takes for an unreadable
            // reply.
            _ if is_hidden => {}
            // Not requested if there are none: that may crash slurmctld.
            ReplyKind::Associations if !self.conf_cache.has_associations() => {
                reading.reply = Some(Reply::Associations(Box::default()));
            }
            _ => match self.rpcs.load(&Request { options, ..request.clone() }, &mut reading) {
                Err(CallError { errno: errno::IN_STANDBY_MODE, .. })
                    if options.follow && kind == ReplyKind::Statistics =>
                {
                    reading.reply = Some(Reply::Standby);
                }
                result => result?,
            },
        }
        reading.elapsed = micros(before.elapsed());
        let mut reading = stamped(reading);
        if options.users {
            self.give_names(&mut reading);
        }
        if let Some(Reply::Finished(finished)) = &mut reading.reply {
            finished.take_user_names();
        }
        reading.cluster = self.conf_cache.cluster();
        Ok(reading)
    }

    /// Gives the users in a reading their names, as far as they are known by now.
    fn give_names(&mut self, reading: &mut Reading) {
        let now = Instant::now();
        let users = &mut self.users;
        match (&mut reading.statistics, &mut reading.reply) {
            (Some(Statistics { rpc: Some(tables), .. }), _) => {
                users.give_names(tables.users.iter_mut().map(rpc_user), now);
            }
            (_, Some(Reply::Slurmdbd(dbd))) => {
                users.give_names(dbd.users.iter_mut().map(rpc_user), now);
            }
            (_, Some(Reply::Jobs(jobs))) => {
                let rows = jobs.users.iter_mut();
                let rows = rows.map(|user| (user.id, &mut user.name, &mut user.looking_up));
                users.give_names(rows, now);
            }
            (_, Some(Reply::Finished(finished))) => {
                let rows = finished.users.iter_mut();
                let rows = rows.map(|user| (user.id, &mut user.name, &mut user.looking_up));
                users.give_names(rows, now);
            }
            _ => {}
        }
    }

    /// Asks slurmctld for ClusterName, if libslurm's own configuration has none: after an answer,
    /// because it may take long, and only while slurmctld answers, because otherwise it would be
    /// useless.
    fn after_answer(&mut self, request: &Request, answer: &Answer) {
        if let (ReplyKind::Statistics, Answer::Reading(_)) = (request.reply, answer)
            && let Err(error) = self.conf_cache.learn_cluster(self.rpcs)
        {
            log(&error);
        }
    }
}
