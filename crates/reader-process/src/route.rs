//! Whether an address is this host's, as the kernel routes to it.
//!
//! A list of the interfaces' addresses would miss those that are local only by a route (AnyIP), and
//! would be late when a virtual address moves to this host. The kernel's RTM_GETROUTE neither waits
//! nor loads a module.

use std::io::{Error, ErrorKind, Result};
use std::net::IpAddr;

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const ERROR: u16 = 2;
/// The attribute with the address, `RTA_DST`.
const DESTINATION: u16 = 1;
/// The type of a route to this host, `RTN_LOCAL`.
const LOCAL: u8 = 2;

/// Returns the words for an error of the kernel, which does not say whether an address is this
/// host's, so that nobody is trusted.
#[must_use]
pub fn unknown_route(address: IpAddr, error: &Error) -> String {
    format!(
        "the kernel does not say whether {address} is this host's ({error}; does the service allow \
            AF_NETLINK?)"
    )
}

/// Whether the other end of a connection from `near` is on this host. For most connections the
/// kernel need not be asked.
///
/// # Errors
///
/// The kernel does not say.
pub fn is_local(near: IpAddr, peer: IpAddr) -> Result<bool> {
    if peer.is_loopback() || near == peer { Ok(true) } else { routes_to_itself(peer) }
}

/// Whether packets to `address` stay on this host.
///
/// # Errors
///
/// The kernel does not say.
pub fn routes_to_itself(address: IpAddr) -> Result<bool> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let protocol = SockProtocol::NetlinkRoute;
    let kernel = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    rustix::io::write(&kernel, &question(address.to_canonical()))?;
    // The kernel cuts off the attributes.
    let mut answer = [[0; 4]; 7];
    rustix::io::read(&kernel, answer.as_flattened_mut())?;
    let [_, [kind0, kind1, ..], _, _, first, [.., route_type], _] = answer;
    match u16::from_ne_bytes([kind0, kind1]) {
        NEW_ROUTE => Ok(route_type == LOCAL),
        ERROR => {
            let error = Error::from_raw_os_error(i32::from_ne_bytes(first).wrapping_neg());
            match error.kind() {
                ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => Ok(false),
                _ => Err(error),
            }
        }
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// Returns the bytes of a question for the route to an address: a `nlmsghdr`, a `rtmsg` and the
/// address.
fn question(address: IpAddr) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(ip) => (AddressFamily::Inet, ip.octets().to_vec()),
        IpAddr::V6(ip) => (AddressFamily::Inet6, ip.octets().to_vec()),
    };
    let (attribute, bits) = if address.is_ipv4() { (8_u16, 32) } else { (20, 128) };
    let mut bytes = Vec::with_capacity(48);
    bytes.extend((u32::from(attribute) + 28).to_ne_bytes());
    bytes.extend([GET_ROUTE, 1].into_iter().flat_map(u16::to_ne_bytes));
    bytes.extend([0; 8]);
    bytes.extend([family as u8, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([attribute, DESTINATION].into_iter().flat_map(u16::to_ne_bytes));
    bytes.extend(octets);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tests/live has the addresses that need a network namespace.
    #[test]
    fn all_of_the_loopback_network_is_local_and_documentation_is_elsewhere() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.11.12.13", true),
            ("::ffff:127.0.0.1", true),
            ("::1", true),
            ("198.51.100.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(routes_to_itself(address.parse().unwrap()).unwrap(), expected, "{address}");
        }
    }
}
