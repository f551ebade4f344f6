//! One request to one slurmctld: a connection, a message, a reply, each with its own deadline.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use reader_process::listener::Kernel;
use reader_process::route;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use slurm_snapshot::{Statistics, errno};
use tokio::io::Interest;

use crate::credential::unknown;
use crate::local_socket::LocalSocket;
use crate::message::{self, Content, MOST, Message};
use crate::moment::{Moments, Step};
use crate::number::Refusal;
use crate::problem::{Cause, NativeProblem};
use crate::slurm_conf::AuthType;
use crate::statistics;
use crate::timed::{Registered, Timed};

/// Longest time for each step of a request but the reply.
const STEP: Duration = Duration::from_secs(3);
/// Divisor of the whole time of a request: no step but the reply gets more than one sixth of it.
const STEPS: u32 = 6;

/// Longest time that the wait for the reply leaves for the check of the reply's credential.
const CHECK: Duration = Duration::from_secs(1);

/// The time for a request to one controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    end: Instant,
    whole: Duration,
}

impl Share {
    pub(crate) fn new(whole: Duration) -> Self {
        let now = Instant::now();
        Self { end: now.checked_add(whole).unwrap_or(now), whole }
    }

    /// Returns the time that is left for the request.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// The deadline for a step that begins now.
    pub(crate) fn step(&self) -> Instant {
        let step = self.whole.checked_div(STEPS).unwrap_or_default().min(STEP);
        let now = Instant::now();
        now.checked_add(step).unwrap_or(now).min(self.end)
    }

    /// The deadline for the reply: all that is left, but for its check.
    fn reply(&self) -> Instant {
        let check = self.whole.checked_div(10).unwrap_or_default().min(CHECK);
        self.end.checked_sub(check).unwrap_or(self.end)
    }

    /// Returns the time for the next controller: all that is left, except what is reserved for so
    /// many `others` behind it.
    pub(crate) fn next(&self, others: usize) -> Self {
        let (left, others) = (self.left(), u32::try_from(others).unwrap_or(u32::MAX));
        Self::new(left.saturating_sub(reserve(left, others).saturating_mul(others)))
    }

    /// Returns the short time for a controller before another that is known to answer.
    pub(crate) fn trial(&self, others: usize) -> Self {
        Self::new(reserve(self.left(), u32::try_from(others).unwrap_or(u32::MAX)))
    }
}

/// Returns the time that is reserved for each of so many `others`, if so much is `left`.
fn reserve(left: Duration, others: u32) -> Duration {
    left.checked_div(others.saturating_add(1)).unwrap_or_default().min(STEP)
}

/// The statistics in slurmctld's reply, and how it came.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Protocol number of the request.
    pub(crate) number: u16,
    pub(crate) statistics: Statistics,
    /// Whether the reply's credential shows that root or SlurmUser has sent it.
    pub(crate) is_signed: bool,
    /// Time from the request, the making of its credential included, to the end of the reply.
    pub(crate) elapsed: Duration,
}

/// A request for the statistics, with all that it needs.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) number: u16,
    pub(crate) rpc: bool,
    pub(crate) slurm_user: Option<u32>,
    pub(crate) auth: &'a AuthType,
    /// The socket of munged or sackd.
    pub(crate) socket: &'a mut LocalSocket,
    pub(crate) moments: &'a mut Moments,
    pub(crate) kernel: &'a mut Option<Kernel>,
}

impl Exchange<'_> {
    /// Sends the request to the first of these addresses that accepts a connection, and returns the
    /// reply.
    pub(crate) async fn run(
        &mut self,
        addresses: &[IpAddr],
        port: u16,
        share: Share,
    ) -> Result<Reply, NativeProblem> {
        // First, because slurmctld would log a connection on which nothing comes.
        let begin = Instant::now();
        let auth = self.auth;
        let deadline = share.step();
        let made = auth
            .credential(self.socket, self.moments, self.number, self.slurm_user, deadline)
            .await;
        let (plugin, credential) = made?;
        let slurmctld = connect(addresses, port, share.step()).await?;
        let is_local =
            check_listener(self.kernel, &slurmctld, self.slurm_user, share.step()).await?;
        let moment = is_local.then_some((&mut *self.moments, Step::Reply));
        let request = message::request(self.number, plugin, &credential);
        let bytes = transfer(Timed::new(slurmctld, share.reply(), moment), &request).await?;
        let elapsed = begin.elapsed();
        let not_a_reply =
            |_| NativeProblem::new(Cause::Reply, "what it sends is not a reply to the request");
        let message = Message::from_bytes(&bytes).map_err(not_a_reply)?;
        let is_signed =
            auth.check(self.socket, self.moments, &message, self.slurm_user, share.step()).await?;
        match message.content(self.number).map_err(not_a_reply)? {
            Content::Statistics(body) => {
                let text = "its statistics are longer or shorter than they should be";
                let statistics = statistics::unpack(body, self.number, self.rpc)
                    .map_err(|_| NativeProblem::new(Cause::Reply, text))?;
                Ok(Reply { number: self.number, statistics, is_signed, elapsed })
            }
            Content::Code(code) => Err(of_code(code)),
            Content::Other(kind) => Err(NativeProblem::new(
                Cause::Reply,
                format!("it answers with a message of type {kind}"),
            )),
        }
    }
}

