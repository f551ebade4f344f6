//! A simulated receiver with a simulated clock: what it reads, holds in memory and stores, and how
//! it ends.
//!
//! Weights represent points: a tick is one line, `w WEIGHT TIMESTAMP`, and the kernel accepts as
//! much of it as it has room for.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::acks::Acks;
use crate::connection::{LastTried, Stream};
use crate::connection_error::ConnectionError;
use crate::destination::Timeouts;
use crate::sender::Destination;

/// The simulated receiver looks at its connections this often.
pub(super) const STEP: Duration = Duration::from_millis(250);
/// Connections that a kernel keeps for a program that does not accept them.
const BACKLOG: usize = 50;
/// Time for which a proxy tries to reach its backend.
const TRIES: Duration = Duration::from_secs(20);

thread_local! {
    static WORLD: RefCell<Network> = RefCell::new(Network::default());
}

/// The connection that is read next if several have unread bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The oldest connection is read first.
    Oldest,
    /// The newest connection is read first, as a thread for each may do.
    Newest,
    /// All connections are read in equal parts.
    Shared,
}

/// The properties of a receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiverKind {
    /// Points read in a second.
    pub(super) reads: f64,
    /// Points written to disk in a second.
    pub(super) stores: f64,
    /// Points in memory with which it stops reading, until a twentieth of them is stored.
    pub(super) cache: f64,
    /// Whether it starts with that many in memory.
    pub(super) full: bool,
    /// Running time for which a point stays in memory at least.
    pub(super) holds: Duration,
    /// Points that the kernels buffer for a connection.
    pub(super) room: f64,
    pub(super) order: Order,
    /// Time after which it closes an idle connection.
    pub(super) closes_idle_after: Option<Duration>,
    /// Time after our end until it closes its own, even if it has read everything.
    pub(super) answers_after: Duration,
    /// A proxy in front of it closes its end this long after ours, whatever has been read.
    pub(super) proxy_closes_after: Option<Duration>,
    /// Whether it speaks TLS. Its close_notify comes only if everything was read: not from that
    /// proxy's timer, and not from a kernel whose program has died.
    pub(super) tls: bool,
    /// Whether it refuses a tick older than the newest one that it has.
    pub(super) strict: bool,
    /// Connections that it accepts at once.
    pub(super) most_connections: usize,
}

