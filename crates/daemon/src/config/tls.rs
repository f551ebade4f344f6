//! A destination's keys for TLS, and whether they fit together.

use std::path::PathBuf;

use carbon::{Address, Tls};

use super::section::Section;
use super::value::{path, text};

#[derive(Default)]
struct Keys {
    tls: bool,
    ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    server_name: Option<String>,
    close_notify: bool,
}

/// TLS to `address`, where the destination has it.
pub(super) fn read(carbon: &mut Section<'_, '_>, address: Option<&Address>) -> Option<Tls> {
    let mut keys = Keys { close_notify: true, ..Keys::default() };
    carbon.set_flag("tls", &mut keys.tls);
    carbon.set_some("ca_file", path, &mut keys.ca_file);
    carbon.set_some("cert_file", path, &mut keys.cert_file);
    carbon.set_some("key_file", path, &mut keys.key_file);
    carbon.set_some("server_name", text, &mut keys.server_name);
    carbon.set_flag("close_notify", &mut keys.close_notify);
    if !keys.tls {
        let names = [
            ("ca_file", keys.ca_file.is_some()),
            ("cert_file", keys.cert_file.is_some()),
            ("key_file", keys.key_file.is_some()),
            ("server_name", keys.server_name.is_some()),
            ("close_notify", !keys.close_notify),
        ];
        for (name, _) in names.into_iter().filter(|(_, is_there)| *is_there) {
            carbon.problem(name, "needs tls = true".to_owned());
        }
        return None;
    }
    keys.check(carbon, address?)
}

impl Keys {
    #[cfg(feature = "tls")]
    fn check(self, carbon: &mut Section<'_, '_>, address: &Address) -> Option<Tls> {
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => {
                carbon.problem("key_file", "is missing: cert_file needs its private key".to_owned());
            }
            (None, Some(_)) => {
                carbon.problem("cert_file", "is missing: key_file is the key of a certificate".to_owned());
            }
            _ => {}
        }
        let key = if self.server_name.is_some() { "server_name" } else { "address" };
        let settings = carbon::TlsSettings {
            ca_file: self.ca_file,
            identity: self.cert_file.zip(self.key_file),
            server_name: self.server_name,
            close_notify: self.close_notify,
        };
        Tls::new(settings, address).map_err(|error| carbon.problem(key, error.to_string())).ok()
    }

    #[cfg(not(feature = "tls"))]
    fn check(self, carbon: &mut Section<'_, '_>, _: &Address) -> Option<Tls> {
        carbon.problem("tls", "this program was built without TLS".to_owned());
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
            ("tls = true\nca_file = \"/c\"\ncert_file = \"/c\"\nkey_file = \"/k\"\nserver_name = \"h\"", ""),
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
