//! The native reader: it asks slurmctld, and adds user names to the statistics.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reader_process::names::{self, UserNames, rpc_user};
use reader_process::{micros, stamped};
use slurm_snapshot::{Answer, Failure, Reading, Release, ReplyKind, Request, Statistics};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::known_numbers::KnownNumbers;
use crate::problem::{Cause, NativeProblem};

/// Time between two looks of the first reading whether its names are known.
const LOOK: Duration = Duration::from_millis(10);

/// Asks slurmctld; one request is under way at a time. It remembers what lasts longer than a
/// slurm.conf: protocol numbers, addresses, user names.
#[derive(Debug)]
pub struct NativeReader(Mutex<NativeState>);

#[derive(Debug)]
struct NativeState {
    cluster: Cluster,
    users: UserNames,
}

impl NativeReader {
    /// Makes a reader that knows the protocol numbers in this file, and writes them there if it
    /// `writes`.
    #[must_use]
    pub fn new(numbers: Option<PathBuf>, writes: bool) -> Self {
        let numbers = KnownNumbers::new(numbers, writes);
        let cluster = Cluster::new(numbers);
        let users = UserNames::new(names::host);
        Self(Mutex::new(NativeState { cluster, users }))
    }

    /// Has slurm.conf read again at the next request.
    pub async fn forget_conf(&self) {
        self.0.lock().await.cluster.forget_conf();
    }

    /// The answer, within `timeout` once no other request is under way. `conf`: slurm.conf; `None`:
    /// where Slurm looks for it. Safe to cancel.
    pub async fn answer(
        &self,
        conf: Option<&Path>,
        request: &Request,
        timeout: Duration,
    ) -> Answer {
        let unsupported = match request.reply {
            ReplyKind::Statistics if request.options.follow => "[slurm] follow",
            ReplyKind::Statistics => return self.statistics(conf, request, timeout).await,
            kind => kind.name(),
        };
        let text = format!(
            "{unsupported} is not possible in slurmctld's own protocol, only with libslurm"
        );
        failure(request, NativeProblem::new(Cause::Unsupported, text))
    }

    async fn statistics(
        &self,
        conf: Option<&Path>,
        request: &Request,
        timeout: Duration,
    ) -> Answer {
        let NativeState { cluster, users } = &mut *self.0.lock().await;
        let reply = match cluster.statistics(conf, request.options.rpc, timeout).await {
            Ok(reply) => reply,
            Err(problem) => return failure(request, problem),
        };
        let reading =
            Reading { id: request.id, elapsed: micros(reply.elapsed), ..Reading::default() };
        let reading = stamped(reading);
        let mut statistics = reply.statistics;
        if let (true, Statistics { rpc: Some(tables), .. }) =
            (request.options.users, &mut statistics)
        {
            let begin = Instant::now();
            let patience = users.take_patience();
            let ids = || tables.users.iter().map(|user| user.id);
            while users.look_up(ids(), Instant::now()) && begin.elapsed() < patience {
                sleep(LOOK).await;
            }
            users.give_names(tables.users.iter_mut().map(rpc_user), Instant::now());
        }
        let release = Release::of_library(reply.number.into()).unwrap_or_default();
        let cluster = cluster.name();
        let statistics = Some(statistics);
        Answer::Reading(Box::new(Reading { release, cluster, statistics, ..reading }))
    }
}

fn failure(request: &Request, problem: NativeProblem) -> Answer {
    Answer::Failure(Failure {
        id: request.id,
        call: format!("slurmctld {}", request.reply.name()),
        errno: problem.errno(),
        advice: Some(problem.advice().into()),
        stage: problem.stage(),
        text: problem.text,
        rest: None,
    })
}
