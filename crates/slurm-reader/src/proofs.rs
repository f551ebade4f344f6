//! Proofs that an empty answer of slurmdbd is right: further statements, of which one must match a
//! row.
//!
//! slurmdbd answers a query that has failed in its database with an empty list.

/// Most seconds by which each statement goes further back than the one before, on the way to a
/// known row.
const STEP: i64 = 3600;
/// Most statements on the way to a known row: with [`STEP`], as far back as anything is read.
const MOST_STEPS: usize = 240;

/// One question to slurmdbd for rows of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    /// The time in which jobs ended, Unix seconds; both ends belong to it.
    pub(crate) time: [i64; 2],
    /// Whether jobs that ran at any moment of this time match too.
    pub(crate) running: bool,
}

/// Returns the statements of which one must match something, for the case that nothing ended in the
/// requested time. First comes the one that costs least: jobs that ran in that time. Then jobs that
/// ended from its beginning to the first `known` moment after that, if there is one. Then the way
/// back to the nearest `known` moment before it, in steps that double up to an hour, so that no
/// more rows come than end in an hour; and from there each known one at once.
///
/// An example: nothing ended from 10000 to 13600, and a job is known that ended at 2000. The
/// statements are: jobs that ran from 10000 to 13600; jobs that ended from 6400 to 13600; from
/// 2800; from 2000. The last one must match the known job, unless one before it has matched
/// something.
pub(crate) fn proofs([from, to]: [i64; 2], known: &[i64]) -> Vec<Statement> {
    let ended = |since, until| Statement { time: [since, until], running: false };
    let mut proofs = vec![Statement { time: [from, to], running: true }];
    let (mut before, after): (Vec<i64>, Vec<i64>) = known.iter().partition(|known| **known < from);
    proofs.extend(after.into_iter().min().map(|known| ended(from, to.max(known))));
    before.sort_unstable_by(|one, other| other.cmp(one));
    let mut since = from;
    let mut length = to.saturating_sub(from).clamp(1, STEP);
    for _ in 0..MOST_STEPS {
        let Some(nearest) = before.first().filter(|nearest| **nearest < since) else { break };
        since = since.saturating_sub(length).max(*nearest);
        proofs.push(ended(since, to));
        length = length.saturating_mul(2).min(STEP);
    }
    proofs.extend(before.into_iter().filter(|known| *known < since).map(|known| ended(known, to)));
    proofs.dedup();
    proofs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Towards a row long before, half of all rows since then came at once. Jobs that ran cost
    /// less, and were asked for last.
    #[test]
    fn a_proof_is_one_statement_with_the_time_itself_and_little_more() {
        let times = |known: &[i64]| -> Vec<[i64; 2]> {
            let proofs = proofs([10_000, 13_600], known);
            let (first, others) = proofs.split_first().unwrap();
            assert_eq!(*first, Statement { time: [10_000, 13_600], running: true });
            others.iter().map(|statement| statement.time).collect()
        };
        assert_eq!(times(&[]), [[0; 2]; 0]);
        assert_eq!(times(&[14_000]), [[10_000, 14_000]]);
        assert_eq!(times(&[11_000]), [[10_000, 13_600]], "that row was not in the answer");
        assert_eq!(times(&[9000]), [[9000, 13_600]]);
        assert_eq!(times(&[2000]), [[6400, 13_600], [2800, 13_600], [2000, 13_600]]);
        assert_eq!(
            times(&[20_000, 9000, 15_000, -50_000]),
            [[10_000, 15_000], [9000, 13_600], [-50_000, 13_600]],
            "before the nearest there is little"
        );
        for known in [0, i64::MIN, i64::MIN / 2] {
            let all = times(&[known]);
            let steps = all.windows(2).filter(|pair| pair[0][0] - pair[1][0] > 3600).count();
            assert!(all.len() <= 241 && steps <= 1, "{all:?}");
            assert_eq!(all.last(), Some(&[known, 13_600]));
        }
        let short = proofs([10_000, 10_060], &[0]);
        assert_eq!(
            short[1..4].iter().map(|proof| 10_000 - proof.time[0]).collect::<Vec<_>>(),
            [60, 180, 420],
            "it is short where little is asked for"
        );
    }
}
