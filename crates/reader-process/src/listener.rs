//! The owner of the program at the other end of a connection within this host. The kernel's
//! NETLINK_SOCK_DIAG tells everybody, for the price of a look-up.
//!
//! From 23.02 on slurmctld signs no reply, and a token must not go to anybody else. Anyone may bind
//! its port while it is down, so on the controller's own host the kernel is asked. /proc/net/tcp
//! would take a walk over all connections, and may leave out some while others come and go.
//!
//! The question is asked on the loop's thread, unlike all else that may wait: a thread would cost
//! more than the question, twice in each tick. It waits only for locks of the kernel, which another
//! program that lists sockets holds meanwhile. The names of the interfaces are asked for only if no
//! socket is found on the loopback interface.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use nix::net::if_::if_nameindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

/// `SOCK_DIAG_BY_FAMILY`, the type of a question and of its answer.
const BY_FAMILY: u16 = 20;

/// State of a socket whose connection stands, `TCP_ESTABLISHED`.
const ESTABLISHED: u8 = 1;
/// State of a socket whose connection is being made, `TCP_SYN_RECV`.
const SYN_RECV: u8 = 3;

/// Number of the interface of packets within this host. It shows all sockets but those that are
/// bound to another interface.
const LOOPBACK: u32 = 1;

/// Returns the words for an error of the kernel, which does not say who listens, so that nobody is
/// trusted.
#[must_use]
pub fn unknown_listener(error: &Error) -> String {
    format!("the kernel does not say who listens ({error}; is its module tcp_diag loaded?)")
}

/// Checks that the program on a port of this host is one of these `users`'. `owner` is the user
/// whose program it is; `None`, if there is no program on this host, is no error. `names` are the
/// words for the users.
///
/// # Errors
///
/// The program is another user's.
pub fn check_user(
    port: u16,
    owner: Option<u32>,
    users: &[u32],
    names: &str,
) -> std::result::Result<(), String> {
    match owner.filter(|owner| !users.contains(owner)) {
        None => Ok(()),
        Some(owner) => {
            Err(format!("port {port} of this host belongs to user {owner}, neither {names}"))
        }
    }
}

/// A socket to ask the kernel who listens. The kernel has shown another socket before, so that its
/// module tcp_diag is loaded.
#[derive(Debug)]
pub struct Kernel {
    socket: OwnedFd,
    /// The number of the last question; its answer has the same.
    sequence: u32,
}

struct Socket {
    state: u8,
    uid: u32,
    /// Inode of the socket; 0: no program has it.
    inode: u32,
}

impl Kernel {
    /// Opens the socket to the kernel, and waits until the kernel's module tcp_diag is loaded.
    ///
    /// # Errors
    ///
    /// The socket cannot be opened, or the kernel does not show a socket that is there, because it
    /// has no such module.
    pub fn load() -> Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkSockDiag;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        let mut kernel = Self { socket, sequence: 0 };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let any = (Ipv4Addr::UNSPECIFIED, 0).into();
        kernel.socket(listener.local_addr()?, any, LOOPBACK)?.ok_or(ErrorKind::NotFound)?;
        Ok(kernel)
    }

    /// The user whose program has accepted, or will accept, the connection from `near` to this
    /// address. `None`: none of this host, because packets are forwarded.
    ///
    /// # Errors
    ///
    /// `ConnectionReset`: the other end is closed. Any other: the kernel does not say.
    pub fn owner(&mut self, near: SocketAddr, address: SocketAddr) -> Result<Option<u32>> {
        let mut owner = self.owner_on(near, address, LOOPBACK)?;
        if owner.is_none() {
            for interface in &if_nameindex()? {
                owner = owner.or(self.owner_on(near, address, interface.index())?);
            }
            // It does not show a connection that was reset.
            self.socket(near, address, LOOPBACK)?.ok_or(ErrorKind::NotFound)?;
        }
        Ok(owner)
    }

    /// The user whose program listens at this address. `None`: none.
    ///
    /// # Errors
    ///
    /// The kernel does not say.
    pub fn listener(&mut self, address: SocketAddr) -> Result<Option<u32>> {
        let any = (Ipv4Addr::UNSPECIFIED, 0).into();
        let mut found = self.socket(address, any, LOOPBACK)?;
        if found.is_none() {
            for interface in &if_nameindex()? {
                found = found.or(self.socket(address, any, interface.index())?);
            }
        }
        Ok(found.map(|socket| socket.uid))
    }

    fn owner_on(
        &mut self,
        near: SocketAddr,
        peer: SocketAddr,
        interface: u32,
    ) -> Result<Option<u32>> {
        let socket = match self.socket(peer, near, interface)? {
            // No program has it yet: the one that listens will accept it.
            Some(Socket { state: ESTABLISHED | SYN_RECV, inode: 0, .. }) => {
                self.socket(peer, (Ipv4Addr::UNSPECIFIED, 0).into(), interface)?
            }
            socket => socket,
        };
        match socket {
            // No program has it any more, and older kernels say that this is root.
            Some(Socket { inode: 0, .. }) => Err(ErrorKind::ConnectionReset.into()),
            socket => Ok(socket.map(|socket| socket.uid)),
        }
    }

    /// The socket that a packet from `peer` to `own` reaches: this connection's, or one that
    /// listens.
    fn socket(
        &mut self,
        own: SocketAddr,
        peer: SocketAddr,
        interface: u32,
    ) -> Result<Option<Socket>> {
        self.sequence = self.sequence.wrapping_add(1);
        rustix::io::write(&self.socket, &question(self.sequence, own, peer, interface))?;
        // The kernel cuts off the fields after the last one that is needed.
        let mut answer = [[0; 4]; 22];
        rustix::io::read(&self.socket, answer.as_flattened_mut())?;
        let [_, [kind0, kind1, ..], sequence, _, first @ [_, state, ..], .., uid, inode] = answer;
        if u32::from_ne_bytes(sequence) != self.sequence {
            // It would show a socket from before as the one of now.
            return Err(ErrorKind::InvalidData.into());
        }
        if u16::from_ne_bytes([kind0, kind1]) == BY_FAMILY {
            let [uid, inode] = [uid, inode].map(u32::from_ne_bytes);
            return Ok(Some(Socket { state, uid, inode }));
        }
        let error = Error::from_raw_os_error(i32::from_ne_bytes(first).wrapping_neg());
        if error.kind() == ErrorKind::NotFound { Ok(None) } else { Err(error) }
    }
}

