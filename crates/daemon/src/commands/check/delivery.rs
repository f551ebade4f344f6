//! The queue's folder, and every Carbon: whether it accepts connections and reads from them.

use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use carbon::{Batch, Connection, ConnectionError, Destination, LastTried, MetricNames, Stream};
use rustix::fs::{OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use size::Size;
use tokio::time::timeout;

use super::{CheckLine, Report, title};
use crate::config::Config;
use crate::host::{name, user};
use crate::trust::check_own_folder;

/// The unit's StateDirectory, outside of which it may write nowhere.
const STATE: &str = "/var/lib/slurm-graphite";
/// Time that a Carbon gets to close a connection that it cannot read. After our own side has ended,
/// every close looks the same.
const REFUSAL: Duration = Duration::from_secs(1);

/// Checks every Carbon in turn, and adds a line about each.
pub(super) async fn check(config: &Config, canary: Option<&Batch>, report: &mut Report) {
    for to in &config.carbon {
        let line = carbon(to, canary, report).await;
        report.add(line);
    }
    if config.carbon.is_empty() {
        report.add(CheckLine::wrong(
            "carbon: no destination",
            "Give --carbon HOST:2004, or [[carbon]] with address = \"HOST:2004\" in the file.",
        ));
    }
}

#[cfg_attr(
    not(feature = "tls"),
    expect(unused_variables, reason = "only a TLS connection has lines of its own")
)]
async fn carbon(to: &Destination, canary: Option<&Batch>, report: &mut Report) -> CheckLine {
    let passed = match &to.tls {
        None => passes::<Connection>(to, canary, |_| {}).await,
        #[cfg(feature = "tls")]
        Some(_) => {
            let connected =
                |with: &carbon::TlsConnection| report.add_all(super::tls::connected(with, to));
            passes(to, canary, connected).await
        }
        #[cfg(not(feature = "tls"))]
        Some(never) => match *never {},
    };
    let error = match passed {
        // Nothing was sent to which it could object.
        Ok(()) if canary.is_none() && speaks_tls(to).await => return plain_to_tls(to),
        Ok(()) => return check_that_it_reads(to, canary),
        Err(error) => error,
    };
    let unusual = to.protocol.unusual_port(to.address.port);
    let unusual = unusual.map(|doubt| format!("Change the port or `protocol`: {doubt}."));
    let advice = match (&error, error.advice(to.protocol)) {
        (ConnectionError::Tls(_), _) if error.to_string().contains("(CA:TRUE)") => {
            "With a request of the server, server.csr: `openssl x509 -req -in server.csr -CA ca.pem \
                -CAkey ca.key -CAcreateserial -copy_extensions copy -out server.pem`; ca_file then \
                names ca.pem."
        }
        (ConnectionError::Tls(_) | ConnectionError::NoHandshake(_), _) => {
            "`openssl s_client -connect HOST:PORT` shows whether the port speaks TLS, and its \
                certificates."
        }
        (ConnectionError::Truncated, _) => {
            "Without close_notify its response proves nothing. If it is not a proxy \
                (carbon-c-relay sends none), set close_notify = false."
        }
        (
            ConnectionError::Unread(_)
            | ConnectionError::Lookup(..)
            | ConnectionError::Connect(..)
            | ConnectionError::Alone(_),
            Some(advice),
        ) => advice,
        _ if speaks_tls(to).await => return plain_to_tls(to),
        (_, Some(advice)) => advice,
        _ => unusual.as_deref().unwrap_or(
            "Is that the port of `protocol` (pickle 2004, plaintext 2003)? Is \
                MAX_RECEIVER_CONNECTIONS reached?",
        ),
    };
    let text = match &error {
        ConnectionError::Unread(_) => "accepts connections, but does not read".to_owned(),
        ConnectionError::Closed | ConnectionError::Socket(_) => {
            format!("accepts connections, but closes them at once: {error}")
        }
        error => error.to_string(),
    };
    CheckLine::wrong(format!("{}: {text}", title(to)), advice)
}

/// Returns the line about a Carbon that has read the canary, or, without a canary, about one that
/// reads.
fn check_that_it_reads(to: &Destination, canary: Option<&Batch>) -> CheckLine {
    let what =
        match canary.and_then(|canary| canary.points().next()).map(|point| point.path().to_owned())
        {
            None => "accepts connections and reads".to_owned(),
            Some(path) => {
                let name = match to.names {
                    MetricNames::Paths => path,
                    MetricNames::Tagged(tagged) => tagged(&path),
                };
                format!("accepted and read the test point, {name}")
            }
        };
    let text = format!("{}: {what}", title(to));
    match to.protocol.unusual_port(to.address.port) {
        Some(doubt) => CheckLine::unknown(format!(
            "{text}, but {doubt}; ask graphite-web whether the point was stored"
        )),
        None => CheckLine::good(text),
    }
}

