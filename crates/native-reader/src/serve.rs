//! The conversation: a hello, and then for each request line a request to slurmctld and an answer line, until the input
//! ends.

use std::io::{Read, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reader_process::{Conversation, ServeError};
use slurm_snapshot::{
    Answer, Failure, Hello, LIBRARIES, PROTOCOL, Reading, Release, ReplyKind, Request, Statistics,
};

use crate::cluster::{Cluster, Found};
use crate::names::{self, UserNames, rpc_user};
use crate::problem::{Cause, NativeProblem};

/// Serves requests until `input` ends.
pub(crate) fn serve(mut cluster: Cluster, input: impl Read, output: impl Write) -> Result<(), ServeError> {
    let mut users = UserNames::new(names::host);
    let mut daemon = Conversation::new(input, output);
    daemon.answer(&Answer::Hello(Hello { protocol: PROTOCOL, release: None, api_version: None }))?;
    while let Some(request) = daemon.request()? {
        let answer = match statistics(&mut cluster, &request) {
            Ok(found) => Answer::Reading(Box::new(reading(&cluster, &mut users, &request, found))),
            Err(problem) => Answer::Failure(failure(&request, problem)),
        };
        daemon.answer(&answer)?;
    }
    Ok(())
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
    // Read one right after the other: the daemon compares them to see whether the clock was set.
    let (time, uptime) = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), uptime());
    let Found { reply, number } = found;
    let mut statistics = reply.statistics;
    if let (true, Statistics { rpc: Some(tables), .. }) = (request.options.users, &mut statistics) {
        users.give_names(tables.users.iter_mut().map(rpc_user), Instant::now());
    }
    let release = LIBRARIES.iter().find(|(of, _)| *of == u32::from(number)).map(|(_, release)| *release);
    Reading {
        id: request.id,
        time: time.as_secs_f64(),
        uptime: Some(uptime),
        elapsed: u64::try_from(reply.elapsed.as_micros()).unwrap_or(u64::MAX),
        release: release.unwrap_or(Release::new(0, 0)),
        cluster: cluster.name(),
        statistics: Some(statistics),
        ..Reading::default()
    }
}

/// Seconds since this host was booted.
fn uptime() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).map_or(0.0, |now| now.as_secs_f64())
}
