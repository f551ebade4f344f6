//! The reader's arguments, parsed by hand: there are three flags, and start-up time matters.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt as _;

/// What `--help` prints.
pub const HELP: &str = "\
Asks slurmctld through libslurm: request lines on stdin, answer lines (JSON) on stdout.
slurm-graphite starts it; by hand: echo '{\"statistics\":{\"id\":1,\"options\":{\"rpc\":true}}}' | slurm-graphite-reader

Usage: slurm-graphite-reader [--conf FILE]

  --conf FILE   slurm.conf; default: SLURM_CONF, then libslurm's own (configless too)
  --version     its version and the Slurm release that it was built for
  --help        this text
";

/// What the reader was told to do.
#[derive(Debug, PartialEq, Eq)]
pub enum ReaderMode {
    /// Serve requests, with this slurm.conf.
    Serve(Option<CString>),
    /// Print the version.
    Version,
    /// Print the help.
    Help,
}

/// Arguments that the reader does not accept.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// No such flag.
    #[error("{0:?} is not an argument of the reader: see --help")]
    Unknown(OsString),
    /// `--conf` without a name, or with an empty name or one with a NUL.
    #[error("--conf needs the name of a file")]
    Conf,
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// One of them is unknown or incomplete.
pub fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<ReaderMode, UsageError> {
    let mut conf = None;
    while let Some(argument) = arguments.next() {
        let bytes = argument.as_encoded_bytes();
        let file = match bytes {
            b"--help" | b"-h" => return Ok(ReaderMode::Help),
            b"--version" | b"-V" => return Ok(ReaderMode::Version),
            b"--conf" => arguments.next().map(OsString::into_vec),
            _ => match bytes.strip_prefix(b"--conf=") {
                Some(file) => Some(file.to_vec()),
                None => return Err(UsageError::Unknown(argument)),
            },
        };
        let file = file.filter(|file| !file.is_empty()).ok_or(UsageError::Conf)?;
        conf = Some(CString::new(file).map_err(|_| UsageError::Conf)?);
    }
    Ok(ReaderMode::Serve(conf))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<ReaderMode, UsageError> {
        super::parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn a_slurm_conf_may_be_named() {
        let conf = || ReaderMode::Serve(Some(c"/etc/slurm/slurm.conf".to_owned()));
        assert_eq!(parse(&[]), Ok(ReaderMode::Serve(None)));
        assert_eq!(parse(&["--conf", "/etc/slurm/slurm.conf"]), Ok(conf()));
        assert_eq!(parse(&["--conf=/etc/slurm/slurm.conf"]), Ok(conf()));
    }

    #[test]
    fn help_and_version() {
        assert_eq!(parse(&["--help"]), Ok(ReaderMode::Help));
        assert_eq!(parse(&["--conf", "x", "--version"]), Ok(ReaderMode::Version));
    }

    #[test]
    fn everything_else_is_refused() {
        for arguments in [&["--conf"][..], &["--conf", ""], &["--conf="], &["--conf", "a\0b"]] {
            assert_eq!(parse(arguments), Err(UsageError::Conf), "{arguments:?}");
        }
        for argument in ["-c", "--config", "slurm.conf", ""] {
            assert_eq!(parse(&[argument]), Err(UsageError::Unknown(argument.into())));
        }
    }
}
