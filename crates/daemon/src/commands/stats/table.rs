//! The tables of `stats --jobs`: the first rows by what they weigh, as text or as one line of JSON.

use std::cmp::Reverse;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use crate::cli::By;
use crate::commands::{print, print_json};
use crate::printable::cell;

/// Further rows are only counted.
const MOST_ROWS: usize = 20;

/// The jobs of one name.
pub(super) trait Row: Serialize {
    /// The headings, with what is counted by above the names.
    fn head(by: &str) -> String;
    fn weight(&self) -> (u64, u64);
    fn line(&self) -> String;
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
        if json { print_json(self) } else { print(&self.text()) }
    }

    pub(super) fn text(&self) -> String {
        let text = R::head(&self.by) + &self.rows.iter().map(R::line).collect::<String>();
        match self.rows_in_all.saturating_sub(self.rows.len()) {
            0 => text,
            more => format!("{text}and {more} more\n"),
        }
    }
}

/// The first column.
pub(super) fn first_cell(name: &str) -> String {
    cell(if name.is_empty() { "(none)" } else { name }, 20)
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
