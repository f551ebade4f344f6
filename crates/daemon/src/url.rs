//! Where graphite-web is, as a flag names it. Pure.

use std::str::FromStr;

/// Where graphite-web is: `http://HOST[:PORT][/BELOW]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// What is connected to; port 80 where none is said.
    pub(crate) address: String,
    /// Without a slash at its end.
    pub(crate) below: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a URL such as http://graphite.example.org; only http is supported");
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let (host, below) = rest.split_once('/').unwrap_or((rest, ""));
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let address = if has_port { host.to_owned() } else { format!("{host}:80") };
        let odd = |c: char| c.is_whitespace() || c.is_control() || "?#@".contains(c);
        if address.parse::<carbon::Address>().is_err() || below.contains(odd) {
            return Err(wrong());
        }
        let below = below.trim_end_matches('/');
        let below = if below.is_empty() { String::new() } else { format!("/{below}") };
        Ok(Self { address, below })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_without_a_password_is_taken() {
        let url = |text: &str| text.parse::<Url>().map(|url| (url.address, url.below));
        let is = |address: &str, below: &str| Ok((address.to_owned(), below.to_owned()));
        assert_eq!(url("http://graphite.example.org"), is("graphite.example.org:80", ""));
        assert_eq!(
            url("http://graphite.example.org:8080/graphite/"),
            is("graphite.example.org:8080", "/graphite")
        );
        assert_eq!(url("http://[::1]"), is("[::1]:80", ""));
        assert_eq!(url("http://[::1]:8080"), is("[::1]:8080", ""));
        for text in ["https://a", "a", "http://", "http://u:p@a", "http://a:x", "http://a/b c", "http://a/?x"]
        {
            assert!(url(text).is_err_and(|error| error.contains("only http")), "{text}");
        }
    }
}
