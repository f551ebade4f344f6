//! slurmrestd: which version of its API answers, and whether the token is accepted.
//!
//! To find the version, the request itself is sent with each version from the newest down. An unknown version gives 404
//! at once and costs slurmctld nothing, so neither a ping nor a list of paths is needed. The version is remembered
//! until it gives 404 or another release answers.

use std::collections::HashMap;
use std::io::Read as _;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use reader_process::TokenFile;
use slurm_snapshot::{LIBRARIES, Release, Rest, Stage};

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

/// What is requested, and what is expected of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiPath {
    /// The path after `/slurm/v0.0.N/`.
    pub(crate) path: &'static str,
    /// N of the first version that reports everything a reading needs.
    pub(crate) oldest: u32,
    /// The most bytes that an answer may have.
    pub(crate) limit: u64,
}

/// For how long a path that no version has is not requested again, if the first answer was no mistake: a proxy without a backend
/// gives 404 too.
const LACKING: Duration = Duration::from_secs(600);
/// After so many answers in a row.
const LACKING_AFTER: u32 = 3;

/// How much is read of a body that is not an answer.
const GLANCE: u64 = 64 << 10;

/// One slurmrestd.
pub(crate) struct Api {
    http: HttpClient,
    token: Option<TokenFile>,
    user: Option<String>,
    is_socket: bool,
    known: Option<KnownApi>,
    /// The paths that no version had: how often in a row, and when each was last requested.
    lacking: HashMap<&'static str, (u32, Instant)>,
}

/// What is known from the last answer.
#[derive(Clone, Copy, Debug)]
struct KnownApi {
    version: u32,
    release: Release,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct ApiReply<T> {
    pub(crate) payload: T,
    pub(crate) release: Release,
    pub(crate) cluster: Option<String>,
    /// From the request to the end of the answer.
    pub(crate) elapsed: Duration,
}

impl Api {
    pub(crate) fn new(settings: RestArguments) -> std::io::Result<Self> {
        Ok(Self {
            token: settings.token_file.clone().map(TokenFile::new),
            user: settings.user.clone(),
            is_socket: matches!(settings.endpoint, slurm_snapshot::Endpoint::Unix(_)),
            known: None,
            lacking: HashMap::new(),
            http: HttpClient::new(settings)?,
        })
    }

    /// The part of every answer that describes slurmrestd.
    pub(crate) fn rest(&self) -> Rest {
        Rest {
            version: self.known.map(|known| format!("v0.0.{}", known.version)),
            token: self
                .token
                .as_ref()
                .filter(|token| token.secret().is_some())
                .map(|token| token.claims.clone()),
        }
    }

    /// Requests `path`. `payload` makes the decoder of the answer, for a version of the API and its release.
    pub(crate) fn get<T: decode::Payload>(
        &mut self,
        path: ApiPath,
        payload: impl Fn(u32, Release) -> T,
    ) -> Result<ApiReply<T>, RestProblem> {
        if let Some(token) = &mut self.token {
            token.refresh()?;
        }
        // The paths that every version has are requested at every tick.
        let is_lacking = |&(times, requested_at): &(u32, Instant)| {
            path.oldest > OLDEST && times >= LACKING_AFTER && requested_at.elapsed() < LACKING
        };
        if self.lacking.get(path.path).is_some_and(is_lacking) {
            return Err(RestProblem::new(Stage::Version, lacking(path)));
        }
        let deadline = self.http.deadline();
        let mut first = self.known;
        let mut retried = false;
        loop {
            match self.try_versions(path, first, deadline, &payload) {
                // The token may have been replaced at this moment.
                Err(problem) if problem.stage == Stage::Token && !retried => {
                    retried = true;
                    first = self.known;
                    let is_another = self.token.as_mut().is_some_and(|token| token.read().unwrap_or(false));
                    if !is_another {
                        return Err(problem);
                    }
                }
                result => return result,
            }
        }
    }

