//! The daemon's host and Carbon's, with a router between them that can forget connections. Only
//! root can make them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::carbon::Options;
use crate::stage::Stage;
use crate::{Carbon, Folder, Process, Space, find_program, is_root, wait};

/// Carbon's address, and how /proc/net/tcp shows it.
const FAR: (&str, &str) = ("10.97.2.2", "0202610A");
/// The port of the clock.
const PORT: u16 = 2013;

/// Writes down when the first line of each timestamp has come.
const CLOCK: &str = "\
import socket, sys, threading, time
file, seen = open(sys.argv[3], 'a', buffering=1), set()
def read(connection):
    rest = b''
    while data := connection.recv(65536):
        *lines, rest = (rest + data).split(b'\\n')
        for stamp in {line.split()[2] for line in lines} - seen:
            seen.add(stamp)
            print(time.time(), stamp.decode(), file=file)
    connection.close()
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print('listening', flush=True)
while True:
    threading.Thread(target=read, args=(listener.accept()[0],), daemon=True).start()
";

/// The faults of the path between the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFault {
    /// The daemon's host gets another address.
    AnotherAddress,
    /// The router drops what comes from the daemon on connections that are open now.
    DropsThere,
    /// The router drops what comes back on connections that are open now.
    DropsBack,
}

/// The hosts, and the clock on Carbon's.
#[derive(Debug)]
pub struct Route {
    near: Space,
    router: Space,
    _far: Space,
    _clock: Process,
    arrivals: PathBuf,
}

impl Route {
    /// Makes the hosts, and a daemon that is not started yet, whose destinations are a Carbon and
    /// `clock`, with these keys. `None` for users other than root.
    pub fn stage(keys: &str) -> Result<Option<(Self, Stage)>> {
        if !is_root() {
            return Ok(None);
        }
        let folder = Folder::new()?;
        let [near, router, far] =
            ["near", "router", "far"].map(|name| Space::network(&folder, name));
        let (near, router, far) = (near?, router?, far?);
        for (net, host, name) in [(1, &near, "near"), (2, &far, "far")] {
            let cable = format!("ip link add {name} type veth peer name eth0 netns {}", host.pid);
            let up = format!("ip addr add 10.97.{net}.1/24 dev {name}; ip link set {name} up");
            router.run(&folder, &format!("{cable}; {up}"))?;
            host.run(&folder, &addressed(net, 2))?;
        }
        router.run(&folder, "echo 1 > /proc/sys/net/ipv4/ip_forward")?;
        let arrivals = folder.path().join("arrivals");
        let clock = far.process(&folder, "clock", &find_program("python3")?, true)?;
        let log = clock.log().to_owned();
        let listens = move || fs::read_to_string(&log).is_ok_and(|text| text.contains("listening"));
        let args = [CLOCK, FAR.0, &PORT.to_string(), &arrivals.display().to_string()];
        let mut clock = clock.args([["-c"].as_slice(), &args].concat()).ready(listens);
        clock.start()?;
        let carbon = Carbon::within(&far, &folder, FAR.0, &Options::default())?;
        let carbons =
            format!("[[carbon]]\nname = \"carbon\"\naddress = \"{}\"\n", carbon.address());
        let clocks = format!("[[carbon]]\nname = \"clock\"\naddress = \"{}:{PORT}\"\n", FAR.0);
        let mut stage = Stage::on_host(folder, &near, carbon)?;
        stage.plan.destinations =
            format!("{carbons}{keys}{clocks}protocol = \"plaintext\"\n{keys}");
        stage.configure()?;
        Ok(Some((Self { near, router, _far: far, _clock: clock, arrivals }, stage)))
    }

    /// Lets it happen to what is open now.
    pub fn fail(&self, folder: &Folder, fault: PathFault) -> Result<()> {
        let open = self.open_ports()?;
        ensure!(!open.is_empty(), "no connection is open");
        let drop = |side: &str| {
            let rule = |port| format!("ip rule add pref 10 ipproto tcp {side} {port} blackhole");
            self.router.run(folder, &open.iter().map(rule).collect::<Vec<_>>().join("; "))
        };
        match fault {
            PathFault::AnotherAddress => {
                self.near.run(folder, &format!("ip addr flush dev eth0; {}", addressed(1, 3)))
            }
            PathFault::DropsThere => drop("sport"),
            PathFault::DropsBack => drop("dport"),
        }
    }

    /// Pulls the cable between the router and Carbon's host, or plugs it in again.
    pub fn plug(&self, folder: &Folder, is_in: bool) -> Result<()> {
        self.router.run(folder, &format!("ip link set far {}", if is_in { "up" } else { "down" }))
    }

    /// Seconds that each tick has come late so far, by its timestamp.
    pub fn lateness(&self) -> Result<BTreeMap<u64, f64>> {
        let text = fs::read_to_string(&self.arrivals)?;
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        let late = whole.lines().map(|line| {
            let (at, stamp) = line.split_once(' ').unwrap_or_default();
            Ok((stamp.parse()?, at.parse::<f64>()? - stamp.parse::<f64>()?))
        });
        late.collect()
    }

    /// Waits until each of these ticks has come. Returns how late the last one was, s.
    pub fn latest(&self, ticks: &[u64], limit: Duration) -> Result<f64> {
        wait::until("every tick at the clock", limit, || {
            self.lateness().is_ok_and(|late| ticks.iter().all(|tick| late.contains_key(tick)))
        })?;
        let late = self.lateness()?;
        Ok(ticks.iter().filter_map(|tick| late.get(tick)).copied().fold(0.0, f64::max))
    }

    /// The daemon's ports of connections to Carbon's host.
    pub fn open_ports(&self) -> Result<Vec<u16>> {
        let table = fs::read_to_string(format!("/proc/{}/net/tcp", self.near.pid))?;
        let to_far = table.lines().filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (own, peer) = (words.next()?, words.next()?);
            peer.starts_with(FAR.1).then(|| own.rsplit_once(':'))?
        });
        Ok(to_far.filter_map(|(_, port)| u16::from_str_radix(port, 16).ok()).collect())
    }
}

/// A shell command that gives a host an address in this network.
fn addressed(net: u8, host: u8) -> String {
    format!(
        "ip addr add 10.97.{net}.{host}/24 dev eth0; ip link set eth0 up; \
         ip route replace default via 10.97.{net}.1"
    )
}
