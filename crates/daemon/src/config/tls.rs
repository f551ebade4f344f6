//! A destination's keys for TLS, and whether they fit together.

use std::path::PathBuf;

use carbon::{Address, Tls};

use super::section::Section;
use super::value::{path, text};

/// Reads a destination's keys for TLS. `None`: TLS is off, or cannot be used as it is configured.
pub(super) fn read_tls(carbon: &mut Section<'_, '_>, address: Option<&Address>) -> Option<Tls> {
    let mut tls = false;
    let mut close_notify = true;
    let mut server_name = None;
    let [mut ca_file, mut cert_file, mut key_file]: [Option<PathBuf>; 3] = Default::default();
    carbon.set_flag("tls", &mut tls);
    carbon.set_some("ca_file", path, &mut ca_file);
    carbon.set_some("cert_file", path, &mut cert_file);
    carbon.set_some("key_file", path, &mut key_file);
    carbon.set_some("server_name", text, &mut server_name);
    carbon.set_flag("close_notify", &mut close_notify);
    let has_cert = cert_file.is_some();
    let has_key = key_file.is_some();
    let no_tls = "needs tls = true";
    for (is_wrong, key, text) in [
        (!tls && ca_file.is_some(), "ca_file", no_tls),
        (!tls && has_cert, "cert_file", no_tls),
        (!tls && has_key, "key_file", no_tls),
        (!tls && server_name.is_some(), "server_name", no_tls),
        (!tls && !close_notify, "close_notify", no_tls),
        (tls && has_cert && !has_key, "key_file", "is missing: cert_file needs its private key"),
        (
            tls && has_key && !has_cert,
            "cert_file",
            "is missing: key_file is the key of a certificate",
        ),
        (tls && cfg!(not(feature = "tls")), "tls", "this program was built without TLS"),
    ] {
        if is_wrong {
            carbon.problem(key, text.to_owned());
        }
    }
    let address = address.filter(|_| tls)?;
    #[cfg(feature = "tls")]
    {
        let key = if server_name.is_some() { "server_name" } else { "address" };
        let identity = cert_file.zip(key_file);
        let settings = carbon::TlsSettings { ca_file, identity, server_name, close_notify };
        Tls::new(settings, address).map_err(|error| carbon.problem(key, error.to_string())).ok()
    }
    #[cfg(not(feature = "tls"))]
    {
        let _ = address;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Flags};

    fn problems(text: &str) -> String {
        let text = format!("[[carbon]]\naddress = \"carbon.example.org:2014\"\n{text}\n");
        Config::parse(&text, &Flags::default())
            .map_or_else(|problems| problems.to_string(), |_| String::new())
    }

    #[cfg(feature = "tls")]
    #[test]
    fn what_does_not_fit_tls_is_refused_with_the_key() {
        for (text, expected) in [
            ("tls = true", ""),
            (
                "tls = true\nca_file = \"/c\"\ncert_file = \"/c\"\nkey_file = \"/k\"\nserver_name \
                    = \"h\"",
                "",
            ),
            ("tls = true\nserver_name = \"127.0.0.1\"\nclose_notify = false", ""),
            ("tls = \"yes\"", "carbon.tls: expected true or false, found a string"),
            ("tls = true\nca_file = \"c\"", "carbon.ca_file: \"c\" is not an absolute path"),
            ("tls = true\ncert_file = \"/c\"", "carbon.key_file: is missing"),
            ("tls = true\nkey_file = \"/c\"", "carbon.cert_file: is missing"),
            ("tls = true\nserver_name = \"a b\"", "carbon.server_name: \"a b\" is not a name"),
            ("ca_file = \"/c\"", "carbon.ca_file: needs tls = true"),
            ("tls = false\nclose_notify = false", "carbon.close_notify: needs tls = true"),
        ] {
            let found = problems(text);
            assert_eq!(found.is_empty(), expected.is_empty(), "{text}: {found}");
            assert!(found.contains(expected), "{text}: {found}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn without_the_feature_tls_is_refused_and_nothing_else_is() {
        assert!(problems("tls = true").contains("built without TLS"));
        assert_eq!(problems("tls = false"), "");
    }
}