    fn try_versions<T: decode::Payload>(
        &mut self,
        path: ApiPath,
        first: Option<KnownApi>,
        deadline: tokio::time::Instant,
        payload: &impl Fn(u32, Release) -> T,
    ) -> Result<ApiReply<T>, RestProblem> {
        let known = first.map(|known| (known.version, known.release));
        let reports_all = |&(version, _): &(u32, Release)| version >= path.oldest;
        for (version, release) in known.into_iter().chain(versions()).filter(reports_all) {
            let begin = Instant::now();
            let url = format!("/slurm/v0.0.{version}/{}", path.path);
            let answer = self.request(&url, path.limit, deadline, payload(version, release))?;
            let Some(Envelope { meta: Meta { release: reported, cluster }, payload, .. }) = answer else {
                continue;
            };
            let elapsed = begin.elapsed();
            let release = reported.unwrap_or(release);
            // Another release may have another version that reports more.
            let is_another = first.is_some_and(|known| known.release != release);
            self.known = if is_another { None } else { Some(KnownApi { version, release }) };
            if self.lacking.remove(path.path).is_some() || is_another {
                // slurmrestd was away, or is another one now: what it lacked then says nothing.
                self.lacking.clear();
            }
            return Ok(ApiReply { payload, release, cluster, elapsed });
        }
        // A version that is too old for this request may still exist.
        self.known = first.filter(|known| known.version < path.oldest);
        let (times, requested_at) = self.lacking.entry(path.path).or_insert((0, Instant::now()));
        (*times, *requested_at) = (times.saturating_add(1), Instant::now());
        Err(RestProblem::new(Stage::Version, lacking(path)))
    }

    /// `None` if slurmrestd does not have this version, or this version does not have this path.
    fn request<T: decode::Payload>(
        &mut self,
        url: &str,
        limit: u64,
        deadline: tokio::time::Instant,
        payload: T,
    ) -> Result<Option<Envelope<T>>, RestProblem> {
        let headers = self.headers()?;
        let begin = Instant::now();
        let result = {
            let mut answer = self.http.get(url, &headers, limit, deadline)?;
            match answer.status {
                StatusCode::OK => match decode::read(&mut answer.body, payload) {
                    Ok(Envelope { error: Some(refusal), .. }) => {
                        Err(explain(refusal, "slurmrestd answers 200"))
                    }
                    Ok(envelope) => Ok(Some(envelope)),
                    Err(error) => Err(answer.body.problem.take().unwrap_or_else(|| {
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
                    let _ = answer.body.take(GLANCE).read_to_end(&mut text);
                    Err(refused(status, &text, begin.elapsed(), self.token.is_some(), self.is_socket))
                }
            }
        };
        // slurmrestd closes the connection after an error, and a connection whose answer was not read to its end cannot
        // be used again.
        if !matches!(result, Ok(Some(_))) {
            self.http.hang_up();
        }
        result
    }

    /// The headers that identify the user. All releases accept the two together.
    fn headers(&self) -> Result<HeaderMap, RestProblem> {
        let mut headers = HeaderMap::new();
        let value = |text: &str| {
            HeaderValue::from_str(text).map_err(|_| {
                RestProblem::new(
                    Stage::TokenFile,
                    "the token or its user has characters that are not allowed in a header",
                )
            })
        };
        let Some(token) = &self.token else { return Ok(headers) };
        let Some(secret) = token.secret() else { return Ok(headers) };
        let Some(user) = self.user.as_deref().or(token.claims.user.as_deref()) else {
            let text = "the token does not name its user; set [slurm] user";
            return Err(RestProblem::new(Stage::TokenFile, text));
        };
        headers.insert(HeaderName::from_static("x-slurm-user-name"), value(user)?);
        let mut secret = value(secret)?;
        secret.set_sensitive(true);
        headers.insert(HeaderName::from_static("x-slurm-user-token"), secret);
        Ok(headers)
    }
}

/// The message that no version of slurmrestd has this path.
fn lacking(ApiPath { path, oldest, .. }: ApiPath) -> String {
    let (name, _) = path.split_once('?').unwrap_or((path, ""));
    let since = Release::of_library(oldest).unwrap_or_default();
    let (newest, latest) = versions().next().unwrap_or_default();
    let there_is_none = format!("slurmrestd has no /{name} in v0.0.{oldest} to v0.0.{newest} of its API");
    if oldest == OLDEST {
        return format!(
            "{there_is_none}: it is older than Slurm {since}, newer than {latest}, or the URL is not slurmrestd's"
        );
    }
    format!("{there_is_none}; this needs Slurm {since} or newer")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::decode::Nothing;

    #[test]
    fn a_path_that_no_version_has_is_not_asked_for_in_every_round() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let requests_sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests_sent);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                count.fetch_add(1, Ordering::Relaxed);
                let _ = stream
                    .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
        });
        let timeout = Duration::from_secs(30);
        let (token_file, user, ca_file) = (None, None, None);
        let mut api = Api::new(RestArguments { endpoint, token_file, user, ca_file, timeout }).unwrap();
        for (oldest, expected) in [(41, 5), (38, 8)] {
            let path = ApiPath { path: if oldest == 41 { "jobs/state" } else { "diag" }, oldest, limit: 1 };
            requests_sent.store(0, Ordering::Relaxed);
            let first = api.get(path, |_, _| Nothing).map(|_| ()).unwrap_err();
            assert_eq!((first.stage, requests_sent.load(Ordering::Relaxed)), (Stage::Version, expected));
            let too_old = format!(
                "Slurm {}",
                if oldest == OLDEST { "22.05, newer than 26.05" } else { "24.05 or newer" }
            );
            assert!(first.text.contains(&too_old), "{first}");
            // One answer may be that of a proxy without a backend.
            for times in 2..=5 {
                assert_eq!(first, api.get(path, |_, _| Nothing).map(|_| ()).unwrap_err());
                // The statistics are requested at every tick, whatever the last answer was.
                let requests = if oldest == OLDEST { times } else { times.min(3) };
                assert_eq!(requests_sent.load(Ordering::Relaxed), expected * requests);
            }
        }
    }

