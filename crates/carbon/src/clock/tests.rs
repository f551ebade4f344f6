//! A clock that a test sets.

use std::cell::Cell;

use super::*;

thread_local! {
    static NOW: Cell<Option<Moment>> = const { Cell::new(None) };
}

/// From now on this thread sees these clocks; `None`: those of the host.
pub(crate) fn set(now: Option<Moment>) {
    NOW.set(now);
}

pub(super) fn now() -> Option<Moment> {
    NOW.get()
}
