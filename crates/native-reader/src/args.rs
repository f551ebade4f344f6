//! The reader's arguments.

use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser};
use reader_process::start::{ReaderMode, seconds, value};

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Asks slurmctld in its own protocol, without libslurm: request lines on stdin, answer lines (JSON) on stdout.
slurm-graphite starts it; by hand: echo '{\"statistics\":{\"id\":1,\"options\":{\"rpc\":true}}}' | slurm-graphite-native-reader

Usage: slurm-graphite-native-reader [--conf FILE]

  --conf FILE         slurm.conf; default: SLURM_CONF, then /etc/slurm/slurm.conf, then /run/slurm/conf/slurm.conf
  --token-file FILE   a token, as `scontrol token` prints it, instead of munge; read again when it changes
  --remember FILE     where the protocol numbers of the controllers are kept; default: nowhere
  --timeout SECONDS   give a request up after this; default: 27
  --version           its version
  --help              this text
";

/// The arguments for slurmctld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NativeArguments {
    pub(crate) conf: Option<PathBuf>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) remember: Option<PathBuf>,
    pub(crate) timeout: Duration,
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(mut parser: Parser) -> Result<ReaderMode<NativeArguments>, lexopt::Error> {
    let timeout = Duration::from_secs(27);
    let mut found = NativeArguments { conf: None, token_file: None, remember: None, timeout };
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("conf") => found.conf = Some(value(&mut parser)?.into()),
            Arg::Long("token-file") => found.token_file = Some(value(&mut parser)?.into()),
            Arg::Long("remember") => found.remember = Some(value(&mut parser)?.into()),
            Arg::Long("timeout") => found.timeout = seconds(&mut parser)?,
            Arg::Long("version") | Arg::Short('V') => return Ok(ReaderMode::Version),
            Arg::Long("help") | Arg::Short('h') => return Ok(ReaderMode::Help),
            other => return Err(other.unexpected()),
        }
    }
    Ok(ReaderMode::Serve(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str]) -> Result<ReaderMode<NativeArguments>, String> {
        parse(Parser::from_args(arguments)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (arguments, said) in [
            (&["--conf"][..], "--conf"),
            (&["--remember", ""], "empty value"),
            (&["--rest"], "--rest"),
            (&["--timeout", "0"], "--timeout needs seconds"),
            (&["slurm.conf"], "slurm.conf"),
        ] {
            let error = of(arguments).unwrap_err();
            assert!(error.contains(said), "{arguments:?}: {error}");
        }
        assert!(matches!(of(&["--conf", "/c", "--timeout", "5"]), Ok(ReaderMode::Serve(_))));
        assert_eq!(of(&["--conf", "/c", "--version"]), Ok(ReaderMode::Version));
    }
}
