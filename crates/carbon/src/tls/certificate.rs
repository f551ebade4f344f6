//! The subject of a certificate, and when it expires.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use x509_cert::der::Decode as _;

use super::read_certificates;

/// The facts about a certificate that a person needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The subject's name, as `CN=carbon.example.org`; empty if it has only alternative names.
    pub subject: String,
    /// Moment at which it expires, Unix seconds.
    pub expires: u64,
}

/// Every certificate in a PEM file.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub fn certificates(path: &Path) -> Result<Vec<Certificate>, String> {
    Ok(read_certificates(path)?.iter().filter_map(parse).collect())
}

/// Reads the facts of a certificate; `None`: rustls can read it, but this parser cannot.
pub(crate) fn parse(der: &CertificateDer<'_>) -> Option<Certificate> {
    let certificate = x509_cert::Certificate::from_der(der).ok()?;
    let certificate = certificate.tbs_certificate();
    let expires = certificate.validity().not_after.to_unix_duration().as_secs();
    Some(Certificate { subject: certificate.subject().to_string(), expires })
}
