//! TLS to a destination: its settings, and the contents of the files that they name. A file that
//! changes is read again before the next connection. If it cannot be used, the last good files stay
//! in use.
//!
//! This module knows nothing of ticks. Files are read by a thread of their own, because their file
//! system may hang.

pub(crate) mod certificate;
pub(crate) mod explain;
mod probe;

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::RootCertStore;
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tracing::{info, warn};

pub use self::certificate::{Certificate, certificates};
pub(crate) use self::probe::speaks_tls;
use crate::address::Address;
use crate::connection_error::{ConnectionError, Result};

/// Sessions that can be resumed. A server offers two or more for each connection.
const SESSIONS: usize = 8;

/// The TLS settings of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The trusted certificate authorities; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// The files of the client's certificate chain and of its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must have; `None`: the host of the address.
    pub server_name: Option<String>,
    /// Whether only TLS's close_notify counts as an answer, and the end of the TCP connection alone
    /// does not.
    pub close_notify: bool,
}

/// TLS with these settings. Clones share the contents of the files.
#[derive(Clone)]
pub struct Tls(Arc<SharedTls>);

struct SharedTls {
    settings: TlsSettings,
    /// The owner, for waiting-threads, of the thread that reads the files. It names the server's
    /// address.
    owner: String,
    name: ServerName<'static>,
    files: Mutex<Files>,
    /// Whether a handshake has failed since the files were read: they are read again even if they
    /// look unchanged.
    is_doubted: AtomicBool,
}

/// The contents of the files.
#[derive(Default)]
struct Files {
    client: Option<Arc<ClientConfig>>,
    /// Each file as it was when it was last read.
    seen: Vec<Option<Stamp>>,
}

/// Inode, size, and when the contents or permissions changed: a file that has changed differs in
/// one of them.
type Stamp = (u64, u64, i64, i64);

impl Tls {
    /// Makes the TLS to `address`. No file is read yet.
    ///
    /// # Errors
    /// No certificate can have this name.
    pub fn new(settings: TlsSettings, address: &Address) -> Result<Self, TlsNameError> {
        let name = settings.server_name.as_ref().unwrap_or(&address.host);
        let name = ServerName::try_from(name.clone()).map_err(|_| TlsNameError(name.clone()))?;
        Ok(Self(Arc::new(SharedTls {
            settings,
            owner: format!("TLS files for {address}"),
            name,
            files: Mutex::default(),
            is_doubted: AtomicBool::default(),
        })))
    }

    /// The settings that were given to [`Tls::new`].
    #[must_use]
    pub fn settings(&self) -> &TlsSettings {
        &self.0.settings
    }

    /// Checks that the client's certificate and key can be used, if they are configured.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn check_identity(&self) -> Result<(), String> {
        self.0.settings.client(RootCertStore::empty()).map(drop)
    }

    /// The name that the receiver's certificate must have.
    pub(crate) fn name(&self) -> ServerName<'static> {
        self.0.name.clone()
    }

    /// Returns rustls's settings for the next connection. Files that have changed are read again,
    /// within the time `patience`.
    pub(crate) async fn client(&self, patience: Duration) -> Result<Arc<ClientConfig>> {
        let shared = Arc::clone(&self.0);
        let work = move || shared.read_files();
        let read = waiting_threads::ask(&self.0.owner, &format!("{self:?}"), patience, work).await;
        let hangs = |error| format!("reading its files: {error}; does their file system hang?");
        read.map_err(hangs).flatten().map_err(ConnectionError::Tls)
    }

    /// Notes that a handshake failed: something may have changed without any file looking
    /// different, so the files are read again.
    pub(crate) fn doubt(&self) {
        self.0.is_doubted.store(true, Ordering::Relaxed);
    }
}

impl SharedTls {
    fn read_files(&self) -> Result<Arc<ClientConfig>, String> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let seen: Vec<_> = self.settings.files().map(stamp).collect();
        let is_new = files.seen != seen;
        let is_doubted = self.is_doubted.load(Ordering::Relaxed);
        if let (Some(client), false, false) = (&files.client, is_new, is_doubted) {
            return Ok(Arc::clone(client));
        }
        // Recorded before the files are read, so that a change in the meantime is noticed.
        files.seen = seen;
        let loaded = self.settings.roots().and_then(|roots| self.settings.client(roots));
        match (loaded, &files.client) {
            (Ok(client), last) => {
                if is_new && last.is_some() {
                    info!(server = %self.name.to_str(), "TLS: the files have changed, and are in \
                        use");
                }
                let client = Arc::new(client);
                files.client = Some(Arc::clone(&client));
                self.is_doubted.store(false, Ordering::Relaxed);
                Ok(client)
            }
            (Err(error), None) => Err(error),
            (Err(error), Some(last)) => {
                if is_new {
                    warn!(%error, "TLS: the files have changed, and cannot be used; the last good \
                        ones stay in use");
                }
                Ok(Arc::clone(last))
            }
        }
    }
}

impl TlsSettings {
    fn files(&self) -> impl Iterator<Item = &Path> {
        let identity = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.ca_file.iter().chain(identity).map(PathBuf::as_path)
    }

    fn client(&self, roots: RootCertStore) -> Result<ClientConfig, String> {
        let builder = builder(roots)?;
        let mut client = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = read_certificates(certificate)?;
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
                    pem::Error::NoItemsFound => {
                        format!("{}: it has no private key without a password", key.display())
                    }
                    other => in_file(key, &other),
                })?;
                builder.with_client_auth_cert(chain, private).map_err(|error| {
                    format!("{} and {}: {error}", certificate.display(), key.display())
                })?
            }
        };
        client.resumption = Resumption::in_memory_sessions(SESSIONS);
        Ok(client)
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = &self.ca_file {
            for certificate in read_certificates(path)? {
                roots.add(certificate).map_err(|error| in_file(path, &error))?;
            }
        } else {
            // Some systems have certificates that nobody can read.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(
                    "this host has no certificate authorities; name the file of one with ca_file"
                        .into(),
                );
            }
        }
        Ok(roots)
    }
}

type Builder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

fn builder(roots: RootCertStore) -> Result<Builder, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots))
}

/// Reads every certificate in a PEM file.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|error| in_file(path, &error))?;
    if found.is_empty() { Err(in_file(path, &"no certificate is in it")) } else { Ok(found) }
}

fn in_file(path: &Path, error: &dyn fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

#[expect(clippy::disallowed_methods, reason = "a thread calls it")]
fn stamp(path: &Path) -> Option<Stamp> {
    let found = path.metadata().ok()?;
    Some((found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}

/// A name that no certificate can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name that a certificate can have; write a host's name or IP address")]
pub struct TlsNameError(String);

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.0.settings == other.0.settings && self.0.name == other.0.name
    }
}

impl Eq for Tls {}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.0.settings).finish()
    }
}
