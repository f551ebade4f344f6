//! HTTP: one kept connection, a deadline for each request, and bodies that are processed as they
//! arrive.
//!
//! Knows nothing about Slurm or JSON. No redirect is followed, no body is held, and each has a
//! limit.

use std::error::Error as _;
use std::future::poll_fn;
use std::io::{self, Read};
use std::iter;
use std::pin::Pin;

use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, HOST, HeaderMap, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use reader_process::listener::{Kernel, check_user, unknown_listener};
use reader_process::{names, route};
use rustix::process::geteuid;
use slurm_snapshot::{Endpoint, Stage};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use crate::args::RestArguments;
use crate::problem::RestProblem;
use crate::tls::{self, Trust};

/// Size of a read, and the longest header of an answer.
const BUFFER: usize = 16 * 1024;

/// Divisor of a request's time: connecting may take a third of it, because slurmctld needs most.
const CONNECT_SHARE: u32 = 3;

/// One server, and the connection to it.
pub(crate) struct HttpClient {
    settings: RestArguments,
    runtime: Runtime,
    connection: Option<SendRequest<String>>,
    /// The certificate authorities that are trusted; `None` before the first connection with TLS.
    /// They are read again after each failure of TLS, because the file may have been replaced.
    trust: Option<Trust>,
    deadline: Instant,
}

impl HttpClient {
    pub(crate) fn new(settings: RestArguments) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // For looking up names.
            .max_blocking_threads(1)
            .thread_stack_size(256 << 10)
            .build()?;
        Ok(Self { settings, runtime, connection: None, trust: None, deadline: Instant::now() })
    }

    /// Sets the deadline of a request, which holds for all that is sent for it.
    pub(crate) fn start(&mut self) {
        self.deadline = Instant::now() + self.settings.timeout;
    }

    /// Sends a request. If the kept connection was closed, sends it again on a new one.
    pub(crate) fn get(
        &mut self,
        path: &str,
        headers: &HeaderMap,
        limit: u64,
    ) -> Result<HttpAnswer<'_>, RestProblem> {
        let request = self.request(path, headers)?;
        let mut kept = self.connection.take().filter(|connection| !connection.is_closed());
        let response = loop {
            let is_kept = kept.is_some();
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.connect()?,
            };
            let answer = async {
                connection.ready().await?;
                connection.send_request(request.clone()).await
            };
            match self.within(self.deadline, answer) {
                Ok(Ok(response)) => {
                    self.connection = Some(connection);
                    break response;
                }
                // It was closed while idle. A GET changes nothing, so it may be sent twice.
                Ok(Err(error)) if is_kept && is_closed(&error) => {}
                Ok(Err(error)) => return Err(self.explain(&error)),
                Err(_) => return Err(self.late(Stage::Http, "a response")),
            }
        };
        Ok(HttpAnswer {
            status: response.status(),
            client: self,
            incoming: response.into_body(),
            chunk: Bytes::new(),
            left: limit,
            limit,
            problem: None,
        })
    }

    /// Closes the connection, because it is not known what is left in it of an answer.
    pub(crate) fn hang_up(&mut self) {
        self.connection = None;
    }

    fn connect(&mut self) -> Result<SendRequest<String>, RestProblem> {
        // A connection that was given up closes now, so that slurmrestd never has two.
        self.runtime.block_on(tokio::task::yield_now());
        let is_tls = matches!(self.settings.endpoint, Endpoint::Tcp { tls: true, .. });
        if is_tls && self.trust.is_none() {
            self.trust = Some(tls::trust(self.settings.ca_file.as_deref())?);
        }
        let patience = self.deadline.min(Instant::now() + self.settings.timeout / CONNECT_SHARE);
        let opened = self.within(patience, self.open());
        let opened = opened.unwrap_or_else(|_| Err(self.late(Stage::Connect, "a connection")));
        if opened.as_ref().is_err_and(|problem| problem.stage == Stage::Tls) {
            self.trust = None;
        }
        opened
    }

    async fn open(&self) -> Result<SendRequest<String>, RestProblem> {
        let endpoint = &self.settings.endpoint;
        let error =
            |error: io::Error| RestProblem::new(Stage::Connect, format!("{endpoint}: {error}"));
        let opened = match endpoint {
            Endpoint::Unix(path) => {
                handshake(UnixStream::connect(path).await.map_err(error)?).await
            }
            Endpoint::Tcp { host, port, .. } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(error)?;
                // A request is a single write.
                let _ = stream.set_nodelay(true);
                match &self.trust {
                    Some(trust) => handshake(tls::connect(trust, host, stream).await?).await,
                    None => {
                        self.check_listener(&stream)?;
                        handshake(stream).await
                    }
                }
            }
        };
        opened.map_err(|error| self.explain(&error))
    }

    /// Checks who listens at the other end, if that is this host and there is a token: it is sent
    /// only to a program of root, of slurmrestd's user, or of the reader's own user.
    fn check_listener(&self, stream: &TcpStream) -> Result<(), RestProblem> {
        let RestArguments { endpoint, token_file: Some(_), rest_user, .. } = &self.settings else {
            return Ok(());
        };
        let problem = |text| {
            let text = format!("{endpoint}: {text}, so the token is not sent");
            RestProblem::new(Stage::Listener, text)
        };
        let ends = stream.local_addr().and_then(|near| Ok((near, stream.peer_addr()?)));
        let (near, peer) = ends.map_err(|error| problem(error.to_string()))?;
        if !route::is_local(near.ip(), peer.ip())
            .map_err(|error| problem(route::unknown_route(peer.ip(), &error)))?
        {
            return Ok(());
        }
        let owner = Kernel::load().and_then(|mut kernel| kernel.owner(near, peer));
        let owner = owner.map_err(|error| problem(unknown_listener(&error)))?;
        // This user has the token already. A name service is only asked about another.
        let mut users = vec![0, geteuid().as_raw()];
        if owner.is_some_and(|owner| !users.contains(&owner)) {
            users.extend(names::number(rest_user));
        }
        check_user(peer.port(), owner, &users, &format!("root nor {rest_user}")).map_err(problem)
    }

    fn request(&self, path: &str, headers: &HeaderMap) -> Result<Request<String>, RestProblem> {
        let url = self.settings.endpoint.to_string();
        let (host, before) = url
            .split_once("://")
            .map_or(("localhost", ""), |(_, url)| url.split_at(url.find('/').unwrap_or(url.len())));
        let request = Request::get([before, path].concat())
            .header(HOST, host)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("slurm-graphite/", env!("CARGO_PKG_VERSION")))
            .body(String::new());
        let mut request =
            request.map_err(|error| RestProblem::new(Stage::Http, error.to_string()))?;
        request.headers_mut().extend(headers.clone());
        Ok(request)
    }

    /// Runs `future` with a time-out, inside the runtime that the timer needs.
    fn within<T>(&self, deadline: Instant, future: impl Future<Output = T>) -> Result<T, Elapsed> {
        self.runtime.block_on(async { timeout_at(deadline, future).await })
    }

    fn late(&self, stage: Stage, what: &str) -> RestProblem {
        let RestArguments { endpoint, timeout, .. } = &self.settings;
        let text = format!("{endpoint}: {what} did not come within {} s", timeout.as_secs_f64());
        RestProblem::new(stage, text)
    }

    fn explain(&self, error: &hyper::Error) -> RestProblem {
        let endpoint = &self.settings.endpoint;
        let is_plain = matches!(endpoint, Endpoint::Tcp { tls: false, .. });
        let hint = if is_plain { "; if TLS is spoken there, use https://" } else { "" };
        let text = if error.is_parse() {
            format!("{endpoint}: the response is not HTTP ({error}){hint}")
        } else if is_closed(error) {
            format!("{endpoint}: the connection was closed before a response came{hint}")
        } else {
            format!("{endpoint}: {error}")
        };
        RestProblem::new(Stage::Http, text)
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> hyper::Result<SendRequest<String>> {
    let builder = http1::Builder::new().max_buf_size(BUFFER).handshake(TokioIo::new(stream));
    let (sender, connection) = builder.await?;
    // The next request sees how it ended.
    tokio::spawn(connection);
    Ok(sender)
}

fn is_closed(error: &hyper::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let mut causes = iter::successors(error.source(), |&cause| cause.source());
    let is_reset = causes.any(|cause| {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        matches!(kind, Some(BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof))
    });
    is_reset || error.is_incomplete_message() || error.is_canceled() || error.is_closed()
}

/// An answer, whose body is read as it arrives.
pub(crate) struct HttpAnswer<'a> {
    pub(crate) status: StatusCode,
    client: &'a HttpClient,
    incoming: Incoming,
    chunk: Bytes,
    left: u64,
    limit: u64,
    /// The reason why reading failed; serde would lose it.
    pub(crate) problem: Option<RestProblem>,
}

