//! A listener with its own thread, and the connections that it has accepted.

use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::Result;

use crate::wait;

/// A listener; dropping it closes everything.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    connections: Arc<Connections>,
    accepting: Option<JoinHandle<()>>,
}

/// Connections that stay open until they are broken.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    ends: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// Listens on this port, for instance a stopped Carbon's.
pub(crate) fn listen(address: Ipv4Addr, port: u16) -> Result<TcpListener> {
    // A child that is just being forked may hold the socket of an earlier listener for a moment.
    let bind = || TcpListener::bind((address, port)).ok();
    wait::until_some(&format!("port {port}"), wait::LIMIT, bind)
}

impl Server {
    /// Calls `each` with every connection, in the accepting thread.
    pub(crate) fn start(
        listener: TcpListener,
        each: impl Fn(TcpStream, &Arc<Connections>) + Send + 'static,
    ) -> Result<Self> {
        let address = listener.local_addr()?;
        let connections = Arc::<Connections>::default();
        let shared = Arc::clone(&connections);
        let accepting = thread::spawn(move || {
            let streams = listener.incoming().take_while(|_| !shared.is_ending());
            streams.flatten().for_each(|stream| each(stream, &shared));
        });
        Ok(Self { address, connections, accepting: Some(accepting) })
    }

    pub(crate) fn break_connections(&self) {
        self.connections.break_all();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.connections.ends.store(true, Ordering::Relaxed);
        // One last connection wakes accept().
        let _woken = TcpStream::connect(self.address);
        self.connections.break_all();
        if let Some(accepting) = self.accepting.take() {
            let _ended = accepting.join();
        }
    }
}

impl Connections {
    /// Whether threads that serve a connection should end.
    pub(crate) fn is_ending(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Keeps these connections open.
    pub(crate) fn keep(&self, streams: impl IntoIterator<Item = TcpStream>) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).extend(streams);
    }

    fn break_all(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }
}
