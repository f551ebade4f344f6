//! The common parts of the programs: how they end, what they print, the numbers in their
//! environment, and how contenders are compared.

#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "the error itself says what failed")]

pub mod contender;

use std::io::Write;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};

/// The end of the program with this name: its error goes to stderr.
#[must_use]
pub fn exit_code(name: &str, result: Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    // If stderr is closed, nobody can be told.
    let _told = writeln!(std::io::stderr(), "\n{name}: {error:#}");
    ExitCode::FAILURE
}

/// A part of the report.
pub fn say(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("writing to stdout")
}

/// A number from the environment.
pub fn number<T: FromStr<Err = std::num::ParseIntError>>(name: &str, default: T) -> Result<T> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}")),
        Err(_) => Ok(default),
    }
}

/// The targets that were missed: what it is, how much, and the most that it may be.
#[must_use]
pub fn above<const N: usize>(targets: [(&str, f64, f64); N]) -> Vec<String> {
    // What is not a number is no success.
    let missed = targets
        .into_iter()
        .filter(|(_, is, most)| is.partial_cmp(most).is_none_or(std::cmp::Ordering::is_gt));
    missed.map(|(what, is, most)| format!("{what}: {is:.2}, not {most}")).collect()
}

/// An error where a target was missed.
pub fn none_above<const N: usize>(targets: [(&str, f64, f64); N]) -> Result<()> {
    let missed = above(targets);
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}
