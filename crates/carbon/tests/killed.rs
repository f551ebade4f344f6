//! A sender is killed while its receiver does not read: what the receiver finds at the end of the
//! connection.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the test starts a sender, which says when its write is blocked"
)]

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use carbon::{Batch, Destination, Limits, Protocol, Queue, Sender, Timeouts};
use socket2::{Domain, Socket, Type};

const ADDRESS: &str = "TEST_RECEIVER";
const WINDOW: &str = "TEST_RESEND_WINDOW";
/// Several times what the kernels buffer.
const POINTS: u32 = 60_000;

fn value(n: u32) -> f64 {
    f64::from(n) / 3.0
}

/// Half a line is a wrong figure in receivers that take what comes before a clean end for a line.
#[test]
fn a_sender_killed_in_a_blocked_write_leaves_no_half_of_a_line_before_a_clean_end() {
    for window in ["600", "0"] {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.set_recv_buffer_size(4096).unwrap();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        listener.listen(1).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap().to_string();
        let mut sender = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "the_sender_that_is_killed"])
            .env(ADDRESS, address)
            .env(WINDOW, window)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut peer = listener.accept().unwrap().0;
        let said = BufReader::new(sender.stdout.take().unwrap()).lines();
        assert!(said.map_while(Result::ok).any(|line| line.ends_with("blocked")), "it has ended");
        sender.kill().unwrap();
        sender.wait().unwrap();
        // Only so that reading takes less time.
        peer.set_recv_buffer_size(1 << 20).unwrap();
        let mut read = Vec::new();
        let end = peer.read_to_end(&mut read);
        let text = String::from_utf8(read).unwrap();
        let (lines, rest) = text.rsplit_once('\n').unwrap();
        let lines: Vec<_> = lines.lines().collect();
        assert!((1000..POINTS as usize).contains(&lines.len()), "{}", lines.len());
        for (n, line) in (0..).zip(lines) {
            assert_eq!(line, format!("cluster.some_points.gauge-{n} {} 60", value(n)));
        }
        // Also at 0s: what was written counts as done, and a reset would throw it away.
        assert!(end.is_ok() && rest.is_empty(), "window {window} s: {end:?} after {rest:?}");
    }
}

/// Says "blocked" when its receiver has read nothing for a second.
#[tokio::test]
#[ignore = "the test above starts it"]
async fn the_sender_that_is_killed() {
    let (address, window) = (std::env::var(ADDRESS).unwrap(), std::env::var(WINDOW).unwrap());
    let timeouts = Timeouts { stall: Duration::from_secs(1), ..Timeouts::default() };
    let to = Destination {
        protocol: Protocol::Plaintext,
        timeouts,
        ..Destination::new("test", address.parse().unwrap())
    };
    let limits = Limits {
        max_bytes: 64 << 20,
        max_age: Duration::MAX,
        resend_window: Duration::from_secs(window.parse().unwrap()),
    };
    let queue = Queue::open(None, limits, &["test".to_owned()]);
    let mut batch = Batch::new(60);
    (0..POINTS).for_each(|n| batch.push(format!("cluster.some_points.gauge-{n}"), value(n)));
    queue.push(&batch);
    let sender = Sender::start(to, &queue);
    while !sender.status().in_doubt {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("blocked");
    std::future::pending().await
}
