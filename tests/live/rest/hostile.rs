//! A hostile slurmrestd: answers that would take hundreds of MiB. Each is refused by a line that
//! says what was refused, the ticks go on, and the readers stay below 64 MiB and the daemon below
//! 32 MiB.
//!
//! crates/rest-reader/src/decode/tests/hostile.rs has names that are too long, alone and together.

use std::io::{self, BufWriter, Write};
use std::net::TcpStream;

use sandbox::daemon::surveys;
use sandbox::{Daemon, Folder, now, proc};

use super::imitated::numbers;
use super::{SOON, imitation, serve};

const MOST_READER_KIB: u64 = 64 << 10;
const MOST_DAEMON_KIB: u64 = 32 << 10;

type Body = fn(&mut dyn Write) -> io::Result<()>;

/// A hostile answer for each path; the other paths have good ones.
struct Hostile {
    name: &'static str,
    bodies: &'static [(&'static str, Body)],
    /// The request that is refused; `None`: none is.
    refused: Option<&'static str>,
}

const IDLE: &str = r#""state":["IDLE"],"cpus":8,"alloc_cpus":0"#;

fn name(number: usize, length: usize) -> String {
    format!("{number:05}").repeat(length / 5)
}

pub(super) fn list(
    body: &mut dyn Write,
    key: &str,
    count: usize,
    item: impl Fn(usize) -> String,
) -> io::Result<()> {
    write!(body, "{{\"{key}\":[")?;
    for number in 0..count {
        let comma = if number == 0 { "" } else { "," };
        write!(body, "{comma}{}", item(number))?;
    }
    write!(body, "]}}")
}

const CASES: [Hostile; 3] = [
    Hostile {
        name: "500 MB of depth in a member that nobody needs",
        bodies: &[("nodes", |body| {
            body.write_all(b"{\"x\":")?;
            (0..50_000).try_for_each(|_| body.write_all(&[b'['; 10_000]))
        })],
        refused: Some("the response is nested deeper than 64 levels"),
    },
    Hostile {
        name: "a node with 4,096 partitions of 200 kB",
        bodies: &[("nodes", |body| {
            write!(body, "{{\"nodes\":[{{\"name\":\"n1\",{IDLE},\"partitions\":[\"p\"")?;
            (0..4095).try_for_each(|n| write!(body, ",\"{}\"", name(n, 200_000)))?;
            write!(body, "]}}]}}")
        })],
        refused: Some("nodes, item 1: larger than anything that slurmrestd sends"),
    },
    Hostile {
        name: "as much as is accepted",
        bodies: &[
            ("partitions", |body| {
                list(body, "partitions", 1000, |n| format!(r#"{{"name":"{}"}}"#, name(n, 65)))
            }),
            ("reservations", |body| {
                list(body, "reservations", 990, |n| {
                    format!(r#"{{"name":"{}","node_count":1}}"#, name(n, 260))
                })
            }),
        ],
        refused: None,
    },
];

fn answer(stream: TcpStream, bodies: &[(&str, Body)], request: &str) -> io::Result<()> {
    let mut stream = BufWriter::new(stream);
    let path = request.split(' ').nth(1).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    stream.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n",
    )?;
    if let Some((_, body)) = bodies.iter().find(|(hostile, _)| *hostile == path) {
        body(&mut stream)?;
    } else if path == "diag" {
        let req_time = now().floor();
        write!(
            stream,
            "{{\"statistics\":{{{}\"req_time\":{req_time},\
                \"req_time_start\":1,\"bf_active\":false}}}}",
            numbers(1)
        )?;
    } else {
        list(&mut stream, path, 0, |_| String::new())?;
    }
    stream.flush()
}

#[test]
fn an_answer_of_hundreds_of_mib_is_refused_in_words_and_neither_reader_nor_daemon_grows() {
    for Hostile { name, bodies, refused } in CASES {
        let folder = Folder::new().unwrap();
        let port = serve(move |stream, request| answer(stream, bodies, request));
        let slurm = imitation(&folder, port) + "timeout = \"20s\"\n";
        let collectors =
            surveys(&["partitions", "reservations", "nodes"]).replace("2s", "5s") + "each = true\n";
        let mut daemon = Daemon::start_surveying(&folder, &slurm, &collectors).unwrap();
        match refused {
            Some(words) => {
                daemon.said(0.0, words, SOON).unwrap();
                daemon.ticks(2).unwrap();
                daemon.check_ticks().unwrap();
            }
            // In a debug build their points take longer than a tick.
            None => daemon
                .until("points of all partitions", SOON, |recorded| {
                    let paths = recorded.below("cluster.slurm_partitions.");
                    (paths.iter().filter(|path| path.ends_with("gauge-nodes_total")).count()
                        == 1000)
                        .then_some(())
                })
                .unwrap(),
        }
        let reader = daemon.readers().into_iter().filter_map(proc::peak_kib).max().unwrap();
        let own = proc::peak_kib(daemon.process.pid().unwrap()).unwrap();
        println!("{name}: reader {reader} KiB, daemon {own} KiB at most");
        daemon.stop().unwrap();
        assert!(reader <= MOST_READER_KIB, "{name}: reader {reader} KiB");
        assert!(own <= MOST_DAEMON_KIB, "{name}: daemon {own} KiB");
    }
}
