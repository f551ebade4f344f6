//! The reader that speaks slurmctld's own protocol, by itself: nothing starts it yet. The figures are sdiag's and those of
//! libslurm's reader, and whatever is stopped, cut or wrong is one answer within the deadline, with the advice that
//! helps.

mod faults;
mod figures;
mod wires;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use sandbox::{Folder, slurm_graphite};
use slurm_snapshot::{Answer, Failure, Reading};

const STATISTICS: &str = "{\"statistics\":{\"id\":7,\"options\":{\"rpc\":true,\"users\":true}}}";

/// A reader, and both ends of the pipes to it. It ends with them.
struct Reader {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Reader {
    /// The native reader with this slurm.conf and these seconds for a request.
    fn native(folder: &Folder, conf: &Path, seconds: u32, more: &[&str]) -> Self {
        let program = slurm_graphite().unwrap().with_file_name("slurm-graphite-native-reader");
        assert!(program.is_file(), "cargo build --workspace");
        let mut command = sandbox::command(folder.path(), &program);
        command.arg("--conf").arg(conf).args(["--timeout", &seconds.to_string()]).args(more);
        Self::of(command)
    }

    fn of(mut command: std::process::Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (requests, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut reader = Self { child, requests, answers };
        assert!(matches!(reader.answer(), Answer::Hello(_)));
        reader
    }

    fn answer(&mut self) -> Answer {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        Answer::parse(line.as_bytes()).unwrap()
    }

    /// The answer to a request for the statistics, and how long it took.
    fn ask(&mut self) -> (Result<Reading, Failure>, Duration) {
        let begin = Instant::now();
        writeln!(self.requests.as_mut().unwrap(), "{STATISTICS}").unwrap();
        let answer = self.answer();
        let took = begin.elapsed();
        let answer = match answer {
            Answer::Reading(reading) => Ok(*reading),
            Answer::Failure(failure) => Err(failure),
            Answer::Hello(hello) => panic!("{hello:?}"),
        };
        (answer, took)
    }

    fn reading(&mut self) -> Reading {
        self.ask().0.unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// (errno, text, advice) of a failure within so many seconds.
    fn failure(&mut self, seconds: u64) -> (i32, String, String) {
        let (answer, took) = self.ask();
        let failure = answer.map(|reading| panic!("{reading:?}")).unwrap_or_else(|failure: Failure| failure);
        assert!(took < Duration::from_secs(seconds), "{took:?}: {failure:?}");
        (failure.errno, failure.text, failure.advice.unwrap().into())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.requests = None;
        // Both fail only if it has already ended.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The lines that tell of refused requests in slurmctld's log.
fn refusals(slurm: &sandbox::Slurm) -> usize {
    let refused =
        ["Invalid Protocol Version", "authentication error", "Munge decode failed", "Invalid HTTP method"];
    let lines = slurm.slurmctld.lines();
    lines.iter().filter(|line| refused.iter().any(|text| line.contains(text))).count()
}
