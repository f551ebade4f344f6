//! The document as a person reads it has every figure, and has it once.

use std::collections::BTreeSet;

use super::*;
use crate::tagged::every_level;

/// A path below the prefix, a leaf, and the rest of the leaf's row.
type Figure = (String, String, String);

/// The texts between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Every figure of the document, with those that it refers to or lists.
fn figures_in(document: &str) -> BTreeSet<Figure> {
    let mut figures: BTreeSet<Figure> = BTreeSet::new();
    let mut section: Vec<(String, String)> = Vec::new();
    let mut below = String::new();
    let level = |name: &str| name.strip_prefix("cluster.").unwrap().to_owned();
    // A list of names that was wrapped is one line again.
    let document = document.replace(",\n`", ", `").replace(":\n`", ": `");
    for line in document.split("## Over REST").next().unwrap().lines() {
        let before = section.len();
        if let Some(heading) = line.strip_prefix("### ") {
            below = level(quoted(heading).next().unwrap());
            section.clear();
        } else if let Some(row) = line.strip_prefix("| `") {
            let (leaf, rest) = row.split_once("` | ").unwrap();
            section.push((leaf.to_owned(), rest.to_owned()));
        } else if let Some(totals) = line.strip_prefix(TOTALS) {
            for name in quoted(totals) {
                let leaf = name.strip_suffix("_total").unwrap();
                let (_, row) = section.iter().find(|(other, _)| other == leaf).unwrap();
                let unit = row.split(" | ").next().unwrap();
                section
                    .push((name.to_owned(), format!("{unit} | last | {} |", total_meaning(leaf))));
            }
        } else if line.starts_with("As in `") {
            let mut names = quoted(line);
            let model = level(names.next().unwrap());
            let names: BTreeSet<&str> = names.collect();
            let named = figures.iter().filter(|(path, leaf, _)| {
                *path == model && (line.ends_with(": all figures.") || names.contains(&**leaf))
            });
            section.extend(named.map(|(_, leaf, rest)| (leaf.clone(), rest.clone())));
        } else if line.starts_with("- `cluster.") {
            let also = level(quoted(line).next().unwrap());
            figures.extend(
                section.iter().map(|(leaf, rest)| (also.clone(), leaf.clone(), rest.clone())),
            );
        }
        let new = section.iter().skip(before);
        figures.extend(new.map(|(leaf, rest)| (below.clone(), leaf.clone(), rest.clone())));
    }
    figures
}

#[test]
fn the_shipped_document_is_what_the_tables_say() {
    crate::tests::golden("../../docs/metrics.md", &document());
}

#[test]
fn a_person_finds_every_figure_of_every_level() {
    let row = |Leaf { unit, rollup, meaning, .. }: &Leaf| {
        format!("{unit} | {} | {meaning} |", rollup_cell(*rollup))
    };
    let expected: BTreeSet<Figure> = every_level()
        .flat_map(|level| {
            level
                .leaves()
                .into_iter()
                .map(|leaf| (level.below.to_owned(), leaf.leaf.to_string(), row(&leaf)))
        })
        .collect();
    let found = figures_in(&document());
    assert!(expected.len() > 800, "{}", expected.len());
    let difference: Vec<_> = expected.symmetric_difference(&found).collect();
    assert!(difference.is_empty(), "{difference:#?}");
}

/// A sentence that somebody reads at night, and a table that fits a screen.
#[test]
fn meanings_are_short_and_lines_fit() {
    let long = every_level().flat_map(|level| level.leaves());
    let long: BTreeSet<String> = long
        .filter(|leaf| leaf.meaning.split_whitespace().count() > 25)
        .map(|leaf| format!("{}: {}", leaf.leaf, leaf.meaning))
        .chain(document().lines().filter(|line| line.chars().count() > 200).map(str::to_owned))
        .collect();
    assert!(long.is_empty(), "{}", Vec::from_iter(long).join("\n"));
}

#[test]
fn no_two_tables_have_three_figures_in_common() {
    let document = document();
    let tables: Vec<BTreeSet<&str>> = document
        .split("|---|---|---|---|\n")
        .skip(1)
        .map(|table| table.lines().take_while(|line| line.starts_with("| `")).collect())
        .collect();
    assert!(tables.len() > 30, "{}", tables.len());
    for (at, table) in tables.iter().enumerate() {
        for other in &tables[at + 1..] {
            let common: Vec<_> = table.intersection(other).collect();
            assert!(common.len() < 3, "{common:#?}");
        }
    }
}

#[test]
fn what_is_on_by_default_comes_first() {
    let document = document();
    let at = |heading: &str| document.find(heading).unwrap_or_else(|| panic!("{heading}"));
    let off = at("\n## Off by default\n");
    assert!(
        at("### `cluster.slurm_sched_stats`") < off
            && at("### `cluster.slurm_graphite.<host>`") < off
    );
    assert!(
        at("### `cluster.slurm_jobs.total`") > off
            && at("### `cluster.slurm_slurmdbd.total`") > off
    );
}
