//! A TLS connection to Carbon: rustls over [`Connection`], whose errors, time-outs and reset it
//! keeps.
//!
//! We end a connection with TLS's close_notify and then a half-close. The answer is the peer's
//! close_notify, followed by the end of the connection. An end without close_notify is
//! [`ConnectionError::Truncated`]: it comes from a proxy whose timer fires, or from the kernel
//! after its program has died.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::{ClientConnection, ProtocolVersion};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::acks::Acks;
use crate::connection::{Connection, LastTried, MOST_RECEIVED, Stream, open_first};
use crate::connection_error::{ConnectionError, Result};
use crate::destination::Destination;
use crate::tls::{Certificate, Tls, certificate, explain};

/// Time to wait for a refusal after our handshake: with TLS 1.3, a server that refuses our
/// certificate, or requires one that we do not have, says so only then. Most servers send something
/// then if they accept it.
const REFUSES_WITHIN: Duration = Duration::from_millis(100);
/// The most reads before a half-close. What a server sends by itself, session tickets, needs far
/// fewer.
const MOST_READS: usize = 64;

/// A TLS connection.
pub struct TlsConnection {
    tcp: Connection,
    tls: Tls,
    session: Mutex<Session>,
}

struct Session {
    rustls: ClientConnection,
    end: OwnEnd,
    /// Whether the peer's close_notify has come.
    notified: bool,
}

/// The steps in which we close our end of the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnEnd {
    Open,
    /// close_notify is written, or waits in rustls until our kernel accepts it.
    Notified,
    HalfClosed,
}

impl TlsConnection {
    async fn to(peer: SocketAddr, to: &Destination, tls: Tls, patience: Duration) -> Result<Self> {
        let begin = Instant::now();
        let tcp = Connection::to(peer, to.protocol, to.timeouts, patience).await?;
        let left = patience.saturating_sub(begin.elapsed());
        let opened = timeout(left, Self::over(tcp, tls, patience)).await;
        opened.unwrap_or_else(|_| Err(explain::silence(peer, patience)))
    }

    async fn over(tcp: Connection, tls: Tls, patience: Duration) -> Result<Self> {
        let client = tls.client(patience).await?;
        let name = tls.name();
        let rustls =
            ClientConnection::new(client, name).map_err(|error| explain::error(&error, &tls))?;
        let session = Mutex::new(Session { rustls, end: OwnEnd::Open, notified: false });
        let connection = Self { tcp, tls, session };
        let done = timeout(patience, connection.handshake()).await;
        let done = done.unwrap_or_else(|_| Err(explain::silence(connection.peer(), patience)));
        if done.is_err() {
            connection.tls.doubt();
        }
        done.map(|()| connection)
    }

