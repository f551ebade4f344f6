//! The controllers of a cluster, asked in slurm.conf's order until one answers.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reader_process::{TokenFile, log};

use crate::args::NativeArguments;
use crate::credential::{Identity, unknown};
use crate::exchange::{Exchange, NAME, Reply, Share};
use crate::hosts::Hosts;
use crate::listener;
use crate::problem::{Cause, NativeProblem};
use crate::remembered::Remembered;
use crate::slurm_conf::{self, Controller, SlurmConf};

/// Up to 22.05 slurmctld signs its replies.
const LAST_SIGNED: u16 = 38;

/// More numbers than a search and its way up can need.
const ATTEMPTS: usize = 12;

/// How long the owner of slurmctld's port is believed.
const OWNER: Duration = Duration::from_secs(60);

/// How long a backup that waits is left alone while the controller before it is up but refuses: it logs each request.
const WAITING: Duration = Duration::from_secs(60);

/// The cluster that slurm.conf describes.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    path: Option<PathBuf>,
    token: Option<TokenFile>,
    timeout: Duration,
    conf: Option<SlurmConf>,
    hosts: Hosts,
    remembered: Remembered,
    /// Which port of a range is next.
    turns: u16,
    /// When the owner of slurmctld's port was last seen to be right.
    owner: Option<Instant>,
    /// When a controller last said that it waits.
    waiting: HashMap<String, Instant>,
}

/// A reply, and the number that it was requested with.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) reply: Reply,
    pub(crate) number: u16,
}

impl Cluster {
    pub(crate) fn new(arguments: NativeArguments) -> Self {
        let NativeArguments { conf, token_file, remember, timeout } = arguments;
        let (token, remembered) = (token_file.map(TokenFile::new), Remembered::new(remember));
        Self { path: conf, token, timeout, remembered, ..Self::default() }
    }

    /// ClusterName.
    pub(crate) fn name(&self) -> Option<String> {
        self.conf.as_ref().and_then(|conf| conf.cluster.clone())
    }

    /// The statistics of the active slurmctld, with its tables if `rpc`.
    pub(crate) fn statistics(&mut self, rpc: bool) -> Result<Found, NativeProblem> {
        let end = Share::new(self.timeout);
        let conf = self.conf()?;
        let mut problems: Vec<(String, NativeProblem)> = Vec::new();
        let mut others = u32::try_from(conf.controllers.len()).unwrap_or(u32::MAX);
        for controller in &conf.controllers {
            let refuses = problems.iter().any(|(_, problem)| matches!(problem.cause, Cause::Refused(_)));
            let waits = self.waiting.get(&controller.name).is_some_and(|since| since.elapsed() < WAITING);
            let share = Share::new(end.left() / others.max(1));
            others = others.saturating_sub(1);
            if refuses && waits {
                continue;
            }
            match self.ask(&conf, controller, rpc, share) {
                Ok(found) => return Ok(found),
                Err(problem) => {
                    self.owner = None;
                    let cause = problem.cause;
                    if cause == Cause::Standby {
                        self.waiting.insert(controller.name.clone(), Instant::now());
                    }
                    problems.push((controller.name.clone(), problem));
                    // No other controller can help.
                    if matches!(cause, Cause::TokenFile | Cause::NoCredential | Cause::CredentialTimeout) {
                        break;
                    }
                }
            }
        }
        // A file that slurm.conf includes may have changed.
        self.conf = None;
        Err(told(&problems))
    }

    /// slurm.conf, read again after a failure: the daemon starts another reader only when the file itself changes.
    fn conf(&mut self) -> Result<SlurmConf, NativeProblem> {
        if self.conf.is_none() {
            let path = slurm_conf::find(self.path.as_deref())?;
            let conf = slurm_conf::read(&path)?;
            for path in &conf.exposed {
                log(&format_args!("{}: others than its owner may write to it", path.display()));
            }
            if self.token.is_some() && !conf.allows_tokens {
                log(&"slurm.conf has no AuthAltTypes=auth/jwt, so that slurmctld may refuse the token");
            }
            self.conf = Some(conf);
        }
        self.conf.clone().ok_or_else(|| NativeProblem::new(Cause::Conf, "no slurm.conf"))
    }

