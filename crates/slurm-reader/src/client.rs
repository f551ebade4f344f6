//! Answers the daemon's requests by libslurm: each by its calls, with the reply as a plain type.
//!
//! Every call may block for any time, and [`Client::init`] may end the process. The reply of a
//! survey is counted while it is walked, and freed at once. The memory of the replies of jobs,
//! nodes and finished jobs is returned to the kernel. If nothing has changed since the time in the
//! request, slurmctld sends no reply at all.

use std::ffi::CStr;
use std::time::Instant;

use reader_process::micros;
use slurm_snapshot::{Controller, Reading, Release, Reply, ReplyKind, ReplyOptions, Request, Role};
use slurm_sys::slurm_conf_t;

use crate::calls::{CallResult, Libslurm, give_memory_back};
use crate::conf::Conf;
use crate::nodes::CountedNodes;
use crate::own_host::OwnHost;
use crate::rpcs::Rpcs;
use crate::unpacked::Unpacked;
use crate::values::text;
use crate::{
    accounting, associations, conf, dbd_statistics, jobs, listeners, lists, nodes, operator,
    partitions, stats, version,
};

/// An initialized libslurm, and the facts about the last replies that the next requests depend on.
#[derive(Debug)]
pub struct Client {
    libslurm: Libslurm,
    own: OwnHost,
    /// Whether no job was pending in the last reply. While one is, jobs are always requested whole:
    /// slurmctld calls them unchanged although backfill makes plans again in every cycle, and the
    /// scheduler gives another reason (BeginTime).
    none_waits: bool,
    /// Whether a node was in an active reservation in the last reply. While one is, nodes are
    /// always requested whole: slurmctld calls them unchanged when a reservation without the flag
    /// MAINT has ended.
    is_reserved: bool,
    /// Whether slurmctld counts what associations use: AccountingStorageEnforce has `limits`.
    limits: bool,
}

impl Rpcs for Client {
    fn check_listeners(&mut self, role: Role) -> CallResult<()> {
        listeners::check_listeners(&mut self.libslurm, role)
    }

    fn begin_own(&mut self) -> CallResult<()> {
        self.own.begin_own(&mut self.libslurm)
    }

    fn end_own(&mut self, has_answered: bool) {
        self.own.end_own(&mut self.libslurm, has_answered);
    }

    fn own_cluster(&mut self) -> Option<String> {
        self.libslurm.own_conf(|conf| text(conf.cluster_name())).flatten()
    }

    fn conf(&mut self, since: i64) -> CallResult<Option<Conf>> {
        let conf = self.libslurm.conf(since)?.map(|reply| conf::from_reply(reply.get()));
        self.limits = conf.as_ref().map_or(self.limits, |conf| conf.limits);
        Ok(conf)
    }

    fn operator(&mut self) -> Option<bool> {
        operator::is_operator(&mut self.libslurm)
    }

    fn load(&mut self, request: &Request, reading: &mut Reading) -> CallResult<()> {
        let Request { reply, since: known, options, .. } = *request;
        let libslurm = &mut self.libslurm;
        let since = known.unwrap_or(0);
        let loaded = match reply {
            ReplyKind::Statistics => {
                reading.statistics =
                    Some(stats::from_reply(libslurm.statistics()?.get(), options.rpc));
                return Ok(());
            }
            ReplyKind::Reset => return libslurm.reset(),
            ReplyKind::Finished => {
                let (visibility, finished) = accounting::finished(libslurm, request)?;
                reading.visibility = Some(visibility);
                Some(Reply::Finished(Box::new(finished)))
            }
            ReplyKind::Jobs => self.jobs(request)?,
            ReplyKind::Nodes => self.nodes(since, options)?,
            ReplyKind::Licenses => {
                libslurm.licenses(since)?.map(|reply| Reply::Licenses(lists::licenses(reply.get())))
            }
            ReplyKind::Reservations => {
                let reply = libslurm.reservations(since)?;
                reply.map(|reply| Reply::Reservations(lists::reservations(reply.get())))
            }
            // glibc may keep the reply's memory, 4 KB for each association: getting it from the
            // kernel again would take a third of the call.
            ReplyKind::Associations => {
                let reply = libslurm.associations()?;
                let associations =
                    associations::from_reply(reply.get(), options.users, self.limits);
                Some(Reply::Associations(Box::new(associations)))
            }
            ReplyKind::Controllers if options.follow => {
                Some(Reply::Ahead(self.own.ahead(libslurm)))
            }
            ReplyKind::Controllers => Some(controllers(libslurm)),
            ReplyKind::Slurmdbd => {
                Some(Reply::Slurmdbd(Box::new(dbd_statistics::load(libslurm, options.users)?)))
            }
        };
        reading.reply = Some(loaded.unwrap_or(Reply::Unchanged));
        Ok(())
    }
}

