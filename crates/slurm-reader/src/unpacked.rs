//! Structs that libslurm has unpacked: the only file that follows their pointers.
//!
//! One promise covers a whole reply: that of [`Unpacked::new`]. The table below has a row for each
//! pointer that is followed, with the member that counts its elements, and makes a method of the
//! same name. Other files call these methods, which are safe: they cannot pair an array with a
//! wrong count, and what they read lives no longer than its reply.

use std::ffi::{CStr, c_char, c_void};
use std::iter;
use std::ops::Deref;

use slurm_snapshot::{MOST_PENDING_RPCS, MOST_RPC_TYPES, MOST_RPC_USERS};
use slurm_sys as c;

use crate::long_double::LongDouble;

/// A struct that libslurm has unpacked, or keeps as its own configuration. Numbers are read from it
/// directly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unpacked<'a, T>(&'a T);

impl<'a, T> Unpacked<'a, T> {
    /// # Safety
    /// The struct keeps the promises of the table in this file. Each struct that it points to does
    /// the same, and nobody changes or frees any of them during `'a`.
    pub(crate) const unsafe fn new(record: &'a T) -> Self {
        Self(record)
    }
}

impl<T> Deref for Unpacked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

/// Defines the methods that follow pointers. Each row is a kind, and members of that kind with the
/// type of what they point to. A member is
///
/// - `text()`: NULL, or a string that ends with a NUL. NULL is read as an empty one.
/// - `array(COUNT, MOST)`: NULL, or as many values as COUNT says. At most MOST are read.
/// - `texts(COUNT, MOST)`: the same, of texts.
/// - `records(COUNT)`: NULL, or as many structs, unpacked like this one.
/// - `list()`: NULL, or a list of such structs, whose type is in the header's comment.
/// - `one()`: NULL, or such a struct.
///
/// The comment above a row says why the count is right. A slurmctld may send another: no more is
/// read than libslurm has allocated. Wherever a reply ends too early, libslurm frees it and reports
/// an error.
macro_rules! followed {
    ($($record:path {
        $($(#[$attribute:meta])* $kind:ident $count:tt $($member:ident $(: $of:ty)?),+;)+ })+) => {
        $($(
            $(#[$attribute])*
            impl<'a> Unpacked<'a, $record> {
                $(followed! { @$kind $count $member $(: $of)? })+
            }
        )+)+
    };
    (@text() $member:ident) => {
        pub(crate) fn $member(self) -> &'a [u8] {
            // SAFETY: this struct's promise: NULL or a string.
            unsafe { bytes(self.0.$member) }
        }
    };
    (@array($($count:ident).+, $most:expr) $member:ident: $of:ty) => {
        pub(crate) fn $member(self) -> &'a [$of] {
            // SAFETY: this struct's promise: NULL, or an array that libslurm has allocated.
            unsafe { slice(self.0.$member, count!(self, $($count).+), $most) }
        }
    };
    (@texts($($count:ident).+, $most:expr) $member:ident) => {
        pub(crate) fn $member(self) -> impl Iterator<Item = &'a [u8]> {
            // SAFETY: this struct's promise: NULL, or an array that libslurm has allocated.
            let strings = unsafe { slice(self.0.$member, count!(self, $($count).+), $most) };
            // SAFETY: and each is NULL or a string.
            strings.iter().map(|string| unsafe { bytes(*string) })
        }
    };
    (@records($($count:ident).+) $member:ident: $of:ty) => {
        pub(crate) fn $member(self) -> impl Iterator<Item = Unpacked<'a, $of>> {
            // SAFETY: this struct's promise: NULL, or an array that libslurm has allocated.
            let records = unsafe { slice(self.0.$member, count!(self, $($count).+), usize::MAX) };
            records.iter().map(Unpacked)
        }
    };
    (@list() $member:ident: $of:ty) => {
        pub(crate) fn $member(self) -> Vec<Unpacked<'a, $of>> {
            // SAFETY: this struct's promise: NULL, or a list of these.
            unsafe { elements(self.0.$member) }
        }
    };
    (@one() $member:ident: $of:ty) => {
        pub(crate) fn $member(self) -> Option<Unpacked<'a, $of>> {
            // SAFETY: this struct's promise: NULL, or one of these.
            unsafe { self.0.$member.as_ref() }.map(Unpacked)
        }
    };
}

/// A count that is a member of the struct itself, or of one that it points to.
macro_rules! count {
    ($record:ident, $count:ident) => {
        $record.0.$count
    };
    ($record:ident, $one:ident.$count:ident) => {
        $record.$one().map_or(0, |one| one.0.$count)
    };
}

