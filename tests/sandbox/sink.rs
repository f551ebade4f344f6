//! A substitute for Carbon that closes connections at once, never reads, talks, or only reads.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::Result;

use crate::server::{Connections, Server, listen};

/// The manners in which a [`Sink`] treats a new connection. For a port that refuses connections,
/// use [`crate::free_port`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Accepts and closes.
    Close,
    /// Accepts and never reads; its receive buffer is as small as the kernel allows.
    Silent,
    /// Reads everything and sends bytes without end, which no Carbon does.
    Talk,
    /// Reads everything and forgets it.
    Discard,
    /// Reads everything and keeps it.
    Record,
}

/// A listener on 127.0.0.1 with its own thread; dropping it closes everything.
#[derive(Debug)]
pub struct Sink {
    /// Where it listens.
    pub port: u16,
    shared: Arc<Shared>,
    server: Server,
}

#[derive(Debug)]
struct Shared {
    manner: Mutex<Manner>,
    accepted: AtomicUsize,
    bytes: Mutex<Vec<u8>>,
    /// Up to which byte everything had come, and when.
    arrivals: Mutex<Vec<(usize, SystemTime)>>,
}

impl Sink {
    /// Listens on a free port.
    pub fn start(manner: Manner) -> Result<Self> {
        Self::on(crate::free_port()?, manner)
    }

    /// Listens on this port, for instance a stopped Carbon's.
    pub fn on(port: u16, manner: Manner) -> Result<Self> {
        let listener = listen(Ipv4Addr::LOCALHOST, port)?;
        if manner == Manner::Silent {
            // Connections inherit it. The kernel rounds it up to its minimum.
            rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 1)?;
        }
        let shared = Arc::new(Shared {
            manner: Mutex::new(manner),
            accepted: AtomicUsize::new(0),
            bytes: Mutex::default(),
            arrivals: Mutex::default(),
        });
        let sink = Arc::clone(&shared);
        let server =
            Server::start(listener, move |stream, connections| sink.accept(stream, connections))?;
        Ok(Self { port, shared, server })
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its `[[carbon]]` table, for lines; more keys may follow.
    pub fn destination(&self, name: &str) -> String {
        let address = self.address();
        format!(
            "[[carbon]]\nname = \"{name}\"\nprotocol = \"plaintext\"\naddress = \"{address}\"\n"
        )
    }

    /// Changes how later connections are treated.
    pub fn behave(&self, manner: Manner) {
        *lock(&self.shared.manner) = manner;
    }

    /// The connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Looks at everything recorded so far, as [`Sink::bytes`] returns it, without a copy.
    pub(crate) fn with_bytes<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&lock(&self.shared.bytes))
    }

    /// Everything recorded so far, one connection after the other.
    pub fn bytes(&self) -> Vec<u8> {
        lock(&self.shared.bytes).clone()
    }

    /// The lines recorded so far, each with the time at which its end came.
    pub fn timed_lines(&self) -> Vec<(SystemTime, String)> {
        let bytes = lock(&self.shared.bytes);
        let mut arrivals = lock(&self.shared.arrivals).clone().into_iter().peekable();
        let mut end = 0;
        let lines = bytes.split_inclusive(|&byte| byte == b'\n').map_while(|line| {
            end += line.len();
            while arrivals.next_if(|(length, _)| *length < end).is_some() {}
            Some((arrivals.peek()?.1, String::from_utf8_lossy(line.trim_ascii_end()).into_owned()))
        });
        lines.collect()
    }

    /// Closes the open connections, but continues to listen.
    pub fn hang_up(&self) {
        self.server.break_connections();
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, stream: TcpStream, connections: &Arc<Connections>) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let manner = *lock(&self.manner);
        let reads = matches!(manner, Manner::Talk | Manner::Discard | Manner::Record);
        if reads && let Ok(reading) = stream.try_clone() {
            let (shared, connections) = (Arc::clone(self), Arc::clone(connections));
            thread::spawn(move || shared.receive(reading, &connections, manner == Manner::Record));
        }
        if manner == Manner::Talk
            && let Ok(talking) = stream.try_clone()
        {
            let connections = Arc::clone(connections);
            thread::spawn(move || talk(talking, &connections));
        }
        if manner != Manner::Close {
            connections.keep([stream]);
        }
    }

    fn receive(&self, mut stream: TcpStream, connections: &Connections, keeps: bool) {
        // With a time-out the thread notices the end of the sink.
        let _set = stream.set_read_timeout(Some(Duration::from_millis(100)));
        let mut buffer = vec![0; 1 << 20];
        while !connections.is_ending() {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) if keeps => {
                    let now = SystemTime::now();
                    let mut bytes = lock(&self.bytes);
                    bytes.extend(buffer.iter().take(read));
                    lock(&self.arrivals).push((bytes.len(), now));
                }
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
        // A peer that half-closes waits for us to close our end.
        let _closed = stream.shutdown(Shutdown::Both);
    }
}

/// Sends as much as the peer reads.
fn talk(mut stream: TcpStream, connections: &Connections) {
    let _set = stream.set_write_timeout(Some(Duration::from_millis(100)));
    let words = [b'x'; 1 << 20];
    while !connections.is_ending() {
        match stream.write(&words) {
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                break;
            }
            _ => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