/// Sends the request and receives the reply, without its length.
async fn transfer(mut slurmctld: Timed<'_>, request: &[u8]) -> Result<Vec<u8>, NativeProblem> {
    let first = async {
        slurmctld.send(request).await?;
        slurmctld.up_to(4).await
    };
    let length = match first.await {
        Ok(none) if none.is_empty() => return Err(refused(Refusal::Closed)),
        Ok(length) => length,
        Err(error) if is_close(&error) => return Err(refused(Refusal::Closed)),
        Err(error) => return Err(of_transfer(&error)),
    };
    let Ok(number) = <[u8; 4]>::try_from(&*length) else { return Err(cut(length.len(), 4)) };
    if &number == b"HTTP" {
        return Err(refused(Refusal::Http));
    }
    let length = usize::try_from(u32::from_be_bytes(number)).unwrap_or(usize::MAX);
    if length > MOST {
        return Err(NativeProblem::new(
            Cause::Reply,
            format!("a reply of {length} bytes is too long"),
        ));
    }
    match slurmctld.up_to(length).await {
        Ok(bytes) if bytes.len() == length => Ok(bytes),
        Ok(bytes) => Err(cut(bytes.len(), length)),
        Err(error) if is_close(&error) => Err(cut(0, length)),
        Err(error) => Err(of_transfer(&error)),
    }
}

async fn connect(
    addresses: &[IpAddr],
    port: u16,
    deadline: Instant,
) -> Result<TcpStream, NativeProblem> {
    let mut problem = NativeProblem::new(Cause::Name, "its name has no address");
    let mut others = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in addresses {
        let share = deadline.saturating_duration_since(Instant::now()).checked_div(others.max(1));
        others = others.saturating_sub(1);
        let until = Instant::now().checked_add(share.unwrap_or_default()).unwrap_or(deadline);
        let (cause, error) = match connect_to((*address, port).into(), until).await {
            Ok(slurmctld) => return Ok(slurmctld),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => (Cause::ConnectTimeout, error),
            Err(error) => (Cause::Connect, error),
        };
        problem = NativeProblem::new(cause, format!("no connection to {address}: {error}"));
    }
    Err(problem)
}

/// Connects to an address. A connection within this host stands at once, and the runtime need not
/// know it.
async fn connect_to(address: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let slurmctld = TcpStream::from(socket);
    if slurmctld.peer_addr().is_err() {
        let registered = Registered::new(slurmctld.try_clone()?.into())?;
        registered.wait(Interest::WRITABLE, deadline).await?;
        if let Some(error) = slurmctld.take_error()? {
            return Err(error);
        }
    }
    Ok(slurmctld)
}

/// Whether the other end of the connection is on this host. There it is an error if another user
/// than root or SlurmUser listens on slurmctld's port. The first question may have the kernel load
/// a module from a file, so a thread asks it.
async fn check_listener(
    kernel: &mut Option<Kernel>,
    slurmctld: &TcpStream,
    slurm_user: Option<u32>,
    deadline: Instant,
) -> Result<bool, NativeProblem> {
    let ends = slurmctld.local_addr().and_then(|near| Ok((near, slurmctld.peer_addr()?)));
    let (near, address) = ends.map_err(|error| of_transfer(&error))?;
    if !route::is_local(near.ip(), address.ip()).map_err(|error| of_route(address.ip(), &error))? {
        return Ok(false);
    }
    let loaded = match kernel.take() {
        Some(kernel) => Ok(kernel),
        None => {
            let patience = deadline.saturating_duration_since(Instant::now());
            waiting_threads::ask("tcp_diag", "", patience, Kernel::load).await.flatten()
        }
    };
    let owner = loaded.and_then(|mut loaded| {
        let owner = loaded.owner(near, address)?;
        *kernel = Some(loaded);
        Ok(owner)
    });
    match owner {
        Ok(Some(uid)) if uid != 0 && Some(uid) != slurm_user => {
            let text = format!(
                "port {} of this host belongs to user {uid}, neither root nor SlurmUser{}",
                address.port(),
                unknown(slurm_user)
            );
            Err(NativeProblem::new(Cause::Imposter, text))
        }
        Ok(_) => Ok(true),
        // The kernel shows no connection that was reset. It may have been anybody's, so that this is
        // no refusal of slurmctld's.
        Err(error) if is_close(&error) || matches!(slurmctld.take_error(), Ok(Some(_))) => {
            let text = format!(
                "port {} of this host closes connections before it is known whose it is",
                address.port()
            );
            Err(NativeProblem::new(Cause::Connect, text))
        }
        Err(error) => {
            let text = format!(
                "the kernel does not say who listens on port {}: {error}. Is its module tcp_diag \
                    loaded?",
                address.port()
            );
            Err(NativeProblem::new(Cause::Kernel, text))
        }
    }
}

