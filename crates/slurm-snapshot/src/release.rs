//! A Slurm release: the major version, such as 22.05, which decides the layout of every reply.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// (N, release) for every release that has a reader, oldest first. N is that of libslurm.so.N, of
/// slurmctld's protocol, and of v0.0.N, the version of slurmrestd's API that came with it.
///
/// slurm-sys's build script and tests/releases read these lines as text. A line's comment says
/// where tests/releases gets Slurm: from a suite of Debian, or from the release's branch in Slurm's
/// own git repository.
pub const LIBRARIES: &[(u32, Release)] = &[
    (36, Release::new(20, 11)), // suite bullseye
    (37, Release::new(21, 8)),  // branch
    (38, Release::new(22, 5)),  // suite bookworm
    (39, Release::new(23, 2)),  // branch
    (40, Release::new(23, 11)), // branch
    (41, Release::new(24, 5)),  // branch
    (42, Release::new(24, 11)), // suite trixie
    (43, Release::new(25, 5)),  // branch
    (44, Release::new(25, 11)), // branch
    (45, Release::new(26, 5)),  // suite forky
    (46, Release::new(26, 11)), // branch
];

/// A Slurm major release, written `YY.MM`; ordered by time.
///
/// ```
/// # use slurm_snapshot::Release;
/// let old: Release = "22.05".parse()?;
/// assert!(old < Release::new(23, 11));
/// # Ok::<(), slurm_snapshot::ReleaseError>(())
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Release {
    year: u8,
    month: u8,
}

/// A text that is not a Slurm release.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a Slurm release such as 22.05")]
pub struct ReleaseError(String);

impl Release {
    /// The release of `year` (two digits) and `month`.
    pub const fn new(year: u8, month: u8) -> Self {
        Self { year, month }
    }

    /// Returns the release of libslurm.so.N and of v0.0.N; `None` if this N has no reader.
    pub fn of_library(number: u32) -> Option<Self> {
        LIBRARIES.iter().find(|(known, _)| *known == number).map(|(_, release)| *release)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}.{:02}", self.year, self.month)
    }
}

impl FromStr for Release {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        let number = |part: &str| match part.as_bytes() {
            [b'0'..=b'9', b'0'..=b'9'] => part.parse().ok(),
            _ => None,
        };
        text.split_once('.')
            .and_then(|(year, month)| Some(Self::new(number(year)?, number(month)?)))
            .ok_or_else(|| ReleaseError(text.to_owned()))
    }
}

impl TryFrom<String> for Release {
    type Error = ReleaseError;

    fn try_from(text: String) -> Result<Self, ReleaseError> {
        text.parse()
    }
}

impl From<Release> for String {
    fn from(release: Release) -> Self {
        release.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_ordered_by_time_and_round_trip() {
        let releases = ["20.11", "21.08", "22.05", "23.02", "24.11", "26.05"];
        let parsed: Vec<Release> = releases.iter().map(|text| text.parse().unwrap()).collect();
        assert!(parsed.is_sorted());
        assert_eq!(parsed.iter().map(Release::to_string).collect::<Vec<_>>(), releases);
    }

    #[test]
    fn what_is_no_release_is_refused() {
        for text in ["", "22", "22.5", "22.05.8", "+2.05", "22,05", "２２.05"] {
            assert!(text.parse::<Release>().is_err(), "{text}");
        }
    }
}
