//! slurmrestd: the token, the connection, TLS, the version of its API, and slurmctld behind it, in
//! the order in which each needs the one before.

use reader_process::TokenFile;
use slurm_snapshot::{Endpoint, Failure, Reading, Rest, Stage};

use super::slurm::milliseconds;
use super::{CheckLine, Report};
use crate::clock::unix_now;
use crate::commands::once::Ticks;
use crate::commands::{Mark, read_once};
use crate::config::Config;
use crate::source::SourceError;

/// Checks slurmrestd, and slurmctld behind it. Returns the reading that slurmctld gave, if it gave
/// one.
pub(super) async fn check(
    config: &Config,
    endpoint: &Endpoint,
    report: &mut Report,
) -> Option<Reading> {
    let outcome = read_once(config.slurm.clone(), Ticks::new(config).request()).await;
    let wrong = |what: &str, error: &SourceError| {
        CheckLine::wrong(format!("{what}: {error}"), error.advice())
    };
    let (stage, rest, line) = match &outcome {
        Ok(reading) => {
            let cluster = reading.cluster.as_deref().unwrap_or("(unknown)");
            let release = &reading.release;
            let took = milliseconds(reading.elapsed);
            let text =
                format!("slurmctld: cluster {cluster}, Slurm {release}, answers in {took} ms");
            (Stage::Slurmctld, reading.rest.clone(), CheckLine::good(text))
        }
        Err(error) => match error.root() {
            SourceError::Refused(Failure { stage: Some(stage), rest, .. }, _) => {
                (*stage, rest.as_deref().cloned(), wrong(subject(*stage), error))
            }
            _ => {
                report.add(wrong("slurmrestd", error));
                return None;
            }
        },
    };
    let rest = rest.unwrap_or_default();
    report.add_all(before(stage, endpoint, &rest));
    if stage == Stage::Slurmctld {
        report.add(token(&rest));
    }
    report.add(line);
    if stage < Stage::Slurmctld {
        report.add(CheckLine::unknown("slurmctld: not reached"));
    }
    outcome.ok().map(|reading| *reading)
}

/// Checks that `token_file`, if it is set, has a token. A mode of the file that is too open is a
/// problem only with --connect, and here a note.
pub(super) fn token_file(config: &Config) -> Option<CheckLine> {
    let mut file = TokenFile::new(config.slurm.rest.token_file.clone()?);
    if let Err(error) = file.read_again() {
        return Some(CheckLine::wrong(
            format!("token_file: {error}"),
            "It must have the output of `scontrol token username=NAME lifespan=SECONDS`; run this \
                check as the daemon's user.",
        ));
    }
    let line = token(&Rest { token: Some(file.claims), ..Rest::default() });
    let mark = if line.mark == Mark::Wrong { Mark::Note } else { line.mark };
    Some(CheckLine { mark, ..line })
}

/// The subject of the line about a failure at this stage.
const fn subject(stage: Stage) -> &'static str {
    match stage {
        Stage::Unsupported => "request",
        Stage::TokenFile | Stage::Token | Stage::Listener => "token",
        Stage::Connect => "connection",
        Stage::Tls => "TLS",
        Stage::Http => "slurmrestd",
        Stage::Version => "version",
        Stage::Slurmctld => "slurmctld",
    }
}

/// The lines about what works, as a request has come as far as `stage`.
fn before(stage: Stage, endpoint: &Endpoint, rest: &Rest) -> Vec<CheckLine> {
    let version = rest.version.as_ref().filter(|_| stage > Stage::Version);
    let lines = [
        (stage > Stage::Connect).then(|| format!("connection: {endpoint}")),
        (stage > Stage::Tls && endpoint.is_tls()).then(|| {
            "TLS: the certificate is for this name and from a trusted authority".to_owned()
        }),
        version.map(|version| format!("slurmrestd: API version {version}")),
    ];
    lines.into_iter().flatten().map(CheckLine::good).collect()
}

/// Returns the line about the token: for which user it is, when it expires, and whether its file is
/// safe.
fn token(rest: &Rest) -> CheckLine {
    let Some(token) = &rest.token else { return CheckLine::unknown("token: not used") };
    let user = token.user.as_deref().unwrap_or("(unknown)");
    let left = token.expires.map(|expires| expires.saturating_sub(unix_now()));
    let end = left.map_or_else(
        || "does not expire".to_owned(),
        |left| format!("expires in {} min", left / 60),
    );
    let text = format!("token: for user {user}, {end}");
    match (token.exposed, token.writable) {
        (true, _) => CheckLine::wrong(
            format!("{text}; every user of this host can read its file"),
            "Use `chmod 600`, or 640 with the daemon's group.",
        ),
        (_, true) => CheckLine::wrong(
            format!("{text}; others than its owner may replace its file"),
            "Use `chmod go-w` for the file and for its directory.",
        ),
        _ => CheckLine::good(text),
    }
}
