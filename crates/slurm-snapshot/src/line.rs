//! The lines between the daemon and a reader: JSON, one object per line, named by its only key.
//!
//! A reader sends [`Answer::Hello`] once, when it is ready, and then exactly one
//! [`Answer::Reading`] or [`Answer::Failure`] for each [`Request`], in order and with the request's
//! `id`. A recording is a file of such answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::jobs::PublishedJobs;
use crate::lists::Visibility;
use crate::release::Release;
use crate::replies::{Reply, ReplyKind, ReplyOptions};
use crate::statistics::Statistics;

/// The version of this line format. A release that changes the format raises it by one. A daemon
/// refuses a reader with another version. A recording has no version: a line with an unknown member
/// is refused.
pub const PROTOCOL: u32 = 1;

/// The exit status of a reader if the dynamic loader gave it another libslurm than the one it was
/// built for.
pub const WRONG_LIBRARY: u8 = 69;

/// A request of the daemon to a reader: one RPC, or the few that make one reply. Its line is
/// `{"jobs":{"id":7,"options":{"qos":true}}}`: members that are not set are not written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The number of the request, which its answer repeats.
    pub id: u64,
    /// The kind of reply that is requested. It is the line's only key.
    #[serde(skip)]
    pub reply: ReplyKind,
    /// The `last_update` of the last reply of this kind and with these options that the daemon
    /// still holds. If nothing has changed since then, the answer is [`Reply::Unchanged`]. `None`
    /// requests the whole reply. For finished jobs: the beginning of the requested time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// For finished jobs: the end of the requested time, in which jobs ended, and which begins at
    /// `since`. Both ends are included; Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
    /// For finished jobs: moments at which jobs are known to have ended, before and after the
    /// requested time, and moments since which little may have ended; Unix seconds. If no job ended
    /// in the requested time, the reader looks for a row at these moments, which shows that
    /// slurmdbd's database has answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<i64>,
    /// For finished jobs: the jobs whose steps are requested, and nothing else, given as id and
    /// `NO_VAL`, or array and task. `since` is when the first of them started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<(u32, u32)>,
    /// For the jobs in `jobs`: rows, by `db_index`, of which only the steps count that began at
    /// this moment or later, Unix seconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps_since: Vec<(u64, i64)>,
    /// For jobs: the accounts and QOS that have paths, and the moment from which on starts are
    /// counted. A job with several QOS counts under each of these, and once in the rest if it has
    /// others. `None`: it counts under each of its QOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<PublishedJobs>,
    /// The contents of the reply besides its totals.
    #[serde(default)]
    pub options: ReplyOptions,
}

/// The lines that a reader sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// The reader is ready for requests: libslurm, if it uses it, is initialized.
    Hello(Hello),
    /// The answer to a request that succeeded.
    Reading(Box<Reading>),
    /// The answer to a request that failed.
    Failure(Failure),
}

/// The first line of a reader, which says that it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The version of the reader's line format, [`PROTOCOL`].
    pub protocol: u32,
    /// Release of the libslurm that the reader is linked with; `None` for a reader of slurmrestd.
    pub release: Option<Release>,
}

/// A reply with its time and its cluster, and all that is needed to use a recording of it
/// elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// The id of the request.
    pub id: u64,
    /// Moment at which the reply arrived: Unix time in seconds on the reader's clock.
    pub time: f64,
    /// Seconds from the boot of the reader's host until the reply arrived, on a clock that nobody
    /// sets.
    pub uptime: Option<f64>,
    /// Time that the RPCs or HTTP requests of the reply took, µs. A request for slurmctld's
    /// configuration before the reply is not included for a reader of libslurm.
    pub elapsed: u64,
    /// Release of the libslurm that read the reply, or of the slurmrestd that sent it.
    pub release: Release,
    /// ClusterName, if slurmctld has reported it.
    pub cluster: Option<String>,
    /// The statistics; `None` if something else was requested, or slurmctld is in standby.
    pub statistics: Option<Statistics>,
    /// The reply, if it is not the statistics. `None` after a reset too, and if PrivateData hides
    /// it.
    pub reply: Option<Reply>,
    /// The part that the reply may lack, if the table of replies names a word of PrivateData for
    /// it. slurmctld is asked for it before the reply, or slurmdbd with it for finished jobs. If
    /// that fails, the request fails.
    pub visibility: Option<Visibility>,
    /// The way in which slurmrestd was asked; `None` for a reader of libslurm.
    pub rest: Option<Rest>,
}

