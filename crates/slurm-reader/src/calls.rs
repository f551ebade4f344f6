//! Calls of libslurm's functions, which no other file makes: with the reply that each leaves
//! behind, and the function that frees it.
//!
//! Every call may block for any time, and `slurm_init` may end the process. A reply is freed
//! exactly once, on every path, by its owner, and what is read from it lives no longer. Knows no
//! clock, none of our configuration and no Graphite.

#[cfg(test)]
pub(crate) mod tests;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use nix::errno::Errno;
use nix::libc;
use slurm_snapshot::{NO_REASON, errno};
use slurm_sys as c;
#[cfg(slurm_ge_2605)]
use slurm_sys::slurm_free_conf;
#[cfg(not(slurm_ge_2605))]
use slurm_sys::slurm_free_ctl_conf as slurm_free_conf;
#[cfg(not(slurm_ge_2405))]
use slurm_sys::slurm_job_reason_string as reason_string;
#[cfg(slurm_ge_2405)]
use slurm_sys::slurm_job_state_reason_string as reason_string;

#[cfg(not(slurm_ge_2605))]
use crate::unpacked::KeyPair;
use crate::unpacked::{Unpacked, bytes, elements};
use crate::values::{NO_VAL, text};

/// `SHOW_ALL`: include hidden partitions.
const ALL: u16 = 1;

/// `SHOW_DETAIL`: include the GRES in use on nodes.
const DETAIL: u16 = 1 << 1;

/// `SHOW_MIXED`: a node that is partly allocated is mixed.
const MIXED: u16 = 1 << 3;

/// `SHOW_LOCAL`: only this cluster; without it libslurm asks for the federation first, with another
/// RPC.
const LOCAL: u16 = 1 << 4;

/// `SHOW_FUTURE`: include nodes that are not there yet.
const FUTURE: u16 = 1 << 7;

/// `ASSOC_MGR_INFO_FLAG_ASSOC` and `ASSOC_MGR_INFO_FLAG_QOS`: request associations and QOS.
const ASSOCIATIONS_AND_QOS: u32 = 1 | 1 << 2;

/// `ASSOC_MGR_INFO_FLAG_USERS`: request slurmdbd's records of users.
const USERS: u32 = 1 << 1;

/// `SLURMDB_JOB_FLAG_NOTSET`: no condition on how a job was started.
const ANY_START: u8 = 1;

/// `SLURM_SUCCESS`, as C functions return it.
const SUCCESS: c_int = 0;

/// `STAT_COMMAND_GET`: the command that requests the statistics.
const GET: u16 = 1;
/// `STAT_COMMAND_RESET`: the command that resets the statistics.
const RESET: u16 = 0;
const _: () =
    assert!(c::STAT_COMMAND_GET == 1 && c::STAT_COMMAND_RESET == 0, "getting is not resetting");

/// Returns libslurm's word for a number, by the function that has it; `None` if the word is empty.
macro_rules! word {
    ($function:expr, $number:expr) => {{
        // SAFETY: takes any number.
        let word = unsafe { $function($number) };
        // SAFETY: NULL, a literal, or a string in a buffer that only the next call changes.
        text(unsafe { bytes(word) })
    }};
}

/// A call of libslurm that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text}{}", number(*.errno))]
pub struct CallError {
    /// The function of libslurm that failed, or the setting that prevents a call.
    pub call: &'static str,
    /// The `errno` right after the call: Slurm's own errors are from 1000 on; 0 if libslurm gave
    /// none, or slurmctld sent no reply.
    pub errno: i32,
    /// The reason in words: `slurm_strerror(errno)`, or the reader's own explanation.
    pub text: String,
}

/// Returns the end of an error's text, with Slurm's number of the error; empty if that is 0.
fn number(errno: i32) -> String {
    if errno == 0 { String::new() } else { format!(" (errno {errno})") }
}

impl CallError {
    pub(crate) fn new(call: &'static str, errno: i32) -> Self {
        let text = match errno {
            // For example, a controller's name cannot be resolved: libslurm has printed why.
            0 => NO_REASON.to_owned(),
            _ => word!(c::slurm_strerror, errno).unwrap_or_default(),
        };
        Self { call, errno, text }
    }