impl Client {
    /// Initializes libslurm with `conf`, or else the file in SLURM_CONF, or else libslurm's default
    /// slurm.conf.
    ///
    /// If libslurm cannot read it, libslurm ends the process with status 1, after retrying for up
    /// to a minute.
    #[must_use]
    pub fn init(conf: Option<&CStr>) -> Self {
        let libslurm = Libslurm::init(conf);
        let own = OwnHost::default();
        Self { libslurm, own, none_waits: false, is_reserved: false, limits: false }
    }

    /// Requests and counts the jobs; `None` if nothing has changed since the request's `since`, not
    /// even what slurmctld does not call a change.
    fn jobs(&mut self, request: &Request) -> CallResult<Option<Reply>> {
        let sent = Instant::now();
        let since = request.since.filter(|_| self.none_waits).unwrap_or(0);
        let Some(reply) = self.libslurm.jobs(since)? else { return Ok(None) };
        let jobs =
            jobs::from_reply(reply.get(), sent.elapsed(), request.options, request.kept.clone());
        drop(reply);
        give_memory_back();
        self.none_waits = jobs.waiting.submitted.is_none();
        Ok(Some(Reply::Jobs(Box::new(jobs))))
    }

    /// Nodes, and their partitions if `options` ask for them; `None` if nothing has changed since
    /// `since`.
    fn nodes(&mut self, since: i64, options: ReplyOptions) -> CallResult<Option<Reply>> {
        let changes_silently = self.is_reserved || self.saves_power_silently();
        let mut counted = self.counted_nodes(if changes_silently { 0 } else { since }, options)?;
        if counted.is_none() && options.partitions && self.libslurm.partitions(since)?.is_some() {
            counted = self.counted_nodes(0, options)?;
        }
        let Some(mut counted) = counted else { return Ok(None) };
        self.is_reserved = counted.nodes.reserved.nodes.total > 0;
        if options.partitions {
            let reply = self.libslurm.partitions(0)?;
            counted.nodes.partitions =
                reply.map(|reply| partitions::from_reply(reply.get(), &counted));
        }
        give_memory_back();
        Ok(Some(Reply::Nodes(Box::new(counted.nodes))))
    }

    fn counted_nodes(
        &mut self,
        since: i64,
        options: ReplyOptions,
    ) -> CallResult<Option<CountedNodes>> {
        Ok(self.libslurm.nodes(since)?.map(|reply| nodes::from_reply(reply.get(), options)))
    }

    /// Whether power saving is configured, and slurmctld calls nodes unchanged that it powers up or
    /// down, as it does up to 22.05.
    fn saves_power_silently(&mut self) -> bool {
        let saves_power = |conf: Unpacked<'_, slurm_conf_t>| {
            !conf.suspend_program.is_null() || !conf.resume_program.is_null()
        };
        version::built_for() < Release::new(23, 2)
            && self.libslurm.own_conf(saves_power).unwrap_or(true)
    }
}

/// `slurm_ping` of each controller in libslurm's own configuration, which was read when this
/// process started. slurmctld's may name others by now.
fn controllers(libslurm: &mut Libslurm) -> Reply {
    let count = libslurm.own_conf(|conf| conf.control_machine().count()).unwrap_or_default();
    let pinged = (0..).take(count).map(|index| {
        let before = Instant::now();
        let up = libslurm.ping(index);
        Controller { index, up, elapsed: Some(micros(before.elapsed())) }
    });
    Reply::Controllers(pinged.collect())
}
