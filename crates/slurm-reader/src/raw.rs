//! C memory: the owner of a reply, slices of limited length, text, times.
//!
//! A reply is freed exactly once, on every path, by its owner. Borrowed data does not outlive its reply. Knows no
//! particular reply.

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::ptr::{self, NonNull};

use nix::errno::Errno;

/// A C struct that libslurm allocates for its caller to free.
pub(crate) trait Freed {
    /// Frees the struct and all that it points to.
    const FREE: unsafe extern "C" fn(*mut Self);
}

/// A call that left no reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// It reported an error, with this `errno`.
    Errno(i32),
    /// It reported success but left nothing: slurmctld sent only a return code.
    Nothing,
}

/// The only owner of a reply.
#[derive(Debug)]
pub(crate) struct RawReply<T: Freed>(NonNull<T>);

impl<T: Freed> RawReply<T> {
    /// Makes a call that leaves its reply in an out pointer, which starts from NULL, and owns whatever the call leaves
    /// there, even after an error. `errno` is cleared first: libslurm does not set it at every failure.
    ///
    /// # Safety
    /// `call` leaves NULL, or a `T` that may be read until [`Freed::FREE`] is called on it and that nobody else
    /// frees.
    pub(crate) unsafe fn receive(call: impl FnOnce(&mut *mut T) -> c_int) -> Result<Self, NoReply> {
        let mut pointer = ptr::null_mut();
        Errno::clear();
        let code = call(&mut pointer);
        let errno = last_errno();
        let reply = NonNull::new(pointer).map(Self);
        if code == SUCCESS { reply.ok_or(NoReply::Nothing) } else { Err(NoReply::Errno(errno)) }
    }

    pub(crate) fn get(&self) -> &T {
        // SAFETY: `receive`'s caller promised a T that may be read until FREE, which only `drop` calls.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Freed> Drop for RawReply<T> {
    fn drop(&mut self) {
        // SAFETY: `receive`'s caller promised that FREE takes this pointer and that nobody else frees it; it is
        // dropped once.
        unsafe { (T::FREE)(self.0.as_ptr()) };
    }
}

/// `SLURM_SUCCESS`, as C functions return it.
pub(crate) const SUCCESS: c_int = 0;

/// `errno`: to be read right after a call, before anything that could set it again.
pub(crate) fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

/// The first `count` elements of a C array, at most `limit` of them; a NULL array is empty.
///
/// # Safety
/// `array` is NULL, or points to `count` initialized elements that nobody changes or frees while the slice lives.
pub(crate) unsafe fn slice<'a, T>(array: *const T, count: u32, limit: usize) -> &'a [T] {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(limit);
    if array.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: not NULL, so that the caller promises at least `count` elements for as long as 'a.
    unsafe { std::slice::from_raw_parts(array, count) }
}

/// Calls `take` with each element of a list of libslurm's; a NULL list is empty.
///
/// # Safety
/// `list` is NULL, or a list of `T`s that nobody changes or frees during the call.
pub(crate) unsafe fn each<T>(list: *mut slurm_sys::xlist, mut take: impl FnMut(&T)) {
    if list.is_null() {
        return;
    }
    // SAFETY: not NULL, so that the caller promises a list.
    let iterator = unsafe { slurm_sys::slurm_list_iterator_create(list) };
    loop {
        // SAFETY: the iterator lives until it is destroyed below.
        let element: *const T = unsafe { slurm_sys::slurm_list_next(iterator) }.cast();
        // SAFETY: NULL after the last one; otherwise an element, which lives as long as the list.
        let Some(element) = (unsafe { element.as_ref() }) else { break };
        take(element);
    }
    // SAFETY: created above, and not used again.
    unsafe { slurm_sys::slurm_list_iterator_destroy(iterator) };
}

/// A copy of a C string, with U+FFFD for bytes that are not UTF-8; `None` if it is NULL.
///
/// # Safety
/// `string` is NULL, or ends with a NUL and is not changed or freed during the call.
pub(crate) unsafe fn text(string: *const c_char) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY: not NULL, so that the caller promises a string that ends with a NUL.
    let string = unsafe { CStr::from_ptr(string) };
    Some(string.to_string_lossy().into_owned())
}

/// The bytes of a C string without its NUL; empty if it is NULL.
///
/// # Safety
/// `string` is NULL, or ends with a NUL and is not changed or freed while the slice lives.
pub(crate) unsafe fn bytes<'a>(string: *const c_char) -> &'a [u8] {
    if string.is_null() {
        return &[];
    }
    // SAFETY: not NULL, so that the caller promises a string that ends with a NUL, for as long as 'a.
    unsafe { CStr::from_ptr(string) }.to_bytes()
}

/// A number; `None` for the two values that mean none in C, `NO_VAL` and `INFINITE`.
pub(crate) const fn number(number: u32) -> Option<u32> {
    if number >= NO_VAL { None } else { Some(number) }
}

