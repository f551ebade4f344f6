//! The sender's contract, against peers that do what a real Carbon cannot be made to do.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use carbon::{Batch, Destination, Limits, Protocol, Queue, Sender};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(150);

async fn listener() -> (TcpListener, Destination) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, destination(&address))
}

fn destination(address: &str) -> Destination {
    let protocol = Protocol::Plaintext;
    Destination { protocol, ..Destination::new("test", address.parse().unwrap()) }
}

fn limits() -> Limits {
    Limits {
        max_bytes: 64 << 20,
        max_age: Duration::from_secs(3600),
        resend_window: Duration::from_secs(600),
    }
}

fn memory() -> Queue {
    Queue::open(None, limits(), &["test".to_owned()])
}

/// A sender with its queue, and the listener that it connects to.
async fn started() -> (Queue, TcpListener, Sender) {
    let (queue, (listener, destination)) = (memory(), listener().await);
    let sender = Sender::start(destination, &queue);
    (queue, listener, sender)
}

fn batch(timestamp: i64) -> Batch {
    let mut batch = Batch::new(timestamp);
    batch.push("a".into(), 1.0);
    batch
}

async fn accept(listener: &TcpListener) -> TcpStream {
    timeout(PATIENCE, listener.accept()).await.unwrap().unwrap().0
}

