//! Sums that stop at the greatest number instead of wrapping: most of what they add comes from
//! outside.

/// Adds a number to a sum.
pub const fn add_to(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Adds one to a counter.
pub const fn one_more(counter: &mut u64) {
    add_to(counter, 1);
}

/// Returns the sum of all numbers.
pub fn sum_of(all: impl IntoIterator<Item = u64>) -> u64 {
    all.into_iter().fold(0, u64::saturating_add)
}

/// Adds the named members of the second struct to the same members of the first one.
#[macro_export]
macro_rules! add_members {
    ($sum:expr, $more:expr; $($member:ident)+) => {
        $($crate::add_to(&mut $sum.$member, $more.$member);)+
    };
}
