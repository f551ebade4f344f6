//! HTTP: one kept connection, a deadline for each request, and bodies that are processed as they arrive.
//!
//! Knows nothing about Slurm or JSON. No redirect is followed, no body is held, and each has a limit.

use std::future::poll_fn;
use std::io::{self, Read};
use std::pin::Pin;
use std::time::Duration;

use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, HOST, HeaderMap, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use slurm_snapshot::{Endpoint, Stage};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout_at};

use crate::args::RestArguments;
use crate::problem::RestProblem;
use crate::tls;

/// Size of a read, and the longest header of an answer.
const BUFFER: usize = 16 * 1024;

/// The share of the time for connecting; slurmctld needs most of it.
const CONNECT_SHARE: u32 = 3;

/// One server, and the connection to it.
pub(crate) struct HttpClient {
    settings: RestArguments,
    runtime: Runtime,
    connection: Option<SendRequest<String>>,
}

impl HttpClient {
    pub(crate) fn new(settings: RestArguments) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // For looking up names.
            .max_blocking_threads(1)
            .thread_stack_size(256 << 10)
            .build()?;
        Ok(Self { settings, runtime, connection: None })
    }

    /// The deadline of a request that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.settings.timeout
    }

    /// Sends a request. If the kept connection was closed, sends it again on a new one.
    pub(crate) fn get(
        &mut self,
        path: &str,
        headers: &HeaderMap,
        limit: u64,
        deadline: Instant,
    ) -> Result<HttpAnswer<'_>, RestProblem> {
        let request = self.request(path, headers)?;
        let mut kept = self.connection.take().filter(|connection| !connection.is_closed());
        let response = loop {
            let is_kept = kept.is_some();
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.connect(deadline)?,
            };
            let answer = async {
                connection.ready().await?;
                connection.send_request(request.clone()).await
            };
            match within(&self.runtime, deadline, answer) {
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
            runtime: &self.runtime,
            incoming: response.into_body(),
            chunk: Bytes::new(),
            left: limit,
            limit,
            deadline,
            timeout: self.settings.timeout,
            problem: None,
        })
    }

    /// Closes the connection, because it is not known what is left in it.
    pub(crate) fn hang_up(&mut self) {
        self.connection = None;
    }

    fn connect(&self, deadline: Instant) -> Result<SendRequest<String>, RestProblem> {
        // A connection that was given up closes now, so that slurmrestd never has two.
        self.runtime.block_on(tokio::task::yield_now());
        let patience = deadline.min(Instant::now() + self.settings.timeout / CONNECT_SHARE);
        let opened = within(&self.runtime, patience, self.open());
        opened.unwrap_or_else(|_| Err(self.late(Stage::Connect, "a connection")))
    }

    async fn open(&self) -> Result<SendRequest<String>, RestProblem> {
        let endpoint = &self.settings.endpoint;
        let error = |error: io::Error| RestProblem::new(Stage::Connect, format!("{endpoint}: {error}"));
        let opened = match endpoint {
            Endpoint::Unix(path) => handshake(UnixStream::connect(path).await.map_err(error)?).await,
            Endpoint::Tcp { host, port, tls, .. } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(error)?;
                // A request is a single write.
                let _ = stream.set_nodelay(true);
                if *tls {
                    handshake(tls::connect(self.settings.ca_file.as_deref(), host, stream).await?).await
                } else {
                    handshake(stream).await
                }
            }
        };
        opened.map_err(|error| self.explain(&error))
    }

    fn request(&self, path: &str, headers: &HeaderMap) -> Result<Request<String>, RestProblem> {
        let (host, before) = match &self.settings.endpoint {
            Endpoint::Unix(_) => ("localhost".to_owned(), ""),
            Endpoint::Tcp { host, port, path, .. } if host.contains(':') => {
                (format!("[{host}]:{port}"), path.as_str())
            }
            Endpoint::Tcp { host, port, path, .. } => (format!("{host}:{port}"), path.as_str()),
        };
        let request = Request::get([before, path].concat())
            .header(HOST, host)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("slurm-graphite/", env!("CARGO_PKG_VERSION")))
            .body(String::new());
        let mut request = request.map_err(|error| RestProblem::new(Stage::Http, error.to_string()))?;
        request.headers_mut().extend(headers.clone());
        Ok(request)
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

/// Runs `future` with a time-out, inside the runtime that the timer needs.
fn within<T>(
    runtime: &Runtime,
    deadline: Instant,
    future: impl Future<Output = T>,
) -> Result<T, tokio::time::error::Elapsed> {
    runtime.block_on(async { timeout_at(deadline, future).await })
}

fn is_closed(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    let mut reset = false;
    while let Some(cause) = source {
        reset |= cause.downcast_ref::<io::Error>().is_some_and(|error| {
            use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
            matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
        });
        source = cause.source();
    }
    reset || error.is_incomplete_message() || error.is_canceled() || error.is_closed()
}

/// An answer, whose body is read as it arrives.
pub(crate) struct HttpAnswer<'a> {
    pub(crate) status: StatusCode,
    runtime: &'a Runtime,
    incoming: Incoming,
    chunk: Bytes,
    left: u64,
    limit: u64,
    deadline: Instant,
    timeout: Duration,
    /// Why reading failed; serde would lose it.
    pub(crate) problem: Option<RestProblem>,
}

impl HttpAnswer<'_> {
    fn fail(&mut self, text: String) -> io::Error {
        self.problem = Some(RestProblem::new(Stage::Http, text));
        io::Error::other("the rest of the body cannot be read")
    }

    /// Waits for the next piece; false at the end.
    fn fetch(&mut self) -> io::Result<bool> {
        while self.chunk.is_empty() {
            let incoming = &mut self.incoming;
            let frame = poll_fn(|context| Pin::new(&mut *incoming).poll_frame(context));
            let chunk = match within(self.runtime, self.deadline, frame) {
                Ok(None) => return Ok(false),
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(Some(Err(_))) => return Err(self.fail("the response ended before it was complete".into())),
                Err(_) => {
                    let seconds = self.timeout.as_secs_f64();
                    return Err(self.fail(format!("the response was not complete within {seconds} s")));
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