/// The way in which slurmrestd was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rest {
    /// The version of slurmrestd's API that answers, such as `v0.0.42`.
    pub version: Option<String>,
    /// The token that is sent to slurmrestd; `None` if none is.
    pub token: Option<Token>,
}

/// The part of a token that can be read without its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// The user whom the token is for.
    pub user: Option<String>,
    /// Moment at which the token expires: Unix seconds.
    pub expires: Option<i64>,
    /// Whether every user of this host can read the token's file.
    pub exposed: bool,
    /// Whether others than its owner may write the token's file, or replace it in its folder.
    pub writable: bool,
}

/// The text of a failure if libslurm has set no errno. The lines that it printed say more.
pub const NO_REASON: &str = "libslurm gave no reason";

/// A call of libslurm, or a request to slurmrestd, that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}", self.words())]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The id of the request.
    pub id: u64,
    /// libslurm's function that failed, the path requested from slurmrestd, or the setting that
    /// prevents the call.
    pub call: String,
    /// The `errno` right after the call: Slurm's own errors are from 1000 on; 0 if there is none.
    pub errno: i32,
    /// The reason in words: `slurm_strerror(errno)`, [`NO_REASON`], or another explanation.
    pub text: String,
    /// Advice where an administrator should look first; `None` if there is none. The reader gives
    /// it, because it knows what its errors mean.
    pub advice: Option<Box<str>>,
    /// The stage that a request to slurmrestd reached; `None` for a reader of libslurm, except for
    /// [`Stage::Listener`].
    pub stage: Option<Stage>,
    /// The way in which slurmrestd was asked; `None` for a reader of libslurm.
    pub rest: Option<Box<Rest>>,
}

/// The stages of a request to slurmrestd, and so where to look. Each stage needs the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The request was not sent: slurmrestd has no such request, or it would cost slurmrestd too
    /// much.
    Unsupported,
    /// The request was not sent: the token's file cannot be read.
    TokenFile,
    /// There was no connection to slurmrestd.
    Connect,
    /// A program of another user listens on this host, or it is not known whose it is. slurmrestd's
    /// token was not sent to it; libslurm may have sent its own.
    Listener,
    /// TLS could not be agreed on for the connection.
    Tls,
    /// The server is not slurmrestd, or part of its answer is missing.
    Http,
    /// slurmrestd has no version of its API that the reader knows.
    Version,
    /// The token is not accepted.
    Token,
    /// slurmrestd answers, but slurmctld does not, or refuses.
    Slurmctld,
}

/// A line that is not of this format: not JSON, or JSON of another shape.
#[derive(Debug, thiserror::Error)]
#[error("not a line of the reader's format ({parser}): {start:?}")]
pub struct LineError {
    /// The beginning of the line.
    start: String,
    /// The parser's message. It is already part of the text, so it is not a source.
    parser: serde_json::Error,
}

impl LineError {
    fn new(line: &[u8], parser: serde_json::Error) -> Self {
        Self { start: String::from_utf8_lossy(line).chars().take(60).collect(), parser }
    }
}

impl Answer {
    /// Reads one line, with or without its newline.
    ///
    /// # Errors
    /// The line is not JSON or not of this format.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        serde_json::from_slice(line).map_err(|parser| LineError::new(line, parser))
    }
}

impl Request {
    /// A request for the whole reply with these options.
    pub const fn new(reply: ReplyKind, options: ReplyOptions) -> Self {
        Self {
            id: 0,
            reply,
            since: None,
            until: None,
            known: Vec::new(),
            jobs: Vec::new(),
            steps_since: Vec::new(),
            kept: None,
            options,
        }
    }

