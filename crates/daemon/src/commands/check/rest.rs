//! slurmrestd: the token, the connection, TLS, the version of its API, and slurmctld behind it, in the order in which each
//! needs the one before.

use slurm_snapshot::{Endpoint, Failure, Reading, Rest, Stage};

use super::slurm::milliseconds;
use super::{CheckLine, Report};
use crate::clock::unix_now;
use crate::commands::once::Ticks;
use crate::commands::read_once;
use crate::config::Config;
use crate::printable::printable;
use crate::source::SourceError;

/// Returns the reading that slurmctld gave.
pub(super) async fn check(config: &Config, endpoint: &Endpoint, report: &mut Report) -> Option<Reading> {
    match read_once(config.slurm.clone(), Ticks::new(config).request()).await {
        Ok(reading) => {
            let rest = reading.rest.clone().unwrap_or_default();
            report.add_all(before(Stage::Slurmctld, endpoint, &rest));
            report.add(token(&rest));
            let cluster = reading.cluster.as_deref().unwrap_or("(unknown)");
            let (release, took) = (&reading.release, milliseconds(reading.elapsed));
            report.add(CheckLine::good(format!(
                "slurmctld: cluster {cluster}, Slurm {release}, answers in {took} ms"
            )));
            Some(*reading)
        }
        Err(error) => {
            report.add_all(failed(&error, endpoint));
            None
        }
    }
}

fn failed(error: &SourceError, endpoint: &Endpoint) -> Vec<CheckLine> {
    let wrong = |what: &str| CheckLine::wrong(format!("{what}: {error}"), error.advice());
    let SourceError::Refused(Failure { stage: Some(stage), rest, .. }, _) = error.root() else {
        return vec![wrong("slurmrestd")];
    };
    let rest = rest.as_deref().cloned().unwrap_or_default();
    let mut lines = before(*stage, endpoint, &rest);
    let what = match stage {
        Stage::Unsupported => "request",
        Stage::TokenFile | Stage::Token => "token",
        Stage::Connect => "connection",
        Stage::Tls => "TLS",
        Stage::Http => "slurmrestd",
        Stage::Version => "version",
        Stage::Slurmctld => {
            lines.push(token(&rest));
            "slurmctld"
        }
    };
    lines.push(wrong(what));
    if *stage < Stage::Slurmctld {
        lines.push(CheckLine::unknown("slurmctld: not reached"));
    }
    lines
}

/// What is known to work when a request comes as far as `stage`.
fn before(stage: Stage, endpoint: &Endpoint, rest: &Rest) -> Vec<CheckLine> {
    let mut lines = Vec::new();
    if stage > Stage::Connect {
        lines.push(CheckLine::good(format!("connection: {endpoint}")));
    }
    if stage > Stage::Tls && endpoint.is_tls() {
        lines.push(CheckLine::good("TLS: the certificate is for this name and from a trusted authority"));
    }
    if let (true, Some(version)) = (stage > Stage::Version, &rest.version) {
        lines.push(CheckLine::good(format!("slurmrestd: API version {version}")));
    }
    lines
}

/// The token's name and end.
fn token(rest: &Rest) -> CheckLine {
    let Some(token) = &rest.token else { return CheckLine::unknown("token: not used") };
    let user = printable(token.user.as_deref().unwrap_or("(unknown)"));
    let left = token.expires.map(|expires| expires.saturating_sub(unix_now()));
    let end =
        left.map_or_else(|| "does not expire".to_owned(), |left| format!("expires in {} min", left / 60));
    let text = format!("token: for user {user}, {end}");
    if token.exposed {
        return CheckLine::wrong(
            format!("{text}; every user of this host can read its file"),
            "Use `chmod 600`, or 640 with the daemon's group.",
        );
    }
    if token.writable {
        return CheckLine::wrong(
            format!("{text}; others than its owner may replace its file"),
            "Use `chmod go-w` for the file and for its directory.",
        );
    }
    CheckLine::good(text)
}
