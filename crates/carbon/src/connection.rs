//! One TCP connection to Carbon: connecting, writing, watching for its end, and what that end
//! proves.
//!
//! Carbon never sends anything except an end of file or an error. What sends more than
//! [`MOST_RECEIVED`] is not Carbon, and the end of a connection on which anything came proves
//! nothing. After a write that was cut short, the stream is out of step: it is reset and never used
//! again, because a receiver could take half a line for a whole one. If this process is killed, it
//! is not reset; so lines are given to our kernel only when it has room for all of them.
//!
//! The daemon has one thread: each loop that a peer can keep going yields in every turn, or has an
//! end.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::from_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::acks::Acks;
use crate::connection_error::{ConnectionError, Result};
use crate::destination::{Destination, Timeouts};
use carbon_wire::Protocol;

/// Size of our kernel's send buffer, bytes. It is small, because what is still in it is lost with
/// the connection.
const SEND_BUFFER: usize = 256 * 1024;
/// Time that each address of a name gets at least, while `connect_timeout` allows two of them.
const LEAST_SHARE: Duration = Duration::from_secs(1);
/// Time between the probes of an idle connection, which show whether its network path works.
const PROBED_EVERY: Duration = Duration::from_secs(10);
/// The number of unanswered probes after which our kernel ends a connection. It is the most that
/// the kernel takes, so that probes alone end none.
const PROBES: u32 = 127;
/// Bytes that a Carbon may send on one connection; a program that sends more is not Carbon.
pub(crate) const MOST_RECEIVED: usize = 4096;

/// A connection to a receiver: TCP, TLS, or a simulated one in tests.
pub trait Stream: Sized + Send + Sync + 'static {
    /// Looks the name up and tries its addresses, in the resolver's order from behind the last one
    /// that was tried.
    ///
    /// # Errors
    /// The name cannot be looked up, or no address accepts the connection.
    fn open(to: &Destination, tried: &LastTried) -> impl Future<Output = Result<Self>> + Send;

    /// Opens another connection to the same IP address and port.
    ///
    /// # Errors
    /// The connection is not accepted.
    fn open_again(&self) -> impl Future<Output = Result<Self>> + Send + use<Self>;

    /// The peer's IP address and port.
    fn peer(&self) -> SocketAddr;

    /// Hands the whole frame to our kernel.
    ///
    /// # Errors
    /// The connection is lost: closed or broken.
    fn write(&self, frame: &[u8]) -> impl Future<Output = Result> + Send;

    /// Closes our end. The peer closes its own only after it has read every byte before.
    ///
    /// # Errors
    /// An error of the socket.
    fn half_close(&self) -> Result;

    /// Waits for the end of the connection, which is the only thing that Carbon ever says. The
    /// result is [`ConnectionError::Closed`] if the peer has read every byte: an end of file came,
    /// nothing before it, no error followed it (unread bytes would cause one), and everything was
    /// acknowledged, including our own end.
    fn wait_for_end(&self) -> impl Future<Output = ConnectionError> + Send;

    /// The end of the connection; `None`: it has not come yet.
    fn has_ended(&self) -> Option<ConnectionError>;

    /// Bytes written that the peer's kernel has not acknowledged.
    ///
    /// # Errors
    /// An error of the socket.
    fn unacked(&self) -> Result<u64>;

    /// The acknowledgements of the peer, as our kernel knows them.
    ///
    /// # Errors
    /// An error of the socket.
    fn acks(&self) -> Result<Acks>;

    /// Makes the connection end with a reset when it is dropped: our kernel then sends nothing that
    /// is left.
    fn reset_at_end(&self);
}

/// A TCP connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    protocol: Protocol,
    timeouts: Timeouts,
    /// Whether a frame was begun and is not yet completely written.
    unfinished: AtomicBool,
    /// Bytes that the peer has sent.
    received: AtomicUsize,
    /// Whether the peer's kernel had acknowledged all that was written when it was last looked at.
    /// A write takes this back.
    acknowledged: AtomicBool,
}

