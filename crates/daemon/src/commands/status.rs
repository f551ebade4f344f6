//! `status`: the state of the running daemon, for a person, a health check or a script.
//!
//! Most problems count only after they have lasted longer than `--patience`, because a restart of
//! slurmctld is not a failure of the daemon.

mod lines;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use self::lines::{StatusLine, lines};
use super::{Mark, block_on, number, print_json, print_marked};
use crate::printable::printable;
use crate::status::StatusDocument;
use crate::status_socket::ask;

/// Default of `--patience`, unless three intervals are longer.
const LEAST_AGE: Duration = Duration::from_secs(90);

/// The JSON of `status --json`: the daemon's document, and what in it is wrong.
#[derive(Serialize)]
struct Judged<'d> {
    ok: bool,
    problems: Vec<String>,
    #[serde(flatten)]
    document: &'d StatusDocument,
}

pub(super) fn status(json: bool, patience: Option<Duration>, socket: Option<&Path>) -> Result<()> {
    let document = block_on(async { Ok(ask(socket).await?) })?;
    let intervals = Duration::from_secs(document.interval.into()) * 3;
    let lines = lines(&document, patience.unwrap_or(intervals.max(LEAST_AGE)));
    let wrong = lines.iter().filter(|line| line.mark == Mark::Wrong);
    let problems: Vec<String> =
        wrong.map(|line| format!("{}: {}", line.subject, line.text)).collect();
    let count = problems.len();
    if json {
        let judged = Judged { ok: count == 0, problems, document: &document };
        print_json(&judged)?;
    } else {
        print_lines(&lines)?;
    }
    ensure!(count == 0, "{}; see the lines with ✗", number(count, "problem", "problems"));
    Ok(())
}

fn print_lines(lines: &[StatusLine]) -> Result<()> {
    let width = lines.iter().map(|line| line.subject.chars().count()).max().unwrap_or(0);
    lines.iter().try_for_each(|StatusLine { mark, subject, text }| {
        print_marked(*mark, &format!("{:<width$}  {}", printable(subject), printable(text)))
    })
}
