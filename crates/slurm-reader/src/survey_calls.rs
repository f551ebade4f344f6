//! The calls for the cluster itself: jobs, nodes with their partitions, licences, reservations, controllers.
//!
//! A reply is counted while it is walked and freed at once, and its memory is returned to the kernel. If nothing has
//! changed since the time in the request, slurmctld sends no reply at all.

use std::ffi::c_int;
use std::time::Instant;

use slurm_snapshot::{Controller, Finished, Partitions, Release, Reply, ReplyKind, ReplyOptions, Request};
use slurm_sys::{
    assoc_mgr_info_msg_t, assoc_mgr_info_request_msg_t, job_info_msg_t, license_info_msg_t, node_info_msg_t,
    partition_info_msg_t, reserve_info_msg_t, slurm_conf_t,
};

use crate::client::{CallError, Client, failure, receive};
use crate::nodes::Walked;
use crate::raw::{self, Freed, RawReply, SUCCESS, text};
use crate::{associations, conf, finished_ctld, jobs, lists, nodes, partitions, version};

/// `SHOW_ALL`: include hidden partitions.
const ALL: u16 = 1;

/// `SHOW_DETAIL`: include the GRES in use on nodes.
const DETAIL: u16 = 1 << 1;

/// `SHOW_MIXED`: a node that is partly allocated is mixed.
const MIXED: u16 = 1 << 3;

/// `SHOW_LOCAL`: only this cluster; without it libslurm asks for the federation first, with another RPC.
const LOCAL: u16 = 1 << 4;

/// `ASSOC_MGR_INFO_FLAG_ASSOC`.
const ASSOCIATIONS: u32 = 1;

/// `ASSOC_MGR_INFO_FLAG_QOS`.
const QOS: u32 = 1 << 2;

/// `SHOW_FUTURE`: include nodes that are not there yet.
const FUTURE: u16 = 1 << 7;

impl Client {
    /// The reply to a survey's `request`.
    ///
    /// # Errors
    /// A call failed.
    pub(crate) fn load(&mut self, request: &Request) -> Result<Reply, CallError> {
        let Request { reply, since, options, .. } = *request;
        let loaded = match reply {
            ReplyKind::Jobs => self.jobs(since, options)?,
            ReplyKind::Nodes => self.nodes(since, options)?,
            ReplyKind::Licenses => self.licenses(since)?,
            ReplyKind::Reservations => self.reservations(since)?,
            ReplyKind::Associations => Some(self.associations(options)?),
            ReplyKind::Controllers if options.follow => Some(Reply::Ahead(self.ahead())),
            ReplyKind::Controllers => Some(self.controllers()),
            ReplyKind::Slurmdbd => Some(Reply::Slurmdbd(Box::new(self.dbd_statistics(options.users)?))),
            // These are not replies to surveys.
            ReplyKind::Statistics | ReplyKind::Reset | ReplyKind::Finished => None,
        };
        Ok(loaded.unwrap_or(Reply::Unchanged))
    }

    /// `slurm_load_jobs`; `None` if nothing has changed since `known`.
    fn jobs(&mut self, known: Option<i64>, options: ReplyOptions) -> Result<Option<Reply>, CallError> {
        let since = known.unwrap_or(0);
        let call = |out: &mut *mut job_info_msg_t| {
            // SAFETY: the pointer is valid during the call.
            unsafe { slurm_sys::slurm_load_jobs(since, out, ALL | LOCAL) }
        };
        // SAFETY: slurm_load_jobs leaves NULL or a reply that its caller frees with its FREE.
        let reply = unsafe { receive("slurm_load_jobs", since, call) }?;
        let jobs = reply.map(|reply| {
            // SAFETY: libslurm unpacks the array with its count, its strings with their NULs and its bitmaps.
            let jobs = unsafe { jobs::from_reply(reply.get(), known, options) };
            drop(reply);
            raw::give_memory_back();
            jobs
        });
        Ok(jobs.map(|jobs| Reply::Jobs(Box::new(jobs))))
    }

    /// The jobs in a final state that slurmctld still has, by `slurm_load_jobs`.
    pub(crate) fn finished_of_slurmctld(&mut self, users: bool) -> Result<Finished, CallError> {
        let age = own_conf(|conf| conf.min_job_age).unwrap_or(0);
        let call = |out: &mut *mut job_info_msg_t| {
            // SAFETY: the pointer is valid during the call.
            unsafe { slurm_sys::slurm_load_jobs(0, out, ALL | LOCAL) }
        };
        // SAFETY: slurm_load_jobs leaves NULL or a reply that its caller frees with its FREE.
        let reply = unsafe { RawReply::receive(call) }.map_err(|error| failure("slurm_load_jobs", &error))?;
        // SAFETY: libslurm unpacks the array with its count, its strings with their NULs and its bitmaps.
        let finished = unsafe { finished_ctld::from_reply(reply.get(), age, users) };
        drop(reply);
        raw::give_memory_back();
        Ok(finished)
    }

