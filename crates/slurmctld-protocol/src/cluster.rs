//! The controllers of a cluster, asked until one answers: the one that did last, then in
//! slurm.conf's order.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reader_process::listener::Kernel;
use tracing::warn;

use crate::exchange::{Exchange, Reply, Share};
use crate::hosts::Hosts;
use crate::known_numbers::KnownNumbers;
use crate::local_socket::LocalSocket;
use crate::moment::Moments;
use crate::problem::{Cause, NativeProblem};
use crate::slurm_conf::{self, Controller, SlurmConf};

/// The last protocol number with which slurmctld signs its replies, that of 22.05.
const LAST_SIGNED: u16 = 38;

/// Number of attempts with one controller in a request: more than the search for a number and the
/// way up to the highest need.
const ATTEMPTS: usize = 12;

/// Time after which a request that has a reading tries no higher number.
const QUICK: Duration = Duration::from_secs(3);

/// Time that a backup that waits is left alone while the controller before it is up but refuses: it
/// logs each request.
const WAITING: Duration = Duration::from_secs(60);

/// Time after which the first controller of slurm.conf is asked again while another answers: a
/// frozen one would make every tick late.
const FIRST_AGAIN: Duration = Duration::from_secs(60);

/// The cluster that slurm.conf describes.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// slurm.conf, and the path by which it was named, if it was; `None`: slurm.conf is to be read.
    conf: Option<(Option<PathBuf>, Arc<SlurmConf>)>,
    /// The socket to ask the kernel who listens; `None` until a controller of this host was asked.
    kernel: Option<Kernel>,
    hosts: Hosts,
    socket: LocalSocket,
    moments: Moments,
    numbers: KnownNumbers,
    /// Number that chooses the next port, if SlurmctldPort is a range.
    turns: u16,
    /// Moments at which controllers last answered that they wait.
    waiting: HashMap<String, Instant>,
    /// Name of the controller that answered last.
    answers: Option<String>,
    /// Moment at which the first controller of slurm.conf was asked last.
    first_at: Option<Instant>,
    /// The note about slurm.conf that the log has.
    note: Option<String>,
}

impl Cluster {
    pub(crate) fn new(numbers: KnownNumbers) -> Self {
        Self { numbers, ..Self::default() }
    }

    /// Returns slurm.conf's ClusterName; `None` if it has none, or was not read yet.
    pub(crate) fn name(&self) -> Option<String> {
        self.conf.as_ref().and_then(|(_, conf)| conf.cluster.clone())
    }

    /// Forgets slurm.conf, so that it is read again.
    pub(crate) fn forget_conf(&mut self) {
        self.conf = None;
    }

    /// The statistics of the active slurmctld, with its tables if `rpc`. `named`: slurm.conf, if it
    /// is not where Slurm looks.
    pub(crate) async fn statistics(
        &mut self,
        named: Option<&Path>,
        rpc: bool,
        timeout: Duration,
    ) -> Result<Reply, NativeProblem> {
        let end = Share::new(timeout);
        self.moments.begin_tick();
        self.numbers.read_file().await;
        let conf = self.read_conf(named, end.step()).await?;
        let mut problems: Vec<(String, NativeProblem)> = Vec::new();
        let order = self.order(&conf.controllers);
        for (index, controller) in order.iter().enumerate() {
            let refuses =
                problems.iter().any(|(_, problem)| matches!(problem.cause, Cause::Refused(_)));
            let waits =
                self.waiting.get(&controller.name).is_some_and(|since| since.elapsed() < WAITING);
            if refuses && waits {
                continue;
            }
            let others = order.len().saturating_sub(index).saturating_sub(1);
            let is_first = conf.controllers.first() == Some(controller);
            // The one behind it is known to answer.
            let next = order.get(index.saturating_add(1)).map(|next| &next.name);
            let is_trial = is_first && next.is_some() && next == self.answers.as_ref();
            let share = if is_trial { end.trial(others) } else { end.next(others) };
            if is_first {
                self.first_at = Some(Instant::now());
            }
            let asked = self.ask(&conf, controller, rpc, share).await;
            self.numbers.write();
            match asked {
                Ok(found) => {
                    self.answers = Some(controller.name.clone());
                    return Ok(found);
                }
                Err(problem) => {
                    let cause = problem.cause;
                    if cause == Cause::Standby {
                        self.waiting.insert(controller.name.clone(), Instant::now());
                    }
                    problems.push((controller.name.clone(), problem));
                    // No other controller can help; but a trial gives munge little time.
                    if cause == Cause::NoCredential
                        || cause == Cause::CredentialTimeout && !is_trial
                    {
                        break;
                    }
                }
            }
        }
        // A file that slurm.conf includes may have changed.
        self.conf = None;
        Err(told(&problems))
    }

