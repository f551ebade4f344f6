//! A store that refuses a point older than the newest one of its series, as Mimir does, and
//! carbon-relay-ng with `validate_order`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sandbox::{Folder, Imitation, daemon, free_port, unix_seconds, wait};

/// In every tick.
const TICKS: &str = "ticks_run";

/// The timestamps that it has accepted of each path.
type Series = Arc<Mutex<BTreeMap<String, BTreeSet<u64>>>>;

/// Listens until it is dropped, with a thread for each connection. What was accepted outlives it.
struct StrictStore {
    port: u16,
    connections: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl StrictStore {
    fn start(port: u16, series: &Series) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let connections = Arc::new(Mutex::new(Some(Vec::new())));
        let (open, series) = (Arc::clone(&connections), Arc::clone(series));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(open) = &mut *open.lock().unwrap() else { return };
                open.push(stream.try_clone().unwrap());
                let series = Arc::clone(&series);
                thread::spawn(move || accept_lines(&stream, &series));
            }
        });
        Self { port, connections }
    }
}

impl Drop for StrictStore {
    fn drop(&mut self) {
        for stream in self.connections.lock().unwrap().take().into_iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Its thread looks only when somebody connects.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn accept_lines(stream: &TcpStream, series: &Series) {
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let [path, _, timestamp] = line.split_whitespace().collect::<Vec<_>>()[..] else { return };
        let timestamp = timestamp.parse().unwrap();
        let mut series = series.lock().unwrap();
        let points = series.entry(path.to_owned()).or_default();
        if points.last().is_none_or(|newest| timestamp >= *newest) {
            points.insert(timestamp);
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// With the newest tick first, 18 of 60 slots were gone after 20 s, without a sign.
#[test]
fn by_time_a_store_that_refuses_older_points_has_every_slot_after_an_outage_and_a_sigkill() {
    let folder = Folder::new().unwrap();
    let (port, series) = (free_port().unwrap(), Series::default());
    let mut store = Some(StrictStore::start(port, &series));
    let (reader, queue) = (Imitation::good(&folder).unwrap().toml(), folder.path().join("queue"));
    let toml = format!(
        "[slurm]\n{reader}[queue]\ndir = \"{}\"\n[[carbon]]\nname = \"strict\"\nprotocol = \
         \"plaintext\"\naddress = \"127.0.0.1:{port}\"\norder = \"by_time\"\n",
        queue.display()
    );
    let mut daemon = daemon::spawn_daemon(&folder, "daemon", &toml).unwrap();
    let accepted = || {
        let series = series.lock().unwrap();
        let found = series.iter().find(|(path, _)| path.ends_with(TICKS));
        found.map(|(_, points)| points.clone()).unwrap_or_default()
    };
    let reaches = |what: &str, timestamp: u64| {
        let is_there = || accepted().last().is_some_and(|newest| *newest >= timestamp);
        wait::until(what, wait::LIMIT * 2, is_there).unwrap();
    };
    wait::until("five ticks", wait::LIMIT, || accepted().len() >= 5).unwrap();
    // Half-way through an outage of 15 s, and again while the backlog has been sent and the store
    // is well.
    let mut killed = Vec::new();
    for _ in 0..2 {
        let end = unix_seconds() + 15;
        drop(store.take());
        wait::pause(Duration::from_secs(7));
        killed.push(unix_seconds());
        daemon.kill().unwrap();
        daemon.spawn().unwrap();
        wait::until("the end of the outage", wait::LIMIT, || unix_seconds() >= end).unwrap();
        store = Some(StrictStore::start(port, &series));
        reaches("the backlog", unix_seconds() + 5);
        killed.push(unix_seconds());
        daemon.kill().unwrap();
        daemon.spawn().unwrap();
        reaches("the next ticks", unix_seconds() + 5);
    }
    daemon.stop().unwrap();
    let accepted = accepted();
    let (first, last) = (accepted.first().unwrap(), accepted.last().unwrap());
    // The tick whose commit was under way, and the start.
    let may_miss = |slot: &u64| killed.iter().any(|at| (*at..=at + 2).contains(slot));
    let missing: Vec<u64> = (*first..=*last).filter(|slot| !accepted.contains(slot)).collect();
    let lost: Vec<_> = missing.iter().filter(|slot| !may_miss(slot)).collect();
    assert!(
        lost.is_empty() && last - first > 50,
        "{lost:?} of {first}..{last}, killed at {killed:?}"
    );
}
