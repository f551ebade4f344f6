//! This host among the controllers of SlurmctldHost: its position, whether one before or behind it
//! answers, and requests to its own slurmctld only.
//!
//! libslurm looks for the active controller by asking all of them, and sleeps for half of
//! SlurmctldTimeout if there is none. With one controller in its configuration it does neither, so
//! the configuration has only one during a call. `working_cluster_rec` would also direct a call
//! there, but then libslurm uses slurmdbd's key, and munge's default socket regardless of AuthInfo.

use std::io;
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use slurm_snapshot::{Ahead, Behind, errno};

use crate::calls::{CallError, CallResult, Libslurm, ListedControllers};
use crate::conf;
use crate::values::lossy;

/// Longest time that connecting to a controller's port may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What libslurm's own configuration says of the controllers: those of SlurmctldHost, their port
/// (SlurmctldPort), and SlurmctldTimeout.
#[derive(Debug, Default)]
struct Controllers {
    /// Name and address of each controller, the primary first.
    hosts: Vec<(String, String)>,
    port: u16,
    timeout: u16,
}

/// The facts about this host's place among the controllers that are remembered between two calls.
#[derive(Debug, Default)]
pub(crate) struct OwnHost {
    /// Index of the controller before this host that was the last to answer a ping.
    last_ahead: u32,
    /// Whether this host's own slurmctld answered its last request with figures.
    has_answered: bool,
    /// The whole list of controllers, while requests go only to this host's slurmctld; otherwise
    /// `None`.
    listed: Option<ListedControllers>,
}

impl OwnHost {
    /// Finds this host in SlurmctldHost. Pings the controllers before it until one answers,
    /// starting with the one that answered last. If none does, it pings those behind it until one
    /// answers.
    pub(crate) fn ahead(&mut self, libslurm: &mut Libslurm) -> Ahead {
        let Controllers { hosts, port, timeout } = controllers(libslurm);
        let own = own_index(&hosts);
        let before = 0..own.unwrap_or(0);
        let last = Some(self.last_ahead).filter(|last| before.contains(last));
        let mut order = last.into_iter().chain(before.filter(|index| Some(*index) != last));
        let answers = order.find(|index| libslurm.ping(*index));
        self.last_ahead = answers.unwrap_or(self.last_ahead);
        let behind = (0..).zip(&hosts).filter(|(index, _)| own.is_some_and(|own| *index > own));
        let behind = behind.map(|(index, (_, address))| (index, address.as_str())).collect();
        let behind = if answers.is_none() { ping_behind(libslurm, behind, port) } else { None };
        Ahead {
            behind,
            hosts: hosts.into_iter().map(|(name, _)| name).collect(),
            own,
            answers,
            timeout,
        }
    }

    /// Directs all requests to this host's own slurmctld, until [`OwnHost::end_own`]. A backup in
    /// standby answers at once with `ESLURM_IN_STANDBY_MODE`.
    ///
    /// # Errors
    /// Nobody listens there, or this host is not in SlurmctldHost.
    pub(crate) fn begin_own(&mut self, libslurm: &mut Libslurm) -> CallResult<()> {
        let Controllers { hosts, port, .. } = controllers(libslurm);
        let own = own_index(&hosts).and_then(|own| usize::try_from(own).ok());
        let found = own.and_then(|index| Some((index, hosts.into_iter().nth(index)?)));
        let (index, (_, address)) = found.ok_or_else(|| {
            let text = "this host is none of them".to_owned();
            CallError { call: "SlurmctldHost", errno: 0, text }
        })?;
        // libslurm retries a closed port for MessageTimeout, sleeping a second in between. The port
        // is not checked before each call, because slurmctld logs a line for a connection on which
        // nothing arrives.
        if !self.has_answered && !connect(&address, port).any(|stream| stream.is_ok()) {
            return Err(CallError::new(
                "SlurmctldHost",
                errno::CTLD_COMMUNICATIONS_CONNECTION_ERROR,
            ));
        }
        // Otherwise libslurm would ask every controller.
        let listed = libslurm.list_one_controller(index);
        self.listed = Some(listed.ok_or_else(|| {
            CallError::new("SlurmctldHost", errno::CTLD_COMMUNICATIONS_CONNECTION_ERROR)
        })?);
        Ok(())
    }

    /// Lets requests go to every controller again. `has_answered` says whether this host's own
    /// slurmctld answered with figures.
    pub(crate) fn end_own(&mut self, libslurm: &mut Libslurm, has_answered: bool) {
        self.has_answered = has_answered;
        if let Some(listed) = self.listed.take() {
            libslurm.list_all(listed);
        }
    }
}

