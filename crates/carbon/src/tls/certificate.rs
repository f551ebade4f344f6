//! What a certificate says of itself: whose it is, and until when.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use x509_cert::der::Decode as _;

use super::read_certificates;

/// A certificate, as far as a person wants to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Such as `CN=carbon.example.org`; empty where it has only alternative names.
    pub subject: String,
    /// When it ends, Unix seconds.
    pub expires: u64,
}

/// Every certificate of a file in PEM.
///
/// # Errors
/// It cannot be read, or has none.
pub fn certificates(path: &Path) -> Result<Vec<Certificate>, String> {
    Ok(read_certificates(path)?.iter().filter_map(parse).collect())
}

/// `None`: rustls reads it, and the parser does not.
pub(crate) fn parse(der: &CertificateDer<'_>) -> Option<Certificate> {
    let certificate = x509_cert::Certificate::from_der(der).ok()?;
    let certificate = certificate.tbs_certificate();
    let expires = certificate.validity().not_after.to_unix_duration().as_secs();
    Some(Certificate { subject: certificate.subject().to_string(), expires })
}
