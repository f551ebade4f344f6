//! Imitated readers: shell scripts that speak the reader's line format, and misbehave on command.

use std::fs;

use anyhow::Result;
use slurm_snapshot::{Answer, Failure, Hello, PROTOCOL, Reading, Release, Statistics};

use crate::Folder;

/// A placeholder that the script replaces with the request's id.
const ID: u32 = 1_111_111_111;

/// A script, and the file in which it records each start.
#[derive(Debug)]
pub struct Imitation {
    script: String,
}

impl Imitation {
    /// Writes a script. `body` is shell: `hello` sends the hello, `ask` waits for a request
    /// (`$line`), and `answer` answers it (its id is `$id`, and also the `jobs_submitted` of the
    /// answer). `serve` does both for ever. `$start` is 1 at the first start, then 2 and so on.
    pub fn new(folder: &Folder, name: &str, body: &str) -> Result<Self> {
        let release = Release::new(22, 5);
        let hello = Answer::Hello(Hello { protocol: PROTOCOL, release: Some(release) });
        // A slurmctld whose clock is that of its replies.
        let statistics =
            Statistics { jobs_submitted: ID, req_time: 1_700_000_000, ..Statistics::default() };
        let hello = serde_json::to_string(&hello)?;
        let answer = Self::answer(Reading { statistics: Some(statistics), ..Self::reading() })?;
        let text = format!(
            "\
echo $$ >> \"$0.starts\"
start=0
while read -r _; do start=$((start + 1)); done < \"$0.starts\"
hello() {{ echo '{hello}'; }}
ask() {{ read -r line || exit 0; id=${{line#*'\"id\":'}}; id=${{id%%[!0-9]*}}; }}
answer() {{ {answer}; }}
serve() {{ while ask; do answer; done; }}
{body}"
        );
        Ok(Self { script: folder.script(name, &text)? })
    }

    /// An empty reading.
    pub fn reading() -> Reading {
        Reading {
            id: u64::from(ID),
            time: 1_700_000_000.0,
            elapsed: 100,
            release: Release::new(22, 5),
            cluster: Some("imitation".to_owned()),
            ..Reading::default()
        }
    }

    /// The shell command that answers with `reading`, with the request's id.
    pub fn answer(reading: Reading) -> Result<String> {
        Self::say(&Answer::Reading(Box::new(reading)))
    }

    /// The shell command that says that the request has failed.
    pub fn failure(failure: Failure) -> Result<String> {
        Self::say(&Answer::Failure(Failure { id: u64::from(ID), ..failure }))
    }

    fn say(answer: &Answer) -> Result<String> {
        let line = serde_json::to_string(answer)?;
        Ok(format!("printf '%s\\n' '{}'", line.replace(&ID.to_string(), "'\"$id\"'")))
    }

    /// The body of one that answers requests of these kinds with these commands, and all others
    /// with `others`.
    pub fn serving(kinds: &[(&str, &str)], others: &str) -> String {
        let case = |(kind, command): &(&str, &str)| format!("*'\"{kind}\"'*) {command} ;; ");
        let cases: String = kinds.iter().map(case).collect();
        format!("hello; while ask; do case $line in {cases}*) {others} ;; esac; done")
    }

    /// A recording of these readings.
    pub fn recording(readings: impl IntoIterator<Item = Reading>) -> Result<String> {
        let line = |reading| Ok(serde_json::to_string(&Answer::Reading(Box::new(reading)))? + "\n");
        readings.into_iter().map(line).collect()
    }

    /// A reader that does everything right.
    pub fn good(folder: &Folder) -> Result<Self> {
        Self::new(folder, "reader", "hello; serve")
    }

    /// Its line in the `[slurm]` table of a configuration.
    pub fn toml(&self) -> String {
        format!("reader = \"{}\"\n", self.script)
    }

    /// The process id of every start so far.
    pub fn starts(&self) -> Vec<u32> {
        let notes = fs::read_to_string(format!("{}.starts", self.script)).unwrap_or_default();
        notes.lines().filter_map(|line| line.parse().ok()).collect()
    }
}