    /// Makes the error of a call that has just left `errno`. Nothing that could set it again may
    /// come in between.
    fn last(call: &'static str) -> Self {
        Self::new(call, io::Error::last_os_error().raw_os_error().unwrap_or_default())
    }
}

/// The result of a call, or the reason why it failed.
pub(crate) type CallResult<T> = Result<T, CallError>;

/// A type of which libslurm leaves a value that its caller must free.
pub(crate) trait Freed {
    /// Frees a value, and all that it points to.
    ///
    /// # Safety
    /// A call has left it, and nobody else frees it.
    unsafe fn free(pointer: *mut Self);
}

/// The only owner of a reply, which frees it when it is dropped.
#[derive(Debug)]
pub(crate) struct RawReply<T: Freed>(NonNull<T>);

impl<T: Freed> RawReply<T> {
    /// Makes a call that leaves its reply in an out pointer, which starts from NULL, and owns
    /// whatever the call leaves there, even after an error. `errno` is cleared first: libslurm does
    /// not set it at every failure.
    ///
    /// # Safety
    /// `call` leaves NULL, or a `T` that libslurm has unpacked, that may be read until
    /// [`Freed::free`] is called on it and that nobody else frees.
    unsafe fn receive(
        name: &'static str,
        call: impl FnOnce(&mut *mut T) -> c_int,
    ) -> CallResult<Self> {
        let mut pointer = ptr::null_mut();
        Errno::clear();
        let code = call(&mut pointer);
        let error = (code != SUCCESS).then(|| CallError::last(name));
        let reply = NonNull::new(pointer).map(Self);
        let nothing =
            || CallError { call: name, errno: 0, text: "slurmctld sent no reply".to_owned() };
        error.map_or_else(|| reply.ok_or_else(nothing), Err)
    }

    pub(crate) fn get(&self) -> Unpacked<'_, T> {
        // SAFETY: `receive`'s caller promised a T that may be read until it is freed, which only
        // `drop` does.
        let reply = unsafe { self.0.as_ref() };
        // SAFETY: and that libslurm has unpacked it.
        unsafe { Unpacked::new(reply) }
    }
}

impl<T: Freed> Drop for RawReply<T> {
    fn drop(&mut self) {
        // SAFETY: `receive`'s caller promised that a call has left it and that nobody else frees
        // it; it is dropped once.
        unsafe { T::free(self.0.as_ptr()) };
    }
}

/// The owner of a list that a call has returned.
pub(crate) struct Records<T>(RawReply<c::xlist>, PhantomData<T>);

impl<T> Records<T> {
    /// Makes a call that returns a list.
    ///
    /// # Safety
    /// `call` returns NULL, or a list of `T`s that libslurm has unpacked and that nobody else
    /// destroys.
    unsafe fn receive(
        name: &'static str,
        call: impl FnOnce() -> *mut c::xlist,
    ) -> CallResult<Self> {
        let call = |out: &mut *mut c::xlist| {
            *out = call();
            if out.is_null() { !SUCCESS } else { SUCCESS }
        };
        // SAFETY: the caller promises NULL, or a list that may be used until it is destroyed.
        unsafe { RawReply::receive(name, call) }.map(|list| Self(list, PhantomData))
    }

    pub(crate) fn get(&self) -> Vec<Unpacked<'_, T>> {
        // SAFETY: `receive`'s caller promised a list of these, which lives as long as `self`.
        unsafe { elements(self.0.0.as_ptr()) }
    }
}

/// A list of this process's own elements, which libslurm only reads.
struct OwnList<T> {
    /// libslurm's list; `None` if there are no elements. It is destroyed before its elements,
    /// because fields are dropped in order.
    list: Option<RawReply<c::xlist>>,
    _elements: Vec<T>,
}

impl<T> OwnList<T> {
    /// Makes a list. `pointer` gives what libslurm expects of an element: a pointer to it, or to
    /// its text.
    fn new(elements: impl IntoIterator<Item = T>, pointer: fn(&mut T) -> *mut c_void) -> Self {
        let mut elements: Vec<T> = elements.into_iter().collect();
        let mut list = None;
        for element in &mut elements {
            // SAFETY: makes an empty list, whose elements it will not free, and which nobody else
            // destroys.
            let create = || NonNull::new(unsafe { c::slurm_list_create(None) }).map(RawReply);
            list = list.or_else(create);
            let Some(RawReply(list)) = &list else { break };
            // SAFETY: the list exists; it holds the pointer, and the element outlives it.
            unsafe { c::slurm_list_append(list.as_ptr(), pointer(element)) };
        }
        Self { list, _elements: elements }
    }