async fn read_line(peer: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        line.push(timeout(PATIENCE, peer.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(line).unwrap()
}

async fn until(sender: &Sender, what: impl Fn(&carbon::Status) -> bool) {
    let start = Instant::now();
    while !what(&sender.status()) {
        assert!(start.elapsed() < PATIENCE, "{:?}", sender.status());
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_was_written_before_a_break_goes_out_again() {
    let (queue, listener, sender) = started().await;
    let mut peer = accept(&listener).await;
    queue.push(&batch(1));
    assert_eq!(read_line(&mut peer).await, "a 1 1\n");
    drop(peer);
    let mut peer = accept(&listener).await;
    assert_eq!(read_line(&mut peer).await, "a 1 1\n");
    until(&sender, |status| status.resent == 1).await;
    let status = sender.status();
    assert_eq!((status.sent, status.connects, status.due()), (1, 2, 0));
}

#[tokio::test]
async fn a_frame_cut_in_the_middle_goes_out_whole_on_the_next_connection() {
    let queue = memory();
    let (listener, destination) = listener().await;
    let sender = Sender::start(Destination { protocol: Protocol::Pickle, ..destination }, &queue);
    let mut peer = accept(&listener).await;
    let mut big = Batch::new(7);
    for point in 0..100_000 {
        big.push(format!("cluster.test.gauge-{point}"), 1.0);
    }
    queue.push(&big);
    let mut some = [0; 1000];
    peer.read_exact(&mut some).await.unwrap();
    drop(peer);
    let mut peer = accept(&listener).await;
    let drained = tokio::spawn(async move {
        until(&sender, |status| status.due() == 0).await;
        sender.drain(PATIENCE).await
    });
    let mut all = Vec::new();
    timeout(PATIENCE, peer.read_to_end(&mut all)).await.unwrap().unwrap();
    drop(peer);
    assert_eq!(
        all,
        carbon::frames(&big).unwrap().into_iter().flat_map(|frame| frame.body).collect::<Vec<u8>>()
    );
    assert!(drained.await.unwrap().is_complete());
}

#[tokio::test]
async fn a_port_that_accepts_and_closes_at_once_is_not_called_at_full_speed() {
    // A Carbon at MAX_RECEIVER_CONNECTIONS does that: a connect alone must not reset the backoff.
    let (queue, listener, sender) = started().await;
    let pusher = async {
        for timestamp in 0.. {
            queue.push(&batch(timestamp));
            sleep(Duration::from_millis(20)).await;
        }
    };
    let acceptor = async {
        let mut connections = 0;
        let start = Instant::now();
        while let Ok(Ok(_)) =
            timeout(Duration::from_secs(4).saturating_sub(start.elapsed()), listener.accept()).await
        {
            connections += 1;
        }
        connections
    };
    // Ceilings of 0.5, 1, 2 and 4 s: a dozen connections in 4 s is very bad luck; at full speed
    // there would be thousands.
    let connections = tokio::select! { () = pusher => 0, connections = acceptor => connections };
    assert!((2..=30).contains(&connections), "{connections}");
    assert_eq!(sender.status().dropped, carbon::Dropped::default());
}

#[tokio::test]
async fn it_starts_before_the_name_and_the_port_exist() {
    let queue = memory();
    let sender = Sender::start(destination("no-such-host.invalid:2004"), &queue);
    queue.push(&batch(1));
    sleep(Duration::from_millis(100)).await;
    assert_eq!(sender.status().due(), 1);

    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let _sender = Sender::start(destination(&free.to_string()), &queue);
    queue.push(&batch(1));
    sleep(Duration::from_millis(100)).await;
    let listener = TcpListener::bind(free).await.unwrap();
    let mut peer = accept(&listener).await;
    assert_eq!(read_line(&mut peer).await, "a 1 1\n");
}

#[tokio::test]
async fn a_receiver_on_ipv6_gets_its_tick() {
    // Not every host has it.
    let Ok(listener) = TcpListener::bind("[::1]:0").await else { return };
    let queue = memory();
    let _sender = Sender::start(destination(&listener.local_addr().unwrap().to_string()), &queue);
    queue.push(&batch(1));
    assert_eq!(read_line(&mut accept(&listener).await).await, "a 1 1\n");
}

#[tokio::test]
async fn draining_confirms_what_the_peer_has_read_and_says_what_it_has_not() {
    let (queue, listener, sender) = started().await;
    queue.push(&batch(1));
    let mut peer = accept(&listener).await;
    let drained = tokio::spawn(sender.drain(PATIENCE));
    assert_eq!(read_line(&mut peer).await, "a 1 1\n");
    assert_eq!(peer.read(&mut [0]).await.unwrap(), 0, "our end is closed");
    drop(peer);
    assert!(drained.await.unwrap().is_complete());
}

#[tokio::test]
async fn draining_a_peer_that_never_reads_does_not_say_that_it_has() {
    let (queue, listener, sender) = started().await;
    let _peer = accept(&listener).await;
    queue.push(&batch(2));
    until(&sender, |status| status.sent == 1).await;
    let start = Instant::now();
    let drained = sender.drain(Duration::from_millis(300)).await;
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!((drained.due(), drained.unread), (0, 1));
}

#[tokio::test]
async fn a_peer_that_dies_while_it_is_asked_has_proved_nothing() {
    let (queue, listener, sender) = started().await;
    let mut peer = accept(&listener).await;
    queue.push(&batch(1));
    assert_eq!(read_line(&mut peer).await, "a 1 1\n");
    let drained = tokio::spawn(sender.drain(PATIENCE));
    let next = accept(&listener).await;
    assert_eq!(peer.read(&mut [0]).await.unwrap(), 0, "our end is closed");
    // Killed: both connections end, as cleanly as in an answer.
    drop((next, peer, listener));
    assert_eq!(drained.await.unwrap().unread + queue_due(&queue), 1);
}

/// Number of batches that a sender which starts on this queue would have to send.
fn queue_due(queue: &Queue) -> u64 {
    Sender::start(destination("127.0.0.1:1"), queue).status().due()
}

#[tokio::test]
async fn draining_does_not_wait_for_a_destination_that_is_away() {
    let queue = memory();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sender = Sender::start(destination(&free.to_string()), &queue);
    queue.push(&batch(1));
    sleep(Duration::from_millis(50)).await;
    let start = Instant::now();
    let drained = sender.drain(PATIENCE).await;
    assert_eq!((drained.due(), drained.unread), (1, 0));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn what_a_stopped_sender_had_written_is_due_for_the_next() {
    let queue = memory();
    let (listener, destination) = listener().await;
    let sender = Sender::start(destination.clone(), &queue);
    let mut peer = accept(&listener).await;
    queue.push(&batch(1));
    read_line(&mut peer).await;
    sender.stop();
    let _sender = Sender::start(destination, &queue);
    let mut peer = accept(&listener).await;
    assert_eq!(read_line(&mut peer).await, "a 1 1\n");
}

#[tokio::test]
async fn counters_go_on_when_a_destination_changes() {
    let queue = memory();
    let (first, to) = listener().await;
    let sender = Sender::start(to, &queue);
    let mut peer = accept(&first).await;
    queue.push(&batch(1));
    read_line(&mut peer).await;
    until(&sender, |status| status.sent == 1).await;
    let (second, to) = listener().await;
    sender.stop();
    let sender = Sender::start(to, &queue);
    assert!(!sender.status().connected);
    let mut peer = accept(&second).await;
    assert_eq!(read_line(&mut peer).await, "a 1 1\n", "what the first address had is not known");
    queue.push(&batch(2));
    assert_eq!(read_line(&mut peer).await, "a 1 2\n");
    until(&sender, |status| status.due() == 0).await;
    let status = sender.status();
    assert_eq!((status.connects, status.sent, status.resent), (2, 2, 1));
}

#[tokio::test]
async fn one_dead_destination_holds_up_nobody() {
    let queue = Queue::open(None, limits(), &["dead".to_owned(), "test".to_owned()]);
    let (listener, destination) = listener().await;
    let dead = Destination {
        name: "dead".into(),
        address: "127.0.0.1:1".parse().unwrap(),
        ..destination.clone()
    };
    let (dead, live) = (Sender::start(dead, &queue), Sender::start(destination, &queue));
    let mut peer = accept(&listener).await;
    for timestamp in 1..=3 {
        queue.push(&batch(timestamp));
        assert_eq!(read_line(&mut peer).await, format!("a 1 {timestamp}\n"));
    }
    until(&live, |status| status.due() == 0).await;
    assert_eq!((dead.status().due(), dead.status().oldest_unsent), (3, Some(1)));
}

/// The lines of every connection, as they arrive. Each connection is closed after its end.
fn lines(listener: TcpListener) -> tokio::sync::mpsc::UnboundedReceiver<String> {
    let (said, lines) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((peer, _)) = listener.accept().await {
            let said = said.clone();
            tokio::spawn(async move {
                let mut peer = BufReader::new(peer).lines();
                while let Ok(Some(line)) = peer.next_line().await {
                    let _ = said.send(line);
                }
            });
        }
    });
    lines
}

#[tokio::test]
async fn the_backlog_keeps_to_its_rate_and_the_live_tick_does_not_wait_for_it() {
    let queue = memory();
    let (listener, destination) = listener().await;
    let mut lines = lines(listener);
    for timestamp in 1..=20 {
        queue.push(&batch(timestamp));
    }
    let sender = Sender::start(Destination { replay_rate: Some(5), ..destination }, &queue);
    assert_eq!(lines.recv().await.unwrap(), "a 1 20", "the newest first");
    let start = Instant::now();
    for timestamp in 1..=6 {
        assert_eq!(lines.recv().await.unwrap(), format!("a 1 {timestamp}"));
    }
    assert!(
        start.elapsed() >= Duration::from_millis(900),
        "6 points at 5 a second: {:?}",
        start.elapsed()
    );
    queue.push(&batch(21));
    let next = [lines.recv().await.unwrap(), lines.recv().await.unwrap()];
    assert!(next.contains(&"a 1 21".to_owned()), "{next:?}");
    drop(sender);
}

#[tokio::test]
async fn a_receiver_that_answers_gets_its_backlog_without_waiting_for_the_next_minute() {
    let queue = memory();
    let (listener, destination) = listener().await;
    let mut lines = lines(listener);
    (1..=200).for_each(|timestamp| queue.push(&batch(timestamp)));
    let sender = Sender::start(destination, &queue);
    for _ in 0..200 {
        timeout(PATIENCE, lines.recv()).await.unwrap().unwrap();
    }
    until(&sender, |status| status.due() == 0).await;
    assert_eq!((sender.status().resent, sender.status().connects), (0, 1));
    assert!(
        sender.status().renewals >= 7,
        "one tick at first, then twice as many: {:?}",
        sender.status()
    );
}

#[tokio::test]
async fn with_a_window_of_zero_a_peer_that_never_reads_is_not_said_to_have_read() {
    let limits = Limits { resend_window: Duration::ZERO, ..limits() };
    let (listener, destination) = listener().await;
    let queue = Queue::open(None, limits, std::slice::from_ref(&destination.name));
    let sender = Sender::start(destination, &queue);
    let _peer = accept(&listener).await;
    queue.push(&batch(2));
    assert!(!sender.drain(Duration::from_millis(500)).await.is_complete());
}
