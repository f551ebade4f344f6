//! Two hosts with a network namespace each, joined to a third, the hub, by cables that can be
//! pulled. In the hub are Carbon and a recorder for each host.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use crate::carbon::Options;
use crate::{Carbon, Folder, Process, Space, find_program, is_root};

/// The hub's address.
const HUB: &str = "10.99.0.1";
/// The addresses of the two hosts.
pub(crate) const ADDRESSES: [&str; 2] = ["10.99.0.11", "10.99.0.12"];
/// The recorders' ports in the hub, one for each host.
const PORTS: [u16; 2] = [2013, 2014];

/// Appends whole lines to a file for each port, and closes a connection when the peer does.
const RECORDER: &str = "\
import socket, sys, threading
def read(connection, file):
    rest = b''
    while data := connection.recv(65536):
        whole, end, rest = (rest + data).rpartition(b'\\n')
        file.write(whole + end)
    connection.close()
def listen(port, name):
    listener = socket.create_server((sys.argv[1], int(port)))
    print('listening', flush=True)
    file = open(name, 'ab', buffering=0)
    while True:
        threading.Thread(target=read, args=(listener.accept()[0], file), daemon=True).start()
for index, port in enumerate(sys.argv[2:]):
    threading.Thread(target=listen, args=(port, f'recorded-{index}')).start()
";

/// The namespaces and what runs in the hub.
#[derive(Debug)]
pub struct Cables {
    /// The Carbon of both hosts.
    pub carbon: Carbon,
    folder: PathBuf,
    hub: Space,
    hosts: [Space; 2],
    _recorder: Process,
}

impl Cables {
    /// Makes the namespaces, and starts Carbon and the recorders. `None` for users other than root.
    pub fn new(folder: &Folder) -> Result<Option<Self>> {
        if !is_root() {
            return Ok(None);
        }
        let hub = Space::network(folder, "hub")?;
        let hosts = [Space::network(folder, "0")?, Space::network(folder, "1")?];
        hub.run(
            folder,
            &format!(
                "ip link add br0 type bridge; ip addr add {HUB}/24 dev br0; ip link set br0 up"
            ),
        )?;
        for (index, (host, address)) in hosts.iter().zip(ADDRESSES).enumerate() {
            let cable = format!("ip link add v{index} type veth peer name eth0 netns {}", host.pid);
            hub.run(folder, &format!("{cable}; ip link set v{index} master br0 up"))?;
            host.run(folder, &format!("ip addr add {address}/24 dev eth0; ip link set eth0 up"))?;
        }
        let recorder = hub.process(folder, "recorder", &find_program("python3")?, true)?;
        let log = recorder.log().to_owned();
        let listen = move || fs::read_to_string(&log).is_ok_and(|text| text.lines().count() == 2);
        let recorder =
            recorder.args(["-c", RECORDER, HUB]).args(PORTS.map(|port| port.to_string()));
        let mut recorder = recorder.ready(listen);
        recorder.start()?;
        let carbon = Carbon::within(&hub, folder, HUB, &Options::default())?;
        let path = folder.path().to_owned();
        Ok(Some(Self { carbon, folder: path, hub, hosts, _recorder: recorder }))
    }

    /// Pulls the cable of a host, or plugs it in again.
    pub fn plug(&self, folder: &Folder, index: usize, is_in: bool) -> Result<()> {
        self.hub.run(folder, &format!("ip link set v{index} {}", if is_in { "up" } else { "down" }))
    }

    /// The process that holds the network of a host.
    pub(crate) fn network(&self, index: usize) -> u32 {
        self.hosts.get(index).map_or(0, |host| host.pid)
    }

    /// The `[[carbon]]` tables of a host's daemon.
    pub(crate) fn destinations(&self, index: usize) -> String {
        let port = PORTS.get(index).copied().unwrap_or_default();
        format!(
            "[[carbon]]\nname = \"sink\"\nprotocol = \"plaintext\"\naddress = \"{HUB}:{port}\"\n\
             [[carbon]]\nname = \"carbon\"\naddress = \"{}\"\n",
            self.carbon.address()
        )
    }

    /// Where everything is recorded that a host sends.
    pub(crate) fn recorded(&self, index: usize) -> PathBuf {
        self.folder.join(format!("recorded-{index}"))
    }
}
