//! libslurm's calls: `slurm_init`, and one function for each RPC.
//!
//! Every call may block for any time, and `slurm_init` may end the process. What a call allocates is copied and freed
//! before its function returns. Knows no clock, none of our configuration and no Graphite.

use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::ptr;

use nix::errno::Errno;
use nix::unistd::{Uid, User};
use slurm_snapshot::Statistics;
use slurm_sys::{slurm_conf_t, stats_info_request_msg_t, stats_info_response_msg_t};

use crate::conf::{self, Conf};
use crate::listed_controllers::OwnHost;
use crate::raw::{Freed, NoReply, RawReply, SUCCESS, last_errno, text};
use crate::stats;

/// An initialized libslurm. It has static state, so there is only one, in one thread.
#[derive(Debug)]
pub struct Client {
    pub(crate) own: OwnHost,
    _not_send: PhantomData<*mut ()>,
}

/// A call of libslurm that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text} (errno {errno})")]
pub struct CallError {
    /// libslurm's function.
    pub call: &'static str,
    /// `errno` right after the call: Slurm's own errors are above 1000; 0 if libslurm gave none, or slurmctld sent no
    /// reply.
    pub errno: i32,
    /// `slurm_strerror(errno)`.
    pub text: String,
}

/// `SLURM_NO_CHANGE_IN_DATA`.
const NO_CHANGE: i32 = 1900;

/// `slurm_api_version()`: N << 16 for libslurm.so.N. May be called before [`Client::init`].
#[must_use]
pub fn api_version() -> u32 {
    // SAFETY: takes nothing, returns a constant of the library.
    let version = unsafe { slurm_sys::slurm_api_version() };
    u32::try_from(version).unwrap_or(u32::MAX)
}

impl Client {
    /// Reads `conf`, or else the file in SLURM_CONF, or else libslurm's default slurm.conf.
    ///
    /// If libslurm cannot read it, libslurm ends the process with status 1, after retrying for up to a minute.
    #[must_use]
    pub fn init(conf: Option<&CStr>) -> Self {
        let conf = conf.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: NULL or a string with its NUL, which slurm_init copies; no other thread is in libslurm.
        unsafe { slurm_sys::slurm_init(conf) };
        Self { own: OwnHost::default(), _not_send: PhantomData }
    }

    /// `slurm_get_statistics`, with the RPC tables if `rpc`.
    ///
    /// # Errors
    /// slurmctld did not answer, or not with statistics.
    pub fn statistics(&mut self, rpc: bool) -> Result<Statistics, CallError> {
        // A request with all bytes zero would be a reset, so the command is always set.
        let mut request = stats_info_request_msg_t { command_id: GET };
        let call = |out: &mut *mut stats_info_response_msg_t| {
            // SAFETY: both pointers are valid during the call, and it keeps neither.
            unsafe { slurm_sys::slurm_get_statistics(out, &raw mut request) }
        };
        // SAFETY: slurm_get_statistics leaves NULL or a reply that its caller frees with its FREE.
        let reply = unsafe { RawReply::receive(call) };
        let reply = reply.map_err(|error| failure("slurm_get_statistics", &error))?;
        // SAFETY: libslurm unpacks every array together with its count, or leaves it NULL.
        Ok(unsafe { stats::from_reply(reply.get(), rpc) })
    }

    /// `slurm_reset_statistics`: needs an operator.
    ///
    /// # Errors
    /// slurmctld did not answer, or refused.
    pub fn reset(&mut self) -> Result<(), CallError> {
        let mut request = stats_info_request_msg_t { command_id: RESET };
        Errno::clear();
        // SAFETY: the request is valid during the call, which does not keep it.
        let code = unsafe { slurm_sys::slurm_reset_statistics(&raw mut request) };
        if code == SUCCESS {
            return Ok(());
        }
        Err(failure("slurm_reset_statistics", &NoReply::Errno(last_errno())))
    }

    /// `slurm_load_ctl_conf`; `None` if it has not changed since `since`.
    ///
    /// # Errors
    /// slurmctld did not answer, or not with its configuration.
    pub fn conf(&mut self, since: i64) -> Result<Option<Conf>, CallError> {
        let call = |out: &mut *mut slurm_conf_t| {
            // SAFETY: the pointer is valid during the call.
            unsafe { slurm_sys::slurm_load_ctl_conf(since, out) }
        };
        // SAFETY: slurm_load_ctl_conf leaves NULL or a configuration that its caller frees with its FREE.
        let reply = unsafe { receive("slurm_load_ctl_conf", since, call) }?;
        // SAFETY: libslurm unpacks every string with its NUL, or leaves it NULL, and arrays with their counts.
        Ok(reply.map(|reply| unsafe { conf::from_reply(reply.get()) }))
    }

    /// Whether slurmdbd's records make this process's user an operator; `None` if slurmctld does not say.
    pub fn operator(&mut self) -> Option<bool> {
        let user = User::from_uid(Uid::effective()).ok().flatten()?;
        let name = CString::new(user.name).ok()?;
        self.is_operator(&name).ok()
    }
}

const _: () = assert!(slurm_sys::SLURM_SUCCESS == 0, "raw::SUCCESS");

