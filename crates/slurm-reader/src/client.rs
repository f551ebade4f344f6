//! libslurm as the conversation uses it: each request by its call, and the reply as a plain type.
//!
//! Every call may block for any time, and [`Client::init`] may end the process.

use std::ffi::CStr;

use slurm_snapshot::{Finished, Reply, Request, Statistics, Visibility};

use crate::calls::{CallError, Libslurm};
use crate::conf::{self, Conf};
use crate::own_host::OwnHost;
use crate::rpcs::Rpcs;
use crate::survey_calls::Remembered;
use crate::values::text;
use crate::{accounting, operator, stats, survey_calls};

/// An initialized libslurm, and what is remembered between two calls.
#[derive(Debug)]
pub struct Client {
    libslurm: Libslurm,
    own: OwnHost,
    remembered: Remembered,
}

impl Client {
    /// Reads `conf`, or else the file in SLURM_CONF, or else libslurm's default slurm.conf.
    ///
    /// If libslurm cannot read it, libslurm ends the process with status 1, after retrying for up to a minute.
    #[must_use]
    pub fn init(conf: Option<&CStr>) -> Self {
        Self { libslurm: Libslurm::init(conf), own: OwnHost::default(), remembered: Remembered::default() }
    }
}

impl Rpcs for Client {
    fn statistics(&mut self, rpc: bool) -> Result<Statistics, CallError> {
        Ok(stats::from_reply(self.libslurm.statistics()?.get(), rpc))
    }

    fn begin_own(&mut self) -> Result<(), CallError> {
        self.own.begin(&mut self.libslurm)
    }

    fn end_own(&mut self, has_answered: bool) {
        self.own.end(&mut self.libslurm, has_answered);
    }

    fn reset(&mut self) -> Result<(), CallError> {
        self.libslurm.reset()
    }

    fn own_cluster(&mut self) -> Option<String> {
        self.libslurm.own_conf(|conf| text(conf.cluster_name())).flatten()
    }

    fn conf(&mut self, since: i64) -> Result<Option<Conf>, CallError> {
        Ok(self.libslurm.conf(since)?.map(|reply| conf::from_reply(reply.get())))
    }

    fn operator(&mut self) -> Option<bool> {
        operator::is_operator(&mut self.libslurm)
    }

    fn load(&mut self, request: &Request) -> Result<Reply, CallError> {
        survey_calls::load(&mut self.libslurm, &mut self.own, &mut self.remembered, request)
    }

    fn finished(&mut self, request: &Request) -> Result<(Visibility, Finished), CallError> {
        accounting::finished(&mut self.libslurm, request)
    }
}
