//! One TCP connection to Carbon: connecting, writing, watching for its end, and what that end proves.
//!
//! Carbon says nothing, ever; what comes from it is an end of file or an error. A write that was cut short leaves the stream
//! out of step: it is never used again, and is reset, so that no receiver takes half a line for a whole one.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// How soon the peer must answer a half-close, and its kernel acknowledge what was written. An answer to a probe of a closed
    /// window is an acknowledgement: a Carbon that pauses reading is not away.
    pub stall: Duration,
    /// How long a peer may read nothing, or not answer a half-close, before its connection is given up.
    pub pause: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            pause: Duration::from_secs(600),
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
    /// The peer did not answer a half-close within the pause time-out.
    #[error("the peer did not close its end within {} s of ours", .0.as_secs_f64())]
    Unanswered(Duration),
    /// The name has another address now.
    #[error("the name has another address now")]
    Moved,
    /// No second connection could be made for a long time: this one was closed to make the next.
    #[error("no second connection could be made: {0}")]
    Alone(String),
    /// Another error of the socket.
    #[error(transparent)]
    Socket(#[from] io::Error),
}

/// A connection to a receiver: [`Connection`], or one that a test imitates.
pub trait Stream: Sized + Send + Sync + 'static {
    /// Looks `address` up and tries every address it has, in the resolver's order.
    ///
    /// # Errors
    /// The name cannot be looked up, or no address takes the connection.
    fn open(
        address: &Address,
        timeouts: Timeouts,
    ) -> impl Future<Output = Result<Self, ConnectionError>> + Send;

    /// Another connection to the same IP address and port.
    ///
    /// # Errors
    /// It takes none.
    fn open_again(&self) -> impl Future<Output = Result<Self, ConnectionError>> + Send + use<Self>;

    /// The peer's IP address and port.
    fn peer(&self) -> SocketAddr;

    /// Hands the whole frame to our kernel.
    ///
    /// # Errors
    /// The connection is lost: closed, broken or stalled.
    fn write(&self, frame: &[u8]) -> impl Future<Output = Result<(), ConnectionError>> + Send;

    /// Closes our end. The peer closes its own only after it has read every byte before.
    ///
    /// # Errors
    /// The socket's.
    fn half_close(&self) -> Result<(), ConnectionError>;

    /// Waits for the end of the connection, which is the only thing that Carbon ever says.
    fn ended(&self) -> impl Future<Output = ConnectionError> + Send;

    /// The end of the connection, if it has come.
    fn has_ended(&self) -> Option<ConnectionError>;

    /// Whether `end` shows that the peer has read every byte: a clean end of file, no error behind it (there is one where bytes
    /// were left unread), and everything acknowledged, our own end among it.
    fn is_clean(&self, end: &ConnectionError) -> bool;

    /// Bytes written that the peer's kernel has not acknowledged.
    ///
    /// # Errors
    /// Something waits for an acknowledgement, and none of any kind has come for the stall time-out.
    fn unacked(&self) -> Result<u64, ConnectionError>;
}

/// A TCP connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    timeouts: Timeouts,
    written: AtomicU64,
    /// A frame has been begun, and is not written as a whole.
    unfinished: AtomicBool,
    /// Since when something waits for an acknowledgement, as far as was looked.
    waiting_since: Mutex<Option<Instant>>,
}

impl Connection {
    async fn to(peer: SocketAddr, timeouts: Timeouts) -> Result<Self, ConnectionError> {
        let stream = timeout(timeouts.connect, TcpStream::connect(peer))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|source| ConnectionError::Connect { peer: peer.to_string(), source })?;
        set_options(&stream, timeouts)?;
        let (written, unfinished) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self { stream, peer, timeouts, written, unfinished, waiting_since: Mutex::new(None) })
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

