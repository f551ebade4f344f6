//! A slurmrestd that invents a word wherever a word becomes a part of a path, another one in each
//! round: the daemon stays as small as with one whose words stay, and each level has its bound of
//! names and one more.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use sandbox::daemon::surveys;
use sandbox::{Daemon, Folder, now, proc};

use super::hostile::list;
use super::imitated::numbers;
use super::{SOON, imitation, serve};

const ROUNDS: usize = 60;
const MOST_GROWTH_KIB: u64 = 20 << 10;

/// Below which part of a path names are counted, and the bound in docs/metrics.md; of closed sets,
/// how many words Slurm has.
const LEVELS: [(&str, usize); 12] = [
    ("slurm_rpc_stats.type.", 300),
    ("slurm_rpc_stats.pending.", 300),
    ("slurm_rpc_stats.user.", 200),
    ("slurm_nodes.flag.", 40),
    ("slurm_nodes.state.", 40),
    ("slurm_nodes.gpu.", 64),
    ("slurm_nodes.shard.", 64),
    ("slurm_nodes.feature.", 20),
    ("slurm_nodes.slurmd.", 32),
    ("slurm_nodes.node.", 65_536),
    ("slurm_partitions.", 1000),
    ("slurm_licenses.", 1000),
];

fn answer(stream: TcpStream, request: &str, round: u64) -> io::Result<()> {
    let mut body = BufWriter::new(stream);
    let path = request.split(' ').nth(1).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    body.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n",
    )?;
    let word = |number: usize| format!("w{round}x{number}");
    let number = |place: usize| round * 100 + u64::try_from(place).unwrap();
    match path {
        "diag" => {
            let rows = |count: usize, row: &dyn Fn(usize) -> String| {
                (0..count).map(row).collect::<Vec<_>>().join(",")
            };
            let figures = r#""count":1,"total_time":5"#;
            let types = rows(100, &|n| {
                format!(
                    r#"{{"type_id":{},"message_type":"{}",{figures}}}"#,
                    number(n) % 65_000,
                    word(n)
                )
            });
            let users = rows(200, &|n| {
                format!(r#"{{"user_id":{},"user":"{}",{figures}}}"#, 1000 + number(n), word(n))
            });
            let pending =
                rows(100, &|n| format!(r#"{{"type_id":{},"count":1}}"#, 1_000_000 + number(n)));
            write!(
                body,
                "{{\"statistics\":{{{}\"req_time\":{},\"req_time_start\":1,\
                 \"bf_active\":false,\"rpcs_by_message_type\":[{types}],\
                 \"rpcs_by_user\":[{users}],\"pending_rpcs\":[{pending}]}}}}",
                numbers(1),
                now().floor()
            )?;
        }
        "nodes" => list(&mut body, "nodes", 50, |n| {
            // Most nodes stay, or the levels by node would be all there is to see.
            let name = if n < 5 { word(n) } else { format!("n{n}") };
            let words = [word(n), word(n + 100)];
            // 6,000 in all rounds.
            let features = format!("{0},other,{0}.b/c;ü{1}", words[0], "x".repeat(300));
            format!(
                r#"{{"name":"{name}","state":["IDLE","{}"],"state_flags":["{}"],"cpus":8,"alloc_cpus":2,
                "effective_cpus":8,"gres":"gpu:{}:2,gpu:{}:1,shard:{}:8",
                "gres_used":"gpu:{}:1,shard:{0}:1(1/8)","slurmd_version":"{}.{}.{n}",
                "active_features":"{features}",
                "partitions":["{}"],"real_memory":1000,"alloc_memory":10,"cpu_load":100,"reason":"{}"}}"#,
                words[0],
                words[1],
                words[0],
                words[1],
                words[0],
                words[0],
                20 + round % 70,
                n,
                word(n % 10),
                words[0]
            )
        })?,
        "partitions" => list(&mut body, "partitions", 10, |n| {
            format!(r#"{{"name":"{}","partition":{{"state":["{}"]}}}}"#, word(n), word(n))
        })?,
        "licenses" => list(&mut body, "licenses", 10, |n| {
            format!(
                r#"{{"LicenseName":"{}","Total":5,"Used":1,"Free":4,"Remote":false,"Reserved":0}}"#,
                word(n)
            )
        })?,
        "reservations" => list(&mut body, "reservations", 10, |n| {
            format!(
                r#"{{"name":"{}","node_count":1,"core_count":1,"flags":["{}"]}}"#,
                word(n),
                word(n)
            )
        })?,
        _ => list(&mut body, path, 0, |_| String::new())?,
    }
    body.flush()
}

/// The daemon's memory after all rounds, how many series it has sent, and how many names each level
/// has.
fn with_words(inventive: bool) -> (u64, usize, BTreeMap<&'static str, usize>) {
    let folder = Folder::new().unwrap();
    let begun = Instant::now();
    let port = serve(move |stream, request| {
        answer(stream, request, if inventive { begun.elapsed().as_secs() } else { 7 })
    });
    let names = ["partitions", "reservations", "licenses", "nodes"];
    let more = surveys(&names).replace("\"2s\"", "\"1s\"")
        + "each = true\nfeatures = 20\n[collectors.rpc_stats]\nenabled = true\nusers = 200\n";
    let slurm = imitation(&folder, port) + "timeout = \"20s\"\n";
    let mut daemon = Daemon::start_surveying(&folder, &slurm, &more).unwrap();
    let pid = daemon.process.pid().unwrap();
    daemon.ticks(ROUNDS).unwrap();
    daemon
        .until("points of nodes", SOON, |recorded| {
            (!recorded.below("cluster.slurm_nodes.").is_empty()).then_some(())
        })
        .unwrap();
    let memory = proc::rss_kib(pid).unwrap();
    let recorded = daemon.recorded().unwrap();
    let series = recorded.below("cluster.").len();
    let count = |level: &'static str| {
        let paths = recorded.below(&format!("cluster.{level}"));
        let names: BTreeSet<&str> =
            paths.iter().filter_map(|path| path.split('.').nth(level.split('.').count())).collect();
        (level, names.len())
    };
    let names = LEVELS.iter().map(|&(level, _)| count(level)).collect();
    daemon.stop().unwrap();
    (memory, series, names)
}

#[test]
fn words_that_a_peer_invents_take_neither_memory_nor_more_names_than_each_levels_bound() {
    let peaceful = thread::spawn(|| with_words(false));
    let (memory, series, names) = with_words(true);
    let (steady, steady_series, steady_names) = peaceful.join().unwrap();
    println!("peaceful: {steady} KiB, {steady_series} series, {steady_names:?}");
    println!("inventive: {memory} KiB, {series} series, {names:?}");
    assert!(
        memory <= steady + MOST_GROWTH_KIB,
        "{memory} KiB, and {steady} KiB with words that stay"
    );
    for (level, most) in LEVELS {
        assert!(names[level] <= most + 1, "{level}: {} names", names[level]);
    }
}
