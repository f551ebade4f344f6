//! The conversation: a hello, and then for each request line a request to slurmrestd and an answer
//! line, until the input ends.

use std::io::{self, Read, Write};

use reader_process::{converse, stamped};
use slurm_snapshot::{
    Answer, Failure, Hello, Jobs, PROTOCOL, Reading, Reply, ReplyKind, Request, Stage, Visibility,
};

use crate::api::{Api, ApiPath};
use crate::args::RestArguments;
use crate::decode::diag::Diag;
use crate::decode::{NodesAnswer, Payload, joined};
use crate::problem::RestProblem;

/// Bytes that an answer may have if it does not grow with the cluster.
const SHORT: u64 = 16 << 20;

/// Bytes that an answer may have if it grows with the cluster: a node takes 3 KB, the state of a
/// job 80 bytes.
const LONG: u64 = 512 << 20;

const DIAG: ApiPath = ApiPath { path: "diag", oldest: 38, limit: SHORT };
const PING: ApiPath = ApiPath { path: "ping", oldest: 38, limit: SHORT };
const NODES: ApiPath = ApiPath { path: "nodes", oldest: 38, limit: LONG };
/// The request for partitions. Without `flags=ALL`, from 23.11 on, hidden partitions are shown only
/// to users who may use them.
const PARTITIONS: ApiPath = ApiPath { path: "partitions?flags=ALL", oldest: 38, limit: LONG };
const LICENSES: ApiPath = ApiPath { path: "licenses", oldest: 38, limit: SHORT };
const RESERVATIONS: ApiPath = ApiPath { path: "reservations", oldest: 38, limit: SHORT };
const JOB_STATES: ApiPath = ApiPath { path: "jobs/state", oldest: 41, limit: LONG };

/// Serves requests until `input` ends.
pub(crate) fn serve(
    settings: RestArguments,
    input: impl Read,
    output: impl Write,
) -> io::Result<()> {
    let mut api = Api::new(settings)?;
    let hello = Hello { protocol: PROTOCOL, release: None };
    converse(input, output, hello, |request, send| send(&answer(&mut api, request)))
}

fn answer(api: &mut Api, request: &Request) -> Answer {
    let mut reading = Reading { id: request.id, ..Reading::default() };
    let read = read_reply(api, request, &mut reading);
    let rest = api.rest();
    match read {
        Ok(()) => Answer::Reading(Box::new(stamped(Reading { rest: Some(rest), ..reading }))),
        Err(problem) => Answer::Failure(Failure {
            id: request.id,
            call: format!("slurmrestd {}", call(request)),
            errno: problem.errno,
            advice: Some(problem.advice().into()),
            stage: Some(problem.stage),
            text: problem.text,
            rest: Some(Box::new(rest)),
        }),
    }
}

fn call(request: &Request) -> &'static str {
    match request.reply {
        ReplyKind::Statistics => DIAG.path,
        ReplyKind::Controllers => PING.path,
        ReplyKind::Jobs if request.options.states_only => JOB_STATES.path,
        kind => kind.name(),
    }
}

fn read_reply(api: &mut Api, request: &Request, reading: &mut Reading) -> Result<(), RestProblem> {
    let options = request.options;
    let reply = match request.reply {
        ReplyKind::Statistics => {
            let new = |version, _| Diag::new(version, options.rpc, options.users);
            reading.statistics = api.get(reading, DIAG, new)?.statistics;
            return Ok(());
        }
        ReplyKind::Nodes => {
            let new = |_, release| NodesAnswer::new(release, options);
            let NodesAnswer { mut nodes, partitions, .. } = api.get(reading, NODES, new)?;
            if options.partitions {
                nodes.partitions = Some(joined(list(api, reading, PARTITIONS)?, partitions));
            }
            Reply::Nodes(Box::new(nodes))
        }
        ReplyKind::Licenses => Reply::Licenses(list(api, reading, LICENSES)?),
        ReplyKind::Reservations => Reply::Reservations(list(api, reading, RESERVATIONS)?),
        ReplyKind::Controllers => Reply::Controllers(list(api, reading, PING)?),
        ReplyKind::Jobs if options.states_only => {
            let jobs: Jobs = list(api, reading, JOB_STATES)?;
            Reply::Jobs(Box::new(Jobs { states_only: true, ..jobs }))
        }
        kind => return Err(RestProblem::new(Stage::Unsupported, unsupported(kind))),
    };
    reading.reply = Some(reply);
    // If PrivateData hides nodes or partitions from this user, slurmctld refuses the whole reply.
    // What it hides of reservations cannot be known here: the documentation says whose token is
    // needed. REQUEST_JOB_STATE shows all jobs to everybody, whatever PrivateData says.
    reading.visibility = (!request.reply.row().private.is_empty()).then(Visibility::default);
    Ok(())
}

fn unsupported(kind: ReplyKind) -> String {
    if kind == ReplyKind::Reset {
        return "the statistics cannot be reset over REST; run `sdiag --reset` where Slurm is \
            installed"
            .to_owned();
    }
    let why = kind.row().not_over_rest.unwrap_or("this reader does not know how");
    format!("{} cannot be read over REST: {why}", kind.name())
}

fn list<P: Payload + Default>(
    api: &mut Api,
    reading: &mut Reading,
    path: ApiPath,
) -> Result<P, RestProblem> {
    api.get(reading, path, |_, _| P::default())
}