    async fn handshake(&self) -> Result {
        let exchange = async {
            while self.session().rustls.is_handshaking() {
                self.flush(&mut self.session())?;
                self.tcp.stream().ready(self.interest()).await?;
                self.try_read()?;
                yield_now().await;
            }
            self.flush(&mut self.session())
        };
        exchange.await.map_err(|error| explain::handshake(error, self.peer()))?;
        if self.session().rustls.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
            return Ok(());
        }
        let refusal = async {
            loop {
                self.tcp.stream().readable().await?;
                if self.read_some()? {
                    return Ok(());
                }
            }
        };
        timeout(REFUSES_WITHIN, refusal).await.unwrap_or(Ok(()))
    }

    /// The TLS version, such as "TLS 1.3".
    #[must_use]
    pub fn version(&self) -> &'static str {
        match self.session().rustls.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLS 1.2",
            Some(ProtocolVersion::TLSv1_3) => "TLS 1.3",
            _ => "TLS",
        }
    }

    /// The server's certificate and the others that it sent with it.
    #[must_use]
    pub fn certificates(&self) -> Vec<Certificate> {
        let session = self.session();
        let chain = session.rustls.peer_certificates().unwrap_or_default();
        chain.iter().filter_map(|der| certificate::parse(der)).collect()
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interest(&self) -> Interest {
        let waits = self.session().rustls.wants_write();
        if waits { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE }
    }

    /// Hands rustls's bytes to our kernel, as far as it accepts them. Returns whether nothing is
    /// left.
    fn flush(&self, session: &mut Session) -> Result<bool> {
        while session.rustls.wants_write() {
            match session.rustls.write_tls(&mut Kernel(self.tcp.stream())) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        if session.end == OwnEnd::Notified {
            session.end = OwnEnd::HalfClosed;
            SockRef::from(self.tcp.stream()).shutdown(Shutdown::Write)?;
        }
        Ok(true)
    }

    fn try_read(&self) -> Result {
        self.read_some().map(drop)
    }

    /// Reads what is there and discards it. Returns whether there was anything.
    fn read_some(&self) -> Result<bool> {
        let mut session = self.session();
        if !session.notified {
            match session.rustls.read_tls(&mut Kernel(self.tcp.stream())) {
                Ok(0) if session.rustls.is_handshaking() => return Err(ConnectionError::Closed),
                Ok(0) => return Err(self.bare_end()),
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) =>
                {
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
            let explain =
                if session.rustls.is_handshaking() { explain::error } else { explain::later_error };
            let processed = session.rustls.process_new_packets();
            // An alert is worth sending even when the connection is over.
            let flushed = self.flush(&mut session);
            session.notified =
                processed.map_err(|error| explain(&error, &self.tls))?.peer_has_closed();
            flushed?;
            let mut ignored = [0_u8; MOST_RECEIVED];
            while let Ok(read @ 1..) = session.rustls.reader().read(&mut ignored) {
                self.tcp.received(read)?;
            }
        }
        match (session.notified, session.end) {
            (false, _) => Ok(true),
            // The peer closed it without being asked.
            (true, OwnEnd::Open) => Err(self.tcp.closed()),
            // Our own end may still be unacknowledged; it carries no data.
            (true, _) => self.tcp.try_read_behind(1).map(|()| true),
        }
    }

    /// The error for an end of the TCP connection without close_notify.
    fn bare_end(&self) -> ConnectionError {
        match self.tcp.explain_end(0) {
            ConnectionError::Closed if self.tls.settings().close_notify => {
                ConnectionError::Truncated
            }
            end => end,
        }
    }
}

impl Stream for TlsConnection {
    async fn open(to: &Destination, tried: &LastTried) -> Result<Self> {
        let tls =
            to.tls.clone().ok_or_else(|| ConnectionError::Tls("it has no settings".into()))?;
        open_first(to, tried, |peer, patience| Self::to(peer, to, tls.clone(), patience)).await
    }

    fn open_again(&self) -> impl Future<Output = Result<Self>> + Send + use<> {
        let (tcp, tls) = (self.tcp.open_again(), self.tls.clone());
        let patience = self.tcp.timeouts().connect;
        async move { Self::over(tcp.await?, tls, patience).await }
    }

    fn peer(&self) -> SocketAddr {
        self.tcp.peer()
    }

    async fn write(&self, frame: &[u8]) -> Result {
        let mut rest = frame;
        self.tcp.begin_frame();
        while !rest.is_empty() {
            let taken = self.session().rustls.writer().write(self.tcp.protocol().piece(rest))?;
            rest = rest.get(taken..).unwrap_or_default();
            while !self.flush(&mut self.session())? {
                self.tcp.progress(|| self.try_read()).await?;
            }
        }
        self.tcp.end_frame();
        Ok(())
    }

    fn half_close(&self) -> Result {
        // An end that came before our half-close is not an answer to it.
        let mut reads = 0;
        while self.read_some()? {
            reads += 1;
            if reads == MOST_READS {
                return Err(ConnectionError::NotCarbon);
            }
        }
        let mut session = self.session();
        session.rustls.send_close_notify();
        session.end = OwnEnd::Notified;
        self.flush(&mut session).map(drop)
    }

    async fn wait_for_end(&self) -> ConnectionError {
        loop {
            let ready = self.tcp.stream().ready(self.interest()).await;
            if let Err(error) = ready {
                return error.into();
            }
            let flushed = self.flush(&mut self.session());
            if let Err(error) = flushed.and_then(|_| self.try_read()) {
                return error;
            }
            yield_now().await;
        }
    }

    fn has_ended(&self) -> Option<ConnectionError> {
        self.try_read().err()
    }

    fn unacked(&self) -> Result<u64> {
        self.tcp.unacked()
    }

    fn acks(&self) -> Result<Acks> {
        self.tcp.acks()
    }

    fn reset_at_end(&self) {
        self.tcp.reset_at_end();
    }
}

impl Drop for TlsConnection {
    /// Sends close_notify, unless a frame is unfinished. A proxy passes on a connection that ends
    /// without it as a reset, and bytes before that may be lost.
    fn drop(&mut self) {
        let mut session = self.session();
        if session.end == OwnEnd::Open
            && !self.tcp.is_within_a_frame()
            && !session.rustls.is_handshaking()
        {
            session.rustls.send_close_notify();
            // The connection is over either way.
            let _ = self.flush(&mut session);
        }
    }
}

/// Our kernel's end of the connection, as rustls needs it.
struct Kernel<'a>(&'a TcpStream);

impl Read for Kernel<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Kernel<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
