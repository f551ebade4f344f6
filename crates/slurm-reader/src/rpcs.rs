//! The calls that execute requests. Tests replace them.

use slurm_snapshot::{Reading, Request, Role};

use crate::calls::CallError;
use crate::conf::Conf;

/// The calls of libslurm that execute the daemon's requests.
pub trait Rpcs {
    /// Checks who listens where libslurm would send a token by itself with a request of this role.
    ///
    /// # Errors
    /// A user of this host other than root and SlurmUser listens there, or it is not known who
    /// does.
    fn check_listeners(&mut self, _role: Role) -> Result<(), CallError> {
        Ok(())
    }
    /// Directs all requests to this host's own slurmctld, until `end_own`.
    ///
    /// # Errors
    /// Nobody listens there, or this host is not in SlurmctldHost.
    fn begin_own(&mut self) -> Result<(), CallError>;
    /// Lets requests go to every controller again. `has_answered` says whether this host's own
    /// slurmctld answered with figures.
    fn end_own(&mut self, has_answered: bool);
    /// Returns ClusterName of libslurm's own configuration; `None` if it has none.
    fn own_cluster(&mut self) -> Option<String>;
    /// Requests slurmctld's configuration; `None` if it has not changed since `since`, Unix
    /// seconds.
    ///
    /// # Errors
    /// slurmctld did not answer, or not with its configuration.
    fn conf(&mut self, since: i64) -> Result<Option<Conf>, CallError>;
    /// Whether slurmdbd's records make this process's user an operator; `None` if slurmctld does
    /// not say.
    fn operator(&mut self) -> Option<bool>;
    /// Puts the reply to `request` into `reading`: the statistics or another reply, and what
    /// slurmdbd may hide of it from this user.
    ///
    /// # Errors
    /// A call failed.
    fn load(&mut self, request: &Request, reading: &mut Reading) -> Result<(), CallError>;
}