    /// Behind a proxy that gave 404 while slurmrestd was away, surveys were not requested for ten minutes after its return.
    #[test]
    fn what_was_not_found_while_nothing_was_is_requested_again_once_something_is() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (is_back, requests_sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (answers, count) = (Arc::clone(&is_back), Arc::clone(&requests_sent));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                count.fetch_add(usize::from(request.contains("/jobs/state")), Ordering::Relaxed);
                let body = r#"{"errors":[],"statistics":{}}"#;
                let is_found = request.contains("/diag") && answers.load(Ordering::Relaxed);
                let status = if is_found { "200 OK" } else { "404 Not Found" };
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + body).as_bytes());
            }
        });
        let timeout = Duration::from_secs(30);
        let (token_file, user, ca_file) = (None, None, None);
        let mut api = Api::new(RestArguments { endpoint, token_file, user, ca_file, timeout }).unwrap();
        let diag = ApiPath { path: "diag", oldest: OLDEST, limit: 4096 };
        let states = ApiPath { path: "jobs/state", oldest: 41, limit: 4096 };
        let rounds = |api: &mut Api, count: usize| {
            requests_sent.store(0, Ordering::Relaxed);
            (0..count).for_each(|_| assert!(api.get(states, |_, _| Nothing).is_err()));
            requests_sent.load(Ordering::Relaxed)
        };
        assert!(api.get(diag, |_, _| Nothing).is_err());
        assert_eq!(rounds(&mut api, 5), 3 * 5);
        is_back.store(true, Ordering::Relaxed);
        assert!(api.get(diag, |_, _| Nothing).is_ok());
        assert_eq!(rounds(&mut api, 5), 3 * 5 + 1, "the version that has answered first, and then all");
        // One that is there and does not have it is believed.
        assert!(api.get(diag, |_, _| Nothing).is_ok());
        assert_eq!(rounds(&mut api, 5), 0);
    }
}
