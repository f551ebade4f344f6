//! The conversation: a hello, and then for each request line a request to slurmrestd and an answer line, until the
//! input ends.

use std::io::{Read, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use reader_process::Conversation;
use slurm_snapshot::{
    Answer, Failure, Hello, Jobs, Licenses, PROTOCOL, Partitions, Reading, Release, Reply, ReplyKind,
    Request, Reservations, Stage, Statistics, Visibility,
};

use crate::api::{Api, ApiPath, ApiReply};
use crate::args::RestArguments;
use crate::decode::diag::Diag;
use crate::decode::{NodesAnswer, Payload, joined};
use crate::problem::RestProblem;

/// The limit for answers that do not grow with the cluster.
const SHORT: u64 = 16 << 20;

/// The limit for the others: a node takes 3 KB, the state of a job 80 bytes.
const LONG: u64 = 512 << 20;

const DIAG: ApiPath = ApiPath { path: "diag", oldest: 38, limit: SHORT };
const PING: ApiPath = ApiPath { path: "ping", oldest: 38, limit: SHORT };
const NODES: ApiPath = ApiPath { path: "nodes", oldest: 38, limit: LONG };
/// Without the flag, from 23.11 on, hidden partitions are shown only to users who may use them.
const PARTITIONS: ApiPath = ApiPath { path: "partitions?flags=ALL", oldest: 38, limit: LONG };
const LICENSES: ApiPath = ApiPath { path: "licenses", oldest: 38, limit: SHORT };
const RESERVATIONS: ApiPath = ApiPath { path: "reservations", oldest: 38, limit: SHORT };
const JOB_STATES: ApiPath = ApiPath { path: "jobs/state", oldest: 41, limit: LONG };

/// Serves requests until `input` ends.
pub(crate) fn serve(
    settings: RestArguments,
    input: impl Read,
    output: impl Write,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut api = Api::new(settings)?;
    let mut daemon = Conversation::new(input, output);
    daemon.answer(&Answer::Hello(Hello { protocol: PROTOCOL, release: None, api_version: None }))?;
    while let Some(request) = daemon.request()? {
        daemon.answer(&answer(&mut api, &request))?;
    }
    Ok(())
}

fn answer(api: &mut Api, request: &Request) -> Answer {
    let (call, read) = read(api, request);
    match read {
        Ok(found) => Answer::Reading(Box::new(found.reading(request, api))),
        Err(problem) => Answer::Failure(Failure {
            id: request.id,
            call: format!("slurmrestd {call}"),
            errno: problem.errno,
            advice: Some(problem.advice().into()),
            stage: Some(problem.stage),
            text: problem.text,
            rest: Some(Box::new(api.rest())),
        }),
    }
}

/// The parts of a reading.
#[derive(Default)]
struct ReplyParts {
    statistics: Option<Statistics>,
    reply: Option<Reply>,
    visibility: Option<Visibility>,
    release: Option<Release>,
    cluster: Option<String>,
    elapsed: std::time::Duration,
}

impl ReplyParts {
    fn of<T>(got: ApiReply<T>) -> (Self, T) {
        let ApiReply { payload, release, cluster, elapsed } = got;
        (Self { release: Some(release), cluster, elapsed, ..Self::default() }, payload)
    }

    fn reading(self, request: &Request, api: &Api) -> Reading {
        // Read one right after the other: the daemon compares them to see whether the clock was set.
        let (time, uptime) = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), uptime());
        Reading {
            id: request.id,
            time: time.as_secs_f64(),
            uptime: Some(uptime),
            elapsed: u64::try_from(self.elapsed.as_micros()).unwrap_or(u64::MAX),
            release: self.release.unwrap_or(Release::new(0, 0)),
            cluster: self.cluster,
            max_server_threads: None,
            statistics: self.statistics,
            reply: self.reply,
            visibility: self.visibility,
            rest: Some(api.rest()),
        }
    }
}

/// Seconds since this host was booted.
fn uptime() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    std::time::Duration::try_from(now).map_or(0.0, |now| now.as_secs_f64())
}

