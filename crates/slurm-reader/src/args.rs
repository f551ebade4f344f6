//! The reader's arguments.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt as _;

use lexopt::{Arg, Parser};
use reader_process::start::{ReaderMode, value};

/// The output of `--help`.
pub const HELP: &str = "\
Asks slurmctld through libslurm: request lines on stdin, answer lines (JSON) on stdout.
slurm-graphite starts it; by hand: echo '{\"statistics\":{\"id\":1,\"options\":{\"rpc\":true}}}' \
| slurm-graphite-reader

Usage: slurm-graphite-reader [--conf FILE]

  --conf FILE   slurm.conf; default: SLURM_CONF, then libslurm's own (configless too)
  --version     its version and the Slurm release that it was built for
  --help        this text
";

/// Reads the arguments after the program's name: the file that `--conf` names.
///
/// # Errors
/// One of them is unknown, incomplete or has a NUL.
pub fn parse(mut parser: Parser) -> Result<ReaderMode<Option<CString>>, lexopt::Error> {
    let mut conf = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("conf") => {
                let file = CString::new(value(&mut parser)?.into_vec());
                conf = Some(file.map_err(|_| "--conf needs the name of a file")?);
            }
            Arg::Long("version") | Arg::Short('V') => return Ok(ReaderMode::Version),
            Arg::Long("help") | Arg::Short('h') => return Ok(ReaderMode::Help),
            other => return Err(other.unexpected()),
        }
    }
    Ok(ReaderMode::Serve(conf))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(arguments: &[&str]) -> Option<ReaderMode<Option<CString>>> {
        parse(Parser::from_args(arguments)).ok()
    }

    #[test]
    fn a_slurm_conf_may_be_named() {
        let conf = Some(ReaderMode::Serve(Some(c"/etc/slurm/slurm.conf".to_owned())));
        assert_eq!(parse_words(&[]), Some(ReaderMode::Serve(None)));
        assert_eq!(parse_words(&["--conf", "/etc/slurm/slurm.conf"]), conf);
        assert_eq!(parse_words(&["--conf=/etc/slurm/slurm.conf"]), conf);
        assert_eq!(parse_words(&["--conf", "x", "--version"]), Some(ReaderMode::Version));
    }

    #[test]
    fn everything_else_is_refused() {
        for arguments in [&["--conf"][..], &["--conf", ""], &["--conf="], &["--conf", "a\0b"]] {
            assert_eq!(parse_words(arguments), None, "{arguments:?}");
        }
        for argument in ["-c", "--config", "slurm.conf", ""] {
            assert_eq!(parse_words(&[argument]), None, "{argument:?}");
        }
    }
}
