//! The tables of `stats --jobs`: the first rows by what they weigh, as text or as one line of JSON.

use std::cmp::Reverse;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use crate::cli::By;
use crate::commands::print;
use crate::printable::cell;

/// Further rows are only counted.
const MOST_ROWS: usize = 20;

/// The jobs of one name.
pub(super) trait Row: Serialize {
    /// Behind the name: the widths of the columns, and the lines of headings above them.
    const WIDTHS: &[usize];
    const HEADS: &[&[&str]];

    fn name(&self) -> &str;
    fn weight(&self) -> (u64, u64);
    fn cells(&self) -> Vec<String>;
}

/// What is printed.
#[derive(Debug, Serialize)]
pub(super) struct Table<R> {
    #[serde(flatten)]
    moment: Moment,
    by: String,
    /// All there are.
    pub(super) rows_in_all: usize,
    /// The first of them.
    pub(super) rows: Vec<R>,
}

/// Unix seconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Moment {
    /// On slurmctld's clock.
    Time(i64),
    /// Jobs that have ended since then.
    Since(i64),
}

impl<R: Row> Table<R> {
    pub(super) fn new(moment: Moment, by: By, mut rows: Vec<R>) -> Self {
        rows.sort_by_key(|row| Reverse(row.weight()));
        let rows_in_all = rows.len();
        rows.truncate(MOST_ROWS);
        let by = by.to_possible_value().map_or_else(String::new, |by| by.get_name().to_owned());
        Self { moment, by, rows_in_all, rows }
    }

    pub(super) fn print(&self, json: bool) -> Result<()> {
        print(&if json { serde_json::to_string(self)? + "\n" } else { self.text() })
    }

    pub(super) fn text(&self) -> String {
        let line = |name: &str, cells: &[String]| {
            let cells = cells.iter().zip(R::WIDTHS).map(|(cell, width)| format!(" {cell:>width$}"));
            format!("{:<20}{}\n", cell(name, 20), cells.collect::<String>())
        };
        let mut text = String::new();
        for (left, head) in (0..R::HEADS.len()).rev().zip(R::HEADS) {
            let head: Vec<String> = head.iter().map(|head| (*head).to_owned()).collect();
            text += &line(if left == 0 { &self.by } else { "" }, &head);
        }
        for row in &self.rows {
            text += &line(if row.name().is_empty() { "(none)" } else { row.name() }, &row.cells());
        }
        match self.rows_in_all.saturating_sub(self.rows.len()) {
            0 => text,
            more => format!("{text}and {more} more\n"),
        }
    }
}

/// As squeue prints times: `1-02:03:04`, `02:03:04`, `03:04`.
pub(super) fn duration(seconds: u64) -> String {
    let (days, hours, minutes, rest) =
        (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{rest:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{rest:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{rest:02}"),
    }
}
