//! A clock that a test sets.

use std::cell::Cell;

use super::*;

thread_local! {
    static NOW: Cell<Option<Moment>> = const { Cell::new(None) };
    static AGES: Cell<u64> = const { Cell::new(0) };
}

/// Gives this thread these clocks from now on; `None`: those of the host.
pub(crate) fn set(now: Option<Moment>) {
    NOW.set(now);
}

/// Number of ages that this thread has asked for.
pub(crate) fn ages() -> u64 {
    AGES.get()
}

pub(super) fn note_age() {
    AGES.set(AGES.get() + 1);
}

pub(super) fn now() -> Option<Moment> {
    NOW.get()
}

/// `status` said "connected since 09:27:16", and 20 s later 09:27:17.
#[test]
fn a_moment_that_is_shown_again_and_again_does_not_move() {
    let since = Moment::begin_of_second();
    let first = Moment::now().unix(since);
    let begin = std::time::Instant::now();
    while begin.elapsed() < Duration::from_millis(1100) {
        assert_eq!(Moment::now().unix(since), first, "after {:?}", begin.elapsed());
        // Where a second ends the two clocks may be read on both sides of it.
        std::thread::sleep(Duration::from_millis(7));
    }
}
