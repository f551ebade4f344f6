//! A request answered: slurmctld asked, user names added.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reader_process::names::{self, UserNames, rpc_user};
use reader_process::{micros, stamped};
use slurm_snapshot::{Answer, Failure, Reading, Release, ReplyKind, Request, Statistics};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::cluster::{Cluster, Found};
use crate::known_numbers::KnownNumbers;
use crate::problem::{Cause, NativeProblem};

/// How often the first reading looks whether its names are known.
const LOOK: Duration = Duration::from_millis(10);

/// Asks slurmctld; one request is under way at a time. It remembers what lasts longer than a slurm.conf: protocol numbers,
/// addresses, user names.
#[derive(Debug)]
pub struct NativeReader(Mutex<NativeState>);

#[derive(Debug)]
struct NativeState {
    cluster: Cluster,
    users: UserNames,
}

impl NativeReader {
    /// One that knows the protocol numbers in this file, and writes them there if it `writes`.
    #[must_use]
    pub fn new(numbers: Option<PathBuf>, writes: bool) -> Self {
        let numbers = KnownNumbers::new(numbers, writes);
        let (cluster, users) = (Cluster::new(numbers), UserNames::new(names::host));
        Self(Mutex::new(NativeState { cluster, users }))
    }

    /// Has slurm.conf read again at the next request.
    pub async fn forget_conf(&self) {
        self.0.lock().await.cluster.forget_conf();
    }

    /// The answer, within `timeout` once no other request is under way. `conf`: slurm.conf; `None`: where Slurm looks for it.
    /// Safe to cancel.
    pub async fn answer(&self, conf: Option<&Path>, request: &Request, timeout: Duration) -> Answer {
        let failed = |problem| Answer::Failure(failure(request, problem));
        let unsupported = |text: String| failed(NativeProblem::new(Cause::Unsupported, text));
        match request.reply {
            ReplyKind::Statistics if request.options.follow => {
                return unsupported("[slurm] follow needs libslurm's reader".to_owned());
            }
            ReplyKind::Statistics => {}
            kind => {
                return unsupported(format!("{} cannot be read in slurmctld's own protocol", kind.name()));
            }
        }
        let NativeState { cluster, users } = &mut *self.0.lock().await;
        let Found { reply, number } = match cluster.statistics(conf, request.options.rpc, timeout).await {
            Ok(found) => found,
            Err(problem) => return failed(problem),
        };
        let elapsed = micros(reply.elapsed);
        let reading = stamped(Reading { id: request.id, elapsed, ..Reading::default() });
        let mut statistics = reply.statistics;
        if let (true, Statistics { rpc: Some(tables), .. }) = (request.options.users, &mut statistics) {
            let (begin, patience) = (Instant::now(), users.take_patience());
            while users.look_up(tables.users.iter().map(|user| user.id), Instant::now())
                && begin.elapsed() < patience
            {
                sleep(LOOK).await;
            }
            users.give_names(tables.users.iter_mut().map(rpc_user), Instant::now());
        }
        let release = Release::of_library(number.into()).unwrap_or_default();
        let cluster = cluster.name();
        Answer::Reading(Box::new(Reading { release, cluster, statistics: Some(statistics), ..reading }))
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