/// Looks up every address of the destination's name, in the resolver's order. It waits for
/// `connect_timeout` at most, because the name service may hang.
///
/// # Errors
/// The resolver's, also that it does not answer.
pub async fn look_up(to: &Destination) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = (to.address.host.clone(), to.address.port);
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (owner, question) = (format!("names for {}", to.name), to.address.to_string());
    #[expect(clippy::disallowed_methods, reason = "in a thread")]
    let work = move || (host.as_str(), port).to_socket_addrs().map(Vec::from_iter);
    waiting_threads::ask(&owner, &question, to.timeouts.connect, work).await?
}

/// Whether the program at the destination's address speaks TLS; no, if it cannot be reached.
#[cfg(feature = "tls")]
pub async fn speaks_tls(to: &Destination) -> bool {
    let Ok(addresses) = look_up(to).await else { return false };
    crate::tls::speaks_tls(&to.address.host, &addresses).await
}

/// The address with which the last attempt to connect ended without success. The next attempt
/// begins behind it. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LastTried(Arc<Mutex<Option<SocketAddr>>>);

impl LastTried {
    fn set(&self, peer: Option<SocketAddr>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = peer;
    }

    /// Returns the addresses in their order, beginning behind the one that was tried last, if it is
    /// among them.
    fn begin_behind(&self, mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let tried = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = addresses.iter().position(|&peer| Some(peer) == tried) {
            addresses.rotate_left(at + 1);
        }
        addresses
    }
}

/// Calls `open` for the addresses of the name, with the time that each may take, until one
/// succeeds or `connect_timeout` is over.
///
/// # Errors
/// The name cannot be looked up, or no address succeeds. An address that accepted the connection
/// and then failed gives the error; otherwise the last one does.
pub(crate) async fn open_first<C, F: Future<Output = Result<C>>>(
    to: &Destination,
    tried: &LastTried,
    open: impl Fn(SocketAddr, Duration) -> F,
) -> Result<C> {
    let lookup_error = |source| ConnectionError::Lookup(to.address.host.clone(), source);
    let nothing = lookup_error(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    let addresses = look_up(to).await.map_err(lookup_error)?;
    first_of(addresses, to.timeouts.connect, tried, open).await.unwrap_or(Err(nothing))
}

/// Calls `open` for the addresses until one succeeds; `None`: there are none. All share one
/// deadline, because a name service can name thousands, and the next attempt asks it again.
async fn first_of<C, F: Future<Output = Result<C>>>(
    addresses: Vec<SocketAddr>,
    patience: Duration,
    tried: &LastTried,
    open: impl Fn(SocketAddr, Duration) -> F,
) -> Option<Result<C>> {
    let deadline = Instant::now() + patience;
    let least = LEAST_SHARE.min(patience / 2);
    let mut best_error: Option<ConnectionError> = None;
    let addresses = tried.begin_behind(addresses);
    for (left, peer) in
        (1..=u32::try_from(addresses.len()).unwrap_or(u32::MAX)).rev().zip(addresses)
    {
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            break;
        }
        match open(peer, (rest / left).max(least).min(rest)).await {
            Ok(connection) => {
                tried.set(None);
                return Some(Ok(connection));
            }
            // That error is more useful than a refused connection at another address.
            Err(_)
                if best_error.as_ref().is_some_and(|best_error| {
                    !matches!(best_error, ConnectionError::Connect(..))
                }) => {}
            Err(error) => best_error = Some(error),
        }
        tried.set(Some(peer));
    }
    best_error.map(Err)
}

