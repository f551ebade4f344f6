//! The calls that execute requests. Tests replace them.

use slurm_snapshot::{Finished, Reply, Request, Statistics, Visibility};

use crate::client::{CallError, Client};
use crate::conf::Conf;

/// The calls that execute requests.
pub trait Rpcs {
    /// See [`Client::statistics`].
    ///
    /// # Errors
    /// The call failed.
    fn statistics(&mut self, rpc: bool) -> Result<Statistics, CallError>;
    /// See `Client::begin_own`.
    ///
    /// # Errors
    /// Nobody listens there, or this host is not in SlurmctldHost.
    fn begin_own(&mut self) -> Result<(), CallError>;
    /// See `Client::end_own`.
    fn end_own(&mut self, has_answered: bool);
    /// See [`Client::reset`].
    ///
    /// # Errors
    /// The call failed.
    fn reset(&mut self) -> Result<(), CallError>;
    /// See [`Client::own_cluster`].
    fn own_cluster(&mut self) -> Option<String>;
    /// See [`Client::conf`].
    ///
    /// # Errors
    /// The call failed.
    fn conf(&mut self, since: i64) -> Result<Option<Conf>, CallError>;
    /// See [`Client::operator`].
    fn operator(&mut self) -> Option<bool>;
    /// The reply to a survey's `request`.
    ///
    /// # Errors
    /// A call failed.
    fn load(&mut self, request: &Request) -> Result<Reply, CallError>;
    /// See [`Client::finished`].
    ///
    /// # Errors
    /// A call failed.
    fn finished(&mut self, request: &Request) -> Result<(Option<Visibility>, Finished), CallError>;
}

impl Rpcs for Client {
    fn statistics(&mut self, rpc: bool) -> Result<Statistics, CallError> {
        self.statistics(rpc)
    }

    fn begin_own(&mut self) -> Result<(), CallError> {
        self.begin_own()
    }

    fn end_own(&mut self, has_answered: bool) {
        self.end_own(has_answered);
    }

    fn reset(&mut self) -> Result<(), CallError> {
        self.reset()
    }

    fn own_cluster(&mut self) -> Option<String> {
        self.own_cluster()
    }

    fn conf(&mut self, since: i64) -> Result<Option<Conf>, CallError> {
        self.conf(since)
    }

    fn operator(&mut self) -> Option<bool> {
        self.operator()
    }

    fn load(&mut self, request: &Request) -> Result<Reply, CallError> {
        self.load(request)
    }

    fn finished(&mut self, request: &Request) -> Result<(Option<Visibility>, Finished), CallError> {
        self.finished(request)
    }
}