    /// `slurm_load_node`, and `slurm_load_partitions` if `options` ask for partitions; `None` if nothing has changed
    /// since `since`.
    fn nodes(&mut self, since: Option<i64>, options: ReplyOptions) -> Result<Option<Reply>, CallError> {
        let ReplyOptions { partitions, rows, .. } = options;
        let mut walked = self.walk_nodes(since.filter(|_| !saves_power_silently()).unwrap_or(0), rows)?;
        if walked.is_none() {
            let moved = partitions && self.walk_partitions(since.unwrap_or(0), &Walked::default())?.is_some();
            if moved {
                walked = self.walk_nodes(0, rows)?;
            }
        }
        let Some(mut walked) = walked else { return Ok(None) };
        if partitions {
            walked.nodes.partitions = self.walk_partitions(0, &walked)?;
        }
        raw::give_memory_back();
        Ok(Some(Reply::Nodes(Box::new(walked.nodes))))
    }

    fn walk_nodes(&mut self, since: i64, rows: bool) -> Result<Option<Walked>, CallError> {
        let call = |out: &mut *mut node_info_msg_t| {
            // SAFETY: the pointer is valid during the call.
            unsafe { slurm_sys::slurm_load_node(since, out, ALL | DETAIL | MIXED | LOCAL | FUTURE) }
        };
        // SAFETY: slurm_load_node leaves NULL or a reply that its caller frees with its FREE.
        let reply = unsafe { receive("slurm_load_node", since, call) }?;
        // SAFETY: libslurm unpacks the array with its count, its strings with their NULs and its plugin data.
        Ok(reply.map(|reply| unsafe { nodes::from_reply(reply.get(), rows) }))
    }

    fn walk_partitions(&mut self, since: i64, nodes: &Walked) -> Result<Option<Partitions>, CallError> {
        let call = |out: &mut *mut partition_info_msg_t| {
            // SAFETY: the pointer is valid during the call.
            unsafe { slurm_sys::slurm_load_partitions(since, out, ALL | LOCAL) }
        };
        // SAFETY: slurm_load_partitions leaves NULL or a reply that its caller frees with its FREE.
        let reply = unsafe { receive("slurm_load_partitions", since, call) }?;
        // SAFETY: libslurm unpacks the array with its count, its names with their NULs and node_inx with its -1.
        Ok(reply.map(|reply| unsafe { partitions::from_reply(reply.get(), nodes) }))
    }

    /// `slurm_load_licenses`; `None` if nothing has changed since `since`.
    fn licenses(&mut self, since: Option<i64>) -> Result<Option<Reply>, CallError> {
        let since = since.unwrap_or(0);
        let call = |out: &mut *mut license_info_msg_t| {
            // SAFETY: the pointer is valid during the call.
            unsafe { slurm_sys::slurm_load_licenses(since, out, ALL) }
        };
        // SAFETY: slurm_load_licenses leaves NULL or a reply that its caller frees with its FREE.
        let reply = unsafe { receive("slurm_load_licenses", since, call) }?;
        // SAFETY: libslurm unpacks the array with its count, and its names with their NULs.
        Ok(reply.map(|reply| Reply::Licenses(unsafe { lists::licenses(reply.get()) })))
    }

    /// `slurm_load_reservations`; `None` if nothing has changed since `since`.
    fn reservations(&mut self, since: Option<i64>) -> Result<Option<Reply>, CallError> {
        let since = since.unwrap_or(0);
        let call = |out: &mut *mut reserve_info_msg_t| {
            // SAFETY: the pointer is valid during the call.
            unsafe { slurm_sys::slurm_load_reservations(since, out) }
        };
        // SAFETY: slurm_load_reservations leaves NULL or a reply that its caller frees with its FREE.
        let reply = unsafe { receive("slurm_load_reservations", since, call) }?;
        // SAFETY: libslurm unpacks the array with its count, and its names with their NULs.
        Ok(reply.map(|reply| Reply::Reservations(unsafe { lists::reservations(reply.get()) })))
    }