fn plain_to_tls(to: &Destination) -> CheckLine {
    CheckLine::wrong(
        format!("{}: the port speaks TLS, and this destination does not", title(to)),
        "Set tls = true in its [[carbon]] table, with ca_file if its certificate is of an \
            authority of your own.",
    )
}

#[cfg(feature = "tls")]
async fn speaks_tls(to: &Destination) -> bool {
    to.tls.is_none() && carbon::speaks_tls(to).await
}

#[cfg(not(feature = "tls"))]
async fn speaks_tls(_: &Destination) -> bool {
    false
}

/// Connects to a Carbon, shows the connection to `connected`, and sends the canary if there is one.
/// Carbon has to read it within `connect_timeout` and a second.
async fn passes<C: Stream>(
    to: &Destination,
    canary: Option<&Batch>,
    connected: impl FnOnce(&C),
) -> Result<(), ConnectionError> {
    let connection = C::open(to, &LastTried::default()).await?;
    connected(&connection);
    let patience = to.timeouts.connect;
    let sent = timeout(patience + REFUSAL, send(connection, to, canary)).await;
    sent.unwrap_or(Err(ConnectionError::Unread(patience)))
}

/// Sends the canary, and waits for the proof that it was read: the receiver closes the connection
/// in answer to our half-close, while another connection to it stays open.
async fn send<C: Stream>(
    connection: C,
    to: &Destination,
    canary: Option<&Batch>,
) -> Result<(), ConnectionError> {
    // A point that was made here can be encoded.
    for frame in canary.and_then(|canary| carbon::frames(canary).ok()).into_iter().flatten() {
        connection.write(&frame.bytes(to.protocol, to.names).unwrap_or_default()).await?;
    }
    // A receiver keeps a connection whose bytes it understands.
    if let Ok(error) = timeout(REFUSAL, connection.wait_for_end()).await {
        return Err(error);
    }
    let alone = |error: ConnectionError| ConnectionError::Alone(error.to_string());
    let next = connection.open_again().await.map_err(alone)?;
    if let Ok(error) = timeout(REFUSAL / 10, next.wait_for_end()).await {
        return Err(alone(error));
    }
    connection.half_close()?;
    let end = connection.wait_for_end().await;
    if matches!(end, ConnectionError::Closed) && next.has_ended().is_none() {
        Ok(())
    } else {
        Err(end)
    }
}

/// Checks that the daemon can write to queue.dir, and that the disk has room for `max_bytes`.
/// Returns the line about it.
pub(super) fn queue(config: &Config) -> CheckLine {
    let Some(dir) = &config.queue.dir else {
        return CheckLine::unknown(
            "queue: in memory, because queue.dir is not set; unsent ticks are lost when the daemon \
                ends",
        );
    };
    let name = dir.display();
    let unit = unit(dir, config.file.as_deref());
    if !dir.exists() {
        let above = dir.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("/"));
        if rustix::fs::access(above, rustix::fs::Access::WRITE_OK).is_ok() {
            return CheckLine::good(format!(
                "queue: {name} does not exist yet; {} can create it{unit}",
                me()
            ));
        }
        return CheckLine::wrong(
            format!("queue: {name} does not exist, and this user cannot create it"),
            "Create it for the daemon's user; the unit's StateDirectory creates \
                /var/lib/slurm-graphite.",
        );
    }
    let writable = match try_or_look(dir) {
        Ok(writable) => writable,
        Err(error) => {
            return CheckLine::wrong(
                format!("queue: {name} cannot be written to: {error}"),
                make_writable(error.kind()),
            );
        }
    };
    let Ok(free) = free(dir) else {
        return CheckLine::good(format!(
            "queue: {name} {writable}; its free space is not known{unit}"
        ));
    };
    let most = config.queue.limits.max_bytes;
    let room = format!("{} free, max_bytes is {}", Size::from_bytes(free), Size::from_bytes(most));
    if free.saturating_add(taken(dir)) < most {
        return CheckLine::wrong(
            format!("queue: {name} has too little room: {room}"),
            "Lower queue.max_bytes or free some space: on a full disk the daemon keeps ticks in \
                memory only.",
        );
    }
    CheckLine::good(format!("queue: {name} {writable}; {room}{unit}"))
}

/// Tries to write to the queue's folder. Root only looks at it, if others could lead root to
/// another folder. Returns what a line says about it.
fn try_or_look(dir: &Path) -> Result<String, Error> {
    match check_own_folder(dir) {
        Ok(()) => try_writing(dir).map(|()| format!("is writable by {}", me())),
        Err(distrust) => look(dir).map(|owner| {
            format!(
                "was only looked at by root, because {distrust}; `sudo -u '{owner}' slurm-graphite \
                    check --connect` tries it"
            )
        }),
    }
}

