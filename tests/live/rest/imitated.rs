//! A server that is not slurmrestd, or a broken one: whatever it sends causes one line in the log,
//! and the reader stays small.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sandbox::{Daemon, Folder, now, proc, wait};
use slurm_snapshot::{LIBRARIES, Release};

use super::{DOWN, SOON, imitation, serve};

/// The treatment of a connection after its request was read.
type Manner = fn(&mut TcpStream) -> std::io::Result<()>;

fn head(stream: &mut TcpStream, length: usize, start: &str) -> std::io::Result<()> {
    let kind = "Content-Type: application/json";
    write!(stream, "HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{start}")
}

fn flood(stream: &mut TcpStream, start: &str, piece: &str) -> std::io::Result<()> {
    head(stream, 100_000_000, start)?;
    let piece = piece.repeat(10_000 / piece.len() + 1);
    for _ in 0..20_000 {
        stream.write_all(piece.as_bytes())?;
    }
    Ok(())
}

const CASES: [(&str, Manner, &str); 14] = [
    ("garbage", |stream| stream.write_all(b"\x16\x03\x01 what is this\r\n\r\n"), "not HTTP"),
    ("closes at once", |_| Ok(()), "closed before a response came"),
    ("no json", |stream| head(stream, 5, "hello"), "not a response of slurmrestd"),
    ("other json", |stream| head(stream, 7, "{\"a\":1}"), "no statistics"),
    (
        "half a response",
        |stream| head(stream, 100, "{\"statistics\":{\"req_time\":1,"),
        "before it was complete",
    ),
    ("100 MB of spaces", |stream| flood(stream, "{", " "), "the response "),
    (
        "100 MB of text",
        |stream| flood(stream, "{\"statistics\":\"", "x"),
        "contains a longer string than",
    ),
    ("100 MB of a name", |stream| flood(stream, "{\"", "x"), "contains a longer string than"),
    (
        "100 MB of rows",
        |stream| flood(stream, "{\"statistics\":{\"rpcs_by_user\":[{}", ",{}"),
        "incomplete",
    ),
    (
        "100 MB of depth",
        |stream| flood(stream, "{\"statistics\":", "["),
        "not a response of slurmrestd",
    ),
    (
        "one byte a second",
        |stream| {
            head(stream, 100_000_000, "")?;
            loop {
                stream.write_all(b" ")?;
                wait::pause(Duration::from_secs(1));
            }
        },
        "was not complete within",
    ),
    (
        "never",
        |_| {
            wait::pause(Duration::from_secs(60));
            Ok(())
        },
        "a response did not come within",
    ),
    (
        "redirects",
        |stream| {
            stream.write_all(
                b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n",
            )
        },
        "redirection",
    ),
    (
        "a proxy alone",
        |stream| {
            stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 6\r\n\r\n<html>")
        },
        "slurmrestd is down",
    ),
];

#[test]
fn whatever_a_server_sends_is_one_line_and_the_reader_stays_small() {
    let run = |(name, manner, words): (&'static str, Manner, &str)| {
        let folder = Folder::new().unwrap();
        let port = serve(move |mut stream, _| manner(&mut stream));
        let toml = imitation(&folder, port) + "timeout = \"2s\"\n";
        let mut daemon = Daemon::start(&folder, &toml).unwrap();
        let said = daemon.said(0.0, DOWN, SOON).unwrap();
        assert!(said.line.contains(words), "{name}: {}", said.line);
        let reader = daemon.reader().unwrap();
        let since = now();
        daemon.ticks(3).unwrap();
        assert!(daemon.news(since).unwrap().is_empty(), "{name}: said again");
        assert_eq!(daemon.reader().unwrap(), reader, "{name}: another reader");
        let most = proc::peak_kib(reader).unwrap();
        daemon.check_ticks().unwrap();
        daemon.stop().unwrap();
        (name, most)
    };
    let threads = CASES.map(|case| thread::spawn(move || run(case)));
    for thread in threads {
        let (name, most) = thread.join().unwrap();
        println!("{name}: {most} KiB at most");
        assert!(most <= 8 * 1024, "{name}: {most} KiB");
    }
}

/// The version that is served: 42, or the newest that there is.
static SERVED: AtomicU8 = AtomicU8::new(42);

/// Every number of `diag` that all versions have, with this value.
pub(crate) fn numbers(value: u8) -> String {
    let names = "server_thread_count agent_queue_size agent_count agent_thread_count \
        dbd_agent_queue_size gettimeofday_latency schedule_cycle_max schedule_cycle_last \
        schedule_cycle_total schedule_queue_length jobs_submitted jobs_started jobs_completed \
        jobs_canceled jobs_failed jobs_pending jobs_running bf_backfilled_jobs \
        bf_last_backfilled_jobs bf_backfilled_het_jobs bf_cycle_counter bf_cycle_last bf_queue_len";
    names.split(' ').map(|name| format!("\"{name}\":{value},")).collect()
}

/// Acts like slurmrestd 24.11, which has v0.0.42 at most, or like the newest, as if that had it
/// too.
fn upgraded(stream: &mut TcpStream, request: &str) -> std::io::Result<()> {
    let served = SERVED.load(Ordering::Relaxed);
    let release = Release::of_library(served.into()).unwrap();
    if ![42, served].iter().any(|version| request.contains(&format!("/slurm/v0.0.{version}/diag")))
    {
        return stream.write_all(
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
    }
    let numbers = numbers(served);
    let body = format!(
        "{{\"statistics\":{{{numbers}\"req_time\":9,\"req_time_start\":1,\
         \"bf_active\":false}},\"errors\":[],\
         \"meta\":{{\"slurm\":{{\"release\":\"{release}.5\"}}}}}}"
    );
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes())
}

#[test]
fn an_upgraded_slurmrestd_is_asked_in_its_newest_version_and_no_tick_is_lost() {
    let (asked, paths) = mpsc::channel();
    let port = serve(move |mut stream, request| {
        let _ = asked.send(request.lines().next().unwrap_or_default().to_owned());
        upgraded(&mut stream, request)
    });
    let folder = Folder::new().unwrap();
    let mut daemon = Daemon::start(&folder, &imitation(&folder, port)).unwrap();
    daemon.tick_with(true, 0.0, SOON).unwrap();
    daemon.ticks(2).unwrap();
    let newest = u8::try_from(LIBRARIES.last().unwrap().0).unwrap();
    SERVED.store(newest, Ordering::Relaxed);
    daemon.ticks(4).unwrap();
    let up = daemon.recorded().unwrap().own("slurmctld_up");
    assert!(up.values().all(|up| *up > 0.5), "{up:?}");
    daemon.stop().unwrap();
    let paths: Vec<String> = paths.try_iter().collect();
    assert!(paths.last().is_some_and(|path| path.contains(&format!("v0.0.{newest}"))), "{paths:?}");
    // From the newest version down to the first that answers; then one request a tick.
    let refused = paths.iter().take_while(|path| !path.contains("v0.0.42")).count();
    assert_eq!(refused, usize::from(newest - 42), "{paths:?}");
}
