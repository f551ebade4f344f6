//! A port that forwards to another port, and stops forwarding or breaks its connections on command.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::server::{Connections, Server, listen};
use crate::wait;

/// A forwarding listener. Dropping it breaks all connections.
#[derive(Debug)]
pub struct Forwarder {
    /// Where it listens.
    pub port: u16,
    holds: Arc<AtomicBool>,
    server: Server,
}

impl Forwarder {
    /// Forwards to the port `to`.
    pub fn start(to: u16) -> Result<Self> {
        Self::on(crate::free_port()?, to)
    }

    /// Listens on this port and forwards to the port `to`.
    pub fn on(port: u16, to: u16) -> Result<Self> {
        Self::at(Ipv4Addr::LOCALHOST, port, to)
    }

    /// Listens on a port of another address of this host, and forwards to the port `to`.
    pub fn at(address: Ipv4Addr, port: u16, to: u16) -> Result<Self> {
        let holds = Arc::<AtomicBool>::default();
        let held = Arc::clone(&holds);
        let server = Server::start(listen(address, port)?, move |near, connections| {
            // A connection that is refused there is closed here.
            if let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) {
                let _started = join(near, far, &held, connections);
            }
        })?;
        Ok(Self { port, holds, server })
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Stops forwarding, with all connections left open, or continues.
    pub fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::Relaxed);
    }

    /// Breaks every connection and discards what is in it.
    pub fn break_connections(&self) {
        self.server.break_connections();
    }
}

fn join(
    near: TcpStream,
    far: TcpStream,
    holds: &Arc<AtomicBool>,
    connections: &Arc<Connections>,
) -> std::io::Result<()> {
    for (from, to) in [(near.try_clone()?, far.try_clone()?), (far.try_clone()?, near.try_clone()?)]
    {
        let (holds, connections) = (Arc::clone(holds), Arc::clone(connections));
        thread::spawn(move || pump(from, to, &holds, &connections));
    }
    connections.keep([near, far]);
    Ok(())
}

fn pump(mut from: TcpStream, mut to: TcpStream, holds: &AtomicBool, connections: &Connections) {
    let _set = from.set_read_timeout(Some(Duration::from_millis(50)));
    let mut buffer = [0; 16 * 1024];
    while !connections.is_ending() {
        if holds.load(Ordering::Relaxed) {
            wait::pause(Duration::from_millis(20));
            continue;
        }
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                if to.write_all(buffer.get(..read).unwrap_or_default()).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    // The other direction may continue: the other pump ends it.
    let _closed = to.shutdown(Shutdown::Write);
}
