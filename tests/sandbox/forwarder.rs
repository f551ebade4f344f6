//! A port that forwards to another, and stops forwarding or breaks its connections on command.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;

use crate::wait;

/// A forwarding listener on 127.0.0.1; dropping it breaks everything.
#[derive(Debug)]
pub struct Forwarder {
    /// Where it listens.
    pub port: u16,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    to: u16,
    holds: AtomicBool,
    ends: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Forwarder {
    /// Forwards to the port `to`.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(to: u16) -> Result<Self> {
        Self::on(crate::free_port()?, to)
    }

    /// The same, listening on this port.
    ///
    /// # Errors
    /// Another listens there.
    pub fn on(port: u16, to: u16) -> Result<Self> {
        // A child that is just being forked can hold the socket of an earlier one for a moment.
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
        let listener = wait::until_some(&format!("port {port}"), Duration::from_secs(1), bind)?;
        let shared = Arc::new(Shared {
            to,
            holds: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            open: Mutex::default(),
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

    /// Forwards nothing any more, with all connections left open, or goes on.
    pub fn hold(&self, holds: bool) {
        self.shared.holds.store(holds, Ordering::Relaxed);
    }

    /// Breaks every connection, with what is in it.
    pub fn break_connections(&self) {
        self.shared.break_all();
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // A last connection wakes accept().
        let _woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        self.shared.break_all();
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
            let Ok(near) = stream else { continue };
            // Refused there is closed here.
            let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to)) else { continue };
            let _started = self.join(near, far);
        }
    }

    fn join(self: &Arc<Self>, near: TcpStream, far: TcpStream) -> std::io::Result<()> {
        for (from, to) in [(near.try_clone()?, far.try_clone()?), (far.try_clone()?, near.try_clone()?)] {
            let shared = Arc::clone(self);
            thread::spawn(move || shared.pump(from, to));
        }
        self.open.lock().unwrap_or_else(PoisonError::into_inner).extend([near, far]);
        Ok(())
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream) {
        let _set = from.set_read_timeout(Some(Duration::from_millis(50)));
        let mut buffer = [0; 16 * 1024];
        while !self.ends.load(Ordering::Relaxed) {
            if self.holds.load(Ordering::Relaxed) {
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
        // Half a connection may go on: the other pump ends it.
        let _closed = to.shutdown(Shutdown::Write);
    }

    fn break_all(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }
}
