//! The tables of `stats --jobs`: the first rows by what they weigh, as text or as one line of JSON.

use std::cmp::Reverse;
use std::fmt::Write as _;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use crate::cli::By;
use crate::commands::{print, print_json};
use crate::printable::cell;

/// Number of rows that a table shows. Further rows are only counted.
const MOST_ROWS: usize = 20;
/// Width for which a table is made, columns. The terminal is not asked for its own.
const WIDTH: usize = 80;

/// A row of a table of `stats --jobs`: the jobs of one name, such as a user's.
pub(super) trait Row: Serialize {
    /// The heading of the table.
    const TITLE: &str;
    /// The headings of the columns after the name.
    const HEAD: &[&str];
    /// Text of a cell where no GPU is used. A column of GPUs that has only this text is left out.
    const NO_GPUS: &str;
    fn weight(&self) -> (u64, u64);
    fn name(&self) -> &str;
    /// Returns the cells after the name: a text for each heading in `HEAD`.
    fn cells(&self) -> Vec<String>;
}

/// The table as it is printed.
#[derive(Debug, Serialize)]
pub(super) struct Table<R> {
    #[serde(flatten)]
    moment: Moment,
    by: String,
    /// Number of all rows, also of those that are not shown.
    pub(super) rows_in_all: usize,
    /// The rows that are shown: the first `MOST_ROWS` of all.
    pub(super) rows: Vec<R>,
}

/// The time to which a table belongs, Unix seconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Moment {
    /// Moment at which slurmctld wrote its reply, on its own clock.
    Time(i64),
    /// Moment since which the jobs in the table have ended.
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
        if json { print_json(self) } else { print(&self.text()) }
    }

    /// Returns the table as text. Each column is as wide as it must be, and the names get the rest
    /// of the width.
    pub(super) fn text(&self) -> String {
        if self.rows.is_empty() {
            return "no job\n".to_owned();
        }
        let rows: Vec<Vec<String>> = self.rows.iter().map(R::cells).collect();
        let mut lines = vec![String::new(); rows.len().saturating_add(1)];
        for (column, head) in R::HEAD.iter().enumerate() {
            let cells = || rows.iter().filter_map(|cells| cells.get(column)).map(String::as_str);
            if head.starts_with("GPU") && cells().all(|cell| cell == R::NO_GPUS) {
                continue;
            }
            let width = cells().chain([*head]).map(|cell| cell.chars().count()).max().unwrap_or(0);
            for (line, cell) in lines.iter_mut().zip([*head].into_iter().chain(cells())) {
                // Writing to a String cannot fail.
                let _ = write!(line, " {cell:>width$}");
            }
        }
        let taken = lines.first().map_or(0, |line| line.chars().count());
        let width = WIDTH.saturating_sub(taken).clamp(8, 20);
        let name = |row: &R| cell(if row.name().is_empty() { "(none)" } else { row.name() }, width);
        let names = [self.by.clone()].into_iter().chain(self.rows.iter().map(name));
        let mut text = format!("{}, by {}\n", R::TITLE, self.by);
        for (name, line) in names.zip(lines) {
            let _ = writeln!(text, "{name:<width$}{line}");
        }
        match self.rows_in_all.saturating_sub(self.rows.len()) {
            0 => text,
            more => format!("{text}and {more} more\n"),
        }
    }
}

/// Formats seconds as squeue prints a time: `1-02:03:04`, `2:03:04`, `3:04`.
pub(super) fn duration(seconds: u64) -> String {
    let days = seconds / 86_400;
    let hours = seconds / 3600 % 24;
    let minutes = seconds / 60 % 60;
    let rest = seconds % 60;
    match (days, hours) {
        (0, 0) => format!("{minutes}:{rest:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{rest:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{rest:02}"),
    }
}
