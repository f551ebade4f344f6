//! Explains why there is no TLS connection, by the settings that can change it.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError, Error};

use super::Tls;
use crate::connection_error::ConnectionError;
use crate::duration::in_words;

/// Explains an error after the handshake. A server that asks for a renegotiation of TLS 1.2 and is
/// refused sends what it sends for a missing certificate.
pub(crate) fn later_error(later: &Error, tls: &Tls) -> ConnectionError {
    match later {
        Error::AlertReceived(alert @ AlertDescription::HandshakeFailure) => {
            ConnectionError::Tls(format!(
                "the server has ended a connection that worked ({alert:?}), as it does if it asks \
                 for a renegotiation, which is not supported; switch it off there, or use TLS 1.3"
            ))
        }
        other => error(other, tls),
    }
}

/// Explains an error of rustls.
pub(crate) fn error(error: &Error, tls: &Tls) -> ConnectionError {
    ConnectionError::Tls(match error {
        Error::InvalidCertificate(error) => certificate(error, tls),
        Error::AlertReceived(alert) => refusal(*alert, tls),
        Error::InvalidMessage(_) => {
            format!("what answers does not speak TLS as it should ({error}); is it a plain port?")
        }
        other => other.to_string(),
    })
}

/// Explains why the connection ended before the handshake was complete.
pub(crate) fn handshake(error: ConnectionError, peer: SocketAddr) -> ConnectionError {
    let is_closed = match &error {
        ConnectionError::Closed => true,
        ConnectionError::Socket(error) => {
            matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::Other
            )
        }
        _ => false,
    };
    if is_closed {
        let text =
            format!("{peer} closed the connection before TLS was agreed on; is it a plain port?");
        return ConnectionError::NoHandshake(text);
    }
    error
}

pub(crate) fn silence(peer: SocketAddr, patience: Duration) -> ConnectionError {
    let seconds = patience.as_secs_f64();
    ConnectionError::NoHandshake(format!(
        "{peer} took the connection, and did not answer TLS's hello within {seconds} s; is it a \
            plain port?"
    ))
}

fn certificate(error: &CertificateError, tls: &Tls) -> String {
    let text = match error {
        // A different authority with the same name leads to a bad signature.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => match &tls
            .settings()
            .ca_file
        {
            Some(file) => format!(
                "is not signed by an authority of ca_file ({}), or the server does not send a \
                    certificate in between",
                file.display()
            ),
            None => "is not signed by an authority that this host trusts, or the server does not \
                     send a certificate in between; an authority of your own is named with ca_file"
                .to_owned(),
        },
        CertificateError::ExpiredContext { time, not_after } => {
            let since = time.as_secs().saturating_sub(not_after.as_secs());
            format!("expired {} ago", in_words(Duration::from_secs(since)))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            let until = not_before.as_secs().saturating_sub(time.as_secs());
            format!(
                "is not valid for another {}; is a clock wrong?",
                in_words(Duration::from_secs(until))
            )
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let name = expected.to_str();
            format!(
                "is for {} and not for {name}; server_name says which is expected",
                names(presented)
            )
        }
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "is that of an authority (CA:TRUE), which no server may use; make one for the server, \
                signed by it"
                .to_owned()
        }
        other => format!("cannot be accepted: {other}"),
    };
    format!("the server's certificate {text}")
}

/// The names in a certificate, as text. rustls gives them as `DnsName("carbon.example.org")`.
fn names(presented: &[String]) -> String {
    let name = |text: &String| text.split('"').nth(1).map_or_else(|| text.clone(), str::to_owned);
    match presented {
        [] => "no name".to_owned(),
        names => names.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

/// The meaning of a server's alert. OpenSSL sends "handshake failure" if a certificate is missing
/// in TLS 1.2.
fn refusal(alert: AlertDescription, tls: &Tls) -> String {
    use AlertDescription as Alert;
    match (alert, &tls.settings().identity) {
        (Alert::CertificateRequired | Alert::NoCertificate, None) => {
            format!(
                "the server refuses a client without a certificate ({alert:?}); set cert_file and \
                    key_file"
            )
        }
        (Alert::HandshakeFailure, None) => format!(
            "the server refuses the connection ({alert:?}), probably because it needs a client \
                certificate; set cert_file and key_file"
        ),
        (Alert::AccessDenied | Alert::DecryptError, Some((file, _))) => format!(
            "the server refuses the connection ({alert:?}), probably because of the certificate of \
                cert_file ({})",
            file.display()
        ),
        (
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::UnknownCA,
            Some((file, _)),
        ) => format!(
            "the server refuses the certificate of cert_file ({}): {alert:?}",
            file.display()
        ),
        _ => format!("the server refuses the connection: {alert:?}"),
    }
}
