//! One TCP connection to Carbon: connecting, writing, watching for its end, and the half-close barrier.
//!
//! Carbon says nothing, ever; what comes from it is an end of file or an error, and both mean that the
//! connection is lost. A write that was cut short leaves the stream out of step: it must never be used again.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

use crate::address::Address;
use crate::tcp_info::TcpInfo;

/// Little may hide in our own kernel: what is there is lost with the connection.
const SEND_BUFFER: usize = 256 * 1024;
/// How often a write that waits looks whether the peer is alive.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long each step may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Looking the name up, and then connecting to each of its addresses.
    pub connect: Duration,
    /// The peer's kernel acknowledges nothing of what was written. An answer to a probe of a closed window is an
    /// acknowledgement: a Carbon that pauses reading is not away.
    pub stall: Duration,
    /// The peer's window stays closed: Carbon's cache is full (flow control), or it is stopped.
    pub pause: Duration,
    /// A peer that closes this long after the last write, or later, may close what is idle; one that closes sooner is failing.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            pause: Duration::from_secs(600),
            idle: Duration::from_secs(10),
        }
    }
}

/// Why there is no connection (any more).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The name has no address, or the resolver did not answer.
    #[error("looking up {host}: {source}")]
    Lookup {
        /// The name.
        host: String,
        /// The resolver's reason.
        source: io::Error,
    },
    /// No address of the name took the connection; the last one's reason.
    #[error("connecting to {peer}: {source}")]
    Connect {
        /// The address tried last.
        peer: String,
        /// Its reason.
        source: io::Error,
    },
    /// The peer closed it.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer's kernel acknowledged nothing for the stall time-out.
    #[error("the peer acknowledged nothing for {} s", .0.as_secs_f64())]
    Stalled(Duration),
    /// The peer read nothing for the pause time-out.
    #[error("the peer read nothing for {} s", .0.as_secs_f64())]
    Paused(Duration),
    /// Another error of the socket.
    #[error(transparent)]
    Socket(#[from] io::Error),
}

/// A connection that stands, as far as is known.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    timeouts: Timeouts,
    written: AtomicU64,
    /// Since when something waits for an acknowledgement, as far as was looked.
    waiting_since: Mutex<Option<Instant>>,
}