    /// `slurm_load_assoc_mgr_info` for all associations and QOS.
    fn associations(&mut self, options: ReplyOptions) -> Result<Reply, CallError> {
        let mut request = assoc_mgr_info_request_msg_t { flags: ASSOCIATIONS | QOS, ..Default::default() };
        let call = |out: &mut *mut assoc_mgr_info_msg_t| {
            // SAFETY: both pointers are valid during the call, and it keeps neither.
            unsafe { slurm_sys::slurm_load_assoc_mgr_info(&raw mut request, out) }
        };
        // SAFETY: slurm_load_assoc_mgr_info leaves NULL or a reply that its caller frees with its FREE.
        let reply = unsafe { RawReply::receive(call) };
        let reply = reply.map_err(|error| failure("slurm_load_assoc_mgr_info", &error))?;
        // SAFETY: libslurm unpacks lists of these records or leaves them NULL, names and arrays with their counts, and
        // strings with their NULs.
        let associations = unsafe { associations::from_reply(reply.get(), options.users) };
        // glibc may keep the reply's memory, 4 KB for each association: getting it from the kernel again would take a
        // third of the call.
        Ok(Reply::Associations(Box::new(associations)))
    }

    /// ClusterName of libslurm's own configuration.
    pub fn own_cluster(&mut self) -> Option<String> {
        // SAFETY: a string with its NUL, or NULL.
        own_conf(|conf| unsafe { text(conf.cluster_name) }).flatten().filter(|name| !name.is_empty())
    }

    /// `slurm_ping` of each controller in libslurm's own configuration, which was read when this process started.
    /// slurmctld's may name others by now.
    fn controllers(&mut self) -> Reply {
        let pinged = (0_u32..).zip(own_controllers()).map(|(index, host)| {
            let before = Instant::now();
            let up = self.ping(index);
            let elapsed = u64::try_from(before.elapsed().as_micros()).unwrap_or(u64::MAX);
            Controller { host, index, up, elapsed: Some(elapsed) }
        });
        Reply::Controllers(pinged.collect())
    }

    /// `slurm_ping` of one controller in libslurm's own list. With the index after the last one it would read past the
    /// end.
    pub(crate) fn ping(&mut self, index: u32) -> bool {
        c_int::try_from(index).is_ok_and(|index| {
            // SAFETY: takes an index, which the caller has from the list.
            let code = unsafe { slurm_sys::slurm_ping(index) };
            code == SUCCESS
        })
    }
}

/// Whether nodes that are powered up or down are no change for slurmctld: up to 22.05.
fn saves_power_silently() -> bool {
    let saves_power = |conf: &slurm_conf_t| !conf.suspend_program.is_null() || !conf.resume_program.is_null();
    version::built_for() < Release::new(23, 2) && own_conf(saves_power).unwrap_or(true)
}

/// The controllers in libslurm's own configuration, in order.
fn own_controllers() -> Vec<String> {
    // SAFETY: libslurm keeps as many names as it counts.
    own_conf(|conf| unsafe { conf::controllers(conf) }).unwrap_or_default()
}

/// Reads libslurm's own configuration.
pub(crate) fn own_conf<T>(read: impl FnOnce(&slurm_conf_t) -> T) -> Option<T> {
    change_conf(|conf| read(conf))
}

/// Changes libslurm's own configuration, which nothing else does after `slurm_init`.
pub(crate) fn change_conf<T>(change: impl FnOnce(&mut slurm_conf_t) -> T) -> Option<T> {
    // SAFETY: takes nothing; slurm_init has read the configuration, and nobody else uses it until it is unlocked below.
    let conf = unsafe { slurm_sys::slurm_conf_lock() };
    // SAFETY: libslurm's own configuration, or NULL.
    let changed = unsafe { conf.as_mut() }.map(change);
    // SAFETY: locked above, by this thread.
    unsafe { slurm_sys::slurm_conf_unlock() };
    changed
}

impl Freed for job_info_msg_t {
    const FREE: unsafe extern "C" fn(*mut Self) = slurm_sys::slurm_free_job_info_msg;
}

impl Freed for node_info_msg_t {
    const FREE: unsafe extern "C" fn(*mut Self) = slurm_sys::slurm_free_node_info_msg;
}

impl Freed for partition_info_msg_t {
    const FREE: unsafe extern "C" fn(*mut Self) = slurm_sys::slurm_free_partition_info_msg;
}

impl Freed for license_info_msg_t {
    const FREE: unsafe extern "C" fn(*mut Self) = slurm_sys::slurm_free_license_info_msg;
}

impl Freed for reserve_info_msg_t {
    const FREE: unsafe extern "C" fn(*mut Self) = slurm_sys::slurm_free_reservation_info_msg;
}
