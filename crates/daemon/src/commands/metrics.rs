//! `metrics`: every path with its unit and meaning, as Markdown; docs/metrics.md is this command's output.

use std::fmt::Write;

use crate::collectors::{COLLECTORS, Paths};
use crate::metric::{Leaf, Rollup};
use crate::tagged::{documented, every_path};

/// What slurmrestd does not tell, of all that libslurm tells: the one list, against which live tests hold the two readers.
const OVER_REST: &str = include_str!("metrics/rest.md");

/// The whole document.
pub(super) fn document() -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         Printed by `slurm-graphite metrics`; do not edit. Every path begins with the configured `prefix` \
         (`cluster` by default), and every path is public: a rename is announced under *Paths* in the changelog.\n\n\
         *Roll-up* is the `aggregationMethod` that suits the figure; config/carbon/storage-aggregation.conf has \
         them.\n\n\
         A destination with `tags = true` gets each point under a name with tags instead: what varies in the path is a tag, all else \
         the name. The tag `cluster` is the prefix, without a leading `cluster.`. Of a value over 191 bytes, which graphite-web \
         has no room for, the end is replaced by `-` and six hexadecimal digits of its own hash.\n",
    );
    for paths in every_path() {
        let (Paths { below, about, leaves }, tagged) = (paths, documented(paths));
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n## cluster.{below}\n\n{about}\n\nWith tags: `{tagged}`\n\n| gauge- | unit | roll-up | meaning |\n|---|---|---|---|\n"
        );
        for Leaf { leaf, unit, rollup, meaning } in leaves.leaves() {
            let rollup = match rollup {
                Rollup::Average => "average",
                Rollup::Last => "last",
                Rollup::Max => "max",
            };
            let _ = writeln!(text, "| `{leaf}` | {unit} | {rollup} | {meaning} |");
        }
    }
    let _ = write!(text, "\n{OVER_REST}");
    for collector in COLLECTORS {
        let is_absent = collector.replies.iter().all(|reply| reply.row().not_over_rest.is_some());
        if is_absent && !OVER_REST.contains(&format!("| `slurm_{}", collector.family())) {
            let _ = writeln!(text, "| `slurm_{}` | all | none |", collector.family());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_what_this_prints() {
        crate::golden::golden("../../docs/metrics.md", &document());
    }

    #[test]
    fn what_does_not_come_over_rest_is_a_figure_that_there_is() {
        let rows: Vec<&str> = OVER_REST.lines().filter(|line| line.starts_with("| `")).collect();
        assert!(rows.len() > 20);
        for row in rows {
            let names: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
            let [below, leaves @ ..] = names.as_slice() else { panic!("{row}") };
            let of = |paths: &&Paths| paths.below == *below || paths.below.starts_with(&format!("{below}."));
            let found: Vec<_> = every_path().filter(of).flat_map(|paths| paths.leaves.leaves()).collect();
            assert!(!found.is_empty(), "{row}");
            assert_eq!(leaves.is_empty(), row.contains("| all |"), "{row}");
            for leaf in leaves {
                assert!(found.iter().any(|figure| figure.leaf == *leaf), "{leaf}: {row}");
            }
        }
    }

    #[test]
    fn carbon_rolls_every_figure_up_as_it_says() {
        let rules = aggregations(include_str!("../../../../config/carbon/storage-aggregation.conf"));
        for paths in every_path() {
            let below = paths.below.replace(['<', '>'], "");
            for Leaf { leaf, rollup, .. } in paths.leaves.leaves() {
                for prefix in ["cluster", "cluster.sandbox"] {
                    let path = format!("{prefix}.{below}.gauge-{leaf}");
                    for name in [crate::tagged::tagged(&path), path] {
                        assert_eq!(aggregation(&rules, &name), Some(rollup), "{name}");
                    }
                }
            }
        }
    }

    /// Patterns and what they say, in order.
    fn aggregations(rules: &str) -> Vec<(regex::Regex, Rollup)> {
        let rule = |rule: &str| {
            let value = |key: &str| rule.lines().find_map(|l| l.strip_prefix(&format!("{key} = "))).unwrap();
            let rollup = match value("aggregationMethod") {
                "average" => Rollup::Average,
                "last" => Rollup::Last,
                "max" => Rollup::Max,
                other => panic!("{other}"),
            };
            (regex::Regex::new(value("pattern")).unwrap(), rollup)
        };
        rules.split("\n[").skip(1).map(rule).collect()
    }

    /// The first rule whose pattern is found in `path`, as Carbon reads them.
    fn aggregation(rules: &[(regex::Regex, Rollup)], path: &str) -> Option<Rollup> {
        rules.iter().find(|(pattern, _)| pattern.is_match(path)).map(|(_, rollup)| *rollup)
    }
}