    /// Returns the pointer for libslurm's functions, valid as long as `self`; NULL without
    /// elements.
    fn pointer(&self) -> *mut c::xlist {
        self.list.as_ref().map_or(ptr::null_mut(), |list| list.0.as_ptr())
    }
}

fn texts(texts: impl IntoIterator<Item = CString>) -> OwnList<CString> {
    OwnList::new(texts, |text| text.as_ptr().cast_mut().cast())
}

/// Makes the list of jobs for slurmdbd's condition, with all their steps. A job is given as its id
/// and `NO_VAL`, or as its array's id and its task.
fn whole_jobs(ids: &[(u32, u32)]) -> OwnList<c::slurm_selected_step_t> {
    let jobs = ids.iter().map(|&(id, task)| {
        let mut job = c::slurm_selected_step_t {
            array_task_id: task,
            het_job_offset: NO_VAL,
            ..Default::default()
        };
        job.step_id.job_id = id;
        job.step_id.step_het_comp = NO_VAL;
        job.step_id.step_id = NO_VAL;
        job
    });
    OwnList::new(jobs, |job| ptr::from_mut(job).cast())
}

/// An initialized libslurm. libslurm has static state, so there is only one value, in one thread.
#[derive(Debug)]
pub(crate) struct Libslurm(PhantomData<*mut ()>);

/// Makes a call that leaves a reply in an out pointer.
macro_rules! reply {
    (|$out:ident| $function:ident($($argument:expr),*)) => {{
        // SAFETY: every pointer is valid during the call, which keeps none.
        let call = |$out: &mut *mut _| unsafe { c::$function($($argument),*) };
        // SAFETY: it leaves NULL, or a reply that it has unpacked and that its caller frees.
        unsafe { RawReply::receive(stringify!($function), call) }
    }};
}

/// Defines the calls that leave a reply unless nothing has changed since a moment, each with the
/// function that frees the reply.
macro_rules! loads {
    ($($name:ident: $reply:ty, |$since:ident, $out:ident| $function:ident($($argument:expr),*),
        $free:path;)+) => {
        impl Libslurm {
            $(
                /// Requests the reply; `None` if nothing has changed since `since`, Unix seconds.
                /// With `since` 0 the reply is requested whole, and the answer "unchanged" is an
                /// error.
                pub(crate) fn $name(&mut self, $since: i64)
                    -> CallResult<Option<RawReply<$reply>>> {
                    unchanged_since($since, reply!(|$out| $function($($argument),*)))
                }
            )+
        }

        freed! { $($reply: $free;)+ }
    };
}

/// Implements [`Freed`] for each type by the function that frees it.
macro_rules! freed {
    ($($reply:ty: $free:path;)+) => {
        $(impl Freed for $reply {
            unsafe fn free(pointer: *mut Self) {
                // SAFETY: the caller's promise; that it is the function for this type, the compiler
                // knows.
                unsafe { $free(pointer) };
            }
        })+
    };
}

loads! {
    conf: c::slurm_conf_t, |since, out| slurm_load_ctl_conf(since, out), slurm_free_conf;
    jobs: c::job_info_msg_t, |since, out| slurm_load_jobs(since, out, ALL | LOCAL),
        c::slurm_free_job_info_msg;
    licenses: c::license_info_msg_t, |since, out| slurm_load_licenses(since, out, ALL),
        c::slurm_free_license_info_msg;
    nodes: c::node_info_msg_t, |since, out| slurm_load_node(since, out, ALL | DETAIL | MIXED |
        LOCAL | FUTURE),
        c::slurm_free_node_info_msg;
    partitions: c::partition_info_msg_t, |since, out| slurm_load_partitions(since, out, ALL |
        LOCAL),
        c::slurm_free_partition_info_msg;
    reservations: c::reserve_info_msg_t, |since, out| slurm_load_reservations(since, out),
        c::slurm_free_reservation_info_msg;
}

