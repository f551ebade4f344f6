//! Carbon's rules for series: which one is the first that matches a path, and what it keeps.
//!
//! Pure: paths and the text of files in, rules out. A pattern is searched for, not anchored, and the first rule in the
//! file's order wins. If no rule matches, Carbon keeps one point a minute for 7 days, and averages.

use regex::bytes::{Regex, RegexBuilder};
use slurm_points::metric::Rollup;

use super::ini::{self, IniSection};

/// The archives of a rule, the finest first: seconds a point, and seconds kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Archives(Vec<(u64, u64)>);

/// A rule, what it says, and where it applies.
pub(super) struct Rule<T> {
    /// Its section; `None` where no rule matches, and Carbon's own default applies.
    pub(super) name: Option<String>,
    pattern: Option<Regex>,
    pub(super) says: T,
}

/// A rule that cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RuleError {
    #[error("[{0}] has a pattern that only Python can read: {1}")]
    Pattern(String, String),
    #[error("[{0}] has retentions with which Carbon does not start: {1}")]
    Retentions(String, String),
}

impl Archives {
    /// Carbon's own, for what no rule matches.
    fn default_rule() -> Self {
        Self(vec![(60, 7 * 86_400)])
    }

    /// `60s:1d,5m:30d`; a bare number of the second kind counts points.
    fn parse(text: &str) -> Option<Self> {
        let archive = |text: &str| {
            let (step, kept) = text.trim().split_once(':')?;
            let step = seconds(step)?;
            let kept = match kept.parse::<u64>() {
                Ok(points) => points.checked_mul(step)?,
                Err(_) => seconds(kept)?,
            };
            Some((step, kept))
        };
        let mut archives: Vec<(u64, u64)> = text.split(',').map(archive).collect::<Option<_>>()?;
        archives.sort_unstable();
        Some(Self(archives))
    }

    /// Whether whisper takes them; Carbon passes over a rule whose archives it does not.
    fn is_valid(&self) -> bool {
        self.0.windows(2).all(|pair| match *pair {
            [(step, kept), (coarser, longer)] => {
                step > 0 && step < coarser && coarser % step == 0 && longer > kept && kept >= coarser
            }
            _ => true,
        })
    }

    /// The finest archive: seconds a point, seconds kept.
    pub(super) fn finest(&self) -> (u64, u64) {
        self.0.first().copied().unwrap_or_default()
    }
}