impl HttpAnswer<'_> {
    fn fail(&mut self, text: String) -> io::Error {
        self.problem = Some(RestProblem::new(Stage::Http, text));
        io::Error::other("the rest of the body cannot be read")
    }

    /// Waits for the next piece of the body. Returns `false` at its end.
    fn fetch(&mut self) -> io::Result<bool> {
        while self.chunk.is_empty() {
            let incoming = &mut self.incoming;
            let frame = poll_fn(|context| Pin::new(&mut *incoming).poll_frame(context));
            let chunk = match self.client.within(self.client.deadline, frame) {
                Ok(None) => return Ok(false),
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(Some(Err(_))) => {
                    return Err(self.fail("the response ended before it was complete".into()));
                }
                Err(_) => {
                    let seconds = self.client.settings.timeout.as_secs_f64();
                    return Err(
                        self.fail(format!("the response was not complete within {seconds} s"))
                    );
                }
            };
            let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            let Some(left) = self.left.checked_sub(length) else {
                let most = self.limit >> 20;
                return Err(self.fail(format!(
                    "the response is longer than {most} MiB, more than slurmrestd ever sends"
                )));
            };
            self.left = left;
            self.chunk = chunk;
        }
        Ok(true)
    }
}

impl Read for HttpAnswer<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || !self.fetch()? {
            return Ok(0);
        }
        let length = self.chunk.len().min(buffer.len());
        let piece = self.chunk.split_to(length);
        if let Some(target) = buffer.get_mut(..length) {
            target.copy_from_slice(&piece);
        }
        Ok(length)
    }
}
