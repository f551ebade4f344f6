//! The reader's arguments, parsed by hand: there are few flags, and start-up time matters.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use slurm_snapshot::{Endpoint, EndpointError};

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Asks slurmrestd over HTTP: request lines on stdin, answer lines (JSON) on stdout.
slurm-graphite starts it; by hand: echo '{\"statistics\":{\"id\":1,\"options\":{\"rpc\":true}}}' | slurm-graphite-rest-reader --rest URL

Usage: slurm-graphite-rest-reader --rest URL [--token-file FILE]

  --rest URL          where slurmrestd listens: https://host:6820, http://localhost:6820 or unix:/path
  --token-file FILE   the token, as `scontrol token` prints it; read again when it changes
  --user NAME         the user that the token is for; default: as the token says
  --ca-file FILE      trust these certificate authorities (PEM) instead of the system's
  --insecure          send the token in the clear to another host
  --timeout SECONDS   give a request up after this; default: 27
  --version           its version
  --help              this text
";

/// What the reader was told to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReaderMode {
    Serve(RestArguments),
    Version,
    Help,
}

/// The arguments for slurmrestd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestArguments {
    pub(crate) endpoint: Endpoint,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) ca_file: Option<PathBuf>,
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
    #[error("--rest URL is missing: see --help")]
    NoEndpoint,
    #[error("--rest: {0}")]
    Endpoint(#[from] EndpointError),
    #[error(
        "--rest: without TLS the token would go over the network in the clear; use https://, or add --insecure"
    )]
    Exposed,
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<ReaderMode, UsageError> {
    let (mut endpoint, mut insecure) = (None, false);
    let (mut token_file, mut user, mut ca_file) = (None, None, None);
    let mut timeout = Duration::from_secs(27);
    while let Some(argument) = arguments.next() {
        let mut value =
            |flag| arguments.next().filter(|text| !text.is_empty()).ok_or(UsageError::Value(flag));
        match argument.to_str() {
            Some("--rest") => {
                let text = value("--rest")?;
                endpoint = Some(text.to_str().unwrap_or_default().parse::<Endpoint>()?);
            }
            Some("--token-file") => token_file = Some(PathBuf::from(value("--token-file")?)),
            Some("--ca-file") => ca_file = Some(PathBuf::from(value("--ca-file")?)),
            Some("--user") => {
                let name = value("--user")?.into_string().ok().filter(|name| is_plain(name));
                user = Some(name.ok_or(UsageError::Value("--user"))?);
            }
            Some("--timeout") => {
                let seconds = value("--timeout")?.to_str().and_then(|text| text.parse::<f64>().ok());
                let seconds = seconds.filter(|seconds| (0.1..=1e6).contains(seconds));
                timeout = Duration::from_secs_f64(seconds.ok_or(UsageError::Value("--timeout"))?);
            }
            Some("--insecure") => insecure = true,
            Some("--version") => return Ok(ReaderMode::Version),
            Some("--help") => return Ok(ReaderMode::Help),
            _ => return Err(UsageError::Unknown(argument)),
        }
    }
    let endpoint = endpoint.ok_or(UsageError::NoEndpoint)?;
    if endpoint.is_exposed() && token_file.is_some() && !insecure {
        return Err(UsageError::Exposed);
    }
    Ok(ReaderMode::Serve(RestArguments { endpoint, token_file, user, ca_file, timeout }))
}

/// Whether a header can contain this text.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str]) -> Result<ReaderMode, UsageError> {
        parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn a_token_goes_to_another_host_in_the_clear_only_where_that_is_asked_for() {
        let exposed = ["--rest", "http://192.0.2.1", "--token-file", "/t"];
        assert_eq!(of(&exposed), Err(UsageError::Exposed));
        assert!(of(&[&exposed[..], &["--insecure"]].concat()).is_ok());
        assert!(of(&["--rest", "http://127.0.0.1", "--token-file", "/t"]).is_ok());
        assert!(of(&["--rest", "https://192.0.2.1", "--token-file", "/t"]).is_ok());
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(of(&[]), Err(UsageError::NoEndpoint));
        assert_eq!(of(&["--rest"]), Err(UsageError::Value("--rest")));
        assert!(matches!(of(&["--rest", "host"]), Err(UsageError::Endpoint(_))));
        assert_eq!(of(&["--conf"]), Err(UsageError::Unknown("--conf".into())));
        for timeout in ["0", "-1", "nan", "x", "1e99"] {
            assert_eq!(of(&["--timeout", timeout]), Err(UsageError::Value("--timeout")), "{timeout}");
        }
        assert_eq!(of(&["--user", "a\r\nb"]), Err(UsageError::Value("--user")));
    }
}