followed! {
    c::stats_info_response_msg_t {
        /// slurmctld packs one number, and then the columns of the table of message types up to
        /// that row (proc_req.c).
        array(rpc_type_size, MOST_RPC_TYPES) rpc_type_id: u16, rpc_type_cnt: u32,
            rpc_type_time: u64;
        /// slurmctld packs more columns of the table of message types if `rpc_queue_enabled`;
        /// otherwise they stay NULL.
        #[cfg(slurm_ge_2405)]
        array(rpc_type_size, MOST_RPC_TYPES) rpc_type_queued: u16, rpc_type_dropped: u64,
            rpc_type_cycle_last: u16,
            rpc_type_cycle_max: u16;
        /// slurmctld packs one number, and then the columns of the table of users up to that row.
        array(rpc_user_size, MOST_RPC_USERS) rpc_user_id: u32, rpc_user_cnt: u32,
            rpc_user_time: u64;
        /// libslurm unpacks message types and numbers of messages with a count each, and refuses
        /// the reply if the counts differ.
        array(rpc_queue_type_count, MOST_PENDING_RPCS) rpc_queue_type_id: u32, rpc_queue_count: u32;
        /// libslurm unpacks message types and nodes with a count each, and refuses the reply if the
        /// counts differ.
        array(rpc_dump_count, MOST_PENDING_RPCS) rpc_dump_types: u32;
        texts(rpc_dump_count, MOST_PENDING_RPCS) rpc_dump_hostlist;
        /// libslurm unpacks the array together with its count.
        #[cfg(slurm_ge_2311)]
        array(schedule_exit_cnt, slurm_snapshot::MOST_EXIT_REASONS) schedule_exit: u32;
        /// libslurm unpacks the array together with its count.
        #[cfg(slurm_ge_2311)]
        array(bf_exit_cnt, slurm_snapshot::MOST_EXIT_REASONS) bf_exit: u32;
    }
    c::slurm_conf_t {
        text() accounting_storage_backup_host, accounting_storage_host, accounting_storage_type,
            cluster_name, slurmctld_addr;
        /// libslurm makes the lists of the controllers' names and addresses from SlurmctldHost and
        /// counts them once. slurmctld packs both with this count. No release allows 64.
        texts(control_cnt, 64) control_addr, control_machine;
    }
    c::job_info_msg_t {
        /// The array is allocated for as many records as the number before them says.
        records(record_count) job_array: c::slurm_job_info_t;
    }
    c::slurm_job_info_t {
        text() account, array_task_str, gres_total, nodes, partition, qos, tres_alloc_str,
            tres_per_job, tres_per_node,
            tres_per_socket, tres_per_task, tres_req_str;
    }
    c::node_info_msg_t {
        /// libslurm allocates the array as for jobs. Records that PrivateData hides stay zero.
        records(record_count) node_array: c::node_info_t;
    }
    c::node_info_t { text() features_act, gres, gres_used, name, version; }
    c::partition_info_msg_t {
        /// libslurm allocates the array as for jobs.
        records(record_count) partition_array: c::partition_info_t;
    }
    c::partition_info_t { text() name; }
    c::license_info_msg_t {
        /// libslurm allocates the array as for jobs.
        records(num_lic) lic_array: c::slurm_license_info_t;
    }
    c::slurm_license_info_t {
        text() name;
        #[cfg(slurm_ge_2505)]
        text() nodes;
    }
    c::reserve_info_msg_t {
        /// libslurm allocates the array as for jobs.
        records(record_count) reservation_array: c::reserve_info_t;
    }
    c::reserve_info_t { text() name; }
    c::assoc_mgr_info_msg_t {
        list() assoc_list: c::slurmdb_assoc_rec_t, qos_list: c::slurmdb_qos_rec_t,
            user_list: c::slurmdb_user_rec_t;
        /// libslurm unpacks the array together with its count. No cluster has 1000 TRES.
        texts(tres_cnt, 1000) tres_names;
    }
    c::slurmdb_assoc_rec_t {
        text() acct, parent_acct, partition, user;
        one() usage: c::slurmdb_assoc_usage;
        /// slurmctld packs each array with the count of TRES in `usage` (slurmdb_pack.c). There is
        /// one array for each limit.
        array(usage.tres_cnt, 1000) grp_tres_ctld: u64, grp_tres_mins_ctld: u64,
            grp_tres_run_mins_ctld: u64,
            max_tres_ctld: u64, max_tres_mins_ctld: u64, max_tres_pn_ctld: u64;
    }
    c::slurmdb_assoc_usage {
        /// The count comes with `grp_used_tres`; slurmctld packs the other arrays with the same
        /// count.
        array(tres_cnt, 1000) grp_used_tres: u64, grp_used_tres_run_secs: u64,
            usage_tres_raw: impl LongDouble;
    }
    c::slurmdb_qos_rec_t {
        text() name;
        one() usage: c::slurmdb_qos_usage_t;
        /// slurmctld packs each array with the count of TRES in `usage`, as for associations.
        array(usage.tres_cnt, 1000) grp_tres_ctld: u64, grp_tres_mins_ctld: u64,
            grp_tres_run_mins_ctld: u64,
            max_tres_mins_pj_ctld: u64, max_tres_pa_ctld: u64, max_tres_pj_ctld: u64,
                max_tres_pn_ctld: u64,
            max_tres_pu_ctld: u64;
    }
    c::slurmdb_qos_usage_t {
        /// The count comes with `grp_used_tres`, as for associations.
        array(tres_cnt, 1000) grp_used_tres: u64, grp_used_tres_run_secs: u64,
            usage_tres_raw: impl LongDouble;
    }
    c::slurmdb_user_rec_t { text() name; }
    c::slurmdb_job_rec_t {
        text() account, array_task_str, nodes, partition, tres_alloc_str, user;
        list() steps: c::slurmdb_step_rec_t;
    }
    c::slurmdb_tres_rec_t { text() name, type_; }
    c::slurmdb_stats_rec_t {
        /// The function slurmdb_unpack_stats_msg makes all three of these lists.
        list() rollup_stats: c::slurmdb_rollup_stats_t, rpc_list: c::slurmdb_rpc_obj_t,
            user_list: c::slurmdb_rpc_obj_t;
    }
    c::slurmdb_rollup_stats_t { text() cluster_name; }
    KeyPair {
        #[cfg(not(slurm_ge_2605))]
        text() name, value;
    }
}

