//! The calls that execute requests. Tests replace them.

use slurm_snapshot::{Finished, Reply, Request, Statistics, Visibility};

use crate::calls::CallError;
use crate::conf::Conf;

/// The calls that execute requests.
pub trait Rpcs {
    /// slurmctld's statistics, with the RPC tables if `rpc`.
    ///
    /// # Errors
    /// slurmctld did not answer, or not with statistics.
    fn statistics(&mut self, rpc: bool) -> Result<Statistics, CallError>;
    /// Until `end_own`, only this host's own slurmctld is asked.
    ///
    /// # Errors
    /// Nobody listens there, or this host is not in SlurmctldHost.
    fn begin_own(&mut self) -> Result<(), CallError>;
    /// From now on every controller may be asked again.
    fn end_own(&mut self, has_answered: bool);
    /// Resets slurmctld's statistics: needs an operator.
    ///
    /// # Errors
    /// slurmctld did not answer, or refused.
    fn reset(&mut self) -> Result<(), CallError>;
    /// ClusterName of libslurm's own configuration.
    fn own_cluster(&mut self) -> Option<String>;
    /// slurmctld's configuration; `None` if it has not changed since `since`.
    ///
    /// # Errors
    /// slurmctld did not answer, or not with its configuration.
    fn conf(&mut self, since: i64) -> Result<Option<Conf>, CallError>;
    /// Whether slurmdbd's records make this process's user an operator; `None` if slurmctld does not say.
    fn operator(&mut self) -> Option<bool>;
    /// The reply to a survey's `request`.
    ///
    /// # Errors
    /// A call failed.
    fn load(&mut self, request: &Request) -> Result<Reply, CallError>;
    /// The jobs that ended from the request's `since` to its `until`, and what slurmdbd may hide from this user.
    ///
    /// # Errors
    /// slurm.conf names no slurmdbd; it or its database did not answer.
    fn finished(&mut self, request: &Request) -> Result<(Visibility, Finished), CallError>;
}
