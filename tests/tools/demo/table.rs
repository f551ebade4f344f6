//! The demo's table: a row for each of whisper's files, 100 columns wide.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;
use sandbox::metrics::{self, FIGURES};
use sandbox::{Carbon, Sdiag, Series};

use crate::STATISTICS;

const COLLECTOR: &str = "the collector itself";
const NAME: usize = 35;
const GRAPH: usize = 24;

/// One metric.
pub(crate) struct Row {
    leaf: String,
    points: usize,
    /// Slots without a value from its first point to the last tick.
    pub(crate) holes: usize,
    last: Option<f64>,
    zero: bool,
    sdiag: Option<i64>,
    graph: String,
}

/// The metrics that arrived, by group.
pub(crate) struct Table {
    groups: Vec<(&'static str, Vec<Row>)>,
    /// Families that are too long for the screen, with their number of paths.
    others: BTreeMap<String, usize>,
    /// Metrics that sdiag does not show either.
    absent: Vec<&'static str>,
}

impl Table {
    pub(crate) fn read(carbon: &Carbon, sdiag: &Sdiag, last_tick: u64) -> Result<Self> {
        let mut groups: Vec<(&'static str, Vec<Row>)> =
            ["main scheduler", "backfill", "jobs", "controller", COLLECTOR]
                .map(|title| (title, Vec::new()))
                .into();
        let absent: Vec<_> = FIGURES
            .iter()
            .filter(|figure| figure.in_sdiag(sdiag).is_none())
            .map(|f| f.leaf)
            .collect();
        let mut others = BTreeMap::new();
        for (path, file) in carbon.paths() {
            let leaf = path.rsplit_once(".gauge-").map_or("", |(_, leaf)| leaf);
            let title = match leaf {
                _ if path.contains(".slurm_graphite.") => COLLECTOR,
                _ if !path.starts_with(STATISTICS) => {
                    *others.entry(family(&path)).or_default() += 1;
                    continue;
                }
                // slurmctld's first second may have points of these; a row of holes would be
                // useless.
                _ if absent.contains(&leaf) => continue,
                _ if leaf.starts_with("main_") => "main scheduler",
                _ if leaf.starts_with("bf_") => "backfill",
                _ if leaf.starts_with("jobs_") => "jobs",
                _ => "controller",
            };
            let row = Row::new(leaf, &Series::read(&file)?, sdiag, last_tick);
            if let Some(group) = groups.iter_mut().find(|group| group.0 == title) {
                group.1.push(row);
            }
        }
        // In sdiag's order; metrics that sdiag does not have come last, sorted by name.
        let place = |row: &Row| {
            FIGURES.iter().position(|figure| figure.leaf == row.leaf).unwrap_or(FIGURES.len())
        };
        groups.iter_mut().for_each(|group| group.1.sort_by_key(place));
        Ok(Self { groups, others, absent })
    }

    pub(crate) fn row(&self, leaf: &str) -> Option<&Row> {
        let mut groups = self.groups.iter().filter(|group| group.0 != COLLECTOR);
        groups.find_map(|group| group.1.iter().find(|row| row.leaf == leaf))
    }

    pub(crate) fn show(&self, colours: bool) -> String {
        let [bold, dim, green, plain] =
            if colours { ["\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[0m"] } else { [""; 4] };
        let mut text = String::new();
        for (title, rows) in self.groups.iter().filter(|group| !group.1.is_empty()) {
            _ = writeln!(
                text,
                "\n  {bold}{title:NAME$}{plain}{dim}{:>7}{:>6}{:>12}{:>11}{plain}",
                "points", "holes", "last value", "sdiag"
            );
            let quiet = |row: &&Row| *title == COLLECTOR && row.zero;
            for row in rows.iter().filter(|row| !quiet(row)) {
                let name: String = row.leaf.chars().take(NAME).collect();
                let same = row.last.is_some() && row.last == row.sdiag.and_then(exactly);
                let mark = if same { "=" } else { " " };
                _ = writeln!(
                    text,
                    "  {name:NAME$}{:>7}{:>6}{:>12}{dim}{:>11}{plain} {green}{mark}{plain} \
                        {green}{}{plain}",
                    row.points,
                    row.holes,
                    row.last.map_or_else(|| "-".to_owned(), number),
                    row.sdiag.map_or_else(String::new, |value| value.to_string()),
                    row.graph
                );
            }
            let zeros: Vec<&str> = rows.iter().filter(quiet).map(|row| row.leaf.as_str()).collect();
            text.push_str(&list("always 0:", &zeros));
        }
        text.push('\n');
        for (family, paths) in &self.others {
            _ = writeln!(text, "  {family}: {paths} more");
        }
        text.push_str(&list("no points, because sdiag prints no such line:", &self.absent));
        text
    }
}

impl Row {
    fn new(leaf: &str, series: &Series, sdiag: &Sdiag, last_tick: u64) -> Self {
        let first = series.first().map_or(last_tick, |point| point.0);
        let slots: Vec<Option<f64>> =
            series.slots(first, last_tick).into_iter().map(|slot| slot.1).collect();
        let figure = metrics::figure(leaf);
        Self {
            leaf: leaf.to_owned(),
            points: series.points.len(),
            holes: slots.iter().filter(|slot| slot.is_none()).count(),
            last: series.last().map(|point| point.1),
            zero: series.points.values().all(|&value| value == 0.0),
            sdiag: figure.and_then(|figure| figure.in_sdiag(sdiag)),
            graph: graph(&slots),
        }
    }
}

/// A path up to its family, without the levels below it.
fn family(path: &str) -> String {
    let mut below = false;
    let up_to_it = |part: &&str| !std::mem::replace(&mut below, part.starts_with("slurm_"));
    path.split('.').take_while(up_to_it).collect::<Vec<_>>().join(".")
}

/// Eight heights from the smallest to the largest value; a hole is a dot.
fn graph(slots: &[Option<f64>]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values = slots.iter().flatten();
    let (low, high) =
        values.fold((f64::MAX, f64::MIN), |(low, high), &value| (low.min(value), high.max(value)));
    let height = |value: f64| {
        let above = |step: &usize| {
            value >= low + (high - low) * f64::from(u8::try_from(*step).unwrap_or(8)) / 8.0
        };
        let step = (1..8).rev().find(above).unwrap_or(0);
        HEIGHTS.get(if high > low { step } else { 0 }).copied().unwrap_or(' ')
    };
    let columns = slots.len().min(GRAPH);
    // If there are more slots than columns, several share a column; a hole among them must still be
    // visible.
    (0..columns)
        .filter_map(|column| {
            slots.get(column * slots.len() / columns..(column + 1) * slots.len() / columns)
        })
        .map(|part| {
            let all: Option<Vec<f64>> = part.iter().copied().collect();
            all.map_or('·', |values| height(values.into_iter().fold(f64::MIN, f64::max)))
        })
        .collect()
}

/// Names in lines as wide as the table.
fn list(title: &str, names: &[&str]) -> String {
    let mut lines = vec![format!("  {title}")];
    for name in names {
        match lines.last_mut() {
            Some(line) if line.len() + name.len() < 98 => _ = write!(line, " {name},"),
            _ => lines.push(format!("    {name},")),
        }
    }
    if names.is_empty() {
        String::new()
    } else {
        lines.join("\n").trim_end_matches(',').to_owned() + "\n"
    }
}

fn exactly(value: i64) -> Option<f64> {
    Some(f64::from(i32::try_from(value).ok()?))
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}