/// `config_key_pair_t`, which no installed header declares: an element of `slurmdb_config_get`'s
/// list.
#[cfg(not(slurm_ge_2605))]
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KeyPair {
    name: *mut c_char,
    value: *mut c_char,
}

impl Unpacked<'_, c::slurm_job_info_t> {
    /// Number of bits that are set in `array_bitmap`, which libslurm makes of `array_task_str`;
    /// `None` if it is NULL.
    pub(crate) fn array_bitmap(self) -> Option<i32> {
        let bitmap = self.0.array_bitmap;
        // SAFETY: not NULL, so that it is a bitmap of libslurm's.
        (!bitmap.is_null()).then(|| unsafe { c::slurm_bit_set_count(bitmap.cast()) })
    }
}

impl<'a> Unpacked<'a, c::slurmdb_step_rec_t> {
    /// Returns the text `stats.tres_usage_in_tot`: the TRES that a step has used.
    pub(crate) fn usage(self) -> &'a [u8] {
        // SAFETY: this struct's promise: NULL or a string.
        unsafe { bytes(self.0.stats.tres_usage_in_tot) }
    }
}

#[cfg(not(slurm_ge_2505))]
impl Unpacked<'_, c::node_info_t> {
    /// Returns the CPUs of a node that are in this state, and the memory that jobs hold on it, MiB;
    /// 0 if `select_nodeinfo` does not say.
    pub(crate) fn select_nodeinfo(self, state: u32) -> (u16, u64) {
        let mut cpus = 0;
        let mut memory = 0;
        let info = self.0.select_nodeinfo;
        let get = |what, into| {
            // SAFETY: not NULL, so that it is what the plugin of libslurm has unpacked; `into` is
            // as wide as `what` is.
            unsafe { c::slurm_get_select_nodeinfo(info, what, state, into) }
        };
        if !info.is_null() {
            get(c::SELECT_NODEDATA_SUBCNT, (&raw mut cpus).cast());
            get(c::SELECT_NODEDATA_MEM_ALLOC, (&raw mut memory).cast());
        }
        (cpus, memory)
    }
}

impl<'a> Unpacked<'a, c::partition_info_t> {
    /// Returns `node_inx`: pairs of the first and last index into the nodes' reply. The list ends
    /// with -1 (slurm.h), or is NULL. At most `most` numbers are read.
    pub(crate) fn node_indexes(self, most: usize) -> &'a [i32] {
        let list = self.0.node_inx;
        let most = if list.is_null() { 0 } else { most };
        // SAFETY: looked at from the first one on, and none before it was the end.
        let element = |index: &usize| unsafe { list.add(*index) };
        // SAFETY: within the list.
        let is_end = |index: &usize| unsafe { *element(index) } < 0;
        let count = (0..most).find(is_end).unwrap_or(most);
        // SAFETY: that many elements have just been read.
        unsafe { slice(list, count, most) }
    }
}