fn read(api: &mut Api, request: &Request) -> (&'static str, Result<ReplyParts, RestProblem>) {
    let unsupported = |text: &str| Err(RestProblem::new(Stage::Unsupported, text));
    let options = request.options;
    match request.reply {
        ReplyKind::Statistics => ("diag", statistics(api, options.rpc, options.users)),
        ReplyKind::Reset => (
            "reset",
            unsupported(
                "the statistics cannot be reset over REST; run `sdiag --reset` where Slurm is installed",
            ),
        ),
        ReplyKind::Nodes => ("nodes", nodes(api, options.partitions, options.rows)),
        ReplyKind::Licenses => ("licenses", licenses(api)),
        ReplyKind::Reservations => ("reservations", reservations(api)),
        ReplyKind::Controllers => ("ping", controllers(api)),
        ReplyKind::Jobs if options.states_only => ("jobs/state", job_states(api)),
        kind => {
            let why = kind.row().not_over_rest.unwrap_or("this reader does not know how");
            (kind.name(), unsupported(&format!("{} cannot be read over REST: {why}", kind.name())))
        }
    }
}

fn statistics(api: &mut Api, rpc: bool, names: bool) -> Result<ReplyParts, RestProblem> {
    let (found, diag) = ReplyParts::of(api.get(DIAG, |version, _| Diag::new(version, rpc, names))?);
    Ok(ReplyParts { statistics: diag.statistics, ..found })
}

/// If PrivateData hides nodes or partitions from this user, slurmctld refuses the whole reply.
const WHOLE: Visibility = Visibility { private: Vec::new(), privileged: None };

/// Requests an answer that is one list.
fn list<L: Payload>(
    api: &mut Api,
    path: ApiPath,
    empty: impl Fn(Release) -> L,
) -> Result<(ReplyParts, L), RestProblem> {
    Ok(ReplyParts::of(api.get(path, |_, release| empty(release))?))
}

fn job_states(api: &mut Api) -> Result<ReplyParts, RestProblem> {
    let (found, jobs) = list(api, JOB_STATES, |_| Jobs { states_only: true, ..Jobs::default() })?;
    // REQUEST_JOB_STATE shows all jobs to everybody, whatever PrivateData says.
    Ok(ReplyParts { reply: Some(Reply::Jobs(Box::new(jobs))), visibility: Some(WHOLE), ..found })
}

fn nodes(api: &mut Api, partitions: bool, rows: bool) -> Result<ReplyParts, RestProblem> {
    let (mut found, mut counted) = list(api, NODES, |release| NodesAnswer::new(release, rows))?;
    if partitions {
        let (more, partitions) = list(api, PARTITIONS, |_| Partitions::default())?;
        found.elapsed = found.elapsed.saturating_add(more.elapsed);
        counted.nodes.partitions = Some(joined(partitions, counted.members));
    }
    let reply = Some(Reply::Nodes(Box::new(counted.nodes)));
    Ok(ReplyParts { reply, visibility: Some(WHOLE), ..found })
}

fn licenses(api: &mut Api) -> Result<ReplyParts, RestProblem> {
    let (found, licenses) = list(api, LICENSES, |_| Licenses::default())?;
    Ok(ReplyParts { reply: Some(Reply::Licenses(licenses)), ..found })
}

fn reservations(api: &mut Api) -> Result<ReplyParts, RestProblem> {
    let (found, reservations) = list(api, RESERVATIONS, |_| Reservations::default())?;
    // What PrivateData hides from this user cannot be known here. The documentation says whose token is needed.
    Ok(ReplyParts { reply: Some(Reply::Reservations(reservations)), visibility: Some(WHOLE), ..found })
}

fn controllers(api: &mut Api) -> Result<ReplyParts, RestProblem> {
    let (found, controllers) = list(api, PING, |_| Vec::new())?;
    Ok(ReplyParts { reply: Some(Reply::Controllers(controllers)), ..found })
}