    /// Returns the line of this request, with its newline.
    pub fn line(&self) -> String {
        // Numbers and plain names: nothing in it can fail.
        serde_json::to_string(&BTreeMap::from([(self.reply, self)])).unwrap_or_default() + "\n"
    }

    /// Reads one line, with or without its newline.
    ///
    /// # Errors
    /// The line is not JSON or not of this format.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let error = |parser| LineError::new(line, parser);
        let mut requests: BTreeMap<ReplyKind, Self> =
            serde_json::from_slice(line).map_err(error)?;
        match (requests.pop_first(), requests.is_empty()) {
            (Some((reply, request)), true) => Ok(Self { reply, ..request }),
            _ => Err(error(serde::de::Error::custom("a line is one request"))),
        }
    }
}

impl Failure {
    fn words(&self) -> String {
        let Self { call, errno, text, .. } = self;
        // The kernel's number is in it already.
        if *errno == 0 || text.contains("(os error ") {
            return format!("{call}: {text}");
        }
        format!("{call}: {text} (errno {errno})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replies::REPLIES;

    #[test]
    fn a_request_may_leave_out_what_it_does_not_want() {
        let request = Request::parse(br#"{"statistics":{"id":7}}"#).unwrap();
        let whole = Request::new(ReplyKind::Statistics, ReplyOptions::default());
        assert_eq!(request, Request { id: 7, ..whole });
    }

    #[test]
    fn garbage_is_an_error_that_shows_how_it_begins() {
        for line in [&b"munge: error"[..], b"{\"hello\":", b"{\"hello\":{}}", b"", b"\xff\xfe"] {
            assert!(Answer::parse(line).is_err());
        }
        let error = Answer::parse(&[b'x'; 5000]).unwrap_err().to_string();
        assert!(error.contains("xxx") && error.len() < 300, "{error}");
    }

    #[test]
    fn a_recording_from_before_the_cluster_was_asked_for_is_still_read() {
        let line = br#"{"reading":{"id":1,"time":1.5,"elapsed":3,"release":"22.05"}}"#;
        let Answer::Reading(reading) = Answer::parse(line).unwrap() else { panic!("no reading") };
        assert_eq!((reading.statistics, reading.reply, reading.visibility), (None, None, None));
    }

    #[test]
    fn a_request_of_each_kind_needs_no_more_than_its_number_and_comes_back_as_it_was_sent() {
        for row in REPLIES {
            let request =
                Request::parse(format!("{{\"{}\":{{\"id\":9}}}}", row.name).as_bytes()).unwrap();
            assert_eq!((request.id, request.reply), (9, row.kind));
            let options = ReplyOptions { qos: true, rows: true, ..ReplyOptions::default() };
            let request = Request {
                since: Some(5),
                until: Some(9),
                known: vec![3, -3],
                jobs: vec![(7, 8)],
                options,
                ..request
            };
            assert_eq!(Request::parse(request.line().as_bytes()).unwrap(), request);
        }
    }

    #[test]
    fn a_line_that_is_no_single_request_is_refused() {
        for line in [
            "{}",
            "{\"jobs\":{\"id\":1},\"nodes\":{\"id\":2}}",
            "{\"job\":{\"id\":1}}",
            "{\"jobs\":{\"id\":1,\"x\":2}}",
        ] {
            assert!(Request::parse(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn a_reading_comes_back_as_it_was_sent() {
        let reading = Reading {
            id: 3,
            time: 1_700_000_000.123_456,
            uptime: Some(86_400.5),
            elapsed: 412,
            release: Release::new(22, 5),
            cluster: Some("sandbox".into()),
            statistics: Some(Statistics { bf_cycle_sum: Some(u64::MAX), ..Statistics::default() }),
            reply: Some(Reply::Unchanged),
            visibility: Some(Visibility { private: vec!["jobs".into()], privileged: None }),
            rest: Some(Rest { version: Some("v0.0.42".into()), token: Some(Token::default()) }),
        };
        let answer = Answer::Reading(Box::new(reading));
        let line = serde_json::to_vec(&answer).unwrap();
        assert!(!line.contains(&b'\n'));
        assert_eq!(Answer::parse(&line).unwrap(), answer);
    }
}
