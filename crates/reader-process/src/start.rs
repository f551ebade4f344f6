//! A reader's start: what its arguments ask for, and its exit code.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use lexopt::{Parser, ValueExt as _};

use crate::{input, log};

/// The exit status for wrong usage.
const USAGE: u8 = 64;

/// The tasks that a reader is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderMode<A> {
    /// Answer requests, with these arguments.
    Serve(A),
    /// Print the version.
    Version,
    /// Print the help.
    Help,
}

/// Does what the arguments ask for; `serve` reads requests from a file.
#[must_use]
pub fn start<A>(
    help: &str,
    version: &str,
    mode: Result<ReaderMode<A>, lexopt::Error>,
    serve: impl FnOnce(A, File) -> io::Result<()>,
) -> ExitCode {
    let ended = match mode {
        Ok(ReaderMode::Help) => io::stdout().write_all(help.as_bytes()),
        Ok(ReaderMode::Version) => io::stdout().write_all(version.as_bytes()),
        Ok(ReaderMode::Serve(arguments)) => {
            input().and_then(|input| input.map_or(Ok(()), |input| serve(arguments, input)))
        }
        Err(error) => {
            log(&format_args!("{error}: see --help"));
            return USAGE.into();
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&error);
            ExitCode::FAILURE
        }
    }
}

/// Reads the value of an option.
///
/// # Errors
/// There is no value, or it is empty.
pub fn value(parser: &mut Parser) -> Result<OsString, lexopt::Error> {
    let value = parser.value()?;
    if value.is_empty() { Err("an option has an empty value".into()) } else { Ok(value) }
}

/// Reads the value of `--timeout`, which is in seconds.
///
/// # Errors
/// There is no value, or it is below 0.1 or above a million.
pub fn seconds(parser: &mut Parser) -> Result<Duration, lexopt::Error> {
    parser.value()?.parse_with(|text| match text.parse() {
        Ok(seconds) if (0.1..=1e6).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("--timeout needs seconds, at least 0.1"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_number_of_seconds() {
        for text in ["", "0", "-1", "nan", "x", "1e99", "inf"] {
            let mut parser = Parser::from_args([format!("--timeout={text}")]);
            parser.next().unwrap();
            assert!(seconds(&mut parser).is_err(), "{text}");
        }
        let mut parser = Parser::from_args(["--timeout", "0.5"]);
        parser.next().unwrap();
        assert_eq!(seconds(&mut parser).unwrap(), Duration::from_millis(500));
    }
}
