//! Carbon's rules for series: which one is the first that matches a path, and what it keeps.
//!
//! Pure: paths and the text of files in, rules out. A pattern is searched for, not anchored, and
//! the first rule in the file's order wins. If no rule matches, Carbon keeps one point a minute for
//! 7 days, and averages.

use regex::bytes::{Regex, RegexBuilder};
use slurm_points::metric::Rollup;

use super::ini::{self, IniSection};
use crate::config::retentions::seconds;

/// A rule of Carbon's: its title, the paths for which it is, and its archive or roll-up.
pub(super) struct Rule<T> {
    /// `[section]`, or `no rule`, where Carbon's own default applies.
    pub(super) title: String,
    pattern: Regex,
    pub(super) says: T,
}

/// An archive of whisper: seconds between two points, and seconds kept.
type Archive = (u64, u64);

/// A reason why a rule of Carbon's cannot be judged.
#[derive(Debug, thiserror::Error)]
pub(super) enum RuleError {
    #[error("[{0}] has a pattern that only Python can read: {1}")]
    Pattern(String, String),
    #[error("[{0}] has retentions with which Carbon does not start: {1}")]
    Retentions(String, String),
}

/// Parses retentions, such as `60s:1d,5m:30d`, into archives, the finest first. A bare number is
/// seconds before the colon, and a number of points behind it. `None`: Carbon could not read them.
fn archives(text: &str) -> Option<Vec<Archive>> {
    let archive = |text: &str| {
        let (step, kept) = text.trim().split_once(':')?;
        let step = seconds(step)?;
        let kept = match kept.parse::<u64>() {
            Ok(points) => points.checked_mul(step)?,
            Err(_) => seconds(kept)?,
        };
        Some((step, kept))
    };
    let mut archives: Vec<Archive> = text.split(',').map(archive).collect::<Option<_>>()?;
    archives.sort_unstable();
    Some(archives)
}

/// Whether whisper accepts these archives, the finest first. Carbon passes over a rule with others.
fn are_valid(archives: &[Archive]) -> bool {
    archives.windows(2).all(|pair| match *pair {
        [(step, kept), (coarser, longer)] => {
            step > 0 && step < coarser && coarser % step == 0 && longer > kept && kept >= coarser
        }
        _ => true,
    })
}

/// Returns the rules of storage-schemas.conf, each with its finest archive. The last one is
/// Carbon's default, which matches every path.
pub(super) fn schemas(text: &str) -> Result<Vec<Rule<Archive>>, RuleError> {
    rules(text, (60, 7 * 86_400), |section| {
        let Some(retentions) = section.get("retentions") else { return Ok(None) };
        let wrong = || RuleError::Retentions(section.name.clone(), retentions.to_owned());
        let archives = archives(retentions).ok_or_else(wrong)?;
        Ok(archives.first().copied().filter(|_| are_valid(&archives)))
    })
}

/// Returns the rules of storage-aggregation.conf, each with its roll-up. The last one is Carbon's
/// default, which matches every path. A roll-up of `None` is a method that fits none of our
/// figures.
pub(super) fn aggregations(text: &str) -> Result<Vec<Rule<Option<Rollup>>>, RuleError> {
    rules(text, Some(Rollup::Average), |section| {
        Ok(Some(match section.get("aggregationmethod").unwrap_or("average") {
            "average" | "avg" | "avg_zero" => Some(Rollup::Average),
            "last" => Some(Rollup::Last),
            "max" => Some(Rollup::Max),
            _ => None,
        }))
    })
}

fn rules<T>(
    text: &str,
    otherwise: T,
    says: impl Fn(&IniSection) -> Result<Option<T>, RuleError>,
) -> Result<Vec<Rule<T>>, RuleError> {
    // Paths are ASCII; tables of Unicode would only make the program larger.
    let regex = |pattern: &str| RegexBuilder::new(pattern).unicode(false).build();
    let mut rules = Vec::new();
    for section in &ini::parse(text) {
        let Some(pattern) = section.get("pattern") else { continue };
        let Some(says) = says(section)? else { continue };
        let wrong = |_| RuleError::Pattern(section.name.clone(), pattern.to_owned());
        let pattern = regex(pattern).map_err(wrong)?;
        rules.push(Rule { title: format!("[{}]", section.name), pattern, says });
    }
    // An empty pattern is found everywhere.
    rules.extend(regex("").map(|pattern| Rule {
        title: "no rule".to_owned(),
        pattern,
        says: otherwise,
    }));
    Ok(rules)
}

impl<T> Rule<T> {
    pub(super) fn matches(&self, path: &str) -> bool {
        self.pattern.is_match(path.as_bytes())
    }
}

/// The first rule that matches `path`.
pub(super) fn first<'a, T>(rules: &'a [Rule<T>], path: &str) -> Option<&'a Rule<T>> {
    rules.iter().find(|rule| rule.matches(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn title_of(text: &str, path: &str) -> String {
        first(&schemas(text).unwrap(), path).unwrap().title.clone()
    }

    #[test]
    fn the_first_in_the_file_wins_and_patterns_are_searched_for() {
        let text =
            "[b]\npattern = sched\nretentions = 60:1440\n[a]\npattern = .*\nretentions = 10s:1d\n";
        assert_eq!(title_of(text, "cluster.slurm_sched_stats.gauge-x"), "[b]");
        assert_eq!(title_of(text, "x"), "[a]");
        assert_eq!(title_of("", "x"), "no rule");
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
            assert_eq!(archives(text).unwrap()[0], finest, "{text}");
        }
        for text in ["", "60", "60s:", "x:1d", "60:1fortnight", ":1d"] {
            assert_eq!(archives(text), None, "{text}");
        }
    }

    #[test]
    fn a_rule_that_whisper_refuses_is_passed_over() {
        for bad in ["30s:1d,45s:2d", "30s:1d,60s:1d", "30s:1d,30s:2d", "30s:5m,1h:1y"] {
            let text = format!(
                "[bad]\npattern = x\nretentions = {bad}\n[good]\npattern = x\nretentions = 1s:1d\n"
            );
            assert_eq!(title_of(&text, "x"), "[good]", "{bad}");
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
            "[max]\npattern = max$\naggregationMethod = max\n[sum]\npattern = sum\n\
                aggregationMethod = sum\n",
        )
        .unwrap();
        let method = |path: &str| first(&rules, path).unwrap().says;
        assert_eq!(
            (method("a.max"), method("a.sum"), method("a.b")),
            (Some(Rollup::Max), None, Some(Rollup::Average))
        );
    }
}
