//! slurmrestd: which version of its API answers, and whether the token is accepted.
//!
//! To find the version, the request itself is sent with each version from the newest down. An
//! unknown version gives 404 at once and costs slurmctld nothing, so neither a ping nor a list of
//! paths is needed. The version is remembered until it gives 404 or another release answers.

use std::io::Read as _;
use std::time::Instant;

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderValue};
use reader_process::{TokenFile, micros};
use slurm_snapshot::{LIBRARIES, Reading, Release, Rest, Stage, add_to};

use crate::args::RestArguments;
use crate::decode::{self, Envelope, Meta};
use crate::http::HttpClient;
use crate::problem::RestProblem;
use crate::refusal::{explain, refused};

/// N of v0.0.N, the oldest version of the API that is read.
const OLDEST: u32 = 38;

/// The versions of the API that are read, and the release that each came with; the newest first.
pub(crate) fn versions() -> impl Iterator<Item = (u32, Release)> {
    LIBRARIES.iter().rev().copied().filter(|(version, _)| *version >= OLDEST)
}

/// A request, and what is expected of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiPath {
    /// The path after `/slurm/v0.0.N/`.
    pub(crate) path: &'static str,
    /// N of the first version that reports everything a reading needs.
    pub(crate) oldest: u32,
    /// The most bytes that an answer may have.
    pub(crate) limit: u64,
}

/// Bytes that are read of the body of an answer whose status is neither 200 nor 404.
const GLANCE: u64 = 64 << 10;

/// One slurmrestd, with the token for it and the version of its API.
pub(crate) struct Api {
    http: HttpClient,
    token: Option<TokenFile>,
    user: Option<String>,
    is_socket: bool,
    /// The version of the API that answered last, and slurmrestd's release; `None` if it must be
    /// found.
    known: Option<(u32, Release)>,
}

impl Api {
    pub(crate) fn new(settings: RestArguments) -> std::io::Result<Self> {
        Ok(Self {
            token: settings.token_file.clone().map(TokenFile::new),
            user: settings.user.clone(),
            is_socket: matches!(settings.endpoint, slurm_snapshot::Endpoint::Unix(_)),
            known: None,
            http: HttpClient::new(settings)?,
        })
    }

    /// Returns the part of every answer line that describes slurmrestd and the token.
    pub(crate) fn rest(&self) -> Rest {
        let token = self.token.as_ref().filter(|token| token.secret().is_some());
        Rest {
            version: self.known.map(|(version, _)| format!("v0.0.{version}")),
            token: token.map(|token| token.claims.clone()),
        }
    }

    /// Requests `path`, and adds to the reading what the answer says about slurmrestd, and the time
    /// from the request to the end of the answer. `payload` makes the decoder of the answer, for a
    /// version of the API and its release.
    pub(crate) fn get<T: decode::Payload>(
        &mut self,
        reading: &mut Reading,
        path: ApiPath,
        payload: impl Fn(u32, Release) -> T,
    ) -> Result<T, RestProblem> {
        self.read_token()?;
        self.http.start();
        let reply = self.try_versions(reading, path, &payload);
        let is_refused = reply.as_ref().is_err_and(|problem| problem.stage == Stage::Token);
        // The token may have been replaced at this moment.
        if is_refused && self.read_token().unwrap_or(false) {
            return self.try_versions(reading, path, &payload);
        }
        reply
    }

    /// Reads the token, if there is one. Returns whether it is another than before.
    fn read_token(&mut self) -> Result<bool, RestProblem> {
        let is_another = self.token.as_mut().map_or(Ok(false), TokenFile::read_again);
        is_another.map_err(|text| RestProblem::new(Stage::TokenFile, text))
    }

    fn try_versions<T: decode::Payload>(
        &mut self,
        reading: &mut Reading,
        path: ApiPath,
        payload: &impl Fn(u32, Release) -> T,
    ) -> Result<T, RestProblem> {
        let known = self.known;
        let reports_all = |&(version, _): &(u32, Release)| version >= path.oldest;
        for (version, release) in known.into_iter().chain(versions()).filter(reports_all) {
            let begin = Instant::now();
            let url = format!("/slurm/v0.0.{version}/{}", path.path);
            let answer = self.request(&url, path.limit, payload(version, release))?;
            let Some(Envelope { meta: Meta { release: reported, cluster }, payload, .. }) = answer
            else {
                continue;
            };
            add_to(&mut reading.elapsed, micros(begin.elapsed()));
            let release = reported.unwrap_or(release);
            reading.release = release;
            reading.cluster = cluster;
            // Another release may have another version that reports more.
            let is_another = known.is_some_and(|(_, known)| known != release);
            self.known = if is_another { None } else { Some((version, release)) };
            return Ok(payload);
        }
        // A version that is too old for this request may still exist.
        self.known = known.filter(|(version, _)| *version < path.oldest);
        Err(RestProblem::new(Stage::Version, lacking(path)))
    }

