//! slurm.conf, munge, libslurm and slurmctld, in the order in which each needs the one before.
//!
//! munged is tested without its library: a working munged closes a connection on which nothing was
//! requested, and a stopped one does not. Only slurmctld's answer shows whether the key is the
//! cluster's.

use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reader_process::open_regular_file;
use slurm_snapshot::{Reading, errno};
use slurmctld_protocol::{INSTALL_LIBSLURM, MUNGE_SOCKET, munge_socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{CheckLine, Report};
use crate::commands::once::Ticks;
use crate::commands::{IMPATIENT, read_once};
use crate::config::{Config, ReaderChoice};
use crate::follow::{Follow, ahead_of};
use crate::source::{NoReader, ReaderKind, ReaderMemory, Source, SourceError, TOKEN, conf};

/// Time that munged gets for an answer, and a file system for slurm.conf. munged itself gives a
/// silent client as long.
const PATIENCE: Duration = Duration::from_secs(2);
const NO_MUNGE: &str = "munge: not used (see AuthType in slurm.conf)";

/// The settings of slurm.conf that `check` needs, and whether they are certain.
struct SlurmConf {
    /// munged's socket, where munge is used.
    munge: Option<PathBuf>,
    /// Whether slurm.conf and the files that it includes could be read.
    certain: bool,
    is_absent: bool,
}

/// The result of asking munged: an error if it does not answer, `TimedOut` if it is silent. `None`:
/// munge is not used.
type Munge = Option<Result<()>>;

/// Whether munged's state delays libslurm. It would wait for ever for a munged that is stopped, and
/// most of a minute for one that was killed and left its socket behind. Without a socket it gives
/// up after two seconds.
fn delays_libslurm(munge: &Munge) -> bool {
    let error = munge.as_ref().and_then(|answer| answer.as_ref().err());
    error.is_some_and(|error| {
        matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::ConnectionRefused)
    })
}

/// Checks slurm.conf, munge and slurmctld. Returns the reading that slurmctld gave, if it gave one.
pub(super) async fn check(config: &Config, report: &mut Report) -> Option<Reading> {
    let Some(conf) = slurm_conf(config, report).await else {
        report
            .add(CheckLine::unknown("munge, slurmctld: not asked, because there is no slurm.conf"));
        return None;
    };
    let munge = match &conf.munge {
        Some(socket) => Some(ask_munge(socket).await),
        None => None,
    };
    if config.slurm.reader != ReaderChoice::Native && conf.certain && delays_libslurm(&munge) {
        report.add(munge_alone(&conf, &munge));
        report.add(CheckLine::unknown(
            "slurmctld: not asked, because libslurm would wait for munged",
        ));
        return None;
    }
    let mut source =
        Source::start("statistics", config.slurm.clone(), IMPATIENT, &ReaderMemory::default());
    source.ask(Ticks::new(config).request());
    let outcome = source.outcome().await;
    let kind = source.status().kind().unwrap_or_default();
    let is_said =
        |error: &SourceError| matches!(error.root(), SourceError::NoReader(NoReader::NoConf));
    if conf.is_absent && !outcome.as_ref().is_err_and(is_said) {
        report.add(no_slurm_conf());
    }
    match outcome {
        Ok(reading) => {
            report.add(reader(kind, &reading, config));
            let accepted = "slurmctld accepts this host's credentials";
            if kind == ReaderKind::Libslurm && std::env::var_os(TOKEN).is_some() {
                report.add(CheckLine::unknown(
                    "token: libslurm sends the one in SLURM_JWT in the clear to the programs that \
                        listen on the ports of slurmctld and slurmdbd; on this host, that they \
                        were root's or SlurmUser's before and after a request is no proof",
                ));
            }
            report.add(match conf.munge {
                Some(_) => CheckLine::good(format!("munge: {accepted}")),
                None => CheckLine::unknown(format!("{NO_MUNGE}; {accepted}")),
            });
            let cluster = reading.cluster.as_deref().unwrap_or("(unknown)");
            let took = milliseconds(reading.elapsed);
            report
                .add(CheckLine::good(format!("slurmctld: cluster {cluster} answers in {took} ms")));
            if config.slurm.follow {
                report.add(follow(config).await);
            }
            Some(*reading)
        }
        Err(error) => {
            report.add_all(failure_lines(&error, kind, &conf, &munge));
            None
        }
    }
}