freed! {
    c::assoc_mgr_info_msg_t: c::slurm_free_assoc_mgr_info_msg;
    c::stats_info_response_msg_t: c::slurm_free_stats_response_msg;
    c::xlist: c::slurm_list_destroy;
}

impl Freed for c::slurmdb_stats_rec_t {
    unsafe fn free(pointer: *mut Self) {
        // SAFETY: the caller's promise; slurmdb.h declares it for `void *`.
        unsafe { c::slurmdb_destroy_stats_rec(pointer.cast()) };
    }
}

fn unchanged_since<T>(since: i64, reply: CallResult<T>) -> CallResult<Option<T>> {
    match reply {
        Err(CallError { errno: errno::NO_CHANGE_IN_DATA, .. }) if since != 0 => Ok(None),
        reply => reply.map(Some),
    }
}

impl Libslurm {
    /// Initializes libslurm with `conf`, or else the file in SLURM_CONF, or else libslurm's default
    /// slurm.conf.
    ///
    /// If libslurm cannot read it, libslurm ends the process with status 1, after retrying for up
    /// to a minute.
    pub(crate) fn init(conf: Option<&CStr>) -> Self {
        let conf = conf.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: NULL or a string with its NUL, which slurm_init copies; no other thread is in
        // libslurm.
        unsafe { c::slurm_init(conf) };
        Self(PhantomData)
    }

    /// Requests the statistics: `slurm_get_statistics`.
    pub(crate) fn statistics(&mut self) -> CallResult<RawReply<c::stats_info_response_msg_t>> {
        // A request with all bytes zero would be a reset, so the command is always set.
        let mut request = c::stats_info_request_msg_t { command_id: GET };
        reply!(|out| slurm_get_statistics(out, &raw mut request))
    }

    /// Resets slurmctld's counters: `slurm_reset_statistics`. It needs an operator.
    pub(crate) fn reset(&mut self) -> CallResult<()> {
        let mut request = c::stats_info_request_msg_t { command_id: RESET };
        Errno::clear();
        // SAFETY: the request is valid during the call, which does not keep it.
        let code = unsafe { c::slurm_reset_statistics(&raw mut request) };
        if code == SUCCESS { Ok(()) } else { Err(CallError::last("slurm_reset_statistics")) }
    }

    /// Requests all associations and QOS: `slurm_load_assoc_mgr_info`.
    pub(crate) fn associations(&mut self) -> CallResult<RawReply<c::assoc_mgr_info_msg_t>> {
        let mut request =
            c::assoc_mgr_info_request_msg_t { flags: ASSOCIATIONS_AND_QOS, ..Default::default() };
        reply!(|out| slurm_load_assoc_mgr_info(&raw mut request, out))
    }

    /// Requests slurmctld's copy of slurmdbd's record of the user with this name:
    /// `slurm_load_assoc_mgr_info`.
    pub(crate) fn user(&mut self, name: &CStr) -> CallResult<RawReply<c::assoc_mgr_info_msg_t>> {
        let flags = USERS;
        let users = texts([name.to_owned()]);
        let user_list = users.pointer();
        let mut request =
            c::assoc_mgr_info_request_msg_t { flags, user_list, ..Default::default() };
        reply!(|out| slurm_load_assoc_mgr_info(&raw mut request, out))
    }

    /// Whether the controller with this index in libslurm's own list answers `slurm_ping`. An index
    /// after the last one is not passed on, because libslurm would read past the end.
    pub(crate) fn ping(&mut self, index: u32) -> bool {
        let is_listed = self.own_conf(|conf| index < conf.control_cnt).unwrap_or(false);
        // SAFETY: takes an index of the list.
        let answers = |index| unsafe { c::slurm_ping(index) } == SUCCESS;
        is_listed && c_int::try_from(index).is_ok_and(answers)
    }

