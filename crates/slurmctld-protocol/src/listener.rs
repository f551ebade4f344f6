//! Whose program listens on a port of this host: net/tcp and net/tcp6 of /proc/self, which everybody may read, also where /proc has
//! nothing but processes (`ProcSubset=pid`, as in the units).
//!
//! From 23.02 on slurmctld signs no reply. Anyone may bind its port while it is down, so on the controller's own host the
//! kernel is asked.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `TCP_LISTEN`, as it is written there.
const LISTEN: &str = "0A";

/// Not /proc/net, which is absent with `ProcSubset=pid`.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// Of a table: far more than all listening sockets of a host.
const MOST: u64 = 1 << 20;

/// Whose program will accept, or has accepted, the connection from `near` to this address. `None`: none of this host, because
/// packets are forwarded, or the kernel does not say.
pub(crate) fn owner(near: SocketAddr, address: SocketAddr) -> Option<u32> {
    let listening = TABLES.into_iter().find_map(|path| find_listener(rows(path), address));
    // Its program may have closed the port since.
    listening.or_else(|| TABLES.into_iter().find_map(|path| find_accepted(rows(path), near, address)))
}

fn rows(path: &str) -> impl Iterator<Item = Row> {
    let lines = File::open(path).ok().map(|file| BufReader::with_capacity(4096, file.take(MOST)).lines());
    lines.into_iter().flatten().map_while(Result::ok).filter_map(|line| row(&line))
}

/// Listening sockets come first: the rest of a long table is not read.
fn find_listener(rows: impl Iterator<Item = Row>, address: SocketAddr) -> Option<u32> {
    let mut any = None;
    for Row { own, uid, .. } in rows.take_while(|row| row.peer.is_none()) {
        // One with the very address is asked before one with any.
        if is_same(own, address) {
            return Some(uid);
        }
        if own.port() == address.port() && own.ip().is_unspecified() {
            any = Some(uid);
        }
    }
    any
}

fn find_accepted(mut rows: impl Iterator<Item = Row>, near: SocketAddr, address: SocketAddr) -> Option<u32> {
    let is_it = |row: &Row| is_same(row.own, address) && row.peer.is_some_and(|peer| is_same(peer, near));
    rows.find(is_it).map(|row| row.uid)
}

fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

struct Row {
    own: SocketAddr,
    /// `None`: it listens.
    peer: Option<SocketAddr>,
    uid: u32,
}

fn row(line: &str) -> Option<Row> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (own, peer, state) = (words.next()?, words.next()?, words.next()?);
    let peer = if state == LISTEN { None } else { Some(parse(peer)?) };
    Some(Row { own: parse(own)?, peer, uid: words.nth(3)?.parse().ok()? })
}

fn parse(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    Some(SocketAddr::new(parse_ip(ip)?, u16::from_str_radix(port, 16).ok()?))
}

/// Words of 32 bits, each in the byte order of the host.
fn parse_ip(hex: &str) -> Option<IpAddr> {
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
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_port_of_this_process_is_its_users_also_when_it_was_closed_after_it_had_accepted() {
        let me = nix::unistd::getuid().as_raw();
        for (bound, asked) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
        ] {
            // A host may have no IPv6.
            let Ok(listener) = TcpListener::bind(bound) else { continue };
            let address = SocketAddr::new(asked.parse().unwrap(), listener.local_addr().unwrap().port());
            let client = TcpStream::connect(address).unwrap();
            let (near, accepted) = (client.local_addr().unwrap(), listener.accept().unwrap());
            assert_eq!(owner(near, address), Some(me), "{bound}");
            drop(listener);
            assert_eq!(find_listener(TABLES.into_iter().flat_map(rows), address), None, "{bound}");
            assert_eq!(owner(near, address), Some(me), "{bound}");
            drop((client, accepted));
            assert_eq!(owner(SocketAddr::new(near.ip(), 1), address), None, "{bound}");
        }
    }

    #[test]
    fn the_very_address_counts_before_any_address() {
        // 127.0.0.1 in the byte order of this host.
        let loopback = format!("{:08X}:1AA1", u32::from_ne_bytes([127, 0, 0, 1]));
        let line = |address: &str, state: &str, uid: u32| {
            let text = format!(
                "   0: {address} {loopback} {state} 00000000:00000000 00:00000000 00000000 {uid:5}        0 1 1"
            );
            row(&text).unwrap()
        };
        let lines = [line("00000000:1AA1", LISTEN, 7), line(&loopback, LISTEN, 8), line(&loopback, "01", 9)];
        let address = "127.0.0.1:6817".parse().unwrap();
        assert_eq!(find_listener(lines.into_iter(), address), Some(8));
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert!(row(head).is_none());
    }
}