/// Returns the bytes of a question: a `nlmsghdr` and an `inet_diag_req_v2` for TCP sockets in any
/// state, with any cookie.
fn question(sequence: u32, own: SocketAddr, peer: SocketAddr, interface: u32) -> Vec<u8> {
    let is_v4 = own.ip().to_canonical().is_ipv4();
    let family = if is_v4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let mut bytes = Vec::with_capacity(72);
    bytes.extend(72_u32.to_ne_bytes());
    bytes.extend([BY_FAMILY, 1].into_iter().flat_map(u16::to_ne_bytes));
    bytes.extend([sequence, 0].into_iter().flat_map(u32::to_ne_bytes));
    bytes.extend([family as u8, 6, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    bytes.extend([own.port(), peer.port()].into_iter().flat_map(u16::to_be_bytes));
    bytes.extend([own.ip(), peer.ip()].into_iter().flat_map(to_octets));
    bytes.extend(interface.to_ne_bytes());
    bytes.extend([0xff; 8]);
    bytes
}

fn to_octets(ip: IpAddr) -> [u8; 16] {
    match ip.to_canonical() {
        IpAddr::V4(ip) => u128::from(ip.to_bits()).rotate_left(96).to_be_bytes(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use nix::sys::socket::{Backlog, listen, setsockopt, sockopt};

    use super::*;

    fn owner(near: SocketAddr, address: SocketAddr) -> Result<Option<u32>> {
        Kernel::load()?.owner(near, address)
    }

    #[test]
    fn a_port_is_its_users_also_when_it_was_closed_after_it_had_accepted() {
        let me = nix::unistd::getuid().as_raw();
        for (bound, asked) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("127.0.0.1:0", "::ffff:127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "::1"),
        ] {
            // A host may have no IPv6.
            let Ok(listener) = TcpListener::bind(bound) else { continue };
            let port = listener.local_addr().unwrap().port();
            let address = SocketAddr::new(asked.parse().unwrap(), port);
            let client = TcpStream::connect(address).unwrap();
            let near = client.local_addr().unwrap();
            assert_eq!(owner(near, address).unwrap(), Some(me), "{bound}, not accepted");
            let accepted = listener.accept().unwrap();
            drop(listener);
            assert_eq!(owner(near, address).unwrap(), Some(me), "{bound}, accepted");
            drop(accepted);
            let closed = owner(near, address).unwrap_err();
            assert_eq!(closed.kind(), ErrorKind::ConnectionReset, "{bound}");
        }
    }

    /// Older kernels say that a connection without a program is root's.
    #[test]
    fn a_closed_connection_belongs_to_nobody_also_while_its_port_is_open() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        drop(listener.accept().unwrap());
        let closed = owner(client.local_addr().unwrap(), address).unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::ConnectionReset);
    }

    /// A connection that was reset is not shown either: that is no reason to trust the program that
    /// answers next.
    #[test]
    fn a_kernel_that_does_not_show_a_connection_does_not_say_that_it_is_forwarded() {
        let one = "127.0.0.1:1".parse().unwrap();
        let two = "127.0.0.1:2".parse().unwrap();
        assert_eq!(owner(one, two).unwrap_err().kind(), ErrorKind::NotFound);
    }

    /// An answer that was left unread was taken for that to the next question.
    #[test]
    fn an_answer_to_an_earlier_question_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let near = client.local_addr().unwrap();
        let mut kernel = Kernel::load().unwrap();
        rustix::io::write(&kernel.socket, &question(1, address, near, LOOPBACK)).unwrap();
        assert_eq!(kernel.owner(near, address).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    /// Everybody may bind a socket to an interface, and then it is shown there only.
    #[test]
    fn a_port_that_is_bound_to_an_interface_is_seen() {
        let me = nix::unistd::getuid().as_raw();
        for interface in nix::ifaddrs::getifaddrs().unwrap() {
            let sockaddr = interface.address.and_then(|address| address.as_sockaddr_in().copied());
            let Some(sockaddr) = sockaddr else { continue };
            let tcp =
                socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
            let name = interface.interface_name.into();
            setsockopt(&tcp, sockopt::BindToDevice, &name).unwrap();
            // Without an address it gets a free port of all addresses.
            listen(&tcp, Backlog::new(1).unwrap()).unwrap();
            let listener = TcpListener::from(tcp);
            let port = listener.local_addr().unwrap().port();
            let address = SocketAddr::new(sockaddr.ip().into(), port);
            let client = TcpStream::connect(address).unwrap();
            let near = client.local_addr().unwrap();
            assert_eq!(owner(near, address).unwrap(), Some(me), "{name:?}, not accepted");
            let _accepted = listener.accept().unwrap();
            assert_eq!(owner(near, address).unwrap(), Some(me), "{name:?}, accepted");
        }
    }
}