    /// The controllers in the order in which they are asked.
    fn order<'a>(&self, controllers: &'a [Controller]) -> Vec<&'a Controller> {
        let mut order: Vec<_> = controllers.iter().collect();
        let answers = order.iter().position(|one| Some(&one.name) == self.answers.as_ref());
        if let Some(part) = answers.and_then(|last| order.get_mut(..=last)) {
            part.rotate_right(1);
        }
        let is_due = self.first_at.is_none_or(|at| at.elapsed() >= FIRST_AGAIN);
        if let (true, Some(part)) = (is_due, order.get_mut(..2)) {
            part.sort_by_key(|one| controllers.first() != Some(*one));
        }
        order
    }

    /// slurm.conf, read again after a failure, or if another was named.
    async fn read_conf(
        &mut self,
        named: Option<&Path>,
        deadline: Instant,
    ) -> Result<Arc<SlurmConf>, NativeProblem> {
        if let Some((of, conf)) = &self.conf
            && of.as_deref() == named
        {
            return Ok(Arc::clone(conf));
        }
        let (named, owner) =
            (named.map(Path::to_owned), format!("the text of slurm.conf {named:?}"));
        let patience = deadline.saturating_duration_since(Instant::now());
        let (path, number) = (named.clone(), self.numbers.highest());
        let read = move || {
            let path = slurm_conf::find(path.as_deref())?;
            slurm_conf::read_conf(&path, number)
        };
        let late = |error| NativeProblem::new(Cause::Conf, format!("reading slurm.conf: {error}"));
        let conf = waiting_threads::ask(&owner, "", patience, read).await.map_err(late)??;
        if conf.note != self.note {
            self.note.clone_from(&conf.note);
            if let Some(note) = &self.note {
                warn!("{note}");
            }
        }
        Ok(Arc::clone(&self.conf.insert((named, Arc::new(conf))).1))
    }

    /// Asks one controller, with one number after the other until its highest is known.
    async fn ask(
        &mut self,
        conf: &SlurmConf,
        controller: &Controller,
        rpc: bool,
        share: Share,
    ) -> Result<Reply, NativeProblem> {
        let slurm_user = self.hosts.user(&conf.user, share.step()).await;
        let addresses =
            self.hosts.addresses(&controller.address, conf.ipv4, conf.ipv6, share.step()).await;
        let (first, last) = conf.ports;
        self.turns = self.turns.checked_add(1).unwrap_or(0);
        let width = last.saturating_sub(first).saturating_add(1).max(1);
        let port = first.saturating_add(self.turns.checked_rem(width).unwrap_or(0));
        let key = format!("{}:{first}", controller.name);
        let mut found: Option<Reply> = None;
        let numbers = self.numbers.numbers_of(&key);
        numbers.begin_tick(now());
        let mut problem = refused(numbers.seconds_to_wait(now()));
        let begin = Instant::now();
        for _ in 0..ATTEMPTS {
            // The way up to the highest number may go on with the next request.
            if found.is_some() && begin.elapsed() > QUICK {
                break;
            }
            let Some(number) = self.numbers.numbers_of(&key).next(now()) else { break };
            let auth = &conf.auth;
            let socket = &mut self.socket;
            let kernel = &mut self.kernel;
            let moments = &mut self.moments;
            let mut exchange = Exchange { number, rpc, slurm_user, auth, socket, moments, kernel };
            match exchange.run(&addresses, port, share).await {
                Ok(reply) => {
                    let unsigned = !reply.is_signed && number <= LAST_SIGNED;
                    let numbers = self.numbers.numbers_of(&key);
                    numbers.accept(number, &reply.statistics);
                    if unsigned {
                        // 23.02 and 23.11 accept such a number but do not sign: they know a higher
                        // one.
                        let text = "its reply has no credential, which Slurm up to 22.05 sends";
                        problem = NativeProblem::new(Cause::Imposter, text);
                        continue;
                    }
                    found = Some(reply);
                }
                Err(NativeProblem { cause: Cause::Refused(Some(how)), .. }) => {
                    self.numbers.numbers_of(&key).refuse(number, how, now());
                }
                Err(failed) => {
                    self.numbers.numbers_of(&key).interrupt(failed.cause == Cause::Connect);
                    if matches!(failed.cause, Cause::Connect | Cause::ConnectTimeout) {
                        self.hosts.forget(&controller.address);
                    }
                    problem = failed;
                    break;
                }
            }
        }
        found.ok_or(problem)
    }
}