/// The line about the reader that has read, with the collectors that it cannot serve.
fn reader(kind: ReaderKind, reading: &Reading, config: &Config) -> CheckLine {
    if kind != ReaderKind::Native {
        return CheckLine::good(format!("libslurm: release {}", reading.release));
    }
    let text = format!("native reader: in the protocol of Slurm {}", reading.release);
    let lacking: Vec<&str> =
        config.collectors.survey_replies().iter().map(|kind| kind.name()).collect();
    match config.slurm.reader {
        _ if !lacking.is_empty() => CheckLine::wrong(
            format!("{text}; it cannot read {}", lacking.join(", ")),
            format!("{INSTALL_LIBSLURM} Or use [slurm] rest, or switch the collectors off."),
        ),
        ReaderChoice::Auto => CheckLine::unknown(format!(
            "{text}, because this host has no libslurm with a matching reader; it reads only the \
                statistics"
        )),
        _ => CheckLine::good(text),
    }
}

/// Checks for `[slurm] follow` that this host is one of SlurmctldHost. Returns the line about it.
async fn follow(config: &Config) -> CheckLine {
    let Some((ahead, _)) = ahead_of(read_once(config.slurm.clone(), Follow::request()).await)
    else {
        return CheckLine::unknown(
            "follow: the reader did not report which controller this host is",
        );
    };
    let name = |index: Option<u32>| ahead.hosts.get(usize::try_from(index?).ok()?);
    let Some(own) = name(ahead.own) else {
        return CheckLine::wrong(
            config.not_a_controller(&ahead.hosts).to_string(),
            "`scontrol show config | grep SlurmctldHost` and `hostname` show both.",
        );
    };
    CheckLine::good(match name(ahead.answers) {
        None => format!("follow: this host is {own}, and none before it in SlurmctldHost answers"),
        Some(other) => {
            format!(
                "follow: this host is {own}; {other} comes before it in SlurmctldHost, and answers"
            )
        }
    })
}

fn failure_lines(
    error: &SourceError,
    kind: ReaderKind,
    conf: &SlurmConf,
    munge: &Munge,
) -> Vec<CheckLine> {
    let wrong = |what: &str| CheckLine::wrong(format!("{what}: {error}"), error.advice());
    let not_asked = |why: &str| CheckLine::unknown(format!("slurmctld: not asked, because {why}"));
    match error.root() {
        SourceError::NoReader(NoReader::NoConf) => {
            vec![wrong("slurm.conf"), not_asked("there is no slurm.conf")]
        }
        SourceError::NoReader(_) => {
            vec![wrong("libslurm"), munge_alone(conf, munge), not_asked("there is no reader")]
        }
        _ if error.has_used_token() => vec![wrong("slurmctld")],
        // The native reader knows more causes of it.
        SourceError::Refused(failure, _)
            if failure.errno == errno::PROTOCOL_AUTHENTICATION_ERROR
                && kind != ReaderKind::Native =>
        {
            let credentials = match munge {
                Some(Ok(())) => CheckLine::wrong(
                    format!(
                        "munge: munged is running, but slurmctld rejects its credentials: {error}"
                    ),
                    "Do both hosts have the same munge.key and the same time? Is munged running on \
                     slurmctld's host? Try `munge -n | ssh CONTROLLER unmunge`.",
                ),
                Some(_) if conf.certain => munge_alone(conf, munge),
                _ => wrong("credentials"),
            };
            vec![credentials, not_asked("it answers only with valid credentials")]
        }
        _ => vec![munge_alone(conf, munge), wrong("slurmctld")],
    }
}

/// The line about munge when slurmctld has reported nothing of it.
fn munge_alone(conf: &SlurmConf, munge: &Munge) -> CheckLine {
    let socket = conf.munge.as_deref().unwrap_or(Path::new("")).display();
    match munge {
        None => CheckLine::unknown(NO_MUNGE),
        Some(Ok(())) => CheckLine::good(format!("munge: munged answers at {socket}")),
        Some(Err(error)) if error.kind() == ErrorKind::TimedOut => CheckLine::wrong(
            format!("munge: munged accepts connections at {socket}, but does not answer"),
            "Is it stopped or overloaded? Try `munge -n | unmunge`, then `systemctl restart munge`.",
        ),
        // Without a slurm.conf nobody knows where munged should be, or whether.
        Some(Err(error)) if !conf.certain => CheckLine::unknown(format!(
            "munge: nothing answers at {socket} ({error}); slurm.conf may name another socket"
        )),
        Some(Err(error)) if error.kind() == ErrorKind::PermissionDenied => CheckLine::wrong(
            format!("munge: {socket}: {error}"),
            enter_directory(selinux_enforces()),
        ),
        Some(Err(error)) => CheckLine::wrong(
            format!("munge: nothing answers at {socket}: {error}"),
            "Is munged running here? `systemctl status munge`; it needs the cluster's \
                /etc/munge/munge.key.",
        ),
    }
}