    /// Sends one request; `None` if slurmrestd does not have this version of the API, or this
    /// version does not have this path.
    fn request<T: decode::Payload>(
        &mut self,
        url: &str,
        limit: u64,
        payload: T,
    ) -> Result<Option<Envelope<T>>, RestProblem> {
        let headers = self.headers()?;
        let begin = Instant::now();
        let result = {
            let mut answer = self.http.get(url, &headers, limit)?;
            match answer.status {
                StatusCode::OK => match decode::read_answer(&mut answer, payload) {
                    Ok(Envelope { error: Some(errno), .. }) => {
                        Err(explain(errno, "slurmrestd answers 200"))
                    }
                    Ok(envelope) => Ok(Some(envelope)),
                    Err(error) => Err(answer.problem.take().unwrap_or_else(|| {
                        RestProblem::new(
                            Stage::Http,
                            format!("not a response of slurmrestd: {}", decode::complaint(&error)),
                        )
                    })),
                },
                StatusCode::NOT_FOUND => Ok(None),
                status => {
                    let mut text = Vec::new();
                    // As much as can be read.
                    let _ = answer.take(GLANCE).read_to_end(&mut text);
                    Err(refused(
                        status,
                        &text,
                        begin.elapsed(),
                        self.token.is_some(),
                        self.is_socket,
                    ))
                }
            }
        };
        // slurmrestd closes the connection after an error, and a connection whose answer was not
        // read to its end cannot be used again.
        if !matches!(result, Ok(Some(_))) {
            self.http.hang_up();
        }
        result
    }

    /// Returns the headers that identify the user, none without a token. All releases accept the
    /// user's name and the token together.
    fn headers(&self) -> Result<HeaderMap, RestProblem> {
        let mut headers = HeaderMap::new();
        let problem = |text| RestProblem::new(Stage::TokenFile, text);
        let value = |text: &str| {
            HeaderValue::from_str(text).map_err(|_| {
                problem("the token or its user has characters that are not allowed in a header")
            })
        };
        let Some(token) = &self.token else { return Ok(headers) };
        let Some(secret) = token.secret() else { return Ok(headers) };
        let user = self.user.as_deref().or(token.claims.user.as_deref());
        let user =
            user.ok_or_else(|| problem("the token does not name its user; set [slurm] user"))?;
        headers.insert("x-slurm-user-name", value(user)?);
        let mut secret = value(secret)?;
        secret.set_sensitive(true);
        headers.insert("x-slurm-user-token", secret);
        Ok(headers)
    }
}

/// Returns the message that slurmrestd has this path in no version of its API.
fn lacking(ApiPath { path, oldest, .. }: ApiPath) -> String {
    let (name, _) = path.split_once('?').unwrap_or((path, ""));
    let since = Release::of_library(oldest).unwrap_or_default();
    let (newest, latest) = versions().next().unwrap_or_default();
    let there_is_none =
        format!("slurmrestd has no /{name} in v0.0.{oldest} to v0.0.{newest} of its API");
    if oldest == OLDEST {
        return format!(
            "{there_is_none}: it is older than Slurm {since}, newer than {latest}, or the URL is \
                not slurmrestd's"
        );
    }
    format!("{there_is_none}; this needs Slurm {since} or newer")
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// hyper closes what is given up when its task runs again, and a new connection must not come
    /// before that.
    #[test]
    fn a_connection_that_is_given_up_is_closed_before_there_is_another() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut api = client(&listener);
        let (open, is_open) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut before: Option<TcpStream> = None;
            for mut stream in listener.incoming().flatten() {
                let _ = open.send(before.is_some_and(|before| {
                    before.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
                }));
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
                stream.set_nonblocking(true).unwrap();
                while stream.write(&[b' '; 4096]).is_ok() {}
                before = Some(stream);
            }
        });
        for _ in 0..100 {
            let path = ApiPath { path: "diag", oldest: 38, limit: 1 << 16 };
            let problem = api.get(&mut Reading::default(), path, |_, _| ()).unwrap_err();
            assert!(problem.text.contains("longer than"), "{problem}");
            assert!(!is_open.recv().unwrap());
        }
    }

    /// A client of this server.
    fn client(listener: &TcpListener) -> Api {
        let endpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let token_file = None;
        let user = None;
        let ca_file = None;
        let timeout = Duration::from_secs(30);
        let rest_user = "slurmrestd".to_owned();
        Api::new(RestArguments { endpoint, token_file, user, rest_user, ca_file, timeout }).unwrap()
    }

    #[test]
    fn a_path_that_no_version_has_is_asked_for_in_each_and_the_problem_names_the_release_that_has_it()
     {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut api = client(&listener);
        let requests_sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests_sent);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                count.fetch_add(1, Ordering::Relaxed);
                let _ = stream.write_all(
                    b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
            }
        });
        let mut reading = Reading::default();
        let (newest, latest) = *LIBRARIES.last().unwrap();
        let newer = format!("Slurm 22.05, newer than {latest}");
        for (path, oldest, too_old) in [
            ("jobs/state", 41, "Slurm 24.05 or newer"),
            ("diag", 38, &newer),
            // The one before may have been the answer of a proxy without a backend.
            ("jobs/state", 41, "Slurm 24.05 or newer"),
        ] {
            requests_sent.store(0, Ordering::Relaxed);
            let problem =
                api.get(&mut reading, ApiPath { path, oldest, limit: 1 }, |_, _| ()).unwrap_err();
            let requests = requests_sent.load(Ordering::Relaxed);
            assert_eq!((problem.stage, requests), (Stage::Version, (oldest..=newest).count()));
            assert!(problem.text.contains(too_old), "{problem}");
        }
    }
}
