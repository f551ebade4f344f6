//! The reader that speaks slurmctld's own protocol: by itself, and in the daemon. The figures are
//! sdiag's and those of libslurm's reader, and whatever is stopped, cut or wrong is one answer
//! within the deadline, with the advice that helps.

pub(crate) mod faults;
mod figures;
mod joined;
mod peers;
mod ticks;
mod turns;
mod wires;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sandbox::{Folder, Invocation, Process, Slurm, wait};
use slurm_snapshot::{Answer, Failure, Reading, ReplyKind, ReplyOptions, Request};
use slurmctld_protocol::NativeReader;

enum Reader {
    /// As the daemon has it, on a thread's own runtime.
    Native {
        runtime: tokio::runtime::Runtime,
        native: Box<NativeReader>,
        conf: PathBuf,
        timeout: Duration,
    },
    Libslurm(sandbox::Reader),
}

/// slurm.conf with another port of slurmctld's.
pub(crate) fn with_port(slurm: &Slurm, name: &str, port: u16) -> PathBuf {
    let line = |port| format!("SlurmctldPort={port}\n");
    slurm.changed(name, &line(slurm.slurmctld_port), &line(port)).unwrap()
}

impl Reader {
    /// The native reader with this slurm.conf and these seconds for a request.
    fn native(conf: &Path, seconds: u64) -> Self {
        Self::knowing(None, conf, seconds)
    }

    /// The native reader with the protocol numbers in this file, this slurm.conf and these
    /// seconds for a request.
    fn knowing(numbers: Option<&Path>, conf: &Path, seconds: u64) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let native = Box::new(NativeReader::new(numbers.map(Path::to_owned), true));
        Self::Native {
            runtime,
            native,
            conf: conf.to_owned(),
            timeout: Duration::from_secs(seconds),
        }
    }

    /// The answer, and how long it took.
    fn ask(&mut self) -> (Result<Reading, Failure>, Duration) {
        let options = ReplyOptions { rpc: true, users: true, ..ReplyOptions::default() };
        let request = Request::new(ReplyKind::Statistics, options);
        let begin = Instant::now();
        let answer = match self {
            Self::Native { runtime, native, conf, timeout } => {
                runtime.block_on(native.answer(Some(conf), &request, *timeout))
            }
            Self::Libslurm(reader) => reader.ask(&request).unwrap(),
        };
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

    /// Reads until slurmctld says since when it counts, which it does not for a moment after its
    /// start: then a higher number is tried once more, and after that none.
    fn settle(&mut self) {
        let is_counting =
            |reading: Reading| reading.statistics.is_some_and(|found| found.req_time_start != 0);
        wait::until("since when slurmctld counts", wait::LIMIT, || {
            self.ask().0.is_ok_and(is_counting)
        })
        .unwrap();
    }

    /// A failure with this number and these words in its text and advice, within the seconds of a
    /// busy machine.
    fn fails(&mut self, errno: i32, words: &[&str]) {
        self.fails_with(&[errno], words);
    }

    /// The same with one of these numbers.
    fn fails_with(&mut self, errnos: &[i32], words: &[&str]) {
        let (answer, took) = self.ask();
        let failure =
            answer.map(|reading| panic!("{reading:?}")).unwrap_or_else(|failure: Failure| failure);
        assert!(took < Duration::from_secs(40), "{took:?}: {failure:?}");
        assert!(errnos.contains(&failure.errno), "{errnos:?}: {failure:?}");
        let said = format!("{}\n{}", failure.text, failure.advice.as_deref().unwrap());
        assert!(words.iter().all(|words| said.contains(words)), "{words:?}: {failure:?}");
    }
}

fn controller() -> (Folder, Slurm) {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::controller(&folder).unwrap();
    (folder, slurm)
}

/// `stats` by the native reader.
fn stats(folder: &Folder, conf: &Path) -> Invocation {
    let toml = format!("[slurm]\nconf = {conf:?}\nreader = \"native\"\n");
    let config = folder.write("native.toml", &toml).unwrap();
    Invocation::new(folder, &["stats", "--json", "--config", &config]).unwrap()
}

/// The lines that tell of refused requests in slurmctld's log.
fn refusals(slurmctld: &Process) -> usize {
    let refused = [
        "Invalid Protocol Version",
        "authentication error",
        "Munge decode failed",
        "Invalid HTTP method",
    ];
    let lines = slurmctld.lines();
    lines.iter().filter(|line| refused.iter().any(|text| line.contains(text))).count()
}