fn ping_behind(libslurm: &mut Libslurm, hosts: Vec<(u32, &str)>, port: u16) -> Option<Behind> {
    if hosts.iter().any(|(index, _)| libslurm.ping(*index)) {
        return Some(Behind::Answers);
    }
    let is_refused = hosts.iter().all(|(_, address)| refuses(address, port));
    (!hosts.is_empty()).then_some(if is_refused { Behind::Refuses } else { Behind::Silent })
}

/// Connects to this port at each address of a host.
fn connect(address: &str, port: u16) -> impl Iterator<Item = io::Result<TcpStream>> {
    let addresses = (address, port).to_socket_addrs().into_iter().flatten();
    addresses.map(|address| TcpStream::connect_timeout(&address, PATIENCE))
}

/// Whether a host says itself that nothing listens on this port: it refuses the connection at each
/// of its addresses.
fn refuses(address: &str, port: u16) -> bool {
    let mut connected = connect(address, port).peekable();
    let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    connected.peek().is_some() && connected.all(|stream| stream.is_err_and(is_refused))
}

fn controllers(libslurm: &mut Libslurm) -> Controllers {
    let read = libslurm.own_conf(|conf| Controllers {
        hosts: conf::controllers(conf).into_iter().zip(conf.control_addr().map(lossy)).collect(),
        port: u16::try_from(conf.slurmctld_port).unwrap_or_default(),
        timeout: conf.slurmctld_timeout,
    });
    read.unwrap_or_default()
}

fn own_index(hosts: &[(String, String)]) -> Option<u32> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    index_of(&name, hosts, has_address)
}

/// Returns the index of this host among the controllers. It is found by its short or full name, as
/// slurmctld does it, or else by address. Several names with commas share one virtual address, so
/// which of these hosts has it is not decided here.
fn index_of(name: &str, hosts: &[(String, String)], has: impl Fn(&str) -> bool) -> Option<u32> {
    let short = name.split('.').next().unwrap_or_default();
    let is_name = |host: &str| [name, short].iter().any(|own| own.eq_ignore_ascii_case(host));
    let single = || (0..).zip(hosts).filter(|(_, (host, _))| !host.contains(','));
    let by_name = single().find(|(_, (host, _))| is_name(host));
    by_name.or_else(|| single().find(|(_, (_, address))| has(address))).map(|(index, _)| index)
}

/// Whether an interface of this host has an address of `host`. Loopback addresses do not count,
/// because every host has them.
fn has_address(host: &str) -> bool {
    let Ok(own) = getifaddrs() else { return false };
    let ip = |address: nix::sys::socket::SockaddrStorage| -> Option<IpAddr> {
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    };
    let own: Vec<IpAddr> = own.filter_map(|interface| interface.address.and_then(ip)).collect();
    let mut addresses =
        (host, 0).to_socket_addrs().into_iter().flatten().map(|address| address.ip());
    addresses.any(|address| !address.is_loopback() && own.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(name: &str, hosts: &[&str]) -> Option<u32> {
        let hosts: Vec<_> =
            hosts.iter().map(|host| ((*host).to_owned(), format!("{host}-ib"))).collect();
        index_of(name, &hosts, |address| address == "other-ib")
    }

    #[test]
    fn a_host_is_found_by_its_short_and_its_full_name_and_else_by_its_address() {
        let hosts = ["ctla", "ctlb.example.org", "CTLC", "other"];
        assert_eq!(index("ctla.example.org", &hosts), Some(0));
        assert_eq!(index("ctlb.example.org", &hosts), Some(1));
        assert_eq!(index("ctlc", &hosts), Some(2));
        assert_eq!(index("login", &hosts), Some(3));
        assert_eq!(index("login", &hosts[..3]), None);
        // slurmctld does not run there either.
        assert_eq!(index("ctlb", &hosts[..3]), None);
    }

    #[test]
    fn hosts_behind_one_virtual_address_are_none_of_them() {
        assert_eq!(index("ctla", &["ctla,ctlb"]), None);
        assert_eq!(index("ctla", &["other,ctla"]), None);
    }

    #[test]
    fn a_closed_port_is_refused_and_an_open_one_and_a_name_without_address_are_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(
            !refuses("127.0.0.1", address.port())
                && !refuses("no-such-host.invalid", address.port())
        );
        // Nobody else can listen there.
        let client = TcpStream::connect(address).unwrap();
        assert!(refuses("127.0.0.1", client.local_addr().unwrap().port()));
    }

    #[test]
    fn loopback_is_every_hosts() {
        assert!(!has_address("127.0.0.1") && !has_address("localhost"));
        assert!(!has_address("192.0.2.1"));
    }
}
