//! slurmrestd instead of libslurm: the same figures, distinct messages for its failures, expiring
//! tokens, and a reader that stays small.
#![expect(
    clippy::print_stdout,
    reason = "the harness captures it: what differs, if the two never agree"
)]

mod faults;
mod figures;
mod hostile;
mod imitated;
mod inventive;
mod jobs;
mod tokens;

use std::io::{self, Read as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use sandbox::{Folder, Reader, Slurm, Slurmdbd, Slurmrestd, Way, run, slurm_graphite};

use super::SOON;
use super::faults_reader::{DOWN, UP};
use super::figures::rpcs::count;

/// The port of a server that is not slurmrestd: `answer` gets each connection, with its request.
fn serve(answer: impl Fn(TcpStream, &str) -> io::Result<()> + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || {
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap_or(0);
                let request =
                    String::from_utf8_lossy(request.get(..length).unwrap_or_default()).into_owned();
                let _ = answer(stream, &request);
            });
        }
    });
    port
}

pub(crate) fn rest_reader(rest: &Slurmrestd) -> Reader {
    let program = slurm_graphite().unwrap().with_file_name("slurm-graphite-rest-reader");
    let mut command = sandbox::command(Path::new("/"), &program);
    command.args(["--rest", &rest.url]);
    Reader::start(command).unwrap()
}

/// The output of `check --connect` with these keys of `[slurm]`.
fn check(folder: &Folder, slurm: &str) -> String {
    let file = folder.write("check.toml", &format!("[slurm]\n{slurm}")).unwrap();
    let checked = run(folder, &["check", "--connect", "--config", &file]).unwrap();
    checked.stdout + &checked.stderr
}

/// The keys of `[slurm]` for this port of a server that is not slurmrestd.
fn imitation(folder: &Folder, port: u16) -> String {
    let token = folder.write("token", "opaque").unwrap();
    format!("rest = \"http://127.0.0.1:{port}\"\ntoken_file = \"{token}\"\nuser = \"root\"\n")
}

/// Number of requests of this type that slurmctld has served.
pub(crate) fn served(slurm: &Slurm, name: &str) -> u64 {
    count(&slurm.sdiag().unwrap(), name)
}

/// A cluster that creates tokens, with more lines in slurm.conf, and its slurmrestd, with a token
/// for this many seconds.
fn cluster(way: Way, seconds: u32, conf: &str) -> (Folder, Slurm, Slurmrestd) {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    Slurmrestd::allow_tokens(&folder, &slurm).unwrap();
    slurm.configure(conf).unwrap();
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