impl Stream for Connection {
    async fn open(address: &Address, timeouts: Timeouts) -> Result<Self, ConnectionError> {
        let lookup_error = |source| ConnectionError::Lookup { host: address.host.clone(), source };
        let addresses = timeout(timeouts.connect, lookup_host((address.host.as_str(), address.port)))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(lookup_error)?;
        let mut last = lookup_error(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        for peer in addresses {
            match Self::to(peer, timeouts).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn open_again(&self) -> impl Future<Output = Result<Self, ConnectionError>> + Send + use<> {
        Self::to(self.peer, self.timeouts)
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    async fn write(&self, frame: &[u8]) -> Result<(), ConnectionError> {
        // Whatever was acknowledged before, what waits now waits from now on.
        self.unacked()?;
        self.waiting_since.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
        let mut rest = frame;
        let mut progress = Instant::now();
        self.unfinished.store(true, Ordering::Relaxed);
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
                        Err(_) => drop(self.unacked()?),
                    }
                    if progress.elapsed() >= self.timeouts.pause {
                        return Err(ConnectionError::Paused(self.timeouts.pause));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.unfinished.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn half_close(&self) -> Result<(), ConnectionError> {
        Ok(SockRef::from(&self.stream).shutdown(std::net::Shutdown::Write)?)
    }

    async fn ended(&self) -> ConnectionError {
        loop {
            if let Err(error) = self.stream.readable().await {
                return error.into();
            }
            if let Err(error) = self.try_read() {
                return error;
            }
        }
    }

    fn has_ended(&self) -> Option<ConnectionError> {
        self.try_read().err()
    }

    fn is_clean(&self, end: &ConnectionError) -> bool {
        matches!(end, ConnectionError::Closed)
            && matches!(self.stream.take_error(), Ok(None))
            && TcpInfo::of(&self.stream).is_ok_and(|info| info.has_all_acknowledged())
    }

    fn unacked(&self) -> Result<u64, ConnectionError> {
        let info = TcpInfo::of(&self.stream)?;
        let mut waiting_since = self.waiting_since.lock().unwrap_or_else(PoisonError::into_inner);
        if info.unacked == 0 && info.notsent_bytes == 0 {
            *waiting_since = None;
            return Ok(0);
        }
        let waited = waiting_since.get_or_insert_with(Instant::now).elapsed();
        let silence = waited.min(Duration::from_millis(info.last_ack_recv.into()));
        if silence >= self.timeouts.stall && info.is_unanswered() {
            return Err(ConnectionError::Stalled(self.timeouts.stall));
        }
        // Its SYN was one.
        let acked = info.bytes_acked.saturating_sub(1);
        Ok(self.written.load(Ordering::Relaxed).saturating_sub(acked))
    }
}

impl Drop for Connection {
    /// A plaintext receiver may take an unfinished last line for a whole one (`VictoriaMetrics` does), unless it sees a reset.
    fn drop(&mut self) {
        if self.unfinished.load(Ordering::Relaxed) {
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
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
        let error = timeout(Duration::from_secs(5), connection.ended()).await.unwrap();
        assert!(matches!(error, ConnectionError::Closed), "{error}");
    }

    #[tokio::test]
    async fn a_close_with_bytes_unread_is_no_clean_end() {
        for reads in [true, false] {
            let (connection, mut peer) = pair().await;
            connection.write(b"frame").await.unwrap();
            if reads {
                tokio::io::AsyncReadExt::read_exact(&mut peer, &mut [0; 5]).await.unwrap();
            }
            drop(peer);
            let end = timeout(Duration::from_secs(5), connection.ended()).await.unwrap();
            assert_eq!(connection.is_clean(&end), reads, "{end}");
        }
    }

    #[tokio::test]
    async fn a_frame_that_was_cut_off_ends_in_a_reset_and_a_whole_one_does_not() {
        for whole in [true, false] {
            let (connection, mut peer) = pair_with(Timeouts::default()).await;
            let frame = vec![b'1'; if whole { 10 } else { 64 << 20 }];
            let written = timeout(Duration::from_millis(200), connection.write(&frame)).await;
            assert_eq!(written.is_ok(), whole);
            drop(connection);
            let read = tokio::io::AsyncReadExt::read_to_end(&mut peer, &mut Vec::new()).await;
            assert_eq!(read.is_ok(), whole, "{read:?}");
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
    async fn the_answer_to_a_half_close_comes_after_everything_was_read() {
        let (connection, mut peer) = pair().await;
        connection.write(b"frame").await.unwrap();
        connection.half_close().unwrap();
        assert!(connection.has_ended().is_none());
        let mut read = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut peer, &mut read).await.unwrap();
        drop(peer);
        let end = timeout(Duration::from_secs(5), connection.ended()).await.unwrap();
        assert!(connection.is_clean(&end), "{end}");
        assert_eq!(read, b"frame");
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
