//! The address of a Carbon, as written in the configuration.

use std::fmt;
use std::str::FromStr;

/// `HOST:PORT`, where the host may be a name, an IPv4 address or an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    pub(crate) host: String,
    /// The TCP port, never zero.
    pub port: u16,
}

/// A text that is not an [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text does not have the form `HOST:PORT`.
    #[error("{0:?} is not HOST:PORT, such as carbon.example.org:2004 or [::1]:2004")]
    Form(String),
    /// The port is a number, but not one from 1 to 65535.
    #[error("{0:?}: a port is a number from 1 to 65535; Carbon's are usually 2004 and 2003")]
    Port(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError::Form(text.to_owned());
        let (host, digits) = text.rsplit_once(':').ok_or_else(error)?;
        let port = digits.parse().ok().filter(|&port| port != 0);
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || "/[]@:".contains(c);
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) if host.parse::<std::net::Ipv6Addr>().is_ok() => host,
            None if !host.is_empty() && !host.contains(is_odd) => host,
            _ => return Err(error()),
        };
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.ok_or_else(|| match is_number {
            true => AddressError::Port(text.to_owned()),
            false => error(),
        })?;
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_host_and_port() {
        for text in ["carbon.example.org:2004", "127.0.0.1:2004", "[::1]:2004"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "carbon",
            ":2004",
            "carbon:",
            "carbon:0",
            "carbon:70000",
            "::1:2004",
            "[::1:2004",
            "[x]:1",
            "a b:1",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        // "is not HOST:PORT", although it is.
        for (text, is_a_port) in [("carbon:70000", true), ("carbon:0", true), ("carbon:x", false)] {
            let said = text.parse::<Address>().unwrap_err().to_string();
            assert_eq!(said.contains("1 to 65535"), is_a_port, "{said}");
        }
    }
}
