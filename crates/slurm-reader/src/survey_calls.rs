//! The calls for the cluster itself: jobs, nodes with their partitions, licences, reservations, controllers.
//!
//! A reply is counted while it is walked and freed at once, and its memory is returned to the kernel. If nothing has
//! changed since the time in the request, slurmctld sends no reply at all.

use std::time::Instant;

use reader_process::micros;
use slurm_snapshot::{Controller, Partitions, Release, Reply, ReplyKind, ReplyOptions, Request};
use slurm_sys::slurm_conf_t;

use crate::calls::{self, CallResult, Libslurm};
use crate::nodes::CountedNodes;
use crate::own_host::OwnHost;
use crate::unpacked::Unpacked;
use crate::{associations, conf, dbd_statistics, jobs, lists, nodes, partitions, version};

/// What is remembered of the last replies.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    /// Whether no job waited. Backfill makes plans again in every cycle, and the scheduler gives another reason (BeginTime),
    /// and slurmctld calls the jobs unchanged all the same.
    none_waits: bool,
    /// Whether a node was in an active reservation. That one without the flag MAINT has ended is no change of its nodes.
    is_reserved: bool,
}

/// The reply to a survey's `request`.
pub(crate) fn load(
    libslurm: &mut Libslurm,
    own: &mut OwnHost,
    remembered: &mut Remembered,
    request: &Request,
) -> CallResult<Reply> {
    let Request { reply, since: known, options, .. } = *request;
    let since = known.unwrap_or(0);
    let loaded = match reply {
        ReplyKind::Jobs => jobs(libslurm, remembered, known, options)?,
        ReplyKind::Nodes => nodes(libslurm, remembered, since, options)?,
        ReplyKind::Licenses => {
            libslurm.licenses(since)?.map(|reply| Reply::Licenses(lists::licenses(reply.get())))
        }
        ReplyKind::Reservations => {
            libslurm.reservations(since)?.map(|reply| Reply::Reservations(lists::reservations(reply.get())))
        }
        // glibc may keep the reply's memory, 4 KB for each association: getting it from the kernel again would take a
        // third of the call.
        ReplyKind::Associations => {
            let associations = associations::from_reply(libslurm.associations()?.get(), options.users);
            Some(Reply::Associations(Box::new(associations)))
        }
        ReplyKind::Controllers if options.follow => Some(Reply::Ahead(own.ahead(libslurm))),
        ReplyKind::Controllers => Some(controllers(libslurm)),
        ReplyKind::Slurmdbd => {
            Some(Reply::Slurmdbd(Box::new(dbd_statistics::load(libslurm, options.users)?)))
        }
        // These are not replies to surveys.
        ReplyKind::Statistics | ReplyKind::Reset | ReplyKind::Finished => None,
    };
    Ok(loaded.unwrap_or(Reply::Unchanged))
}

/// `None` if nothing has changed since `known`, and nothing can have that is no change for slurmctld.
fn jobs(
    libslurm: &mut Libslurm,
    remembered: &mut Remembered,
    known: Option<i64>,
    options: ReplyOptions,
) -> CallResult<Option<Reply>> {
    let asked = Instant::now();
    let since = known.filter(|_| remembered.none_waits).unwrap_or(0);
    let Some(reply) = libslurm.jobs(since)? else { return Ok(None) };
    let jobs = jobs::from_reply(reply.get(), known, asked.elapsed(), options);
    drop(reply);
    calls::give_memory_back();
    remembered.none_waits = jobs.waiting.submitted.is_none();
    Ok(Some(Reply::Jobs(Box::new(jobs))))
}

/// Nodes, and their partitions if `options` ask for them; `None` if nothing has changed since `since`.
fn nodes(
    libslurm: &mut Libslurm,
    remembered: &mut Remembered,
    since: i64,
    options: ReplyOptions,
) -> CallResult<Option<Reply>> {
    let ReplyOptions { partitions, .. } = options;
    let changes_silently = remembered.is_reserved || saves_power_silently(libslurm);
    let nodes_since = if changes_silently { 0 } else { since };
    let mut counted = count_nodes(libslurm, nodes_since, options)?;
    if counted.is_none() {
        let moved = partitions && count_partitions(libslurm, since, &CountedNodes::default())?.is_some();
        if moved {
            counted = count_nodes(libslurm, 0, options)?;
        }
    }
    let Some(mut counted) = counted else { return Ok(None) };
    remembered.is_reserved = counted.nodes.reserved.nodes.total > 0;
    if partitions {
        counted.nodes.partitions = count_partitions(libslurm, 0, &counted)?;
    }
    calls::give_memory_back();
    Ok(Some(Reply::Nodes(Box::new(counted.nodes))))
}

fn count_nodes(
    libslurm: &mut Libslurm,
    since: i64,
    options: ReplyOptions,
) -> CallResult<Option<CountedNodes>> {
    Ok(libslurm.nodes(since)?.map(|reply| nodes::from_reply(reply.get(), options)))
}

fn count_partitions(
    libslurm: &mut Libslurm,
    since: i64,
    nodes: &CountedNodes,
) -> CallResult<Option<Partitions>> {
    Ok(libslurm.partitions(since)?.map(|reply| partitions::from_reply(reply.get(), nodes)))
}

/// `slurm_ping` of each controller in libslurm's own configuration, which was read when this process started.
/// slurmctld's may name others by now.
fn controllers(libslurm: &mut Libslurm) -> Reply {
    let hosts = libslurm.own_conf(conf::controllers).unwrap_or_default();
    let pinged = (0_u32..).zip(hosts).map(|(index, host)| {
        let before = Instant::now();
        let up = libslurm.ping(index);
        Controller { host, index, up, elapsed: Some(micros(before.elapsed())) }
    });
    Reply::Controllers(pinged.collect())
}

/// Whether nodes that are powered up or down are no change for slurmctld: up to 22.05.
fn saves_power_silently(libslurm: &mut Libslurm) -> bool {
    let saves_power =
        |conf: Unpacked<'_, slurm_conf_t>| !conf.suspend_program.is_null() || !conf.resume_program.is_null();
    version::built_for() < Release::new(23, 2) && libslurm.own_conf(saves_power).unwrap_or(true)
}
