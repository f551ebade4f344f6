//! The address of slurmrestd: `https://host:6820`, `http://host:6820` or `unix:/path`.
//!
//! It is in this crate because the daemon and the reader apply the same rules to the setting.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// slurmrestd's default port.
const PORT: u16 = 6820;

/// The address of slurmrestd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Path of a Unix socket, over which the kernel tells slurmrestd which user asks.
    Unix(PathBuf),
    /// A host and a port.
    Tcp {
        /// Name or address of the host, without brackets.
        host: String,
        /// The port; 6820 if the address has none.
        port: u16,
        /// Whether the address begins with `https`.
        tls: bool,
        /// The path before `/slurm`, for a proxy. It is empty, or starts with a slash and does not
        /// end with one.
        path: String,
    },
}

/// A text that is not an address of slurmrestd.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an address such as \"https://host:6820\", \"http://localhost:6820\" or \
        \"unix:/run/slurmrestd/sock\": {why}"
)]
pub struct EndpointError {
    text: String,
    why: &'static str,
}

impl Endpoint {
    /// Whether traffic to this address leaves this host unencrypted.
    pub fn is_exposed(&self) -> bool {
        matches!(self, Self::Tcp { host, tls: false, .. } if !is_loopback(host))
    }

    /// Whether traffic to this address is encrypted by TLS.
    pub const fn is_tls(&self) -> bool {
        matches!(self, Self::Tcp { tls: true, .. })
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port, tls, path } => {
                let scheme = if *tls { "https" } else { "http" };
                if host.contains(':') {
                    write!(f, "{scheme}://[{host}]:{port}{path}")
                } else {
                    write!(f, "{scheme}://{host}:{port}{path}")
                }
            }
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let error = |why| EndpointError { text: text.to_owned(), why };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path.starts_with('/') {
                true => Ok(Self::Unix(path.into())),
                false => Err(error("the socket's path is not absolute")),
            };
        }
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(error("it does not begin with https://, http:// or unix:")),
        };
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) || rest.contains(['?', '#', '@', '\\'])
        {
            return Err(error("only a host, a port and a path are allowed"));
        }
        let (authority, path) =
            rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(|| error("a ] is missing"))?;
                host.parse::<std::net::Ipv6Addr>()
                    .map_err(|_| error("the text in [] is not an IPv6 address"))?;
                (host, port.strip_prefix(':').or(if port.is_empty() { None } else { Some("") }))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(error("the host is missing"));
        }
        let port = match port {
            None => PORT,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 && !text.contains(":+") => port,
                _ => return Err(error("the port is not a number from 1 to 65535")),
            },
        };
        Ok(Self::Tcp { host: host.to_owned(), port, tls, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_round_trip() {
        for (text, whole) in [
            ("https://rest.example.org", "https://rest.example.org:6820"),
            ("http://127.0.0.1:80/", "http://127.0.0.1:80"),
            ("https://[::1]:7000/proxy/slurm1/", "https://[::1]:7000/proxy/slurm1"),
            ("https://[::1]", "https://[::1]:6820"),
            ("unix:/run/sock", "unix:/run/sock"),
            ("unix:///run/sock", "unix:/run/sock"),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), whole);
            assert_eq!(whole.parse(), Ok(endpoint));
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_a_reason() {
        for text in [
            "",
            "host:6820",
            "ftp://host",
            "unix:sock",
            "http://",
            "http://:80",
            "http://host:0",
            "http://host:65536",
            "http://host:+80",
            "http://[::1",
            "http://[::1]80",
            "http://[host]:80",
            "http://user@host",
            "http://host/a?b",
            "http://ho st",
            "http://host\r\nX-Evil: 1",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_what_leaves_this_host_in_the_clear_is_exposed() {
        for (text, exposed) in [
            ("http://localhost", false),
            ("http://127.1.2.3", false),
            ("http://[::1]:80", false),
            ("unix:/sock", false),
            ("https://rest.example.org", false),
            ("http://rest.example.org", true),
            ("http://localhost.example.org", true),
            ("http://192.0.2.1", true),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().is_exposed(), exposed, "{text}");
        }
    }
}
