//! The reader's arguments.

use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt as _};
use reader_process::start::{ReaderMode, seconds, value};
use slurm_snapshot::Endpoint;

/// The output of `--help`.
pub(crate) const HELP: &str = "\
Asks slurmrestd over HTTP: request lines on stdin, answer lines (JSON) on stdout.
slurm-graphite starts it; by hand:
echo '{\"statistics\":{\"id\":1,\"options\":{\"rpc\":true}}}' | slurm-graphite-rest-reader --rest URL

Usage: slurm-graphite-rest-reader --rest URL [--token-file FILE]

  --rest URL          where slurmrestd listens: https://host:6820, http://localhost:6820 or unix:/path
  --token-file FILE   the token, as `scontrol token` prints it; read again when it changes
  --rest-user NAME    on this host, send the token only to this user's program, or root's; default: slurmrestd
  --user NAME         the user that the token is for; default: as the token says
  --ca-file FILE      trust these certificate authorities (PEM) instead of the system's
  --insecure          send the token in the clear to another host
  --timeout SECONDS   give a request up after this; default: 27
  --version           its version
  --help              this text
";

/// The arguments for slurmrestd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestArguments {
    pub(crate) endpoint: Endpoint,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) user: Option<String>,
    /// The user that runs slurmrestd, if it is on this host.
    pub(crate) rest_user: String,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) timeout: Duration,
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(mut parser: Parser) -> Result<ReaderMode<RestArguments>, lexopt::Error> {
    let mut endpoint = None;
    let mut insecure = false;
    let mut token_file = None;
    let mut user = None;
    let mut rest_user = "slurmrestd".to_owned();
    let mut ca_file = None;
    let mut timeout = Duration::from_secs(27);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("rest") => endpoint = Some(parser.value()?.parse::<Endpoint>()?),
            Arg::Long("token-file") => token_file = Some(PathBuf::from(value(&mut parser)?)),
            Arg::Long("ca-file") => ca_file = Some(PathBuf::from(value(&mut parser)?)),
            Arg::Long("user") => user = Some(parser.value()?.parse_with(user_name)?),
            Arg::Long("rest-user") => rest_user = parser.value()?.parse_with(user_name)?,
            Arg::Long("timeout") => timeout = seconds(&mut parser)?,
            Arg::Long("insecure") => insecure = true,
            Arg::Long("version") | Arg::Short('V') => return Ok(ReaderMode::Version),
            Arg::Long("help") | Arg::Short('h') => return Ok(ReaderMode::Help),
            other => return Err(other.unexpected()),
        }
    }
    let endpoint = endpoint.ok_or("--rest URL is missing")?;
    if endpoint.is_exposed() && token_file.is_some() && !insecure {
        return Err("--rest: without TLS the token would go over the network in the clear; use \
            https://, or add --insecure"
            .into());
    }
    Ok(ReaderMode::Serve(RestArguments { endpoint, token_file, user, rest_user, ca_file, timeout }))
}

/// Checks that a user's name can be in a header, and returns it.
fn user_name(text: &str) -> Result<String, &'static str> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain {
        Ok(text.to_owned())
    } else {
        Err("--user and --rest-user need a name without blanks")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(arguments: &[&str]) -> Result<ReaderMode<RestArguments>, String> {
        parse(Parser::from_args(arguments)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_goes_to_another_host_in_the_clear_only_where_that_is_asked_for() {
        let exposed = ["--rest", "http://192.0.2.1", "--token-file", "/t"];
        assert!(parse_words(&exposed).unwrap_err().contains("in the clear"));
        assert!(parse_words(&[&exposed[..], &["--insecure"]].concat()).is_ok());
        assert!(parse_words(&["--rest", "http://127.0.0.1", "--token-file", "/t"]).is_ok());
        assert!(parse_words(&["--rest", "https://192.0.2.1", "--token-file", "/t"]).is_ok());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (arguments, said) in [
            (&[][..], "--rest URL is missing"),
            (&["--rest"], "--rest"),
            (&["--rest", "host"], "host"),
            (&["--conf"], "--conf"),
            (&["--timeout", "0"], "--timeout needs seconds"),
            (&["--user", "a\r\nb"], "--user and --rest-user need"),
        ] {
            let error = parse_words(arguments).unwrap_err();
            assert!(error.contains(said), "{arguments:?}: {error}");
        }
    }
}
