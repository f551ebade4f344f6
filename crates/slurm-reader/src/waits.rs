//! Exact percentiles of waiting times over all jobs.
//!
//! Pure. An entry takes eight bytes, however many array tasks it represents.

use slurm_snapshot::{Moments, Started, Starts, add_to, sum_of};

/// Waits in seconds, and how many jobs have each.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Entries of a wait in s, in the upper half so that sorting sorts by it, and a number of jobs
    /// in the lower half.
    packed: Vec<u64>,
}

impl Waits {
    /// Adds this number of jobs that have waited from `since` to `until`, Unix seconds; a negative
    /// wait counts as 0.
    pub(crate) fn add(&mut self, since: i64, until: i64, jobs: u64) {
        let wait = until.saturating_sub(since).max(0);
        let wait = u32::try_from(wait).unwrap_or(u32::MAX);
        let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
        self.packed.push(u64::from(wait) << 32 | u64::from(jobs));
    }

    /// Returns the moments since which the jobs have waited, if each wait lasts until `now`; `None`
    /// without jobs.
    pub(crate) fn moments(self, now: i64) -> Option<Moments> {
        self.ranks().map(|(jobs, ranks)| {
            let [p50, p90, _, max] = ranks.map(|wait| now.saturating_sub(wait.into()));
            Moments { jobs, p50, p90, max }
        })
    }

    /// Returns the moments at which the jobs will start, if each wait is from `now` to its start;
    /// `None` without jobs.
    pub(crate) fn starts(self, now: i64) -> Option<Starts> {
        self.ranks().map(|(_, ranks)| {
            let [p50, p90, p99, max] = ranks.map(|wait| now.saturating_add(wait.into()));
            Starts { p50, p90, p99, max }
        })
    }

    /// Returns the waits that the jobs had when they started; 0 without jobs.
    pub(crate) fn started(self) -> Started {
        let (jobs, ranks) = self.ranks().unwrap_or_default();
        let [p50, p90, _, max] = ranks.map(u64::from);
        Started { jobs, p50, p90, max }
    }

    /// Returns the number of jobs, and the 50th, 90th, 99th and 100th percentile of their waits, s,
    /// at nearest rank: the smallest wait that is not less than those of that share of the jobs.
    /// `None` without jobs.
    fn ranks(mut self) -> Option<(u64, [u32; 4])> {
        self.packed.sort_unstable();
        let jobs = sum_of(self.packed.iter().copied().map(jobs_of));
        let at = |rank| {
            let mut passed = 0_u64;
            let found = self.packed.iter().find(|&&packed| {
                add_to(&mut passed, jobs_of(packed));
                passed >= rank
            });
            found.map_or(0, |&packed| wait_of(packed))
        };
        // Rounded up, without a product that could overflow.
        let ranks = [
            jobs.div_ceil(2),
            jobs.saturating_sub(jobs / 10),
            jobs.saturating_sub(jobs / 100),
            jobs,
        ];
        (jobs > 0).then(|| (jobs, ranks.map(at)))
    }
}

const fn wait_of(packed: u64) -> u32 {
    (packed >> 32) as u32
}

const fn jobs_of(packed: u64) -> u64 {
    packed & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(of: &[(i64, u64)]) -> Waits {
        let mut waits = Waits::default();
        for &(wait, jobs) in of {
            waits.add(1_000_000 - wait, 1_000_000, jobs);
        }
        waits
    }

    #[test]
    fn ranks_are_those_of_the_list_in_which_every_task_stands_by_itself() {
        for seed in 0..200_u64 {
            let sample: Vec<(i64, u64)> = (0..seed % 250 + 1)
                .map(|n| {
                    let random = (seed * 31 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                    (i64::try_from(random % 50).unwrap(), random % 4)
                })
                .collect();
            let mut list: Vec<u64> = sample
                .iter()
                .flat_map(|&(wait, jobs)| (0..jobs).map(move |_| u64::try_from(wait).unwrap()))
                .collect();
            list.sort_unstable();
            let started = waits(&sample).started();
            let rank = |percent: usize| list[(list.len() * percent).div_ceil(100) - 1];
            if list.is_empty() {
                assert_eq!(started, Started::default());
                assert_eq!(waits(&sample).moments(5), None);
                assert_eq!(waits(&sample).starts(5), None);
            } else {
                let expected = (list.len() as u64, rank(50), rank(90), rank(100));
                assert_eq!(
                    (started.jobs, started.p50, started.p90, started.max),
                    expected,
                    "{sample:?}"
                );
                let starts = waits(&sample).starts(0).unwrap();
                let ranks = [50, 90, 99, 100].map(|percent| i64::try_from(rank(percent)).unwrap());
                assert_eq!([starts.p50, starts.p90, starts.p99, starts.max], ranks, "{sample:?}");
            }
        }
    }

    #[test]
    fn the_longest_wait_has_the_earliest_moment() {
        let moments = waits(&[(10, 1), (600, 1), (30, 1)]).moments(1_000_000).unwrap();
        assert_eq!(moments, Moments { jobs: 3, p50: 999_970, p90: 999_400, max: 999_400 });
    }

    #[test]
    fn moments_that_make_no_sense_are_no_wait_or_the_longest() {
        let mut waits = Waits::default();
        waits.add(i64::MAX, i64::MIN, 1);
        waits.add(i64::MIN, i64::MAX, u64::MAX);
        let started = waits.started();
        assert_eq!(
            (started.p50, started.max, started.jobs),
            (u64::from(u32::MAX), u64::from(u32::MAX), 1 << 32)
        );
    }
}
