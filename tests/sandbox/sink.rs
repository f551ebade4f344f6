//! A stand-in for Carbon that behaves badly: closes at once, never reads, or only records.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;

use crate::wait;

/// What a [`Sink`] does with a new connection. For a port that refuses there is [`crate::free_port`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Accepts and closes.
    Close,
    /// Accepts and never reads; its receive buffer is as small as the kernel allows.
    Silent,
    /// Reads everything and keeps it.
    Record,
}

/// A listener on 127.0.0.1 with a thread of its own; dropping it closes everything.
#[derive(Debug)]
pub struct Sink {
    /// Where it listens.
    pub port: u16,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    manner: Mutex<Manner>,
    accepted: AtomicUsize,
    ends: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
    bytes: Mutex<Vec<u8>>,
}

impl Sink {
    /// Listens on a free port.
    ///
    /// # Errors
    /// There is none.
    pub fn start(manner: Manner) -> Result<Self> {
        Self::on(crate::free_port()?, manner)
    }

    /// Listens on this port, for instance a stopped Carbon's.
    ///
    /// # Errors
    /// Another listens there.
    pub fn on(port: u16, manner: Manner) -> Result<Self> {
        // A child that is just being forked can hold the socket of an earlier sink for a moment.
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
        let listener = wait::until_some(&format!("port {port}"), Duration::from_secs(1), bind)?;
        if manner == Manner::Silent {
            // Connections inherit it. The kernel rounds up to its minimum.
            rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 1)?;
        }
        let shared = Arc::new(Shared {
            manner: Mutex::new(manner),
            accepted: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            open: Mutex::default(),
            bytes: Mutex::default(),
        });
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.accept(&listener)
        });
        Ok(Self { port, shared, accepting: Some(accepting) })
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Treats later connections in another way.
    pub fn behave(&self, manner: Manner) {
        *lock(&self.shared.manner) = manner;
    }

    /// The connections accepted so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Everything recorded so far, of all connections one after the other.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        lock(&self.shared.bytes).clone()
    }

    /// Closes the open connections and goes on listening.
    pub fn hang_up(&self) {
        self.shared.hang_up();
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // A last connection wakes accept().
        let _woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        self.shared.hang_up();
        if let Some(accepting) = self.accepting.take() {
            let _ended = accepting.join();
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.ends.load(Ordering::Relaxed) {
                return;
            }
            let Ok(stream) = stream else { continue };
            self.accepted.fetch_add(1, Ordering::Relaxed);
            let manner = *lock(&self.manner);
            if manner == Manner::Record
                && let Ok(reading) = stream.try_clone()
            {
                let shared = Arc::clone(self);
                thread::spawn(move || shared.record(reading));
            }
            if manner != Manner::Close {
                lock(&self.open).push(stream);
            }
        }
    }

    fn record(&self, mut stream: TcpStream) {
        // A time-out lets the thread see the end of the sink.
        let _set = stream.set_read_timeout(Some(Duration::from_millis(100)));
        let mut buffer = [0; 64 * 1024];
        while !self.ends.load(Ordering::Relaxed) {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => lock(&self.bytes).extend(buffer.iter().take(read)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
        // A peer that half-closes waits for our end.
        let _closed = stream.shutdown(Shutdown::Both);
    }

    fn hang_up(&self) {
        for stream in lock(&self.open).drain(..) {
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