    /// Asks one controller, with one number after the other until its highest is known.
    fn ask(
        &mut self,
        conf: &SlurmConf,
        controller: &Controller,
        rpc: bool,
        share: Share,
    ) -> Result<Found, NativeProblem> {
        let slurm_user = self.hosts.user(&conf.user, share.step(NAME));
        let addresses = self.hosts.addresses(&controller.address, conf.ipv4, conf.ipv6, share.step(NAME));
        let (first, last) = conf.ports;
        self.turns = self.turns.checked_add(1).unwrap_or(0);
        let width = last.saturating_sub(first).saturating_add(1).max(1);
        let port = first.saturating_add(self.turns % width);
        let key = format!("{}:{first}", controller.name);
        let before = self.remembered.of(&key).clone();
        let mut found: Option<Found> = None;
        let mut problem = NativeProblem::new(Cause::Refused(None), "it refuses the request");
        for _ in 0..ATTEMPTS {
            let number = match self.remembered.of(&key).next(now()) {
                Ok(number) => number,
                Err(until) => {
                    problem = paused(until);
                    break;
                }
            };
            if found.as_ref().is_some_and(|found| found.number == number) {
                break;
            }
            let mut identity = Identity::new(conf, self.token.as_mut());
            let mut exchange = Exchange { number, rpc, slurm_user, identity: &mut identity };
            match exchange.run(&addresses, port, share) {
                Ok(reply) => {
                    let unsigned = !reply.is_signed && self.token.is_none() && number <= LAST_SIGNED;
                    let numbers = self.remembered.of(&key);
                    numbers.accept(number, reply.statistics.req_time_start);
                    if unsigned {
                        // 23.02 and 23.11 accept such a number but do not sign: they know a higher one.
                        let text = "its reply has no credential, which Slurm up to 22.05 sends";
                        problem = NativeProblem::new(Cause::Imposter, text);
                        if numbers.next(now()) == Ok(number) {
                            break;
                        }
                        continue;
                    }
                    if !reply.is_signed {
                        self.check_owner(&reply, slurm_user)?;
                    }
                    found = Some(Found { reply, number });
                }
                Err(NativeProblem { cause: Cause::Refused(Some(how)), .. }) => {
                    self.remembered.of(&key).refuse(number, how, now());
                }
                Err(failed) => {
                    self.remembered.of(&key).interrupt();
                    if matches!(failed.cause, Cause::Connect | Cause::ConnectTimeout) {
                        self.hosts.forget(&controller.address);
                    }
                    problem = failed;
                    break;
                }
            }
        }
        if *self.remembered.of(&key) != before {
            self.remembered.write();
        }
        found.ok_or(problem)
    }

    /// On this host, only root or SlurmUser may listen on slurmctld's port.
    fn check_owner(&mut self, reply: &Reply, slurm_user: Option<u32>) -> Result<(), NativeProblem> {
        let Some(address) = reply.local.filter(|_| self.owner.is_none_or(|seen| seen.elapsed() > OWNER))
        else {
            return Ok(());
        };
        match listener::owner(address) {
            Some(uid) if uid != 0 && Some(uid) != slurm_user => {
                let text = format!(
                    "port {} of this host belongs to user {uid}, neither root nor SlurmUser{}",
                    address.port(),
                    unknown(slurm_user)
                );
                Err(NativeProblem::new(Cause::Imposter, text))
            }
            _ => {
                self.owner = Some(Instant::now());
                Ok(())
            }
        }
    }
}

/// The problem to report, if several controllers had one.
fn told(problems: &[(String, NativeProblem)]) -> NativeProblem {
    let is_away = |cause| matches!(cause, Cause::Connect | Cause::ConnectTimeout | Cause::Name);
    let first = |fits: &dyn Fn(Cause) -> bool| problems.iter().find(|(_, problem)| fits(problem.cause));
    // A backup that waits does not explain why the one before it does not answer, unless that is away.
    let found = first(&|cause| !is_away(cause) && cause != Cause::Standby);
    let found = found.or_else(|| first(&|cause| cause == Cause::Standby)).or(problems.first());
    let cause = found.map_or(Cause::Connect, |(_, problem)| problem.cause);
    let texts: Vec<String> = problems.iter().map(|(name, problem)| format!("{name}: {problem}")).collect();
    NativeProblem::new(cause, texts.join("; "))
}

fn paused(until: i64) -> NativeProblem {
    let minutes = until.saturating_sub(now()).max(0) / 60 + 1;
    let text = format!("it refuses this host's requests; next attempt in {minutes} min");
    NativeProblem::new(Cause::Refused(None), text)
}

/// Unix seconds.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
