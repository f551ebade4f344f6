//! Finds the file with the rules of the Carbon that a destination names.
//!
//! It can be read if Carbon is on this host, or if a copy of its folder is named. A file on this
//! host says nothing about a Carbon elsewhere, nor about another Carbon here. So the ports in
//! carbon.conf must be those of the destination.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carbon::{Destination, Protocol};
use tokio::time::timeout;

use super::ini::{IniSection, caches};
use super::read_text;
use crate::config::Config;

/// Usual folders of Carbon's configuration: Debian's, and everybody else's.
const USUAL: [&str; 2] = ["/etc/carbon", "/opt/graphite/conf"];

/// The file with Carbon's storage schemas, next to which its other rules are.
pub(super) struct CarbonConf {
    pub(super) schemas: PathBuf,
    /// Whether Carbon itself reads that folder, so that a missing file is missing for Carbon too.
    pub(super) is_carbons: bool,
}

/// Finds Carbon's rules: in `named`, or in the usual place of a destination's Carbon on this host.
/// An error says why that is not known. `None`: Carbon is on another host.
pub(super) async fn find(
    config: &Config,
    named: Option<&Path>,
) -> Result<Option<CarbonConf>, String> {
    if let Some(file) = named {
        return Ok(Some(CarbonConf { schemas: file.to_owned(), is_carbons: false }));
    }
    if config.carbon.is_empty() {
        return Err("there is no destination".to_owned());
    }
    let mut others = None;
    for to in &config.carbon {
        if !is_on_this_host(to).await {
            continue;
        }
        for folder in USUAL.map(Path::new) {
            let Ok(text) = read_text(&folder.join("carbon.conf")) else { continue };
            if ports(&text, to.protocol).contains(&to.address.port) {
                return Ok(Some(CarbonConf {
                    schemas: folder.join("storage-schemas.conf"),
                    is_carbons: true,
                }));
            }
            let folder = folder.display();
            let port = to.address.port;
            let (protocol, other) = match to.protocol {
                Protocol::Pickle => ("pickle", Protocol::Plaintext),
                Protocol::Plaintext => ("plaintext", Protocol::Pickle),
            };
            others = Some(match ports(&text, other).contains(&port) {
                true => format!(
                    "the Carbon of {folder} does not read {protocol} on port {port}; change \
                        `protocol` or the port"
                ),
                false => format!(
                    "the Carbon of {folder} does not listen on port {port}; give --storage-schemas \
                        FILE"
                ),
            });
        }
        others.get_or_insert_with(|| {
            format!("not in {}; give --storage-schemas FILE", USUAL.join(" or "))
        });
    }
    others.map_or(Ok(None), Err)
}

/// Whether a destination's address is one of this host: a socket can be bound to no other.
async fn is_on_this_host(to: &Destination) -> bool {
    let looked_up = timeout(Duration::from_secs(2), carbon::look_up(to)).await;
    let Ok(Ok(addresses)) = looked_up else { return false };
    addresses.iter().any(|address| UdpSocket::bind((address.ip(), 0)).is_ok())
}

/// Returns the ports on which the carbon-caches of a carbon.conf listen for `protocol`. The port of
/// each is in its own section, else in `[cache]`, else it is Carbon's default.
fn ports(text: &str, protocol: Protocol) -> Vec<u16> {
    let (key, default) = match protocol {
        Protocol::Pickle => ("pickle_receiver_port", 2004),
        Protocol::Plaintext => ("line_receiver_port", 2003),
    };
    let caches = caches(text);
    let port = |section: &IniSection| section.get(key)?.parse().ok();
    let shared =
        caches.iter().find(|section| section.name == "cache").and_then(port).unwrap_or(default);
    caches.iter().map(|section| port(section).unwrap_or(shared)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Carbon on another host is the usual case: it is no note, because everybody would get it.
    #[tokio::test]
    async fn a_carbon_on_another_host_has_its_files_there() {
        let to_address =
            |address: &str| Config::parse_valid(&format!("[[carbon]]\naddress = \"{address}\""));
        // An address of documentation.
        assert!(matches!(find(&to_address("192.0.2.1:2004"), None).await, Ok(None)));
        assert!(matches!(find(&to_address("127.0.0.1:9"), None).await,
                Err(why) if why.contains("--storage-schemas")));
    }

    #[test]
    fn only_the_ports_of_a_cache_are_those_of_its_rules() {
        let text = "[cache]\nPICKLE_RECEIVER_PORT = 2004\n[cache:b]\nPICKLE_RECEIVER_PORT = 2104\n\
            LINE_RECEIVER_PORT = 2103\n[relay]\nPICKLE_RECEIVER_PORT = 2014\n";
        assert_eq!(ports(text, Protocol::Pickle), [2004, 2104]);
        assert_eq!(ports(text, Protocol::Plaintext), [2003, 2103]);
    }

    #[test]
    fn a_port_that_is_not_said_is_carbons_own() {
        assert_eq!(ports("[cache]\nUSER =\n", Protocol::Pickle), [2004]);
        assert_eq!(ports("[cache]\nUSER =\n", Protocol::Plaintext), [2003]);
        let text = "[cache]\nPICKLE_RECEIVER_PORT = 2014\n[cache:b]\nLINE_RECEIVER_PORT = 2103\n";
        assert_eq!(ports(text, Protocol::Pickle), [2014, 2014]);
        assert_eq!(ports(text, Protocol::Plaintext), [2003, 2103]);
        assert_eq!(ports("[relay]\n", Protocol::Pickle), [0; 0]);
    }
}