    /// Reads libslurm's own configuration; `None` if there is none. It was read when this process
    /// started, and slurmctld's may differ by now.
    pub(crate) fn own_conf<T>(
        &mut self,
        read: impl FnOnce(Unpacked<'_, c::slurm_conf_t>) -> T,
    ) -> Option<T> {
        // SAFETY: libslurm's own, which keeps what a reply keeps; it is locked.
        self.locked_conf(|conf| read(unsafe { Unpacked::new(conf) }))
    }

    /// Leaves only the controller with this index in libslurm's own list, until the whole list is
    /// put back by `list_all`; `None` if no controller has this index.
    pub(crate) fn list_one_controller(&mut self, index: usize) -> Option<ListedControllers> {
        let list_one_controller = |conf: &mut c::slurm_conf_t| {
            let has_index = index < usize::try_from(conf.control_cnt).unwrap_or(0);
            if !has_index || conf.control_machine.is_null() || conf.control_addr.is_null() {
                return None;
            }
            let listed =
                ListedControllers { index, count: conf.control_cnt, address: conf.slurmctld_addr };
            // SAFETY: the index is below the count.
            unsafe { swap_with_first(conf, index) };
            conf.control_cnt = 1;
            conf.slurmctld_addr = ptr::null_mut();
            Some(listed)
        };
        self.locked_conf(list_one_controller).flatten()
    }

    /// Puts all controllers back into libslurm's own list.
    pub(crate) fn list_all(&mut self, listed: ListedControllers) {
        self.locked_conf(|conf| {
            // SAFETY: it was below the count before.
            unsafe { swap_with_first(conf, listed.index) };
            conf.control_cnt = listed.count;
            conf.slurmctld_addr = listed.address;
        });
    }

    fn locked_conf<T>(&mut self, change: impl FnOnce(&mut c::slurm_conf_t) -> T) -> Option<T> {
        // SAFETY: takes nothing; slurm_init has read the configuration, and nobody else uses it
        // until it is unlocked below.
        let conf = unsafe { c::slurm_conf_lock() };
        // SAFETY: libslurm's own configuration, or NULL.
        let changed = unsafe { conf.as_mut() }.map(change);
        // SAFETY: locked above, by this thread.
        unsafe { c::slurm_conf_unlock() };
        changed
    }

    /// Connects to slurmdbd.
    pub(crate) fn connect(&mut self) -> CallResult<DbdConnection> {
        Errno::clear();
        // SAFETY: NULL means that the caller does not need the connection's flags.
        let pointer = unsafe { c::slurmdb_connection_get(ptr::null_mut()) };
        NonNull::new(pointer)
            .map(DbdConnection)
            .ok_or_else(|| CallError::last("slurmdb_connection_get"))
    }
}

/// The part of libslurm's own configuration that is replaced while it lists one controller alone.
/// SlurmctldAddr is part of it because it takes precedence over the controllers' addresses.
#[derive(Debug)]
pub(crate) struct ListedControllers {
    index: usize,
    count: u32,
    address: *mut c_char,
}

/// Exchanges the controller with this index and the first one, so that libslurm's arrays keep all
/// their elements.
///
/// # Safety
/// The arrays of names and of addresses both have an element with this index.
unsafe fn swap_with_first(conf: &mut c::slurm_conf_t, index: usize) {
    for array in [conf.control_machine, conf.control_addr] {
        // SAFETY: an element of the array.
        let element = unsafe { array.add(index) };
        // SAFETY: and so is the first one.
        unsafe { array.swap(element) };
    }
}

/// A connection to slurmdbd, closed when it is dropped.
pub(crate) struct DbdConnection(NonNull<c_void>);

/// Calls a function that returns a list of records on the connection to slurmdbd.
macro_rules! records {
    ($function:ident($($argument:expr),*)) => {{
        // SAFETY: the connection is open; the condition, and the lists in it, live during the call,
        // which keeps none.
        let call = || unsafe { c::$function($($argument),*) };
        // SAFETY: it returns NULL, or a list of the records in the signature below, which is its
        // caller's.
        unsafe { Records::receive(stringify!($function), call) }
    }};
}

impl DbdConnection {
    /// Requests slurmdbd's configuration, as pairs of a key and a value.
    #[cfg(not(slurm_ge_2605))]
    pub(crate) fn config(&self) -> CallResult<Records<KeyPair>> {
        records!(slurmdb_config_get(self.0.as_ptr()))
    }