/// `NO_VAL`; `INFINITE` is one more.
pub(crate) const NO_VAL: u32 = 0xffff_fffe;

/// `NO_VAL64`; `INFINITE64` is one more.
const NO_VAL64: u64 = 0xffff_ffff_ffff_fffe;

/// The same for 64 bits.
pub(crate) const fn number64(number: u64) -> Option<u64> {
    if number >= NO_VAL64 { None } else { Some(number) }
}

/// A number that is narrower in some releases.
pub(crate) fn wide(number: impl Into<u32>) -> u32 {
    number.into()
}

/// Returns the memory of freed replies to the kernel; glibc would keep it.
pub(crate) fn give_memory_back() {
    // SAFETY: takes no pointer; any thread may call it at any time.
    unsafe { nix::libc::malloc_trim(0) };
}

/// A time; `None` for 0, which C uses for a time that never was.
pub(crate) const fn moment(time: i64) -> Option<i64> {
    if time == 0 { None } else { Some(time) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    thread_local! {
        /// (replies made, replies freed) by this test's thread.
        static COUNTS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }

    #[derive(Debug)]
    struct StandInReply(u32);

    impl StandInReply {
        fn make() -> *mut Self {
            COUNTS.with(|counts| counts.set((counts.get().0 + 1, counts.get().1)));
            Box::into_raw(Box::new(Self(42)))
        }
    }

    unsafe extern "C" fn free(stand_in: *mut StandInReply) {
        COUNTS.with(|counts| counts.set((counts.get().0, counts.get().1 + 1)));
        // SAFETY: made by `make`; these tests check that it is freed once.
        drop(unsafe { Box::from_raw(stand_in) });
    }

    impl Freed for StandInReply {
        const FREE: unsafe extern "C" fn(*mut Self) = free;
    }

    fn receive(code: c_int, leaves_a_reply: bool) -> Result<RawReply<StandInReply>, NoReply> {
        let call = |out: &mut *mut StandInReply| {
            assert!(out.is_null(), "the out pointer starts from NULL");
            if leaves_a_reply {
                *out = StandInReply::make();
            }
            code
        };
        // SAFETY: `make` gives a StandIn that only its FREE frees.
        unsafe { RawReply::receive(call) }
    }

    #[test]
    fn a_reply_is_freed_exactly_once_on_every_path() {
        let reply = receive(SUCCESS, true).unwrap();
        assert_eq!(reply.get().0, 42);
        assert_eq!(COUNTS.get(), (1, 0), "not before its owner goes");
        drop(reply);
        assert_eq!(COUNTS.get(), (1, 1));

        assert!(matches!(receive(-1, true), Err(NoReply::Errno(_))), "an error that has left a reply");
        assert_eq!(COUNTS.get(), (2, 2));

        assert!(matches!(receive(-1, false), Err(NoReply::Errno(_))));
        assert_eq!(receive(SUCCESS, false).unwrap_err(), NoReply::Nothing);
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
        let call = |_: &mut *mut StandInReply| {
            Errno::EPROTO.set();
            -1
        };
        // SAFETY: leaves NULL.
        let error = unsafe { RawReply::receive(call) }.unwrap_err();
        assert_eq!(error, NoReply::Errno(Errno::EPROTO as i32));
    }

    /// libslurm does not set errno if the controller's name cannot be resolved.
    #[test]
    fn the_errno_of_an_earlier_call_is_not_this_ones() {
        Errno::EPROTO.set();
        assert_eq!(receive(-1, false).unwrap_err(), NoReply::Errno(0));
    }

    #[test]
    fn an_array_that_is_null_or_longer_than_the_limit_is_bounded() {
        let array = [1_u32, 2, 3];
        // SAFETY: NULL is allowed with any count.
        assert!(unsafe { slice::<u32>(ptr::null(), u32::MAX, 100) }.is_empty());
        // SAFETY: the array has three elements.
        assert_eq!(unsafe { slice(array.as_ptr(), 3, 2) }, [1, 2]);
        // SAFETY: no element is read beyond the limit, 3.
        assert_eq!(unsafe { slice(array.as_ptr(), 3, 100) }, [1, 2, 3]);
    }

    #[test]
    fn text_may_be_null_or_not_utf8() {
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { text(ptr::null()) }, None);
        // SAFETY: a literal with its NUL.
        assert_eq!(unsafe { text(c"node[1-4]".as_ptr()) }.unwrap(), "node[1-4]");
        // SAFETY: the same.
        assert_eq!(unsafe { text(c"n\xff".as_ptr()) }.unwrap(), "n\u{fffd}");
    }

    #[test]
    fn time_0_is_no_moment() {
        assert_eq!(moment(0), None);
        assert_eq!(moment(-1), Some(-1));
    }
}
