//! The conversation: a hello, and then for each request line a request to slurmctld and an answer line, until the input
//! ends.

use std::io::{self, Read, Write};
use std::time::Instant;

use reader_process::names::{self, UserNames, rpc_user};
use reader_process::{converse, micros, stamped};
use slurm_snapshot::{Answer, Failure, Hello, PROTOCOL, Reading, Release, ReplyKind, Request, Statistics};

use crate::cluster::{Cluster, Found};
use crate::problem::{Cause, NativeProblem};

/// Serves requests until `input` ends.
pub(crate) fn serve(mut cluster: Cluster, input: impl Read, output: impl Write) -> io::Result<()> {
    let mut users = UserNames::new(names::host);
    let hello = Hello { protocol: PROTOCOL, release: None };
    converse(input, output, hello, |request, send| {
        send(&match statistics(&mut cluster, request) {
            Ok(found) => Answer::Reading(Box::new(reading(&cluster, &mut users, request, found))),
            Err(problem) => Answer::Failure(failure(request, problem)),
        })
    })
}

fn statistics(cluster: &mut Cluster, request: &Request) -> Result<Found, NativeProblem> {
    let unsupported = |text| Err(NativeProblem::new(Cause::Unsupported, text));
    match request.reply {
        ReplyKind::Statistics if request.options.follow => {
            unsupported("[slurm] follow needs libslurm's reader".to_owned())
        }
        ReplyKind::Statistics => cluster.statistics(request.options.rpc),
        kind => unsupported(format!("{} cannot be read in slurmctld's own protocol", kind.name())),
    }
}

fn failure(request: &Request, problem: NativeProblem) -> Failure {
    Failure {
        id: request.id,
        call: format!("slurmctld {}", request.reply.name()),
        errno: problem.errno(),
        advice: Some(problem.advice().into()),
        stage: problem.stage(),
        text: problem.text,
        rest: None,
    }
}

fn reading(cluster: &Cluster, users: &mut UserNames, request: &Request, found: Found) -> Reading {
    let Found { reply, number } = found;
    let elapsed = micros(reply.elapsed);
    let reading = stamped(Reading { id: request.id, elapsed, ..Reading::default() });
    let mut statistics = reply.statistics;
    if let (true, Statistics { rpc: Some(tables), .. }) = (request.options.users, &mut statistics) {
        users.give_names(tables.users.iter_mut().map(rpc_user), Instant::now());
    }
    let release = Release::of_library(number.into()).unwrap_or_default();
    Reading { release, cluster: cluster.name(), statistics: Some(statistics), ..reading }
}
