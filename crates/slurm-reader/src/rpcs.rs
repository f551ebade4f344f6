//! The calls that execute requests. Tests replace them.

use slurm_snapshot::{Reading, Request, Role};

use crate::calls::CallError;
use crate::conf::Conf;

/// The calls that execute requests.
pub trait Rpcs {
    /// Checks who would get a token that libslurm sends by itself with a request of this role.
    ///
    /// # Errors
    /// A user of this host other than root and SlurmUser.
    fn check_listeners(&mut self, _role: Role) -> Result<(), CallError> {
        Ok(())
    }
    /// Lets only this host's own slurmctld be asked, until `end_own`.
    ///
    /// # Errors
    /// Nobody listens there, or this host is not in SlurmctldHost.
    fn begin_own(&mut self) -> Result<(), CallError>;
    /// Lets every controller be asked again.
    fn end_own(&mut self, has_answered: bool);
    /// ClusterName of libslurm's own configuration.
    fn own_cluster(&mut self) -> Option<String>;
    /// slurmctld's configuration; `None` if it has not changed since `since`.
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
