//! TLS to Carbon: whether the files that the configuration names can be used, and when each
//! certificate expires.

use std::path::Path;
use std::time::Duration;

use carbon::{Certificate, Destination, TlsConnection};

use reader_process::open_regular_file;

use super::{CheckLine, rights, title};
use crate::clock;
use crate::config::Config;

/// Time before the end of a certificate from which on it gets a note.
const SOON: Duration = Duration::from_secs(14 * DAY);
const DAY: u64 = 86_400;
/// Most authorities in a `ca_file` that are shown one by one. A file with more of them is the
/// system's own list.
const MOST_NAMED: usize = 4;

/// Returns the lines about the TLS files of every destination. If `connects` is false, a client's
/// certificate that has expired is only a note: a reload, which checks its own file first, makes
/// nothing worse.
pub(super) fn files(config: &Config, connects: bool) -> Vec<CheckLine> {
    let mut lines = Vec::new();
    for to in &config.carbon {
        let Some(tls) = &to.tls else { continue };
        let settings = tls.settings();
        if let Some(path) = &settings.ca_file {
            // Next to it there may be its successor.
            lines.extend(file("ca_file", path, to, false).unwrap_or_else(|wrong| vec![wrong]));
        }
        let Some((path, key_path)) = &settings.identity else { continue };
        if rights(key_path) & 0o026 != 0 {
            lines.push(CheckLine::costs(
                format!(
                    "{}: key_file {}; others than its owner may write or read it",
                    title(to),
                    key_path.display()
                ),
                "Use `chmod 600`, or 640 with the daemon's group.",
            ));
        }
        let key = || {
            let wrong = open_regular_file(key_path).err();
            let wrong = wrong.map(|error| format!("{}: {error}", key_path.display()));
            wrong.or_else(|| tls.check_identity().err()).map(|error| {
                CheckLine::wrong(
                    format!("{}: key_file: {error}", title(to)),
                    "It must be the private key of cert_file in PEM, without a password, readable \
                        by the daemon's user.",
                )
            })
        };
        match file("cert_file", path, to, connects) {
            Err(wrong) => lines.push(wrong),
            Ok(certificates) => lines.extend(certificates.into_iter().chain(key())),
        }
    }
    lines
}

/// The lines about a file's certificates; the error is the line of a file that cannot be read.
fn file(
    key: &str,
    path: &Path,
    to: &Destination,
    is_needed: bool,
) -> Result<Vec<CheckLine>, CheckLine> {
    let name = format!("{}: {key} {}", title(to), path.display());
    let found = match open_regular_file(path) {
        Ok(_) => carbon::certificates(path),
        Err(error) => Err(format!("{}: {error}", path.display())),
    };
    match found {
        Ok(found) if !is_needed && found.len() > MOST_NAMED => {
            Ok(vec![CheckLine::good(format!("{name}: {} certificates", found.len()))])
        }
        // The first is the client's own. The handshake shows whether the others are needed.
        Ok(found) => Ok((0..)
            .zip(&found)
            .map(|(index, certificate)| expiry(&name, certificate, is_needed && index == 0))
            .collect()),
        Err(error) => Err(CheckLine::wrong(
            format!("{}: {key}: {error}", title(to)),
            "It must be a file of certificates in PEM that the daemon's user can read; run this \
             check as that user. Below /home or /root the unit needs ProtectHome=read-only in a \
             drop-in.",
        )),
    }
}

/// The lines about the server's certificates, as a connection shows them.
pub(super) fn connected(connection: &TlsConnection, to: &Destination) -> Vec<CheckLine> {
    let name = format!("{}: speaks {}", title(to), connection.version());
    // That of the server itself has not expired; it may send one that is not needed.
    let certificates = connection.certificates();
    certificates.iter().map(|certificate| expiry(&name, certificate, false)).collect()
}

fn expiry(name: &str, certificate: &Certificate, is_needed: bool) -> CheckLine {
    let now = clock::now().as_secs();
    let (text, is_soon) = expires(certificate.expires, now);
    let text = format!("{name}: certificate {:?} {text}", certificate.subject);
    if certificate.expires < now && is_needed {
        CheckLine::wrong(text, "Renew it: a receiver refuses a certificate that has expired.")
    } else if is_soon {
        CheckLine::unknown(format!("{text}: renew it"))
    } else {
        CheckLine::good(text)
    }
}

/// Says when a certificate expires, and whether that is soon or over. `at` and `now` are in Unix
/// seconds.
fn expires(at: u64, now: u64) -> (String, bool) {
    let day = clock::local(i64::try_from(at).unwrap_or(i64::MAX), "%Y-%m-%d");
    match at.checked_sub(now) {
        None => (format!("has expired, on {day}, {} days ago", (now - at) / DAY), true),
        Some(left) => (format!("expires on {day}, in {} days", left / DAY), left < SOON.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_ends_within_two_weeks_is_worth_a_word() {
        let now = 1_800_000_000;
        for (at, words, is_soon) in [
            (now + 20 * DAY, "in 20 days", false),
            (now + 14 * DAY, "in 14 days", false),
            (now + 14 * DAY - 1, "in 13 days", true),
            (now, "in 0 days", true),
            (now - 3 * DAY, "3 days ago", true),
        ] {
            let (text, soon) = expires(at, now);
            assert!(text.ends_with(words) && soon == is_soon, "{text}");
        }
    }
}
