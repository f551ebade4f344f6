//! The sections of docs/metrics.md: each figure is in one table only, with all levels that have it.
//! What is on by default comes first. The program prints the file.

use std::fmt::Write;

use slurm_points::collectors::{COLLECTORS, Collector};
use slurm_points::levels::DocumentedLevel;
use slurm_points::metric::{Leaf, Rollup};

use crate::self_metrics;

/// The figures that slurmrestd lacks although libslurm has them: the one list, against which live
/// tests hold the two readers.
pub(super) const OVER_REST: &str = include_str!("../rest.md");

const INTRODUCTION: &str = include_str!("../introduction.md");

const TOTALS: &str = "Since the first start, with the roll-up `last`: ";

/// This many equal figures are not printed again in another table.
const SHARED: usize = 3;

/// No line of a paragraph is longer.
const WIDTH: usize = 140;

/// The text and figures under one heading.
struct Section {
    below: &'static str,
    about: &'static str,
    leaves: Vec<Leaf>,
    /// Other levels of the family with the same figures.
    also: Vec<(&'static str, &'static str)>,
}

/// The whole document.
pub(super) fn document() -> String {
    let (surveys, ticks): (Vec<_>, Vec<_>) =
        COLLECTORS.iter().partition(|collector| collector.is_survey());
    let by_default = ticks.into_iter().flat_map(Collector::every_level).chain(self_metrics::LEVELS);
    let off = surveys.into_iter().flat_map(Collector::every_level);
    let mut text = INTRODUCTION.to_owned();
    let mut printed = Vec::new();
    for (title, levels) in
        [("On by default", sections(by_default)), ("Off by default", sections(off))]
    {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n## {title}\n");
        for section in levels {
            section.print(&printed, &mut text);
            printed.push(section);
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

/// The sections of these levels. A level without a text continues the one before.
fn sections(levels: impl Iterator<Item = &'static DocumentedLevel>) -> Vec<Section> {
    let levels: Vec<_> = levels.collect();
    let mut sections: Vec<Section> = Vec::new();
    for continued in levels.chunk_by(|_, next| next.about.is_empty()) {
        let Some((below, about)) = continued.first().map(|level| (level.below, level.about)) else {
            continue;
        };
        let leaves = continued.iter().flat_map(|level| level.leaves()).collect();
        let section = Section { below, about, leaves, also: Vec::new() };
        let is_same = |other: &&mut Section| {
            other.family() == section.family() && other.leaves == section.leaves
        };
        match sections.iter_mut().find(is_same) {
            Some(first) => first.also.push((below, about)),
            None => sections.push(section),
        }
    }
    sections
}

impl Section {
    fn family(&self) -> &str {
        self.below.split('.').next().unwrap_or(self.below)
    }

    /// Figures that an earlier section has are named, the others are in the table.
    fn print(&self, printed: &[Self], text: &mut String) {
        let _ = write!(text, "\n### `cluster.{}`\n\n{}\n", self.below, wrapped(self.about, ""));
        let common =
            |other: &&Self| self.leaves.iter().filter(|leaf| other.leaves.contains(leaf)).count();
        // Of several that share as many, the first.
        let model = printed.iter().rev().max_by_key(common).filter(|other| common(other) >= SHARED);
        let (shared, own): (Vec<&Leaf>, Vec<&Leaf>) = self
            .leaves
            .iter()
            .partition(|leaf| model.is_some_and(|model| model.leaves.contains(leaf)));
        if let Some(model) = model {
            let names: Vec<String> = shared.iter().map(|leaf| format!("`{}`", leaf.leaf)).collect();
            let all = if shared.len() == model.leaves.len() {
                "all figures".to_owned()
            } else {
                names.join(", ")
            };
            let _ = write!(
                text,
                "\n{}\n",
                wrapped(&format!("As in `cluster.{}`: {all}.", model.below), "")
            );
        }
        let (totals, own): (Vec<&Leaf>, Vec<&Leaf>) =
            own.into_iter().partition(|leaf| self.leaves.iter().any(|round| is_total(leaf, round)));
        if !own.is_empty() {
            text.push_str("\n| gauge- | unit | roll-up | meaning |\n|---|---|---|---|\n");
        }
        for Leaf { leaf, unit, rollup, meaning } in own {
            let _ = writeln!(text, "| `{leaf}` | {unit} | {} | {meaning} |", rollup_cell(*rollup));
        }
        if !totals.is_empty() {
            let names: Vec<String> = totals.iter().map(|leaf| format!("`{}`", leaf.leaf)).collect();
            let _ = write!(text, "\n{}.\n", wrapped(&format!("{TOTALS}{}", names.join(", ")), ""));
        }
        if !self.also.is_empty() {
            text.push_str("\nAlso at:\n\n");
        }
        for (below, about) in &self.also {
            let colon = if about.is_empty() { "" } else { ": " };
            let _ =
                writeln!(text, "{}", wrapped(&format!("- `cluster.{below}`{colon}{about}"), "  "));
        }
    }
}

/// Most figures have this one: the others are seen better without it.
fn rollup_cell(rollup: Rollup) -> &'static str {
    if rollup == Rollup::Average { "" } else { rollup.as_str() }
}

/// Whether `leaf` is `round` since the first start: such rows are one line.
fn is_total(leaf: &Leaf, round: &Leaf) -> bool {
    leaf.leaf.strip_suffix("_total") == Some(&*round.leaf)
        && (leaf.unit, leaf.rollup.as_str()) == (round.unit, "last")
        && leaf.meaning == total_meaning(&round.leaf)
}

fn total_meaning(leaf: &str) -> String {
    format!("{leaf} since the first start")
}

/// `text` in lines of at most [`WIDTH`] columns, all but the first with `indent` before them.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            lines += "\n";
            lines += indent;
            column = indent.len();
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines += word;
        column += length;
    }
    lines
}

mod tests;