/// The first `count` elements of a C array, at most `most` of them, and no more than it has; a NULL
/// array is empty.
///
/// # Safety
/// `array` is NULL, or what libslurm's xmalloc has returned, and has been filled; nobody changes or
/// frees it while the slice lives.
unsafe fn slice<'a, T>(array: *const T, count: impl TryInto<usize>, most: usize) -> &'a [T] {
    let count = count.try_into().unwrap_or(0).min(most);
    if array.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: not NULL, so that xmalloc's header, which has its size, is before it.
    let bytes = unsafe { allocated_bytes(array.cast()) };
    let count = count.min(bytes / size_of::<T>().max(1));
    // SAFETY: the allocation has that many elements, for as long as 'a.
    unsafe { std::slice::from_raw_parts(array, count) }
}

#[cfg(not(test))]
unsafe fn allocated_bytes(array: *const c_void) -> usize {
    // SAFETY: the caller's promise; it only reads.
    unsafe { c::slurm_xsize(array.cast_mut()) }
}

/// Returns the size that a test has set, bytes: arrays of tests have no header of xmalloc.
#[cfg(test)]
unsafe fn allocated_bytes(_: *const c_void) -> usize {
    tests::ALLOCATED.get()
}

/// The bytes of a C string without its NUL; empty if it is NULL.
///
/// # Safety
/// `string` is NULL, or ends with a NUL and is not changed or freed while the slice lives.
pub(crate) unsafe fn bytes<'a>(string: *const c_char) -> &'a [u8] {
    if string.is_null() {
        return &[];
    }
    // SAFETY: not NULL, so that the caller promises a string that ends with a NUL, for as long as
    // 'a.
    unsafe { CStr::from_ptr(string) }.to_bytes()
}

/// The elements of a list of libslurm's; a NULL list is empty.
///
/// # Safety
/// `list` is NULL, or a list of `T`s that libslurm has unpacked and that nobody changes or frees
/// during `'a`.
pub(crate) unsafe fn elements<'a, T>(list: *mut c::xlist) -> Vec<Unpacked<'a, T>> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: not NULL, so that the caller promises a list.
    let iterator = unsafe { c::slurm_list_iterator_create(list) };
    // SAFETY: the iterator lives until it is destroyed below.
    let next = || unsafe { c::slurm_list_next(iterator) };
    // SAFETY: NULL after the last one; otherwise an element, which lives as long as the list.
    let elements = iter::from_fn(|| unsafe { next().cast::<T>().as_ref() }).map(Unpacked).collect();
    // SAFETY: created above, and not used again.
    unsafe { c::slurm_list_iterator_destroy(iterator) };
    elements
}

/// Wraps a struct that a test has made: every pointer in it keeps the promises of the table.
#[cfg(test)]
pub(crate) fn made<T>(record: &T) -> Unpacked<'_, T> {
    Unpacked(record)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ptr;

    use super::*;

    thread_local! {
        pub(super) static ALLOCATED: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// A slurmctld that said 100 types of messages, and sent one, had addresses of the heap
    /// published.
    #[test]
    fn no_more_is_read_than_libslurm_has_allocated_whatever_count_a_peer_sends() {
        let array = [1_u32, 2, 3];
        ALLOCATED.set(11);
        // SAFETY: the array has as many bytes, and one more.
        assert_eq!(unsafe { slice(array.as_ptr(), 100, 100) }, [1, 2]);
        ALLOCATED.set(usize::MAX);
        // xmalloc's header: its magic number, and the size.
        let allocation = [0x42_usize, 11, 7];
        // SAFETY: it points behind such a header.
        let bytes =
            unsafe { c::slurm_xsize(allocation.as_ptr().wrapping_add(2).cast_mut().cast()) };
        assert_eq!(bytes, 11);
    }

    #[test]
    fn an_array_that_is_null_or_longer_than_the_limit_is_bounded() {
        let array = [1_u32, 2, 3];
        // SAFETY: NULL is allowed with any count.
        assert!(unsafe { slice::<u32>(ptr::null(), u32::MAX, 100) }.is_empty());
        // SAFETY: the array has three elements.
        assert_eq!(unsafe { slice(array.as_ptr(), 3, 2) }, [1, 2]);
        // SAFETY: the array has three elements.
        assert_eq!(unsafe { slice(array.as_ptr(), 3, 100) }, [1, 2, 3]);
    }

    #[test]
    fn text_may_be_null_or_not_utf8() {
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { bytes(ptr::null()) }, b"");
        // SAFETY: a literal with its NUL.
        assert_eq!(unsafe { bytes(c"n\xff".as_ptr()) }, b"n\xff");
    }
}