#[expect(clippy::cast_possible_truncation, reason = "a constant of 16 bits, which C spells without a type")]
const GET: u16 = slurm_sys::STAT_COMMAND_GET as u16;
#[expect(clippy::cast_possible_truncation, reason = "a constant of 16 bits, which C spells without a type")]
const RESET: u16 = slurm_sys::STAT_COMMAND_RESET as u16;

impl Freed for stats_info_response_msg_t {
    const FREE: unsafe extern "C" fn(*mut Self) = slurm_sys::slurm_free_stats_response_msg;
}

impl Freed for slurm_conf_t {
    const FREE: unsafe extern "C" fn(*mut Self) = slurm_sys::slurm_free_conf;
}

/// Makes a call. The reply is `None` if nothing has changed since `since`. If `since` is 0, "unchanged" is not a valid
/// answer.
///
/// # Safety
/// As for [`RawReply::receive`].
pub(crate) unsafe fn receive<T: Freed>(
    name: &'static str,
    since: i64,
    call: impl FnOnce(&mut *mut T) -> c_int,
) -> Result<Option<RawReply<T>>, CallError> {
    // SAFETY: the caller's promise.
    match unsafe { RawReply::receive(call) } {
        Ok(reply) => Ok(Some(reply)),
        Err(NoReply::Errno(NO_CHANGE)) if since != 0 => Ok(None),
        Err(error) => Err(failure(name, &error)),
    }
}

pub(crate) fn failure(call: &'static str, error: &NoReply) -> CallError {
    match *error {
        // For example, a controller's name cannot be resolved: libslurm has printed why.
        NoReply::Errno(0) => CallError { call, errno: 0, text: "libslurm gave no reason".to_owned() },
        NoReply::Errno(errno) => CallError { call, errno, text: strerror(errno) },
        NoReply::Nothing => CallError { call, errno: 0, text: "slurmctld sent no reply".to_owned() },
    }
}

fn strerror(errno: c_int) -> String {
    // SAFETY: takes any number.
    let string = unsafe { slurm_sys::slurm_strerror(errno) };
    // SAFETY: a string with its NUL, in static memory or in strerror's buffer, which only the next call changes.
    unsafe { text(string) }.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static FREED: Cell<u32> = const { Cell::new(0) };
    }

    /// A reply of statistics that counts how often it is freed.
    #[repr(transparent)]
    struct StandIn(stats_info_response_msg_t);

    unsafe extern "C" fn free(stand_in: *mut StandIn) {
        FREED.set(FREED.get() + 1);
        // SAFETY: made by Box in the test below, which tests that it is freed once.
        drop(unsafe { Box::from_raw(stand_in) });
    }

    impl Freed for StandIn {
        const FREE: unsafe extern "C" fn(*mut Self) = free;
    }

    #[test]
    fn a_hostile_reply_is_converted_and_freed_once() {
        let hostile = stats_info_response_msg_t {
            req_time: i64::MIN,
            schedule_cycle_sum: !0,
            rpc_type_size: u32::MAX,
            rpc_user_size: u32::MAX,
            rpc_queue_type_count: u32::MAX,
            rpc_dump_count: u32::MAX,
            ..Default::default()
        };
        let call = |out: &mut *mut StandIn| {
            *out = Box::into_raw(Box::new(StandIn(hostile)));
            SUCCESS
        };
        // SAFETY: leaves a StandIn that only its FREE frees.
        let reply = unsafe { RawReply::receive(call) }.unwrap();
        // SAFETY: every array is NULL.
        let statistics = unsafe { stats::from_reply(&reply.get().0, true) };
        drop(reply);
        assert_eq!(FREED.get(), 1);
        assert_eq!(statistics.req_time, i64::MIN);
        let empty = slurm_snapshot::RpcTables { pending: Some(Vec::new()), ..Default::default() };
        assert_eq!(statistics.rpc, Some(empty));
    }

    fn unchanged(since: i64) -> Result<Option<RawReply<StandIn>>, CallError> {
        let call = |_: &mut *mut StandIn| {
            Errno::set_raw(NO_CHANGE);
            -1
        };
        // SAFETY: leaves NULL.
        unsafe { receive("slurm_load_jobs", since, call) }
    }

    #[test]
    fn unchanged_is_an_answer_only_where_a_moment_was_named() {
        assert!(unchanged(5).unwrap().is_none());
        assert_eq!(unchanged(0).map(drop).unwrap_err().errno, NO_CHANGE);
    }

    #[test]
    fn getting_is_not_resetting() {
        assert_eq!((GET, RESET), (1, 0));
    }

    #[test]
    fn a_failure_carries_slurms_own_words() {
        let refused = failure("slurm_get_statistics", &NoReply::Errno(1800));
        assert_eq!(
            refused.to_string(),
            "slurm_get_statistics: Unable to contact slurm controller (connect failure) (errno 1800)"
        );
        let silent = failure("slurm_get_statistics", &NoReply::Errno(0));
        assert_eq!(silent.to_string(), "slurm_get_statistics: libslurm gave no reason (errno 0)");
        let nothing = failure("slurm_get_statistics", &NoReply::Nothing);
        assert_eq!(nothing.to_string(), "slurm_get_statistics: slurmctld sent no reply (errno 0)");
        assert!(!strerror(i32::MAX).is_empty() && !strerror(i32::MIN).is_empty());
    }
}