impl Default for ReceiverKind {
    fn default() -> Self {
        Self {
            reads: 1e9,
            stores: 1e9,
            cache: f64::INFINITY,
            full: false,
            holds: Duration::ZERO,
            room: 100_000.0,
            order: Order::Shared,
            closes_idle_after: None,
            answers_after: Duration::ZERO,
            proxy_closes_after: None,
            tls: false,
            strict: false,
            most_connections: usize::MAX,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiverState {
    Runs,
    Hangs,
    Down,
    /// Its host is gone: nothing answers.
    Gone,
    /// Another program has its port: it reads everything, forgets it, and sends data.
    Talks,
    /// Another program has its port: it reads everything, forgets it, and sends one word before it
    /// answers a half-close.
    Greets,
    /// A proxy whose backend is dead: it reads everything, forgets it, and closes each connection
    /// after 20 s.
    DeadBackend,
}

struct Receiver {
    kind: ReceiverKind,
    process: ReceiverState,
    /// Time that it has run.
    ran: Duration,
    paused: bool,
    /// (timestamp, points, running time at which it was read)
    memory: VecDeque<(i64, f64, Duration)>,
    held: f64,
    stored: BTreeSet<i64>,
    /// It accepts no new connection: a certificate has expired.
    refuses: bool,
    /// The daemon's host has no file descriptor for another connection to it.
    lacks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionEnd {
    Closed,
    Truncated,
    Reset,
    NotCarbon,
    Talked,
}

struct SimulatedLink {
    receiver: usize,
    accepted: bool,
    /// (timestamp, points of it that are unread, whether its last byte is among them)
    unread: VecDeque<(i64, f64, bool)>,
    half_closed: Option<Instant>,
    ended: Option<ConnectionEnd>,
    opened: Instant,
    last_bytes: Instant,
    news: Arc<Notify>,
}

impl SimulatedLink {
    fn weight(&self) -> f64 {
        self.unread.iter().map(|(_, weight, _)| weight).sum()
    }

    /// Something that is not Carbon reads everything that has come.
    fn forget(&mut self, process: ReceiverState, tls: bool, now: Instant) {
        let is_over = now >= self.opened + TRIES;
        let end = match process {
            ReceiverState::Talks => Some(ConnectionEnd::NotCarbon),
            ReceiverState::Greets => self.half_closed.map(|_| ConnectionEnd::Talked),
            ReceiverState::DeadBackend if tls => is_over.then_some(ConnectionEnd::Truncated),
            // A clean end would look like an answer: docs/losses.md says which proxies do that.
            ReceiverState::DeadBackend if self.half_closed.is_some() => {
                is_over.then_some(ConnectionEnd::Reset)
            }
            ReceiverState::DeadBackend => is_over.then_some(ConnectionEnd::Closed),
            _ => return,
        };
        self.accepted = true;
        self.unread.clear();
        self.news.notify_waiters();
        if let Some(end) = end {
            self.end(end);
        }
    }

    fn end(&mut self, end: ConnectionEnd) {
        self.ended.get_or_insert(end);
        self.unread.clear();
        self.news.notify_waiters();
    }
}

#[derive(Default)]
struct Network {
    receivers: Vec<Receiver>,
    links: BTreeMap<usize, SimulatedLink>,
    next_link: usize,
    /// The receiver that the name leads to.
    name: usize,
    /// The name cannot be looked up.
    nameless: bool,
    /// Number of times that each tick was written as a whole.
    writes: BTreeMap<i64, u32>,
}

fn world<T>(change: impl FnOnce(&mut Network) -> T) -> T {
    WORLD.with_borrow_mut(change)
}

/// An empty world with these receivers; the name leads to the first.
pub(super) fn begin(kinds: &[ReceiverKind]) -> tokio::task::JoinSet<()> {
    let receiver = |&kind: &ReceiverKind| Receiver {
        kind,
        process: ReceiverState::Runs,
        ran: Duration::ZERO,
        paused: false,
        memory: if kind.full {
            [(PART, kind.cache, Duration::ZERO)].into()
        } else {
            VecDeque::new()
        },
        held: if kind.full { kind.cache } else { 0.0 },
        stored: BTreeSet::new(),
        refuses: false,
        lacks: false,
    };
    world(|world| {
        *world = Network { receivers: kinds.iter().map(receiver).collect(), ..Network::default() }
    });
    let mut steps = tokio::task::JoinSet::new();
    steps.spawn(async {
        loop {
            sleep(STEP).await;
            world(Network::step);
        }
    });
    steps
}

/// Changes the state of a receiver's process.
pub(super) fn set(receiver: usize, process: ReceiverState) {
    world(|world| world.set(receiver, process));
}

/// The receiver's certificate expires.
pub(super) fn expire(receiver: usize) {
    world(|world| world.receivers[receiver].refuses = true);
}

/// Takes from the daemon's host the file descriptors for connections to it, or gives them back.
pub(super) fn lack(receiver: usize, lacks: bool) {
    world(|world| world.receivers[receiver].lacks = lacks);
}

/// The name leads to this receiver from now on.
pub(super) fn move_name(receiver: usize) {
    world(|world| world.name = receiver);
}

/// Makes the name unknown, or known again.
pub(super) fn unname(nameless: bool) {
    world(|world| world.nameless = nameless);
}

/// Every tick that some receiver has stored.
pub(super) fn stored() -> BTreeSet<i64> {
    world(|world| {
        world.receivers.iter().flat_map(|receiver| receiver.stored.iter().copied()).collect()
    })
}

/// Connections that were made so far.
pub(super) fn connections() -> usize {
    world(|world| world.next_link)
}

/// Number of times that each tick was written.
pub(super) fn writes() -> BTreeMap<i64, u32> {
    world(|world| world.writes.clone())
}

impl Network {
    fn set(&mut self, receiver: usize, process: ReceiverState) {
        let links = self.links.values_mut().filter(|link| link.receiver == receiver);
        let bare = if self.receivers[receiver].kind.tls {
            ConnectionEnd::Truncated
        } else {
            ConnectionEnd::Closed
        };
        match process {
            ReceiverState::Down => {
                for link in links {
                    let clean = link.accepted && link.unread.is_empty();
                    link.end(if clean { bare } else { ConnectionEnd::Reset });
                }
            }
            // The other kernel, or program, knows of nothing after that.
            ReceiverState::Runs
                if !matches!(
                    self.receivers[receiver].process,
                    ReceiverState::Runs | ReceiverState::Hangs
                ) =>
            {
                links.for_each(|link| link.end(ConnectionEnd::Reset));
            }
            _ => {}
        }
        let it = &mut self.receivers[receiver];
        if matches!(process, ReceiverState::Down | ReceiverState::Gone) {
            it.memory.clear();
            it.held = 0.0;
            it.paused = false;
        }
        it.process = process;
    }

    fn step(&mut self) {
        let now = Instant::now();
        for number in 0..self.receivers.len() {
            let it = &mut self.receivers[number];
            if it.process != ReceiverState::Runs {
                let (process, tls) = (it.process, it.kind.tls);
                let links = self.links.values_mut();
                links
                    .filter(|link| link.receiver == number)
                    .for_each(|link| link.forget(process, tls, now));
                continue;
            }
            it.ran += STEP;
            it.store();
            let links = self.links.values_mut();
            let mut open: Vec<&mut SimulatedLink> =
                links.filter(|link| link.receiver == number && link.ended.is_none()).collect();
            for (before, link) in open.iter_mut().enumerate() {
                if before >= it.kind.most_connections && !link.accepted {
                    link.end(ConnectionEnd::Closed);
                }
                link.accepted = true;
            }
            let mut left = it.kind.reads * STEP.as_secs_f64();
            while left > 1e-9 {
                let mut readable: Vec<&mut &mut SimulatedLink> =
                    open.iter_mut().filter(|link| !link.unread.is_empty()).collect();
                let share = match it.kind.order {
                    Order::Shared => left / readable.len().max(1) as f64,
                    Order::Oldest => {
                        readable.truncate(1);
                        left
                    }
                    Order::Newest => {
                        readable.drain(..readable.len().saturating_sub(1));
                        left
                    }
                };
                if readable.is_empty() || it.paused {
                    break;
                }
                for link in readable {
                    let room = it.kind.cache - it.held;
                    let take = share.min(room);
                    if take <= 0.0 {
                        it.paused = true;
                        break;
                    }
                    left -= link.read(take, it);
                }
            }
            for link in open.into_iter().filter(|link| link.ended.is_none()) {
                let read = link.unread.is_empty()
                    && link.half_closed.is_none_or(|at| now >= at + it.kind.answers_after);
                let done = read
                    || link.half_closed.is_some_and(|at| {
                        it.kind.proxy_closes_after.is_some_and(|after| now >= at + after)
                    });
                let idle =
                    it.kind.closes_idle_after.is_some_and(|after| now >= link.last_bytes + after);
                if (link.half_closed.is_some() && done && !it.paused)
                    || (idle && link.unread.is_empty())
                {
                    // A proxy could still pass on what it has received; here it never does.
                    let is_timer = it.kind.tls && !(link.half_closed.is_some() && read);
                    link.end(if is_timer {
                        ConnectionEnd::Truncated
                    } else {
                        ConnectionEnd::Closed
                    });
                }
            }
        }
        self.links.retain(|_, link| link.ended.is_none() || Arc::strong_count(&link.news) > 1);
    }
}

impl Receiver {
    /// Moves points from memory to disk.
    fn store(&mut self) {
        let mut left = self.kind.stores * STEP.as_secs_f64();
        while left > 0.0
            && let Some((timestamp, weight, read)) = self.memory.front_mut()
            && *read + self.kind.holds <= self.ran
        {
            let some = weight.min(left);
            *weight -= some;
            left -= some;
            self.held -= some;
            if *weight <= 1e-9 {
                let is_refused =
                    self.kind.strict && self.stored.last().is_some_and(|last| *timestamp < *last);
                if *timestamp != PART && !is_refused {
                    self.stored.insert(*timestamp);
                }
                self.memory.pop_front();
            }
        }
        if self.held <= 0.95 * self.kind.cache {
            self.paused = false;
        }
    }
}

/// A part of a tick, whose last byte comes later.
const PART: i64 = -1;

impl SimulatedLink {
    /// Reads up to `most` points.
    fn read(&mut self, most: f64, receiver: &mut Receiver) -> f64 {
        let mut read = 0.0;
        while read < most - 1e-9
            && let Some((timestamp, weight, is_last)) = self.unread.front_mut()
        {
            let some = weight.min(most - read);
            *weight -= some;
            read += some;
            let whole = *weight <= 1e-9;
            let stamp = if whole && *is_last { *timestamp } else { PART };
            receiver.memory.push_back((stamp, some, receiver.ran));
            receiver.held += some;
            if whole {
                self.unread.pop_front();
            }
        }
        self.news.notify_waiters();
        // Without a minimum, reading nothing would never end.
        read.max(1e-6)
    }
}

/// A connection of this world.
pub(super) struct SimulatedStream {
    number: usize,
    receiver: usize,
    news: Arc<Notify>,
    timeouts: Timeouts,
    unfinished: std::sync::atomic::AtomicBool,
}

impl SimulatedStream {
    async fn to(receiver: usize, timeouts: Timeouts) -> Result<Self, ConnectionError> {
        let address = SocketAddr::from(([127, 0, 0, 1], 2003));
        let refused = |kind: std::io::ErrorKind| ConnectionError::Connect(address, kind.into());
        let waits = world(|world| {
            let waiting =
                world.links.values().filter(|link| link.receiver == receiver && !link.accepted);
            match world.receivers[receiver].process {
                ReceiverState::Runs if world.receivers[receiver].refuses => {
                    Err(ConnectionError::Tls("the server's certificate expired".into()))
                }
                ReceiverState::Runs if world.receivers[receiver].lacks => {
                    Err(ConnectionError::Connect(address, rustix::io::Errno::MFILE.into()))
                }
                ReceiverState::Down => Err(refused(std::io::ErrorKind::ConnectionRefused)),
                ReceiverState::Gone => Ok(true),
                _ => Ok(waiting.count() > BACKLOG),
            }
        })?;
        if waits {
            sleep(timeouts.connect).await;
            return Err(refused(std::io::ErrorKind::TimedOut));
        }
        let news = Arc::new(Notify::new());
        let number = world(|world| {
            let number = world.next_link;
            world.next_link += 1;
            let open = world
                .links
                .values()
                .filter(|link| link.receiver == receiver && link.ended.is_none());
            let is = &world.receivers[receiver];
            // The kernel of a program that hangs accepts it.
            let is_full =
                is.process != ReceiverState::Hangs && open.count() >= is.kind.most_connections;
            let link = SimulatedLink {
                receiver,
                accepted: false,
                unread: VecDeque::new(),
                half_closed: None,
                ended: is_full.then_some(ConnectionEnd::Closed),
                opened: Instant::now(),
                last_bytes: Instant::now(),
                news: Arc::clone(&news),
            };
            world.links.insert(number, link);
            number
        });
        Ok(Self { number, receiver, news, timeouts, unfinished: false.into() })
    }

    fn link<T>(&self, change: impl FnOnce(&mut SimulatedLink) -> T) -> T {
        world(|world| change(world.links.get_mut(&self.number).unwrap()))
    }

    fn end(&self) -> Option<ConnectionError> {
        self.link(|link| link.ended).map(|end| match end {
            ConnectionEnd::Closed => ConnectionError::Closed,
            ConnectionEnd::Truncated => ConnectionError::Truncated,
            ConnectionEnd::NotCarbon => ConnectionError::NotCarbon,
            ConnectionEnd::Talked => ConnectionError::Talked,
            ConnectionEnd::Reset => {
                ConnectionError::Socket(std::io::ErrorKind::ConnectionReset.into())
            }
        })
    }
}

impl Stream for SimulatedStream {
    async fn open(to: &Destination, _: &LastTried) -> Result<Self, ConnectionError> {
        if world(|world| world.nameless) {
            return Err(ConnectionError::Lookup(
                "carbon".into(),
                std::io::ErrorKind::TimedOut.into(),
            ));
        }
        Self::to(world(|world| world.name), to.timeouts).await
    }

    fn open_again(&self) -> impl Future<Output = Result<Self, ConnectionError>> + Send + use<> {
        Self::to(self.receiver, self.timeouts)
    }

    fn peer(&self) -> SocketAddr {
        ([127, 0, 0, 1], u16::try_from(self.receiver).unwrap()).into()
    }

    async fn write(&self, frame: &[u8]) -> Result<(), ConnectionError> {
        let line = std::str::from_utf8(frame).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (mut left, timestamp): (f64, i64) =
            (words[1].parse().unwrap(), words[2].parse().unwrap());
        let mut progress = Instant::now();
        self.unfinished.store(true, std::sync::atomic::Ordering::Relaxed);
        loop {
            let read = self.news.notified();
            if let Some(end) = self.end() {
                return Err(end);
            }
            let room = world(|world| world.receivers[self.receiver].kind.room);
            let written = self.link(|link| {
                let some = left.min((room - link.weight()).max(0.0));
                if some > 0.0 {
                    link.unread.push_back((timestamp, some, some >= left));
                    link.last_bytes = Instant::now();
                }
                some
            });
            left -= written;
            if left <= 0.0 {
                world(|world| *world.writes.entry(timestamp).or_default() += 1);
                self.unfinished.store(false, std::sync::atomic::Ordering::Relaxed);
                return Ok(());
            }
            if written > 0.0 {
                progress = Instant::now();
            }
            let wait = self.timeouts.pause.saturating_sub(progress.elapsed());
            if tokio::time::timeout(wait, read).await.is_err() {
                return Err(ConnectionError::Unread(self.timeouts.pause));
            }
        }
    }

    fn half_close(&self) -> Result<(), ConnectionError> {
        self.link(|link| link.half_closed = Some(Instant::now()));
        Ok(())
    }

    async fn wait_for_end(&self) -> ConnectionError {
        loop {
            let news = self.news.notified();
            if let Some(end) = self.end() {
                return end;
            }
            news.await;
        }
    }

    fn has_ended(&self) -> Option<ConnectionError> {
        self.end()
    }

    fn unacked(&self) -> Result<u64, ConnectionError> {
        Ok(0)
    }

    fn acks(&self) -> Result<Acks, ConnectionError> {
        Ok(Acks::default())
    }

    fn reset_at_end(&self) {}
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        let unfinished = self.unfinished.load(std::sync::atomic::Ordering::Relaxed);
        world(|world| {
            let Some(link) = world.links.get_mut(&self.number) else { return };
            if unfinished {
                link.end(ConnectionEnd::Reset);
            } else {
                // What is unread can still be read.
                link.half_closed.get_or_insert_with(Instant::now);
                if link.accepted && link.unread.is_empty() {
                    link.end(ConnectionEnd::Closed);
                }
            }
        });
    }
}
