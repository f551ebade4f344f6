//! slurmrestd: the token, the connection, TLS, the version of its API, and slurmctld behind it, in the order in which each
//! needs the one before.

use anyhow::Result;
use slurm_snapshot::{Endpoint, Failure, Reading, Rest, Stage};

use super::Report;
use super::slurm::milliseconds;
use crate::clock::unix_now;
use crate::commands::once::Ticks;
use crate::commands::read_once;
use crate::config::Config;
use crate::printable::printable;
use crate::source::SourceError;

/// The lines, and the reading that slurmctld gave.
pub(super) async fn look(
    config: &Config,
    endpoint: &Endpoint,
    report: &mut Report,
) -> Result<Option<Reading>> {
    match read_once(config.slurm.clone(), Ticks::new(config).request()).await {
        Ok(reading) => {
            let rest = reading.rest.clone().unwrap_or_default();
            before(Stage::Slurmctld, endpoint, &rest, report)?;
            token(&rest, report)?;
            let cluster = reading.cluster.as_deref().unwrap_or("(unknown)");
            let took = milliseconds(reading.elapsed);
            report.good(&format!(
                "slurmctld: cluster {cluster}, Slurm {}, answers in {took} ms",
                reading.release
            ))?;
            Ok(Some(*reading))
        }
        Err(error) => {
            failed(&error, endpoint, report)?;
            Ok(None)
        }
    }
}

fn failed(error: &SourceError, endpoint: &Endpoint, report: &mut Report) -> Result<()> {
    let (text, advice) = (error.to_string(), error.advice());
    let SourceError::Refused(Failure { stage: Some(stage), rest, .. }, _) = error.root() else {
        return report.wrong(&format!("slurmrestd: {text}"), advice);
    };
    let rest = rest.as_deref().cloned().unwrap_or_default();
    before(*stage, endpoint, &rest, report)?;
    let what = match stage {
        Stage::Unsupported => "request",
        Stage::TokenFile | Stage::Token => "token",
        Stage::Connect => "connection",
        Stage::Tls => "TLS",
        Stage::Http => "slurmrestd",
        Stage::Version => "version",
        Stage::Slurmctld => {
            token(&rest, report)?;
            "slurmctld"
        }
    };
    report.wrong(&format!("{what}: {text}"), advice)?;
    if *stage < Stage::Slurmctld {
        report.unknown("slurmctld: not reached")?;
    }
    Ok(())
}

/// What is known to work when a request comes as far as `stage`.
fn before(stage: Stage, endpoint: &Endpoint, rest: &Rest, report: &mut Report) -> Result<()> {
    if stage > Stage::Connect {
        report.good(&format!("connection: {endpoint}"))?;
    }
    if stage > Stage::Tls && endpoint.is_tls() {
        report.good("TLS: the certificate is for this name and from a trusted authority")?;
    }
    if let (true, Some(version)) = (stage > Stage::Version, &rest.version) {
        report.good(&format!("slurmrestd: API version {version}"))?;
    }
    Ok(())
}

/// The token's name and end.
fn token(rest: &Rest, report: &mut Report) -> Result<()> {
    let Some(token) = &rest.token else { return report.unknown("token: not used") };
    let user = printable(token.user.as_deref().unwrap_or("(unknown)"));
    let left = token.expires.map(|expires| expires.saturating_sub(unix_now()));
    let end =
        left.map_or_else(|| "does not expire".to_owned(), |left| format!("expires in {} min", left / 60));
    if token.exposed {
        return report.wrong(
            &format!("token: for user {user}, {end}; every user of this host can read its file"),
            "Use `chmod 600`, or 640 with the daemon's group.",
        );
    }
    if token.writable {
        return report.wrong(
            &format!("token: for user {user}, {end}; others than its owner may replace its file"),
            "Use `chmod go-w` for the file and for its directory.",
        );
    }
    report.good(&format!("token: for user {user}, {end}"))
}
