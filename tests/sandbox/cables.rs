//! Two hosts with a network namespace each, joined to a third, the hub, by cables that can be pulled. In the hub are
//! Carbon and a recorder for each host.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::carbon::Options;
use crate::{Carbon, Folder, Invocation, Process, find_program};

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
for port, name in zip(sys.argv[2::2], sys.argv[3::2]):
    threading.Thread(target=listen, args=(port, name)).start()
";

/// The namespaces and what runs in the hub.
#[derive(Debug)]
pub struct Cables {
    /// The Carbon of both hosts.
    pub carbon: Carbon,
    folder: PathBuf,
    hub: Network,
    hosts: [Network; 2],
    _recorder: Process,
}

/// A network namespace, held by a sleeping process.
#[derive(Debug)]
struct Network {
    pid: u32,
    _holder: Process,
}

impl Network {
    fn new(folder: &Folder, name: &str) -> Result<Self> {
        let holder = Process::new(folder, &format!("network-{name}"), find_program("unshare")?);
        let log = holder.log().to_owned();
        let is_made = move || fs::read_to_string(&log).is_ok_and(|text| text.contains("made"));
        let script = "ip link set lo up && echo made && exec sleep 100000";
        let mut holder = holder.args(["-n", "sh", "-ec", script]).ready(is_made);
        holder.start()?;
        Ok(Self { pid: holder.pid().context("the holder has ended")?, _holder: holder })
    }

    fn run(&self, folder: &Folder, command: &str) -> Result<()> {
        let pid = self.pid.to_string();
        let args = ["-n", "-t", &pid, "--", "sh", "-ec", command];
        Invocation::of(folder, &find_program("nsenter")?, &args)?.succeed().map(drop)
    }
}

impl Cables {
    /// Makes the namespaces, and starts Carbon and the recorders. `None` for users other than root.
    pub fn new(folder: &Folder) -> Result<Option<Self>> {
        if !rustix::process::getuid().is_root() {
            return Ok(None);
        }
        let hub = Network::new(folder, "hub")?;
        let hosts = [Network::new(folder, "0")?, Network::new(folder, "1")?];
        hub.run(
            folder,
            &format!("ip link add br0 type bridge; ip addr add {HUB}/24 dev br0; ip link set br0 up"),
        )?;
        for (index, (host, address)) in hosts.iter().zip(ADDRESSES).enumerate() {
            let cable = format!("ip link add v{index} type veth peer name eth0 netns {}", host.pid);
            hub.run(folder, &format!("{cable}; ip link set v{index} master br0 up"))?;
            host.run(folder, &format!("ip addr add {address}/24 dev eth0; ip link set eth0 up"))?;
        }
        let mut recorder = Process::new(folder, "recorder", find_program("nsenter")?);
        let log = recorder.log().to_owned();
        let listen = move || fs::read_to_string(&log).is_ok_and(|text| text.lines().count() == 2);
        recorder = recorder.args(["-n", "-t", &hub.pid.to_string(), "--", "python3", "-c", RECORDER, HUB]);
        for (port, index) in PORTS.iter().zip(0..) {
            recorder = recorder.args([port.to_string()]).args([file(folder, index)]);
        }
        recorder = recorder.ready(listen);
        recorder.start()?;
        let carbon = carbon(folder, &hub)?;
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
             [[carbon]]\nname = \"carbon\"\naddress = \"{HUB}:{}\"\n",
            self.carbon.pickle_port
        )
    }

    /// Where everything is recorded that a host sends.
    pub(crate) fn recorded(&self, index: usize) -> PathBuf {
        self.folder.join(format!("recorded-{index}"))
    }
}

fn file(folder: &Folder, index: usize) -> PathBuf {
    folder.path().join(format!("recorded-{index}"))
}

/// Carbon on the hub's address.
fn carbon(folder: &Folder, hub: &Network) -> Result<Carbon> {
    let mut carbon = Carbon::new(folder, "carbon", &Options::default())?;
    let conf = folder.path().join("carbon").join("carbon.conf");
    fs::write(&conf, fs::read_to_string(&conf)?.replace("127.0.0.1", HUB))?;
    let (table, port) = (format!("/proc/{}/net/tcp", hub.pid), carbon.pickle_port);
    carbon.process = Process::new(folder, "carbon", find_program("nsenter")?)
        .args(["-n", "-t", &hub.pid.to_string(), "--"])
        .args([find_program("carbon-cache")?])
        .args([format!("--config={}", conf.display())])
        .args(["--nodaemon", "--logfile=-", "start"])
        .ready(move || {
            fs::read_to_string(&table)
                .is_ok_and(|text| text.contains(&format!(":{port:04X} 00000000:0000 0A")))
        });
    carbon.process.start()?;
    Ok(carbon)
}
