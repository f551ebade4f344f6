//! slurmrestd instead of libslurm: the same figures, distinct messages for its failures, expiring tokens, and a reader
//! that stays small.
#![expect(clippy::print_stdout, reason = "what was measured, for --nocapture")]

mod faults;
mod figures;
mod hostile;
mod imitated;
mod jobs;

use std::time::Duration;

use sandbox::{Folder, Slurm, Slurmdbd, Slurmrestd, Way, wait};

const SOON: Duration = wait::LIMIT;
const DOWN: &str = "no reading; trying at every tick";

/// A cluster that creates tokens, and its slurmrestd, with a token for this many seconds.
fn cluster(way: Way, seconds: u32) -> (Folder, Slurm, Slurmrestd) {
    cluster_with(way, seconds, "")
}

/// The same with more lines in slurm.conf.
fn cluster_with(way: Way, seconds: u32, conf: &str) -> (Folder, Slurm, Slurmrestd) {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    Slurmrestd::allow_tokens(&folder, &slurm).unwrap();
    let text = std::fs::read_to_string(slurm.conf()).unwrap();
    std::fs::write(slurm.conf(), text + conf).unwrap();
    // slurmrestd 23.02 answers only while slurmdbd does.
    let needs_slurmdbd = slurm.release().unwrap().starts_with("23.02");
    let slurmdbd = needs_slurmdbd.then(|| Slurmdbd::start(&folder, &mut slurm).unwrap());
    if slurmdbd.is_none() {
        slurm.munged.start().unwrap();
    }
    slurm.slurmctld.start().unwrap();
    slurm.slurmd.start().unwrap();
    let mut rest = Slurmrestd::new(&folder, &slurm, way).unwrap();
    rest.slurmdbd = slurmdbd;
    rest.process.start().unwrap();
    if way == Way::Token {
        rest.renew(&slurm, seconds).unwrap();
    }
    (folder, slurm, rest)
}
