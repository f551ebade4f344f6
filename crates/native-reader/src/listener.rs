//! Whose program listens on a port of this host: net/tcp and net/tcp6 of /proc/self, which everybody may read, also where /proc has
//! nothing but processes (`ProcSubset=pid`, as in the units).
//!
//! From 23.02 on slurmctld signs no reply. Anyone may bind its port while it is down, so on the controller's own host the
//! kernel is asked.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `TCP_LISTEN`, as it is written there.
const LISTEN: &str = "0A";

/// Not /proc/net, which is absent with `ProcSubset=pid`.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// The user of the socket that accepts connections to this address; `None` if there is none here, because packets are
/// forwarded, or if the kernel does not say.
pub(crate) fn owner(address: SocketAddr) -> Option<u32> {
    TABLES.into_iter().find_map(|path| {
        let lines = BufReader::new(File::open(path).ok()?).lines().map_while(Result::ok);
        find(lines, address)
    })
}

/// Listening sockets come first: the rest of a long table is not read.
fn find(lines: impl Iterator<Item = String>, address: SocketAddr) -> Option<u32> {
    let rows = lines.skip(1).map_while(|line| row(&line));
    let mut found = None;
    for (listens, uid) in rows {
        let is_any = listens.ip().is_unspecified();
        if listens.port() == address.port()
            && (is_any || listens.ip().to_canonical() == address.ip().to_canonical())
        {
            found = Some(uid);
            // One with the very address is asked before one with any.
            if !is_any {
                return found;
            }
        }
    }
    found
}

/// (address, user) of a listening socket.
fn row(line: &str) -> Option<(SocketAddr, u32)> {
    let mut words = line.split_ascii_whitespace();
    let (address, state) = (words.nth(1)?, words.nth(1)?);
    if state != LISTEN {
        return None;
    }
    let uid = words.nth(3)?.parse().ok()?;
    let (ip, port) = address.split_once(':')?;
    Some((SocketAddr::new(parse(ip)?, u16::from_str_radix(port, 16).ok()?), uid))
}

/// Words of 32 bits, each in the byte order of the host.
fn parse(hex: &str) -> Option<IpAddr> {
    let word = |part: &str| u32::from_str_radix(part, 16).ok().map(u32::to_ne_bytes);
    if hex.len() == 8 {
        return word(hex).map(|bytes| Ipv4Addr::from(bytes).into());
    }
    let mut bytes = [0; 16];
    for (index, part) in bytes.chunks_exact_mut(4).enumerate() {
        let from = index.checked_mul(8)?;
        part.copy_from_slice(&word(hex.get(from..from.checked_add(8)?)?)?);
    }
    Some(Ipv6Addr::from(bytes).into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_of_this_process_is_its_users() {
        let me = nix::unistd::getuid().as_raw();
        for (bound, asked) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
        ] {
            // A host may have no IPv6.
            let Ok(listener) = TcpListener::bind(bound) else { continue };
            let port = listener.local_addr().unwrap().port();
            assert_eq!(owner(SocketAddr::new(asked.parse().unwrap(), port)), Some(me), "{bound}");
            drop(listener);
            assert_eq!(owner(SocketAddr::new(asked.parse().unwrap(), port)), None, "{bound}");
        }
    }

    #[test]
    fn the_very_address_counts_before_any_address() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        let line = |address: &str, state: &str, uid: u32| {
            format!(
                "   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {uid:5}        0 1 1"
            )
        };
        // 127.0.0.1 in the byte order of this host.
        let loopback = format!("{:08X}:1AA1", u32::from_ne_bytes([127, 0, 0, 1]));
        let lines = [
            head.to_owned(),
            line("00000000:1AA1", LISTEN, 7),
            line(&loopback, LISTEN, 8),
            line(&loopback, "01", 9),
        ];
        assert_eq!(find(lines.into_iter(), "127.0.0.1:6817".parse().unwrap()), Some(8));
    }
}
