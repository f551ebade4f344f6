//! The reader's arguments, parsed by hand: there are few flags, and start-up time matters.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

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

/// What the reader was told to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReaderMode {
    Serve(NativeArguments),
    Version,
    Help,
}

/// The arguments for slurmctld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NativeArguments {
    pub(crate) conf: Option<PathBuf>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) remember: Option<PathBuf>,
    pub(crate) timeout: Duration,
}

/// Arguments that the reader does not accept.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum UsageError {
    #[error("{0:?} is not an argument of the reader: see --help")]
    Unknown(OsString),
    #[error("{0} needs a value")]
    Value(&'static str),
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<ReaderMode, UsageError> {
    let timeout = Duration::from_secs(27);
    let mut found = NativeArguments { conf: None, token_file: None, remember: None, timeout };
    while let Some(argument) = arguments.next() {
        let mut value =
            |flag| arguments.next().filter(|text| !text.is_empty()).ok_or(UsageError::Value(flag));
        match argument.to_str() {
            Some("--conf") => found.conf = Some(value("--conf")?.into()),
            Some("--token-file") => found.token_file = Some(value("--token-file")?.into()),
            Some("--remember") => found.remember = Some(value("--remember")?.into()),
            Some("--timeout") => {
                let seconds = value("--timeout")?.to_str().and_then(|text| text.parse::<f64>().ok());
                let seconds = seconds.filter(|seconds| (0.1..=1e6).contains(seconds));
                found.timeout = Duration::from_secs_f64(seconds.ok_or(UsageError::Value("--timeout"))?);
            }
            Some("--version" | "-V") => return Ok(ReaderMode::Version),
            Some("--help" | "-h") => return Ok(ReaderMode::Help),
            _ => return Err(UsageError::Unknown(argument)),
        }
    }
    Ok(ReaderMode::Serve(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str]) -> Result<ReaderMode, UsageError> {
        parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(of(&["--conf"]), Err(UsageError::Value("--conf")));
        assert_eq!(of(&["--remember", ""]), Err(UsageError::Value("--remember")));
        assert_eq!(of(&["--rest"]), Err(UsageError::Unknown("--rest".into())));
        for timeout in ["0", "-1", "nan", "x", "1e99"] {
            assert_eq!(of(&["--timeout", timeout]), Err(UsageError::Value("--timeout")), "{timeout}");
        }
        assert!(matches!(of(&["--conf", "/c", "--timeout", "5"]), Ok(ReaderMode::Serve(_))));
        assert_eq!(of(&["--conf", "/c", "--version"]), Ok(ReaderMode::Version));
    }
}
