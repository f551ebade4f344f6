//! TLS: rustls with ring; the system's certificate authorities, or those of one file.

use std::path::Path;
use std::sync::Arc;

use slurm_snapshot::Stage;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore};

use crate::problem::RestProblem;

/// The certificate authorities that are trusted. Reading all of a system's takes milliseconds.
pub(crate) type Trust = TlsConnector;

/// Reads the certificate authorities that are trusted: the system's, or those of a file.
pub(crate) fn trust(ca_file: Option<&Path>) -> Result<Trust, RestProblem> {
    let problem = |text: String| RestProblem::new(Stage::Tls, text);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| problem(error.to_string()))?
        .with_root_certificates(roots(ca_file).map_err(problem)?)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Opens TLS to `host` over the stream.
pub(crate) async fn connect(
    trust: &Trust,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, RestProblem> {
    let problem = |text: String| RestProblem::new(Stage::Tls, text);
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| problem(format!("{host}: {error}")))?;
    trust.connect(name, stream).await.map_err(|error| {
        let tls = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
        problem(tls.map_or_else(|| explain_end(&error), |error| explain(error, host)))
    })
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        let error = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        for certificate in CertificateDer::pem_file_iter(path).map_err(|why| error(&why))? {
            roots.add(certificate.map_err(|why| error(&why))?).map_err(|why| error(&why))?;
        }
        if roots.is_empty() {
            return Err(error(&"it has no certificate"));
        }
    } else {
        // Some systems have certificates that nobody can read.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("this host has no trusted certificate authorities; set ca_file".to_owned());
        }
    }
    Ok(roots)
}

fn explain_end(error: &std::io::Error) -> String {
    format!("the connection ended before TLS was agreed on ({}); is it a plain port?", error.kind())
}

/// Explains the error in our words: nothing that the peer's certificate names is repeated.
fn explain(error: &Error, host: &str) -> String {
    let certificate = match error {
        Error::InvalidCertificate(error) => error,
        Error::AlertReceived(alert) => {
            return format!(
                "the server ends TLS with the alert {alert:?}; one that needs a client's \
                    certificate cannot be used"
            );
        }
        Error::InvalidMessage(_) => {
            return "what answers does not speak TLS; is it a plain port?".to_owned();
        }
        Error::PeerIncompatible(_) => {
            return "the server offers neither TLS 1.2 with ECDHE nor TLS 1.3".to_owned();
        }
        _ => return "TLS failed".to_owned(),
    };
    let text = match certificate {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "is not signed by an authority that this host or ca_file trusts, or the server does \
                not send a certificate in between"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired; or is this host's clock wrong?"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet; or is this host's clock wrong?"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            return format!("the server's certificate is not for {host}, the name in [slurm] rest");
        }
        CertificateError::Revoked => "was revoked",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for a server"
        }
        CertificateError::Other(_) => "cannot be used; is it that of an authority (CA:TRUE)?",
        _ => "cannot be accepted",
    };
    format!("the server's certificate {text}")
}
