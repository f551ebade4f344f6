//! `metrics`: prints every path with its unit and meaning. Without a filter it prints
//! docs/metrics.md, which `make golden` makes of the same tables.

use std::borrow::Cow;

use anyhow::{Result, bail};
use serde::Serialize;
use slurm_points::levels::DocumentedLevel;
use slurm_points::metric::{Leaf, Rollup};

use crate::cli::MetricsFormat;
use crate::tagged::every_level;

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

/// One metric, as `--format tsv` and `json` print it.
#[derive(Serialize)]
struct MetricRow {
    path: String,
    unit: &'static str,
    rollup: Rollup,
    meaning: Cow<'static, str>,
}

/// Returns the text that `metrics` prints: all metrics, or those with `filter` in their path or
/// meaning. On a terminal, filtered metrics are entries with wrapped lines.
pub(super) fn text(
    filter: Option<&str>,
    format: MetricsFormat,
    is_terminal: bool,
) -> Result<String> {
    if filter.is_none() && format == MetricsFormat::Markdown {
        return Ok(DOCUMENT.to_owned());
    }
    let filter = filter.unwrap_or_default().to_lowercase();
    let mut rows: Vec<MetricRow> = every_level().flat_map(rows).collect();
    rows.retain(|row| {
        [&*row.path, &row.meaning].iter().any(|text| text.to_lowercase().contains(&filter))
    });
    if rows.is_empty() {
        bail!("no metric has {filter:?} in its path or meaning");
    }
    if format == MetricsFormat::Json {
        return Ok(serde_json::to_string(&rows)? + "\n");
    }
    if is_terminal && format == MetricsFormat::Markdown {
        let entry = |row: &MetricRow| {
            format!("{}{}", row.path, wrapped(&format!("{}; {}", row.unit, row.meaning)))
        };
        return Ok(rows.iter().map(entry).collect());
    }
    let line = |[path, unit, rollup, meaning]: [&str; 4]| match format {
        MetricsFormat::Markdown => format!("| {path} | {unit} | {rollup} | {meaning} |\n"),
        _ => format!("{path}\t{unit}\t{rollup}\t{meaning}\n"),
    };
    let rule = if format == MetricsFormat::Markdown { "|---|---|---|---|\n" } else { "" };
    let head = line(["path", "unit", "roll-up", "meaning"]) + rule;
    let lines =
        rows.iter().map(|row| line([&row.path, row.unit, row.rollup.as_str(), &row.meaning]));
    Ok(std::iter::once(head).chain(lines).collect())
}

/// Breaks `text` into indented lines of at most 80 columns.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut column: usize = 80;
    for word in text.split_whitespace() {
        let width = word.chars().count().saturating_add(1);
        column = column.saturating_add(width);
        if column > 80 {
            lines.push_str("\n   ");
            column = width.saturating_add(3);
        }
        lines.push(' ');
        lines.push_str(word);
    }
    lines + "\n"
}

fn rows(level: &'static DocumentedLevel) -> impl Iterator<Item = MetricRow> {
    level.leaves().into_iter().map(|Leaf { leaf, unit, rollup, meaning }| {
        let path = format!("cluster.{}.gauge-{leaf}", level.below);
        MetricRow { path, unit, rollup, meaning }
    })
}

#[cfg(test)]
mod tests {
    mod document;

    use self::document::OVER_REST;
    use super::*;

    #[test]
    fn a_filter_finds_paths_and_meanings_and_says_so_where_there_are_none() {
        let tsv = text(Some("BF_last_CYCLE"), MetricsFormat::Tsv, false).unwrap();
        let lines: Vec<Vec<&str>> = tsv.lines().map(|line| line.split('\t').collect()).collect();
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() == 4), "{tsv}");
        assert!(
            lines.iter().any(|line| line[0] == "cluster.slurm_sched_stats.gauge-bf_last_cycle"),
            "{tsv}"
        );
        let json: serde_json::Value =
            serde_json::from_str(&text(None, MetricsFormat::Json, false).unwrap()).unwrap();
        assert!(json.as_array().unwrap().len() > 300 && json[0]["rollup"].is_string(), "{json}");
        assert!(text(Some("no such metric"), MetricsFormat::Markdown, false).is_err());
    }

    #[test]
    fn what_a_terminal_shows_has_no_line_that_it_breaks_and_no_word_less() {
        let terminal = text(Some("a"), MetricsFormat::Markdown, true).unwrap();
        let tsv = text(Some("a"), MetricsFormat::Tsv, false).unwrap();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let expected: Vec<String> = tsv
            .lines()
            .skip(1)
            .flat_map(|line| {
                let cells: Vec<&str> = line.split('\t').collect();
                words(&format!("{} {}; {}", cells[0], cells[1], cells[3]))
            })
            .collect();
        assert_eq!(words(&terminal), expected);
        let too_wide = |line: &&str| line.contains(' ') && line.chars().count() > 80;
        assert_eq!(terminal.lines().find(too_wide), None);
    }

    #[test]
    fn what_does_not_come_over_rest_is_a_figure_that_there_is() {
        let rows: Vec<&str> = OVER_REST.lines().filter(|line| line.starts_with("| `")).collect();
        assert!(rows.len() > 20);
        for row in rows {
            let names: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
            let [below, leaves @ ..] = names.as_slice() else { panic!("{row}") };
            let is_below = |level: &&DocumentedLevel| {
                level.below == *below || level.below.starts_with(&format!("{below}."))
            };
            let found: Vec<_> =
                every_level().filter(is_below).flat_map(|level| level.leaves()).collect();
            assert!(!found.is_empty(), "{row}");
            assert_eq!(leaves.is_empty(), row.contains("| all |"), "{row}");
            for leaf in leaves {
                assert!(found.iter().any(|figure| figure.leaf == *leaf), "{leaf}: {row}");
            }
        }
    }

    #[test]
    fn carbon_rolls_every_figure_up_as_it_says() {
        let rules =
            aggregations(include_str!("../../../../config/carbon/storage-aggregation.conf"));
        for level in every_level() {
            let below = level.below.replace(['<', '>'], "");
            for Leaf { leaf, rollup, .. } in level.leaves() {
                for prefix in ["cluster", "cluster.sandbox"] {
                    let path = format!("{prefix}.{below}.gauge-{leaf}");
                    for name in [crate::tagged::tagged(&path), path] {
                        let found = aggregation(&rules, &name);
                        assert_eq!(found, Some(rollup), "storage-aggregation.conf: {name}");
                    }
                }
            }
        }
    }

    /// Returns the rules of storage-aggregation.conf in their order: patterns and roll-ups.
    fn aggregations(rules: &str) -> Vec<(regex::Regex, Rollup)> {
        let rule = |rule: &str| {
            let value = |key: &str| {
                rule.lines().find_map(|l| l.strip_prefix(&format!("{key} = "))).unwrap()
            };
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

    /// Returns the roll-up of the first rule whose pattern is found in `path`, which is the one
    /// that Carbon uses.
    fn aggregation(rules: &[(regex::Regex, Rollup)], path: &str) -> Option<Rollup> {
        rules.iter().find(|(pattern, _)| pattern.is_match(path)).map(|(_, rollup)| *rollup)
    }
}
