//! Sums of numbers of which Slurm may not know each: an unknown one is never 0.

use serde::{Deserialize, Serialize};

use crate::sums::add_to;

/// A sum of those numbers that are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownSum {
    /// Sum of the known numbers; `None` if none has been added.
    known: Option<u64>,
    unknown: u64,
}

impl KnownSum {
    /// Makes the sum of one number; `None` is a number that is not known.
    pub fn new(number: Option<u64>) -> Self {
        Self { known: number, unknown: number.is_none().into() }
    }

    /// Adds another sum to this one.
    pub fn add(&mut self, more: Self) {
        if let Some(more) = more.known {
            add_to(self.known.get_or_insert(0), more);
        }
        add_to(&mut self.unknown, more.unknown);
    }

    /// Returns the sum of the known numbers; `None` if there are numbers, and none of them is
    /// known.
    pub fn value(self) -> Option<u64> {
        self.known.or((self.unknown == 0).then_some(0))
    }

    /// Returns how many of the numbers are not known.
    pub const fn unknown(self) -> u64 {
        self.unknown
    }
}

impl Extend<Option<u64>> for KnownSum {
    fn extend<I: IntoIterator<Item = Option<u64>>>(&mut self, numbers: I) {
        numbers.into_iter().for_each(|number| self.add(Self::new(number)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_of_the_known_ones_and_absent_only_if_none_is() {
        let sum = |numbers: &[Option<u64>]| {
            let mut sum = KnownSum::default();
            sum.extend(numbers.iter().copied());
            (sum.value(), sum.unknown())
        };
        assert_eq!(sum(&[]), (Some(0), 0), "nothing has none of it");
        assert_eq!(sum(&[None]), (None, 1));
        assert_eq!(sum(&[Some(0)]), (Some(0), 0));
        assert_eq!(sum(&[None, Some(3), None, Some(4)]), (Some(7), 2));
    }
}
