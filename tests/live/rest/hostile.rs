//! A slurmrestd with a node of 800 MB, which is refused, and one whose answers are as long as is accepted: the reader stays
//! below 64 MiB and the daemon below 32 MiB.
//!
//! What else is refused is in imitated.rs, and in crates/rest-reader/tests/inside/decode/hostile.rs.

use std::io::{self, BufWriter, Write};
use std::net::TcpStream;

use sandbox::daemon::surveys;
use sandbox::{Daemon, Folder, now, proc};

use super::imitated::numbers;
use super::{SOON, imitation, serve};

const MOST_READER_KIB: u64 = 64 << 10;
const MOST_DAEMON_KIB: u64 = 32 << 10;

fn name(number: usize, length: usize) -> String {
    format!("{number:05}").repeat(length / 5)
}

fn answer(stream: TcpStream, request: &str, has_large_node: bool) -> io::Result<()> {
    let mut stream = BufWriter::new(stream);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")?;
    let list = |key: &str, count: usize, item: fn(usize) -> String| {
        format!("{{\"{key}\":[{}]}}", (0..count).map(item).collect::<Vec<_>>().join(","))
    };
    let path = request.split(' ').nth(1).unwrap_or_default();
    let body = match path.split('?').next().unwrap_or_default().rsplit('/').next().unwrap_or_default() {
        "partitions" => list("partitions", 1000, |n| format!(r#"{{"name":"{}"}}"#, name(n, 65))),
        "reservations" => {
            list("reservations", 990, |n| format!(r#"{{"name":"{}","node_count":1}}"#, name(n, 260)))
        }
        "diag" => format!(
            "{{\"statistics\":{{{}\"req_time\":{},\"req_time_start\":1,\"bf_active\":false}}}}",
            numbers(1),
            now().floor()
        ),
        "nodes" if has_large_node => {
            let idle = r#""state":["IDLE"],"cpus":8,"alloc_cpus":0"#;
            write!(stream, "{{\"nodes\":[{{\"name\":\"n1\",{idle},\"partitions\":[\"p\"")?;
            (0..4095).try_for_each(|n| write!(stream, ",\"{}\"", name(n, 200_000)))?;
            "]}]}".to_owned()
        }
        other => list(other, 0, |_| String::new()),
    };
    stream.write_all(body.as_bytes())?;
    stream.flush()
}

#[test]
fn neither_a_refused_node_of_hundreds_of_mib_nor_as_much_as_is_accepted_makes_reader_or_daemon_grow() {
    for has_large_node in [true, false] {
        let folder = Folder::new().unwrap();
        let port = serve(move |stream, request| answer(stream, request, has_large_node));
        let slurm = imitation(&folder, port) + "timeout = \"20s\"\n";
        let collectors =
            surveys(&["partitions", "reservations", "nodes"]).replace("2s", "5s") + "each = true\n";
        let mut daemon = Daemon::start_surveying(&folder, &slurm, &collectors).unwrap();
        if has_large_node {
            daemon.said(0.0, "nodes, item 1: larger than anything that slurmrestd sends", SOON).unwrap();
        } else {
            daemon
                .until("points of all partitions", SOON, |recorded| {
                    let paths = recorded.below("cluster.slurm_partitions.");
                    (paths.iter().filter(|path| path.ends_with("gauge-nodes_total")).count() == 1000)
                        .then_some(())
                })
                .unwrap();
        }
        let reader = daemon.readers().into_iter().filter_map(proc::peak_kib).max().unwrap();
        let own = proc::peak_kib(daemon.process.pid().unwrap()).unwrap();
        daemon.stop().unwrap();
        assert!(reader <= MOST_READER_KIB, "{has_large_node}: reader {reader} KiB");
        assert!(own <= MOST_DAEMON_KIB, "{has_large_node}: daemon {own} KiB");
    }
}