/// The problem to report, if several controllers had one.
fn told(problems: &[(String, NativeProblem)]) -> NativeProblem {
    let is_away = |cause| matches!(cause, Cause::Connect | Cause::ConnectTimeout | Cause::Name);
    let first =
        |fits: &dyn Fn(Cause) -> bool| problems.iter().find(|(_, problem)| fits(problem.cause));
    // A backup that waits does not explain why the one before it does not answer, unless that is
    // away.
    let found = first(&|cause| !is_away(cause) && cause != Cause::Standby);
    let found = found.or_else(|| first(&|cause| cause == Cause::Standby)).or(problems.first());
    let cause = found.map_or(Cause::Connect, |(_, problem)| problem.cause);
    let texts: Vec<String> =
        problems.iter().map(|(name, problem)| format!("{name}: {problem}")).collect();
    NativeProblem::new(cause, texts.join("; "))
}

/// Returns the problem that slurmctld refuses this host's requests. If it is left alone for a
/// while, that is for `wait` seconds.
fn refused(wait: i64) -> NativeProblem {
    let again = if wait > 0 { format!(", and is asked again in {wait} s") } else { String::new() };
    NativeProblem::new(Cause::Refused(None), format!("it refuses this host's requests{again}"))
}

/// Returns the present time, Unix seconds.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answered_last_is_asked_first_and_the_first_of_slurm_conf_again_once_a_minute() {
        let controllers = ["a", "b", "c"]
            .map(|name| Controller { name: name.to_owned(), address: name.to_owned() });
        let long_ago = Instant::now().checked_sub(FIRST_AGAIN).unwrap();
        for (answers, first_at, expected) in [
            (None, None, "abc"),
            (Some("a"), Some(Instant::now()), "abc"),
            (Some("b"), Some(Instant::now()), "bac"),
            (Some("c"), Some(Instant::now()), "cab"),
            (Some("c"), Some(long_ago), "acb"),
            (Some("b"), Some(long_ago), "abc"),
            (Some("gone"), Some(Instant::now()), "abc"),
        ] {
            let answers = answers.map(str::to_owned);
            let cluster = Cluster { answers: answers.clone(), first_at, ..Cluster::default() };
            let order: String =
                cluster.order(&controllers).iter().map(|one| one.name.as_str()).collect();
            assert_eq!(order, expected, "{answers:?}");
            assert_eq!(cluster.order(&controllers[..1]).len(), 1);
        }
    }
}
