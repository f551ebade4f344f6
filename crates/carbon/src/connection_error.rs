//! The reasons why there is no connection to Carbon, in words for an administrator.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use carbon_wire::Protocol;

/// A reason why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The name has no address, or the resolver did not answer.
    #[error("looking up {0}: {reason}", reason = reason(.1))]
    Lookup(String, #[source] io::Error),
    /// No address of the name accepted the connection. The fields are the last address that was
    /// tried and its error.
    #[error("connecting to {0}: {1}")]
    Connect(SocketAddr, #[source] io::Error),
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer has shown no sign that it reads for `pause_timeout`, which is the field.
    #[error("no sign for {} s that the peer reads", .0.as_secs_f64())]
    Unread(Duration),
    /// Nothing on this connection was acknowledged for the time in the field, while another
    /// connection was: its network path is dead.
    #[error(
        "nothing on this connection was acknowledged for {} s, while another one was", .0.as_secs()
    )]
    DeadPath(Duration),
    /// The receiver's name has another IP address now.
    #[error("the name now has another address")]
    Moved,
    /// TLS was refused or has failed; the text says what to check.
    #[error("TLS: {0}")]
    Tls(String),
    /// The peer accepted the connection, and then was silent or closed it before TLS was agreed on;
    /// the text says what to check.
    #[error("TLS: {0}")]
    NoHandshake(String),
    /// The peer closed the connection without TLS's close_notify, which proves nothing.
    #[error("the peer closed the connection without TLS's close_notify")]
    Truncated,
    /// No second connection could be made for a long time, so this one was closed to make room for
    /// the next.
    #[error("no second connection could be made: {0}")]
    Alone(String),
    /// The peer sends and sends, which Carbon never does.
    #[error("what answers is not Carbon: it sends data")]
    NotCarbon,
    /// The peer closed the connection after it had sent something, which proves nothing.
    #[error("the peer sent data and closed the connection")]
    Talked,
    /// Another error of the socket.
    #[error(transparent)]
    Socket(#[from] io::Error),
}

impl ConnectionError {
    /// Advice where an administrator should look first. `None`: the usual reason is a restart of
    /// the receiver, or the error's own text says what to check.
    #[must_use]
    pub fn advice(&self, protocol: Protocol) -> Option<&'static str> {
        match self {
            error if error.is_lack() => Some(
                "This host has no file descriptor or no port left: see LimitNOFILE of the unit, \
                    and net.ipv4.ip_local_port_range.",
            ),
            Self::Lookup(..) => {
                Some("Does the name resolve on this host? Try `getent hosts` with it.")
            }
            Self::Connect(..) => Some(match protocol {
                Protocol::Pickle => {
                    "Is carbon-cache running, and is its PICKLE_RECEIVER_PORT open to this host?"
                }
                Protocol::Plaintext => {
                    "Is the receiver running, and is its port for plaintext (LINE_RECEIVER_PORT of \
                        carbon-cache) open to this host?"
                }
            }),
            Self::Unread(_) => {
                Some("Is carbon-cache stopped, or is its cache full (USE_FLOW_CONTROL)?")
            }
            Self::DeadPath(_) => Some(
                "Has this host's address changed, or does a firewall in between forget connections?",
            ),
            Self::Alone(_) => Some(
                "Let Carbon accept two connections from this host (MAX_RECEIVER_CONNECTIONS): the \
                    next is opened before the last is closed.",
            ),
            Self::NotCarbon | Self::Talked => {
                Some("Is this the address and the port of Carbon? Carbon never sends data.")
            }
            _ => None,
        }
    }
}

impl ConnectionError {
    /// Whether this host could not open a connection, because it lacks file descriptors, ports or
    /// memory. That says nothing about the other host.
    pub(crate) fn is_lack(&self) -> bool {
        let lacks = [
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOBUFS,
            libc::ENOMEM,
            libc::EADDRNOTAVAIL,
            libc::EAGAIN,
        ];
        matches!(self, Self::Connect(_, source) if source.raw_os_error().is_some_and(|code|
            lacks.contains(&code)))
    }
}

/// The text of a resolver's error, without its words "failed to lookup address information": the
/// log line says so itself.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.strip_prefix("failed to lookup address information: ").map_or(text.clone(), str::to_owned)
}

/// The result of an operation on a connection.
pub(crate) type Result<T = (), E = ConnectionError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver of plaintext was looked for at carbon-cache's PICKLE_RECEIVER_PORT.
    #[test]
    fn the_port_that_is_named_is_that_of_the_protocol() {
        let refused =
            ConnectionError::Connect(([127, 0, 0, 1], 1).into(), io::ErrorKind::TimedOut.into());
        for (protocol, own, other) in [
            (Protocol::Pickle, "PICKLE_RECEIVER_PORT", "LINE_RECEIVER_PORT"),
            (Protocol::Plaintext, "LINE_RECEIVER_PORT", "PICKLE_RECEIVER_PORT"),
        ] {
            let advice = refused.advice(protocol).unwrap();
            assert!(advice.contains(own) && !advice.contains(other), "{advice}");
        }
    }
}