impl Connection {
    pub(crate) async fn to(
        peer: SocketAddr,
        protocol: Protocol,
        timeouts: Timeouts,
        patience: Duration,
    ) -> Result<Self> {
        let stream = timeout(patience, TcpStream::connect(peer))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|source| ConnectionError::Connect(peer, source))?;
        SockRef::from(&stream).set_tcp_nodelay(true)?;
        SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER)?;
        let probes = TcpKeepalive::new().with_time(PROBED_EVERY).with_interval(PROBED_EVERY);
        SockRef::from(&stream).set_tcp_keepalive(&probes.with_retries(PROBES))?;
        Ok(Self {
            stream,
            peer,
            protocol,
            timeouts,
            unfinished: false.into(),
            received: 0.into(),
            acknowledged: false.into(),
        })
    }

    /// Reads what the peer has sent, and throws it away. The error is the end of the connection.
    fn try_read(&self) -> Result {
        self.try_read_behind(0)
    }

    /// Reads what the peer has sent, and throws it away. The error is the end of the connection;
    /// `own` bytes need not be acknowledged at an end of file.
    pub(crate) fn try_read_behind(&self, own: u64) -> Result {
        let mut ignored = [0_u8; MOST_RECEIVED];
        match self.stream.try_read(&mut ignored) {
            Ok(0) => Err(self.explain_end(own)),
            Ok(read) => self.received(read),
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Err(error.into())
            }
            Err(_) => Ok(()),
        }
    }

    /// Counts bytes that the peer has sent.
    ///
    /// # Errors
    /// [`ConnectionError::NotCarbon`] if there are too many.
    pub(crate) fn received(&self, bytes: usize) -> Result {
        let before = self.received.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > MOST_RECEIVED {
            Err(ConnectionError::NotCarbon)
        } else {
            Ok(())
        }
    }

    /// The error for a peer that has closed the connection: it depends on whether the peer has sent
    /// anything.
    pub(crate) fn closed(&self) -> ConnectionError {
        let is_silent = self.received.load(Ordering::Relaxed) == 0;
        if is_silent { ConnectionError::Closed } else { ConnectionError::Talked }
    }

    /// The error for an end of file. If more than `own` bytes are unacknowledged, it does not prove
    /// that everything was read.
    pub(crate) fn explain_end(&self, own: u64) -> ConnectionError {
        match (self.unacked(), self.stream.take_error()) {
            (Err(error), _) => error,
            (Ok(bytes), _) if bytes > own => {
                io::Error::other("the peer closed the connection before it had read everything")
                    .into()
            }
            (_, Ok(None)) => self.closed(),
            (_, Ok(Some(error)) | Err(error)) => error.into(),
        }
    }

    /// Waits until our kernel accepts more, for `pause_timeout` at most; `read` reads what arrives
    /// in the meantime.
    pub(crate) async fn progress(&self, read: impl Fn() -> Result) -> Result {
        let progress = async {
            while !self.stream.ready(Interest::READABLE | Interest::WRITABLE).await?.is_writable() {
                read()?;
                yield_now().await;
            }
            read()
        };
        let pause = self.timeouts.pause;
        timeout(pause, progress).await.unwrap_or(Err(ConnectionError::Unread(pause)))
    }

    /// Checks that a third of the send buffer is free, which Linux takes for writable; if not, the
    /// error is `WouldBlock`. A write alone takes what there is room for.
    fn has_room(&self) -> io::Result<()> {
        let mut socket = [PollFd::new(&self.stream, PollFlags::OUT)];
        let ready = poll(&mut socket, Some(&Timespec::default()))?;
        if ready > 0 { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    #[cfg(feature = "tls")]
    pub(crate) const fn protocol(&self) -> Protocol {
        self.protocol
    }

    #[cfg(feature = "tls")]
    pub(crate) const fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    #[cfg(feature = "tls")]
    pub(crate) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn begin_frame(&self) {
        self.unfinished.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end_frame(&self) {
        self.unfinished.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_within_a_frame(&self) -> bool {
        self.unfinished.load(Ordering::Relaxed)
    }
}

impl Stream for Connection {
    async fn open(to: &Destination, tried: &LastTried) -> Result<Self> {
        let open = |peer, patience| Self::to(peer, to.protocol, to.timeouts, patience);
        open_first(to, tried, open).await
    }

    fn open_again(&self) -> impl Future<Output = Result<Self>> + Send + use<> {
        Self::to(self.peer, self.protocol, self.timeouts, self.timeouts.connect)
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    async fn write(&self, frame: &[u8]) -> Result {
        let mut rest = frame;
        self.begin_frame();
        while !rest.is_empty() {
            let is_empty = self.acknowledged.swap(false, Ordering::Relaxed);
            let room = if is_empty {
                Ok(())
            } else {
                self.stream.try_io(Interest::WRITABLE, || self.has_room())
            };
            match room.and_then(|()| self.stream.try_write(self.protocol.piece(rest))) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.progress(|| self.try_read()).await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.end_frame();
        Ok(())
    }

    fn half_close(&self) -> Result {
        Ok(SockRef::from(&self.stream).shutdown(std::net::Shutdown::Write)?)
    }

    async fn wait_for_end(&self) -> ConnectionError {
        loop {
            if let Err(error) = self.stream.readable().await {
                return error.into();
            }
            if let Err(error) = self.try_read() {
                return error;
            }
            yield_now().await;
        }
    }

    fn has_ended(&self) -> Option<ConnectionError> {
        self.try_read().err()
    }

    #[expect(
        unsafe_code,
        reason = "no crate that is kept asks for SIOCOUTQ; docs/development/decisions.md"
    )]
    fn unacked(&self) -> Result<u64> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the descriptor is open while it is borrowed. For a connected socket SIOCOUTQ,
        // which tcp(7) documents as TIOCOUTQ, writes one int.
        let failed = unsafe {
            libc::ioctl(self.stream.as_fd().as_raw_fd(), libc::TIOCOUTQ, from_mut(&mut bytes))
        };
        self.acknowledged.store(failed == 0 && bytes == 0, Ordering::Relaxed);
        if failed == 0 {
            Ok(bytes.unsigned_abs().into())
        } else {
            Err(io::Error::last_os_error().into())
        }
    }

    fn acks(&self) -> Result<Acks> {
        Ok(Acks::of_socket(&self.stream, self.unacked()?)?)
    }

    fn reset_at_end(&self) {
        // Without it the end is the usual one.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

impl Drop for Connection {
    /// Resets the connection if a frame is unfinished. Otherwise a plaintext receiver may take an
    /// unfinished last line for a whole one (`VictoriaMetrics` does).
    fn drop(&mut self) {
        if self.is_within_a_frame() {
            self.reset_at_end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    fn destination(address: &str, timeouts: Timeouts) -> Destination {
        let protocol = carbon_wire::Protocol::Plaintext;
        Destination { protocol, timeouts, ..Destination::new("test", address.parse().unwrap()) }
    }

    async fn pair() -> (Connection, TcpStream) {
        pair_with(Timeouts { pause: Duration::from_millis(300), ..Timeouts::default() }).await
    }

    async fn pair_with(timeouts: Timeouts) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = destination(&listener.local_addr().unwrap().to_string(), timeouts);
        let connection = Connection::open(&to, &LastTried::default()).await.unwrap();
        (connection, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_peer_that_closes_is_noticed_while_idle() {
        let (connection, peer) = pair().await;
        drop(peer);
        let error = timeout(Duration::from_secs(5), connection.wait_for_end()).await.unwrap();
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
            let end = timeout(Duration::from_secs(5), connection.wait_for_end()).await.unwrap();
            assert_eq!(matches!(end, ConnectionError::Closed), reads, "{end}");
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
        assert!(matches!(error.await.unwrap(), ConnectionError::Unread(_)));
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
        let end = timeout(Duration::from_secs(5), connection.wait_for_end()).await.unwrap();
        assert!(matches!(end, ConnectionError::Closed), "{end}");
        assert_eq!(read, b"frame");
    }

    /// On the daemon's only thread: as long as bytes came as fast as they were read, nothing else
    /// ran.
    #[tokio::test]
    async fn a_peer_that_sends_without_end_is_not_carbon_and_does_not_hold_the_thread() {
        let (connection, peer) = pair().await;
        let peer = peer.into_std().unwrap();
        peer.set_nonblocking(false).unwrap();
        std::thread::spawn(
            move || while std::io::Write::write(&mut &peer, &[b'x'; 1 << 20]).is_ok() {},
        );
        let error = timeout(Duration::from_secs(20), connection.wait_for_end()).await.unwrap();
        assert!(matches!(error, ConnectionError::NotCarbon), "{error}");
        assert!(matches!(connection.has_ended(), Some(ConnectionError::NotCarbon)));
    }

    #[tokio::test]
    async fn the_end_of_a_connection_on_which_something_came_proves_nothing() {
        let (connection, mut peer) = pair().await;
        connection.half_close().unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut peer, b"welcome").await.unwrap();
        drop(peer);
        let end = timeout(Duration::from_secs(20), connection.wait_for_end()).await.unwrap();
        assert!(matches!(end, ConnectionError::Talked), "{end}");
    }

    #[tokio::test]
    async fn every_address_of_a_name_is_tried() {
        // localhost has 127.0.0.1 and often ::1; only one of them listens.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let to = destination(&address, Timeouts::default());
        Connection::open(&to, &LastTried::default()).await.unwrap();
    }

    #[tokio::test]
    async fn of_several_addresses_the_first_that_is_of_use_is_taken_and_else_what_one_said_that_listens()
     {
        let peers: Vec<SocketAddr> = (1..4).map(|port| ([127, 0, 0, 1], port).into()).collect();
        let open = |good: u16| {
            let one = move |peer: SocketAddr, _| async move {
                match peer.port() {
                    port if port == good => Ok(port),
                    2 => Err(ConnectionError::Tls("another name".into())),
                    _ => {
                        Err(ConnectionError::Connect(peer, io::ErrorKind::ConnectionRefused.into()))
                    }
                }
            };
            let peers = peers.clone();
            async move { first_of(peers, LEAST_SHARE, &LastTried::default(), one).await }
        };
        assert!(matches!(open(3).await, Some(Ok(3))), "behind one with another certificate");
        assert!(matches!(open(9).await, Some(Err(ConnectionError::Tls(_)))));
        let tried = LastTried::default();
        let none = first_of(Vec::new(), LEAST_SHARE, &tried, |_, _| async { Ok(()) });
        assert!(none.await.is_none());
    }

    /// Each address had all of `connect_timeout`: one answer of a name service with 4,000 of them
    /// held a destination for 11 hours.
    #[tokio::test(start_paused = true)]
    async fn all_addresses_have_one_deadline_and_the_next_attempt_begins_behind_the_last() {
        let addresses = |count: u16| -> Vec<SocketAddr> {
            (1..=count).map(|port| ([192, 0, 2, 1], port).into()).collect()
        };
        for (patience, dead, attempts) in [(10, 3, 1), (1, 3, 2), (10, 60, 7), (1, 4, 3)] {
            let (patience, tried) = (Duration::from_secs(patience), LastTried::default());
            let open = |peer: SocketAddr, share: Duration| async move {
                if peer.port() > dead {
                    return Ok(());
                }
                tokio::time::sleep(share).await;
                Err(ConnectionError::Connect(peer, io::ErrorKind::TimedOut.into()))
            };
            for attempt in 1..=attempts {
                let begin = Instant::now();
                let opened = first_of(addresses(dead + 1), patience, &tried, open).await.unwrap();
                assert!(begin.elapsed() <= patience, "{:?} of {patience:?}", begin.elapsed());
                assert_eq!(opened.is_ok(), attempt == attempts, "{dead} dead, attempt {attempt}");
            }
            // Another answer is tried from its beginning.
            let once = first_of(vec![([127, 0, 0, 1], 9).into()], patience, &tried, |_, _| async {
                Ok(())
            });
            assert!(once.await.unwrap().is_ok());
        }
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_is_said() {
        let to = destination("no-such-host.invalid:2004", Timeouts::default());
        let error = Connection::open(&to, &LastTried::default()).await.unwrap_err();
        assert!(error.to_string().starts_with("looking up no-such-host.invalid"), "{error}");
    }
}