/// Whether slurmctld has closed the connection, with the request read or not.
fn is_close(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

fn cut(count: usize, length: usize) -> NativeProblem {
    NativeProblem::new(Cause::Reply, format!("the reply ends after {count} of {length} bytes"))
}

fn of_route(address: IpAddr, error: &io::Error) -> NativeProblem {
    NativeProblem::new(Cause::Kernel, route::unknown_route(address, error))
}

fn of_transfer(error: &io::Error) -> NativeProblem {
    if error.kind() == io::ErrorKind::TimedOut {
        return NativeProblem::new(Cause::Silent, "no reply in time");
    }
    NativeProblem::new(Cause::Connect, error.to_string())
}

fn refused(how: Refusal) -> NativeProblem {
    NativeProblem::new(Cause::Refused(Some(how)), "it refuses the request")
}

fn of_code(code: u32) -> NativeProblem {
    match i32::try_from(code).unwrap_or(errno::ERROR) {
        errno::PROTOCOL_AUTHENTICATION_ERROR => refused(Refusal::Code),
        errno::IN_STANDBY_MODE => {
            NativeProblem::new(Cause::Standby, "it is a backup controller that is not active")
        }
        errno::CTLD_COMMUNICATIONS_BACKOFF | errno::CTLD_COMMUNICATIONS_HARD_DROP => {
            NativeProblem::new(Cause::Busy, "it answers that there are too many requests")
        }
        0 => NativeProblem::new(Cause::Reply, "it answers with success instead of statistics"),
        _ => NativeProblem::new(Cause::Code(code), "it answers with an error"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use nix::unistd::getuid;

    use super::*;

    /// A reply had 10 of 24 seconds of an equal share, whatever `timeout` was; plain subtraction
    /// would leave it nothing at 3 s with a backup.
    #[test]
    fn a_reply_has_what_is_left_and_each_controller_a_part_also_of_a_short_timeout() {
        for (timeout, controllers, expected) in [
            (27.0, 1, 26.0),
            (27.0, 2, 23.0),
            (27.0, 3, 20.0),
            (54.0, 3, 47.0),
            (2.7, 1, 2.43),
            (2.7, 2, 1.215),
            (0.9, 3, 0.27),
        ] {
            let all = Share::new(Duration::from_secs_f64(timeout));
            let of_reply = |share: Share| {
                let reply = share.reply().saturating_duration_since(Instant::now());
                let step = share.step().saturating_duration_since(Instant::now());
                assert!(step > Duration::ZERO && step <= STEP && reply > step, "{timeout}");
                reply.as_secs_f64()
            };
            let first = of_reply(all.next(controllers - 1));
            assert!((first - expected).abs() < 0.05, "{timeout} of {controllers}: {first}");
            if controllers > 1 {
                // Before a backup that is known to answer, it is not waited for so long.
                let trial = of_reply(all.trial(controllers - 1));
                assert!(trial < 3.0 && trial <= first + 0.05, "{timeout}: {trial}");
            }
        }
    }

    /// modprobe may hang, and then nobody of this host is trusted.
    #[tokio::test]
    async fn a_kernel_whose_module_does_not_come_is_waited_for_by_a_thread_until_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let slurmctld = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut kernel, me) = (None, Some(getuid().as_raw()));
        let soon = || Instant::now() + Duration::from_millis(50);
        let (end, modprobe) = std::sync::mpsc::channel::<()>();
        let hung = move || {
            let _end = modprobe.recv();
            Kernel::load()
        };
        let patience = Duration::from_millis(50);
        waiting_threads::ask("tcp_diag", "", patience, hung).await.unwrap_err();
        let refused = check_listener(&mut kernel, &slurmctld, me, soon()).await.unwrap_err();
        assert_eq!(refused.cause, Cause::Kernel);
        assert!(refused.text.contains("tcp_diag") && kernel.is_none(), "{refused}");
        drop(end);
        // A late answer is not waited for again: it comes once the thread has run.
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Err(late) = check_listener(&mut kernel, &slurmctld, me, deadline).await {
            assert!(late.text.contains("no answer yet") && Instant::now() < deadline, "{late}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(kernel.is_some(), "it is asked for only once");
    }
}
