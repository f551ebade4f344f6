//! `metrics`: every path with its unit and meaning, as Markdown; docs/metrics.md is this command's output.

use std::fmt::Write;

use crate::collectors::{COLLECTORS, Figure, Rollup};
use crate::health;

/// The whole document.
pub(super) fn document() -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         Printed by `slurm-graphite metrics`; do not edit. Every path begins with the configured `prefix` \
         (`cluster` by default), and every path is public: a rename is announced under *Paths* in the changelog.\n\n\
         *Roll-up* is the `aggregationMethod` that suits the figure; config/carbon/storage-aggregation.conf has \
         them.\n",
    );
    for collector in COLLECTORS {
        section(&mut text, &format!("cluster.{}", collector.family), collector.about, collector.figures);
    }
    let own = format!("cluster.{}.<host>", health::FAMILY);
    section(
        &mut text,
        &own,
        "The daemon itself: every tick, also when its reading failed. Counters run since its start.",
        health::FIGURES,
    );
    section(
        &mut text,
        &format!("{own}.queue"),
        "What keeps ticks until every destination is done with them.",
        health::QUEUE_FIGURES,
    );
    section(
        &mut text,
        &format!("{own}.carbon.<destination>"),
        "One destination, under its `name` (its address by default). A character that a path cannot hold becomes \
         `_`, and the name gets six hexadecimal digits of its own hash.",
        health::DESTINATION_FIGURES,
    );
    text
}

fn section<T>(text: &mut String, family: &str, about: &str, figures: &[Figure<T>]) {
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "\n## {family}\n\n{about}\n\n| gauge- | unit | roll-up | meaning |\n|---|---|---|---|\n"
    );
    for Figure { leaf, unit, rollup, meaning, .. } in figures {
        let rollup = match rollup {
            Rollup::Average => "average",
            Rollup::Last => "last",
            Rollup::Max => "max",
        };
        let _ = writeln!(text, "| `{leaf}` | {unit} | {rollup} | {meaning} |");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_what_this_prints() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, document()).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap() == document(),
            "docs/metrics.md is old; run `make golden`"
        );
    }

    #[test]
    fn carbon_rolls_every_figure_up_as_it_says() {
        let rules = include_str!("../../../../config/carbon/storage-aggregation.conf");
        let own = [(
            format!("{}.node1", health::FAMILY),
            health::FIGURES.iter().map(|f| (f.leaf, f.rollup)).collect(),
        )];
        let destinations = [(
            format!("{}.node1.carbon.x", health::FAMILY),
            health::DESTINATION_FIGURES.iter().map(|f| (f.leaf, f.rollup)).collect::<Vec<_>>(),
        )];
        let collectors = COLLECTORS
            .iter()
            .map(|c| (c.family.to_owned(), c.figures.iter().map(|f| (f.leaf, f.rollup)).collect::<Vec<_>>()));
        for (family, figures) in collectors.chain(own).chain(destinations) {
            for (leaf, rollup) in figures {
                for prefix in ["cluster", "cluster.sandbox"] {
                    let path = format!("{prefix}.{family}.gauge-{leaf}");
                    assert_eq!(aggregation(rules, &path), Some(rollup), "{path}");
                }
            }
        }
    }

    /// The first rule whose pattern is found in `path`, as Carbon reads them.
    fn aggregation(rules: &str, path: &str) -> Option<Rollup> {
        rules.split("\n[").skip(1).find_map(|rule| {
            let value = |key: &str| rule.lines().find_map(|l| l.strip_prefix(&format!("{key} = ")));
            let pattern = regex::Regex::new(value("pattern").unwrap()).unwrap();
            pattern.is_match(path).then(|| match value("aggregationMethod").unwrap() {
                "average" => Rollup::Average,
                "last" => Rollup::Last,
                "max" => Rollup::Max,
                other => panic!("{other}"),
            })
        })
    }
}