fn seconds(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let unit = match unit {
        "" => 1,
        // Carbon takes every beginning of a unit's name.
        _ if "seconds".starts_with(unit) => 1,
        _ if "minutes".starts_with(unit) => 60,
        _ if "hours".starts_with(unit) => 3600,
        _ if "days".starts_with(unit) => 86_400,
        _ if "weeks".starts_with(unit) => 7 * 86_400,
        _ if "years".starts_with(unit) => 365 * 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// The rules of storage-schemas.conf, followed by Carbon's own.
pub(super) fn schemas(text: &str) -> Result<Vec<Rule<Archives>>, RuleError> {
    let mut rules = Vec::new();
    for section in &ini::parse(text) {
        let (Some(pattern), Some(retentions)) = (section.get("pattern"), section.get("retentions")) else {
            continue;
        };
        let wrong = || RuleError::Retentions(section.name.clone(), retentions.to_owned());
        let says = Archives::parse(retentions).ok_or_else(wrong)?;
        if says.is_valid() {
            rules.push(rule(section, pattern, says)?);
        }
    }
    rules.push(Rule { name: None, pattern: None, says: Archives::default_rule() });
    Ok(rules)
}

/// The rules of storage-aggregation.conf, followed by Carbon's own; `None` is a method that fits none of our figures.
pub(super) fn aggregations(text: &str) -> Result<Vec<Rule<Option<Rollup>>>, RuleError> {
    let mut rules = Vec::new();
    for section in &ini::parse(text) {
        let Some(pattern) = section.get("pattern") else { continue };
        let method = match section.get("aggregationmethod").unwrap_or("average") {
            "average" | "avg" | "avg_zero" => Some(Rollup::Average),
            "last" => Some(Rollup::Last),
            "max" => Some(Rollup::Max),
            _ => None,
        };
        rules.push(rule(section, pattern, method)?);
    }
    rules.push(Rule { name: None, pattern: None, says: Some(Rollup::Average) });
    Ok(rules)
}

fn rule<T>(section: &IniSection, pattern: &str, says: T) -> Result<Rule<T>, RuleError> {
    // Paths are ASCII; tables of Unicode would only make the program larger.
    let pattern = RegexBuilder::new(pattern)
        .unicode(false)
        .build()
        .map_err(|_| RuleError::Pattern(section.name.clone(), pattern.to_owned()))?;
    Ok(Rule { name: Some(section.name.clone()), pattern: Some(pattern), says })
}

impl<T> Rule<T> {
    /// `[name]`, or what stands for none.
    pub(super) fn title(&self) -> String {
        self.name.as_ref().map_or_else(|| "no rule".to_owned(), |name| format!("[{name}]"))
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(path.as_bytes()))
    }
}

/// The first rule that matches `path`.
pub(super) fn first<'a, T>(rules: &'a [Rule<T>], path: &str) -> Option<&'a Rule<T>> {
    rules.iter().find(|rule| rule.matches(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(text: &str, path: &str) -> Option<String> {
        first(&schemas(text).unwrap(), path).unwrap().name.clone()
    }

    #[test]
    fn the_first_in_the_file_wins_and_patterns_are_searched_for() {
        let text = "[b]\npattern = sched\nretentions = 60:1440\n[a]\npattern = .*\nretentions = 10s:1d\n";
        assert_eq!(name_of(text, "cluster.slurm_sched_stats.gauge-x").as_deref(), Some("b"));
        assert_eq!(name_of(text, "x").as_deref(), Some("a"));
        assert_eq!(name_of("", "x"), None);
    }

    #[test]
    fn retentions_are_read_as_carbon_reads_them() {
        for (text, finest) in [
            ("60:1440", (60, 86_400)),
            ("30s:1d,5m:90d", (30, 86_400)),
            ("5min:90d, 30s:1d", (30, 86_400)),
            ("1h:3y", (3600, 94_608_000)),
            ("10:6h", (10, 21_600)),
        ] {
            assert_eq!(Archives::parse(text).unwrap().finest(), finest, "{text}");
        }
        for text in ["", "60", "60s:", "x:1d", "60:1fortnight", ":1d"] {
            assert_eq!(Archives::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_rule_that_whisper_refuses_is_passed_over() {
        for bad in ["30s:1d,45s:2d", "30s:1d,60s:1d", "30s:1d,30s:2d", "30s:5m,1h:1y"] {
            let text =
                format!("[bad]\npattern = x\nretentions = {bad}\n[good]\npattern = x\nretentions = 1s:1d\n");
            assert_eq!(name_of(&text, "x").as_deref(), Some("good"), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_said_and_not_guessed() {
        let python = schemas("[odd]\npattern = ^(?!carbon)\nretentions = 1s:1d\n");
        assert!(python.is_err_and(|error| error.to_string().contains("[odd]")));
        assert!(schemas("[odd]\npattern = x\nretentions = soon\n").is_err());
    }

    #[test]
    fn what_nothing_says_is_averaged() {
        let rules = aggregations(
            "[max]\npattern = max$\naggregationMethod = max\n[sum]\npattern = sum\naggregationMethod = sum\n",
        )
        .unwrap();
        let method = |path: &str| first(&rules, path).unwrap().says;
        assert_eq!(
            (method("a.max"), method("a.sum"), method("a.b")),
            (Some(Rollup::Max), None, Some(Rollup::Average))
        );
    }
}
