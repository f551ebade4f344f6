//! `[graphite] retentions`: for how long Carbon's rules keep points.

use std::fmt;
use std::str::FromStr;

/// Carbon's units of time, and the seconds in each. Carbon accepts any beginning of a unit's name,
/// such as `min`. A number without a unit is seconds.
const UNITS: [(&str, u64); 6] = [
    ("years", 365 * DAY),
    ("weeks", 7 * DAY),
    ("days", DAY),
    ("hours", 3600),
    ("minutes", 60),
    ("seconds", 1),
];

const DAY: u64 = 86_400;

/// Times for which Carbon keeps points. `finest`: seconds that it keeps points at the interval.
/// `coarser`: the other archives, each with the seconds between two points and the seconds kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retentions {
    pub(crate) finest: u64,
    pub(crate) coarser: Vec<(u32, u64)>,
}

impl Default for Retentions {
    /// Keeps points at the interval for 14 days, so that last week's incident can be looked at, one
    /// point in 5 minutes for 90 days, and one in an hour for 3 years.
    fn default() -> Self {
        Self { finest: 14 * DAY, coarser: vec![(300, 90 * DAY), (3600, 3 * 365 * DAY)] }
    }
}

impl FromStr for Retentions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected how long to keep points at the interval, and coarser archives in \
                 Carbon's form, such as \"{}\"; found {text:?}",
                Self::default()
            )
        };
        let mut parts = text.split(',').map(str::trim);
        let finest =
            parts.next().and_then(seconds).filter(|kept| *kept > 0).ok_or_else(expected)?;
        let archive = |part: &str| {
            let (step, kept) = part.split_once(':')?;
            let step =
                u32::try_from(seconds(step)?).ok().filter(|step| (1..=DAY_STEP).contains(step))?;
            Some((step, seconds(kept)?))
        };
        let coarser: Vec<(u32, u64)> =
            parts.map(archive).collect::<Option<_>>().ok_or_else(expected)?;
        let mut before = (0, finest);
        for &(step, kept) in &coarser {
            if step <= before.0 || kept <= before.1 {
                return Err(format!(
                    "each archive must be coarser than the one before it and be kept for longer; \
                        found {text:?}"
                ));
            }
            before = (step, kept);
        }
        Ok(Self { finest, coarser })
    }
}

/// Most seconds that an archive may have between two points: a day.
const DAY_STEP: u32 = 86_400;

impl fmt::Display for Retentions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&in_carbons_words(self.finest))?;
        self.coarser.iter().try_for_each(|&(step, kept)| {
            write!(formatter, ",{}:{}", in_carbons_words(step.into()), in_carbons_words(kept))
        })
    }
}

/// Parses a time in Carbon's words, such as `90d`, into seconds. `None`: it is not in such words.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, unit) = UNITS.iter().rev().find(|(name, _)| name.starts_with(unit))?;
    number.parse::<u64>().ok()?.checked_mul(*unit)
}

/// Formats a number of seconds in Carbon's words, in the largest unit that gives a whole number.
/// Weeks are written as days.
pub(crate) fn in_carbons_words(seconds: u64) -> String {
    let units = UNITS.iter().filter(|(name, _)| *name != "weeks");
    let fits = |(_, unit): &&(&str, u64)| seconds > 0 && seconds.is_multiple_of(*unit);
    let (name, unit) = units.into_iter().find(fits).copied().unwrap_or(("seconds", 1));
    let initial = name.get(..1).unwrap_or_default();
    format!("{}{initial}", seconds / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_what_is_read() {
        for text in ["14d,5m:90d,1h:3y", "1d", "36h,1h:90d", "1y,1h:10y"] {
            assert_eq!(text.parse::<Retentions>().unwrap().to_string(), text);
        }
        assert_eq!("2w, 300:90days".parse::<Retentions>().unwrap().to_string(), "14d,5m:90d");
        assert_eq!(Retentions::default().to_string(), "14d,5m:90d,1h:3y");
    }

    #[test]
    fn what_whisper_would_refuse_is_refused() {
        for text in
            ["", "30s:14d", "0d", "14d,5m", "14d,5m:14d", "14d,1h:90d,5m:3y", "soon", "14d,2d:90d"]
        {
            assert!(text.parse::<Retentions>().is_err(), "{text}");
        }
    }
}