fn enter_directory(selinux_enforces: bool) -> &'static str {
    if selinux_enforces {
        "The daemon's user must be able to enter its directory: `chmod 755` for the directory. Or \
            SELinux, which is enforcing here, denies it: `ausearch -m avc -ts recent` says so."
    } else {
        "The daemon's user must be able to enter its directory: `chmod 755` for the directory."
    }
}

fn selinux_enforces() -> bool {
    std::fs::read_to_string("/sys/fs/selinux/enforce").is_ok_and(|text| text.trim() == "1")
}

/// Finds slurm.conf, and reports where it is. `None`: it cannot be read, or one was named that does
/// not exist.
async fn slurm_conf(config: &Config, report: &mut Report) -> Option<SlurmConf> {
    let (candidates, how) = match conf::named(config.slurm.conf.as_deref()) {
        Some((path, by)) => (vec![path], format!(" ({by} names it)")),
        None => (conf::USUAL.map(PathBuf::from).to_vec(), String::new()),
    };
    for path in candidates {
        match read_conf(&path).await {
            Ok(conf) => {
                report.add(CheckLine::good(format!("slurm.conf: {}{how}", path.display())));
                return Some(conf);
            }
            Err(error) if error.kind() == ErrorKind::NotFound && how.is_empty() => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let error = SourceError::NoConf(path);
                report.add(CheckLine::wrong(format!("slurm.conf: {error}"), error.advice()));
                return None;
            }
            Err(error) => {
                report.add(CheckLine::wrong(
                    format!("slurm.conf: {}: {error}{how}", path.display()),
                    "The user that the daemon runs as must be able to read it, and to search every \
                        parent directory (x).",
                ));
                return None;
            }
        }
    }
    Some(SlurmConf { is_absent: true, ..SlurmConf::from_munge(Err(String::new())) })
}

/// Returns the line about a host without slurm.conf in its usual places: only libslurm may find
/// one.
fn no_slurm_conf() -> CheckLine {
    CheckLine::unknown(format!(
        "slurm.conf: there is no {}; libslurm looks in its own place, then asks a configless \
            slurmctld (SLURM_CONF_SERVER, or DNS)",
        conf::USUAL.join(" or ")
    ))
}

/// Reads slurm.conf in a thread: the file may be on a file system that hangs.
async fn read_conf(path: &Path) -> Result<SlurmConf> {
    let (path, question) = (path.to_owned(), path.to_string_lossy());
    let work = move || open_regular_file(&path).map(|_| SlurmConf::from_munge(munge_socket(&path)));
    waiting_threads::ask("a slurm.conf", &question, PATIENCE, work).await?
}

impl SlurmConf {
    fn from_munge(munge: std::result::Result<Option<PathBuf>, String>) -> Self {
        let certain = munge.is_ok();
        let munge = munge.unwrap_or_else(|_| Some(MUNGE_SOCKET.into()));
        Self { certain, munge, is_absent: false }
    }
}

/// Asks munged whether it answers, as a Carbon is asked: it closes a connection that was
/// half-closed.
async fn ask_munge(socket: &Path) -> Result<()> {
    let ask = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.shutdown().await?;
        stream.read(&mut [0]).await.map(drop)
    };
    timeout(PATIENCE, ask).await?
}

/// Returns a time in µs as a number of ms with one decimal, cut off and without unit: 12,345 is
/// `12.3`.
pub(super) fn milliseconds(elapsed: u64) -> String {
    format!("{}.{}", elapsed / 1000, elapsed % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_munge_whose_directory_is_closed_is_not_called_stopped() {
        let munge = Some("/run/munge/socket".into());
        let conf = SlurmConf { munge, certain: true, is_absent: false };
        let line = munge_alone(&conf, &Some(Err(ErrorKind::PermissionDenied.into())));
        assert!(
            line.mark == crate::commands::Mark::Wrong && line.text.contains("/run/munge/socket"),
            "{}",
            line.text
        );
        let advice = line.advice.unwrap();
        assert!(advice.contains("chmod 755") && !advice.contains("systemctl"), "{advice}");
        assert!(enter_directory(true).contains("chmod 755"));
        assert!(
            enter_directory(true).contains("ausearch") && !enter_directory(false).contains("SE")
        );
    }

    #[test]
    fn milliseconds_have_a_tenth() {
        assert_eq!(
            [milliseconds(412), milliseconds(12_345), milliseconds(0)],
            ["0.4", "12.3", "0.0"]
        );
    }
}
