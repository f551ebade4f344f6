//! Tests of who frees what, with stand-ins that are counted; and of the words of errors.

use std::cell::Cell;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::stats;
use crate::unpacked::made;

thread_local! {
    /// (replies made, replies freed) by this test's thread.
    static COUNTS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

#[derive(Debug)]
struct StandIn<T>(T);

impl<T> StandIn<T> {
    fn make(content: T) -> *mut Self {
        COUNTS.with(|counts| counts.set((counts.get().0 + 1, counts.get().1)));
        Box::into_raw(Box::new(Self(content)))
    }
}

impl<T> Freed for StandIn<T> {
    unsafe fn free(pointer: *mut Self) {
        COUNTS.with(|counts| counts.set((counts.get().0, counts.get().1 + 1)));
        // SAFETY: made by `make`; these tests check that it is freed once.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

fn receive(code: c_int, leaves_a_reply: bool) -> CallResult<RawReply<StandIn<i32>>> {
    let call = |out: &mut *mut StandIn<i32>| {
        assert!(out.is_null(), "the out pointer starts from NULL");
        if leaves_a_reply {
            *out = StandIn::make(42);
        }
        code
    };
    // SAFETY: `make` gives a StandIn that only its `free` frees.
    unsafe { RawReply::receive("slurm_load_jobs", call) }
}

#[test]
fn a_reply_is_freed_exactly_once_on_every_path() {
    let reply = receive(SUCCESS, true).unwrap();
    assert_eq!(reply.get().0, 42);
    assert_eq!(COUNTS.get(), (1, 0), "not before its owner goes");
    drop(reply);
    assert_eq!(COUNTS.get(), (1, 1));

    assert!(receive(-1, true).is_err(), "an error that has left a reply");
    assert_eq!(COUNTS.get(), (2, 2));

    assert!(receive(-1, false).is_err());
    assert_eq!(receive(SUCCESS, false).unwrap_err().text, "slurmctld sent no reply");
    assert_eq!(COUNTS.get(), (2, 2), "nothing to free");

    let reply = receive(SUCCESS, true).unwrap();
    let conversion = catch_unwind(AssertUnwindSafe(move || {
        let _reply = reply;
        panic!("a conversion that goes wrong");
    }));
    assert!(conversion.is_err());
    assert_eq!(COUNTS.get(), (3, 3));
}

#[test]
fn errno_is_the_one_of_the_call() {
    let call = |_: &mut *mut StandIn<i32>| {
        Errno::EPROTO.set();
        -1
    };
    // SAFETY: leaves NULL.
    let error = unsafe { RawReply::receive("slurm_load_jobs", call) }.unwrap_err();
    assert_eq!(error.errno, Errno::EPROTO as i32);
}

/// libslurm does not set errno if the controller's name cannot be resolved.
#[test]
fn the_errno_of_an_earlier_call_is_not_this_ones() {
    Errno::EPROTO.set();
    assert_eq!(receive(-1, false).unwrap_err().errno, 0);
}

#[test]
fn a_hostile_reply_is_converted_and_freed_once() {
    let hostile = c::stats_info_response_msg_t {
        req_time: i64::MIN,
        schedule_cycle_sum: !0,
        rpc_type_size: u32::MAX,
        rpc_user_size: u32::MAX,
        rpc_queue_type_count: u32::MAX,
        rpc_dump_count: u32::MAX,
        ..Default::default()
    };
    let call = |out: &mut *mut StandIn<c::stats_info_response_msg_t>| {
        *out = StandIn::make(hostile);
        SUCCESS
    };
    // SAFETY: leaves a StandIn that only its `free` frees.
    let reply = unsafe { RawReply::receive("slurm_get_statistics", call) }.unwrap();
    let statistics = stats::from_reply(made(&reply.get().0), true);
    drop(reply);
    assert_eq!(COUNTS.get(), (1, 1));
    assert_eq!(statistics.req_time, i64::MIN);
    let empty = slurm_snapshot::RpcTables { pending: Some(Vec::new()), ..Default::default() };
    assert_eq!(statistics.rpc, Some(empty));
}

#[test]
fn unchanged_is_an_answer_only_where_a_moment_was_named() {
    let unchanged = |since| {
        let call = |_: &mut *mut StandIn<i32>| {
            Errno::set_raw(errno::NO_CHANGE_IN_DATA);
            -1
        };
        // SAFETY: leaves NULL.
        unchanged_since(since, unsafe { RawReply::receive("slurm_load_jobs", call) })
    };
    assert!(unchanged(5).unwrap().is_none());
    assert_eq!(unchanged(0).map(drop).unwrap_err().errno, errno::NO_CHANGE_IN_DATA);
}

#[test]
fn a_failure_carries_slurms_own_words() {
    let refused = CallError::new("slurm_get_statistics", 1800);
    assert_eq!(
        refused.to_string(),
        "slurm_get_statistics: Unable to contact slurm controller (connect failure) (errno 1800)"
    );
    let silent = CallError::new("slurm_get_statistics", 0);
    assert_eq!(silent.to_string(), "slurm_get_statistics: libslurm gave no reason");
    let nothing = receive(SUCCESS, false).unwrap_err();
    assert_eq!(nothing.to_string(), "slurm_load_jobs: slurmctld sent no reply");
    assert!([i32::MIN, i32::MAX].iter().all(|errno| !CallError::new("", *errno).text.is_empty()));
}

/// A list that libslurm reads, of structs that a test has made.
pub(crate) struct TestList<T>(OwnList<T>);

pub(crate) fn list_of<T>(elements: impl IntoIterator<Item = T>) -> TestList<T> {
    TestList(OwnList::new(elements, |element| ptr::from_mut(element).cast()))
}

impl<T> TestList<T> {
    pub(crate) fn pointer(&self) -> *mut c::xlist {
        self.0.pointer()
    }
}

#[test]
fn a_list_of_texts_is_walked_whole_and_in_order() {
    let names = ["3", "10", "8192"];
    let texts = texts(names.map(|name| CString::new(name).unwrap()));
    // SAFETY: the elements are the first bytes of strings, which live as long as the list.
    let elements = unsafe { elements::<c_char>(texts.pointer()) };
    // SAFETY: each is the first byte of a string with its NUL.
    let seen = elements.iter().map(|first| text(unsafe { bytes(&raw const **first) }).unwrap());
    assert_eq!(seen.collect::<Vec<_>>(), names);
}

#[test]
fn a_condition_that_names_nothing_has_no_list() {
    assert!(whole_jobs(&[]).pointer().is_null());
    assert!(!whole_jobs(&[(7, NO_VAL)]).pointer().is_null());
}

#[test]
fn a_call_that_leaves_no_list_is_a_failure_with_its_errno() {
    let call = || {
        Errno::set_raw(111);
        ptr::null_mut()
    };
    // SAFETY: leaves NULL.
    let error = unsafe { Records::<u32>::receive("slurmdb_jobs_get", call) }.map(drop).unwrap_err();
    assert_eq!((error.call, error.errno), ("slurmdb_jobs_get", 111));
}
