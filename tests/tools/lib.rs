//! What the programs share: how they end, what they print, the numbers in their environment, and how contenders are compared.

#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "the error itself says what failed")]

pub mod contender;

use std::io::Write;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};

/// The end of the program with this name: its error goes to stderr.
#[must_use]
pub fn end(name: &str, result: Result<()>) -> ExitCode {
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