impl Connection {
    /// Looks `address` up and tries every address it has, in the resolver's order.
    ///
    /// # Errors
    /// The name cannot be looked up, or no address takes the connection.
    pub async fn open(address: &Address, timeouts: Timeouts) -> Result<Self, ConnectionError> {
        let lookup_error = |source| ConnectionError::Lookup { host: address.host.clone(), source };
        let addresses = timeout(timeouts.connect, lookup_host((address.host.as_str(), address.port)))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(lookup_error)?;
        let mut last = lookup_error(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        for peer in addresses {
            let connected = timeout(timeouts.connect, TcpStream::connect(peer))
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            match connected {
                Ok(stream) => {
                    set_options(&stream, timeouts)?;
                    return Ok(Self::on(stream, timeouts));
                }
                Err(source) => last = ConnectionError::Connect { peer: peer.to_string(), source },
            }
        }
        Err(last)
    }

    const fn on(stream: TcpStream, timeouts: Timeouts) -> Self {
        Self { stream, timeouts, written: AtomicU64::new(0), waiting_since: Mutex::new(None) }
    }

    /// Hands the whole frame to our kernel.
    ///
    /// # Errors
    /// The connection is lost: closed, broken or stalled.
    pub async fn write(&self, frame: &[u8]) -> Result<(), ConnectionError> {
        // Whatever was acknowledged before, what waits now waits from now on.
        self.check_alive()?;
        self.waiting_since.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
        let mut rest = frame;
        let mut progress = Instant::now();
        while !rest.is_empty() {
            match self.stream.try_write(rest) {
                Ok(written) => {
                    rest = rest.get(written..).unwrap_or_default();
                    self.written.fetch_add(u64::try_from(written).unwrap_or(0), Ordering::Relaxed);
                    progress = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = self.stream.ready(Interest::READABLE | Interest::WRITABLE);
                    match timeout(LOOK_EVERY.min(self.timeouts.stall), ready).await {
                        Ok(ready) => {
                            if ready?.is_readable() {
                                self.try_read()?;
                            }
                        }
                        Err(_) => self.check_alive()?,
                    }
                    if progress.elapsed() >= self.timeouts.pause {
                        return Err(ConnectionError::Paused(self.timeouts.pause));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Bytes written that the peer's kernel has not acknowledged.
    #[must_use]
    pub fn unacked(&self) -> u64 {
        // Its SYN was one.
        let acked = TcpInfo::of(&self.stream).map_or(0, |info| info.bytes_acked.saturating_sub(1));
        self.written.load(Ordering::Relaxed).saturating_sub(acked)
    }

    /// Whether the peer's kernel still answers what was sent to it.
    ///
    /// # Errors
    /// Something waits for an acknowledgement, and none of any kind has come for the stall time-out.
    pub fn check_alive(&self) -> Result<(), ConnectionError> {
        let info = TcpInfo::of(&self.stream)?;
        let mut waiting_since = self.waiting_since.lock().unwrap_or_else(PoisonError::into_inner);
        if info.unacked == 0 && info.notsent_bytes == 0 {
            *waiting_since = None;
            return Ok(());
        }
        let waited = waiting_since.get_or_insert_with(Instant::now).elapsed();
        let silence = waited.min(Duration::from_millis(info.last_ack_recv.into()));
        if silence >= self.timeouts.stall && info.is_unanswered() {
            Err(ConnectionError::Stalled(self.timeouts.stall))
        } else {
            Ok(())
        }
    }

    /// How long nothing had been written when `end` came; `None` where it is not that of a peer that closes what is idle: a
    /// clean one, with everything acknowledged, [`Timeouts::idle`] after the last write or later.
    #[must_use]
    pub fn idle_for(&self, end: &ConnectionError) -> Option<Duration> {
        let is_clean = matches!(end, ConnectionError::Closed)
            && self.unacked() == 0
            && matches!(self.stream.take_error(), Ok(None));
        let idle = Duration::from_millis(TcpInfo::of(&self.stream).ok()?.last_data_sent.into());
        (is_clean && idle >= self.timeouts.idle).then_some(idle)
    }

    /// Whether the peer that has closed it takes another at once, and keeps that for a while. One that has ended refuses it.
    pub async fn is_peer_there(&self) -> bool {
        let patience = self.timeouts.idle / 10;
        let Ok(peer) = self.stream.peer_addr() else { return false };
        let Ok(Ok(stream)) = timeout(patience, TcpStream::connect(peer)).await else { return false };
        timeout(patience, Self::on(stream, self.timeouts).closed()).await.is_err()
    }

    /// Waits for the end of the connection, which is the only thing that Carbon ever says.
    pub async fn closed(&self) -> ConnectionError {
        loop {
            if let Err(error) = self.stream.readable().await {
                return error.into();
            }
            if let Err(error) = self.try_read() {
                return error;
            }
        }
    }

    /// The half-close barrier: our end is closed, and the peer closes its own only after it has read and parsed
    /// every byte before.
    ///
    /// # Errors
    /// The connection broke first, so that nothing is confirmed.
    pub async fn barrier(self) -> Result<(), ConnectionError> {
        SockRef::from(&self.stream).shutdown(std::net::Shutdown::Write)?;
        match self.closed().await {
            // An end of file alone could come from a peer that had left bytes unread: then an error waits.
            ConnectionError::Closed => match self.stream.take_error()? {
                None => Ok(()),
                Some(error) => Err(error.into()),
            },
            error => Err(error),
        }
    }

    /// Reads what is there and throws it away.
    fn try_read(&self) -> Result<(), ConnectionError> {
        let mut ignored = [0_u8; 512];
        match self.stream.try_read(&mut ignored) {
            Ok(0) => Err(ConnectionError::Closed),
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn set_options(stream: &TcpStream, timeouts: Timeouts) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    let idle = Duration::from_secs(60);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle).with_interval(idle / 4).with_retries(4))?;
    // The kernel counts a closed window as silence too: it must be more patient than we are. Without it a peer that
    // vanished could be noticed after a quarter of an hour.
    socket.set_tcp_user_timeout(Some(timeouts.pause + timeouts.stall))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn pair() -> (Connection, TcpStream) {
        pair_with(Timeouts { pause: Duration::from_millis(300), ..Timeouts::default() }).await
    }

    async fn pair_with(timeouts: Timeouts) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let connection = Connection::open(&address, timeouts).await.unwrap();
        (connection, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_peer_that_closes_is_noticed_while_idle() {
        let (connection, peer) = pair().await;
        drop(peer);
        let error = timeout(Duration::from_secs(5), connection.closed()).await.unwrap();
        assert!(matches!(error, ConnectionError::Closed), "{error}");
    }

    #[tokio::test]
    async fn an_idle_close_is_told_from_one_after_a_write_and_from_one_with_bytes_unread() {
        let wait = Duration::from_millis(600);
        for (reads, waits, is_idle) in [(true, true, true), (true, false, false), (false, true, false)] {
            // Not on the clock: the machine may be busy.
            let idle = if waits { wait / 2 } else { wait * 100 };
            let (connection, mut peer) = pair_with(Timeouts { idle, ..Timeouts::default() }).await;
            connection.write(b"frame").await.unwrap();
            if reads {
                tokio::io::AsyncReadExt::read_exact(&mut peer, &mut [0; 5]).await.unwrap();
            }
            if waits {
                tokio::time::sleep(wait).await;
            }
            drop(peer);
            let end = timeout(Duration::from_secs(5), connection.closed()).await.unwrap();
            let idle_for = connection.idle_for(&end);
            assert_eq!(idle_for.is_some_and(|idle| idle >= wait), is_idle, "{reads} {waits}: {end}");
            assert_eq!(idle_for.is_some(), is_idle, "{reads} {waits}: {end}");
        }
    }

    #[tokio::test]
    async fn a_peer_that_never_reads_is_given_up_in_the_end() {
        let (connection, _peer) = pair().await;
        let frame = vec![0; 1 << 20];
        let error = timeout(Duration::from_secs(20), async {
            loop {
                if let Err(error) = connection.write(&frame).await {
                    return error;
                }
            }
        });
        assert!(matches!(error.await.unwrap(), ConnectionError::Paused(_)));
    }

    #[tokio::test]
    async fn a_closed_window_is_no_stall_however_rare_its_probes_become() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let timeouts = Timeouts {
            stall: Duration::from_millis(500),
            pause: Duration::from_secs(6),
            ..Timeouts::default()
        };
        let connection = Connection::open(&address, timeouts).await.unwrap();
        let _peer = listener.accept().await.unwrap().0;
        let frame = vec![0; 1 << 20];
        let start = Instant::now();
        let error = loop {
            if let Err(error) = connection.write(&frame).await {
                break error;
            }
        };
        // The kernel's probes are more than 500 ms apart after the third.
        assert!(matches!(error, ConnectionError::Paused(_)), "{error} after {:?}", start.elapsed());
    }

    #[tokio::test]
    async fn the_barrier_passes_once_everything_was_read() {
        let (connection, mut peer) = pair().await;
        connection.write(b"frame").await.unwrap();
        let reader = tokio::spawn(async move {
            let mut read = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut peer, &mut read).await.unwrap();
            read
        });
        connection.barrier().await.unwrap();
        assert_eq!(reader.await.unwrap(), b"frame");
    }

    #[tokio::test]
    async fn the_barrier_fails_when_bytes_were_left_unread() {
        let (connection, peer) = pair().await;
        connection.write(b"frame").await.unwrap();
        drop(peer);
        assert!(connection.barrier().await.is_err());
    }

    #[tokio::test]
    async fn every_address_of_a_name_is_tried() {
        // localhost has 127.0.0.1 and often ::1; only one of them listens.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address { host: "localhost".into(), port: listener.local_addr().unwrap().port() };
        Connection::open(&address, Timeouts::default()).await.unwrap();
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_is_said() {
        let address = "no-such-host.invalid:2004".parse().unwrap();
        let error = Connection::open(&address, Timeouts::default()).await.unwrap_err();
        assert!(error.to_string().starts_with("looking up no-such-host.invalid"), "{error}");
    }
}