fn me() -> &'static str {
    match rustix::process::geteuid().is_root() {
        true => "root (run this check as the daemon's user)",
        false => "this user",
    }
}

/// Advice about a folder that cannot be written to.
const fn make_writable(why: ErrorKind) -> &'static str {
    match why {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "Free some space there, or raise the quota: until then the daemon keeps ticks in \
                memory only."
        }
        ErrorKind::ReadOnlyFilesystem => {
            "Mount it for writing; after an error of the disk the kernel makes it read-only, and \
                `dmesg` says so. In the systemd unit, ReadWritePaths= must name it."
        }
        _ => {
            "It must belong to the daemon's user; run this check as that user, `sudo -u \
                slurm-graphite slurm-graphite check …`."
        }
    }
}

/// Says what the systemd unit needs in addition to write to the queue's folder, which this program,
/// not started by the unit, cannot try. `file` is the configuration, whose name is that of an
/// instance of the template unit.
fn unit(dir: &Path, file: Option<&Path>) -> String {
    let instance = file.and_then(Path::file_stem).map(|name| format!("{STATE}-{}", name.display()));
    if dir.starts_with(STATE) || instance.is_some_and(|state| dir.starts_with(state)) {
        return String::new();
    }
    format!("; the systemd unit needs ReadWritePaths={} in a drop-in", dir.display())
}

/// Tries to write to the queue's folder: writes a new file and removes it, and opens the files that
/// are there for writing, without a change.
fn try_writing(dir: &Path) -> Result<(), Error> {
    let path = dir.join(format!("check-{}", std::process::id()));
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(b"slurm-graphite check\n")?;
        file.sync_all()
    });
    // Where it could not be made there is nothing to remove.
    let _ = fs::remove_file(&path);
    written?;
    // A pipe in the place of a file would hang, and a link lead elsewhere.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let open = |file: PathBuf| {
        let opened = OpenOptions::new().write(true).custom_flags(flags).open(&file);
        match opened {
            // The daemon may have removed it since.
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Error::new(error.kind(), format!("{}: {error}", file.display())))
            }
            _ => Ok(()),
        }
    };
    files(dir).try_for_each(open)
}

/// Looks at the queue's folder without writing. Returns the user to whom it belongs, as sudo takes
/// the name, or an error if that user could not write there.
fn look(dir: &Path) -> Result<String, Error> {
    let folder = dir.metadata()?;
    let owner = user(folder.uid());
    if rustix::fs::statvfs(dir)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Err(Errno::ROFS.into());
    }
    if folder.mode() & 0o300 != 0o300 {
        return Err(Error::other(format!("its owner, {owner}, may not write there")));
    }
    let is_anothers =
        |file: &PathBuf| file.symlink_metadata().is_ok_and(|file| file.uid() != folder.uid());
    match files(dir).find(is_anothers) {
        None => Ok(name(folder.uid()).unwrap_or_else(|| format!("#{}", folder.uid()))),
        Some(file) => {
            let why = format!("{} does not belong to its owner, {owner}", file.display());
            Err(Error::other(why))
        }
    }
}

/// Returns the free bytes of the folder's disk that an ordinary user may take.
fn free(dir: &Path) -> Result<u64, Error> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns the queue's files in its folder, in which others may have files too.
fn files(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_queues = |entry: &DirEntry| {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        is_file && entry.file_name().as_encoded_bytes().starts_with(b"queue")
    };
    entries.filter(is_queues).map(|entry| entry.path())
}

/// Returns the bytes of the queue's files.
fn taken(dir: &Path) -> u64 {
    files(dir).filter_map(|path| path.symlink_metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_the_unit_protects_is_said() {
        let advice =
            |dir: &str| unit(Path::new(dir), Some(Path::new("/etc/slurm-graphite/beta.toml")));
        assert_eq!(advice("/var/lib/slurm-graphite/queue"), "");
        assert_eq!(advice("/var/lib/slurm-graphite-beta"), "");
        for other in ["/var/lib/slurm-graphite2", "/var/lib/slurm-graphite-alpha"] {
            assert!(advice(other).contains(&format!("ReadWritePaths={other}")));
        }
    }

    /// They were the queue's, so they made room for it, and one that may not be written to was said
    /// to be in its way.
    #[test]
    fn the_files_of_others_in_the_folder_are_not_the_queues() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["queue-00000000000000000007.log", "queue.reserve", "backup.tar", "old-queue"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        assert_eq!(taken(dir.path()), 30 + 13);
    }
}