    /// slurmdbd's record of the user with this name.
    pub(crate) fn users(&self, name: &CStr) -> CallResult<Records<c::slurmdb_user_rec_t>> {
        let users = texts([name.to_owned()]);
        let mut names =
            c::slurmdb_assoc_cond_t { user_list: users.pointer(), ..Default::default() };
        let mut condition =
            c::slurmdb_user_cond_t { assoc_cond: &raw mut names, ..Default::default() };
        records!(slurmdb_users_get(self.0.as_ptr(), &raw mut condition))
    }

    /// Requests the job records of a cluster. `states` are numbers of states; none means any.
    /// `jobs` are given as a job id and `NO_VAL`, or as an array's id and its task; none means any.
    /// `flags` are `JOBCOND_FLAG_*`. The time is in Unix seconds, and both ends belong to it.
    pub(crate) fn jobs(
        &self,
        cluster: &CStr,
        states: impl Iterator<Item = CString>,
        jobs: &[(u32, u32)],
        flags: u8,
        [usage_start, usage_end]: [i64; 2],
    ) -> CallResult<Records<c::slurmdb_job_rec_t>> {
        let (clusters, states, jobs) =
            (texts([cluster.to_owned()]), texts(states), whole_jobs(jobs));
        let mut condition = c::slurmdb_job_cond_t {
            cluster_list: clusters.pointer(),
            state_list: states.pointer(),
            step_list: jobs.pointer(),
            flags: flags.into(),
            db_flags: ANY_START.into(),
            usage_start,
            usage_end,
            ..Default::default()
        };
        records!(slurmdb_jobs_get(self.0.as_ptr(), &raw mut condition))
    }

    /// Requests all TRES, also those that were deleted.
    pub(crate) fn tres(&self) -> CallResult<Records<c::slurmdb_tres_rec_t>> {
        let mut condition = c::slurmdb_tres_cond_t { with_deleted: 1, ..Default::default() };
        // SAFETY: takes a condition and sets what is not 0 in it.
        unsafe { c::slurmdb_init_tres_cond(&raw mut condition, false) };
        records!(slurmdb_tres_get(self.0.as_ptr(), &raw mut condition))
    }

    /// All QOS, also those that were deleted: jobs may have had them.
    pub(crate) fn qos(&self) -> CallResult<Records<c::slurmdb_qos_rec_t>> {
        let mut condition = c::slurmdb_qos_cond_t {
            #[cfg(not(slurm_ge_2411))]
            with_deleted: 1,
            // QOS_COND_FLAG_WITH_DELETED
            #[cfg(slurm_ge_2411)]
            flags: 1,
            ..Default::default()
        };
        records!(slurmdb_qos_get(self.0.as_ptr(), &raw mut condition))
    }

    /// Requests slurmdbd's statistics of itself.
    pub(crate) fn statistics(&self) -> CallResult<RawReply<c::slurmdb_stats_rec_t>> {
        reply!(|out| slurmdb_get_stats(self.0.as_ptr(), out))
    }
}

impl Drop for DbdConnection {
    fn drop(&mut self) {
        let mut pointer = self.0.as_ptr();
        // SAFETY: opened by slurmdb_connection_get, and not used again.
        let _closed: c_int = unsafe { c::slurmdb_connection_close(&raw mut pointer) };
    }
}

/// `slurm_api_version()`: N << 16 for libslurm.so.N. May be called before `slurm_init`.
#[must_use]
pub fn api_version() -> u32 {
    // SAFETY: takes nothing, returns a constant of the library.
    let version = unsafe { c::slurm_api_version() };
    u32::try_from(version).unwrap_or(u32::MAX)
}

/// Returns the memory of freed replies to the kernel; glibc would keep it.
pub(crate) fn give_memory_back() {
    // SAFETY: takes no pointer; any thread may call it at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Returns libslurm's one word for a job's state, in which a flag such as COMPLETING hides the base
/// state.
pub(crate) fn job_state_word(state: u32) -> Option<String> {
    word!(c::slurm_job_state_string, state)
}

/// Returns libslurm's word for a node's state, with a suffix for some flags.
pub(crate) fn node_state_word(state: u32) -> Option<String> {
    word!(c::slurm_node_state_string, state)
}

/// Returns libslurm's word for the reason why a job is pending.
pub(crate) fn reason_word(number: u32) -> Option<String> {
    word!(reason_string, number)
}
