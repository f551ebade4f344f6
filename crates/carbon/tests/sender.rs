//! The sender's contract, against peers that a real Carbon cannot be made to be.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use carbon::{Batch, Destination, Limits, Protocol, Sender, Timeouts};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

async fn listener() -> (TcpListener, Destination) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, destination(&address))
}

fn destination(address: &str) -> Destination {
    Destination {
        name: "test".into(),
        address: address.parse().unwrap(),
        protocol: Protocol::Plaintext,
        timeouts: Timeouts { connect: Duration::from_secs(2), stall: Duration::from_secs(2) },
        limits: Limits {
            max_bytes: 64 << 20,
            max_age: Duration::from_secs(3600),
            resend_window: Duration::from_secs(600),
        },
    }
}

fn batch(timestamp: i64) -> Arc<Batch> {
    let mut batch = Batch::new(timestamp);
    batch.push("a".into(), 1.0);
    Arc::new(batch)
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
    let (listener, destination) = listener().await;
    let sender = Sender::start(destination);
    let mut peer = accept(&listener).await;
    sender.push(batch(1));
    assert_eq!(read_line(&mut peer).await, "a 1 1\n");
    drop(peer);
    let mut peer = accept(&listener).await;
    assert_eq!(read_line(&mut peer).await, "a 1 1\n");
    until(&sender, |status| status.resent == 1).await;
    let status = sender.status();
    assert_eq!((status.sent, status.connects, status.due), (1, 2, 0));
}

#[tokio::test]
async fn a_frame_cut_in_the_middle_goes_out_whole_on_the_next_connection() {
    let (listener, destination) = listener().await;
    let sender = Sender::start(Destination { protocol: Protocol::Pickle, ..destination });
    let mut peer = accept(&listener).await;
    let mut big = Batch::new(7);
    for point in 0..100_000 {
        big.push(format!("cluster.test.gauge-{point}"), 1.0);
    }
    sender.push(Arc::new(big.clone()));
    let mut some = [0; 1000];
    peer.read_exact(&mut some).await.unwrap();
    drop(peer);
    let mut peer = accept(&listener).await;
    let drained = tokio::spawn(async move {
        until(&sender, |status| status.due == 0).await;
        sender.drain(PATIENCE).await
    });
    let mut all = Vec::new();
    timeout(PATIENCE, peer.read_to_end(&mut all)).await.unwrap().unwrap();
    drop(peer);
    assert_eq!(all, carbon::frames(&big, Protocol::Pickle).unwrap().concat());
    assert!(drained.await.unwrap().is_complete());
}

#[tokio::test]
async fn a_port_that_accepts_and_closes_at_once_is_not_called_at_full_speed() {
    // A Carbon at MAX_RECEIVER_CONNECTIONS does that: a connect alone must not reset the backoff.
    let (listener, destination) = listener().await;
    let sender = Sender::start(destination);
    let pusher = async {
        for timestamp in 0.. {
            sender.push(batch(timestamp));
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
    // Ceilings 0.5, 1, 2, 4 s: a dozen connections in 4 s is very bad luck, and full speed is thousands.
    let connections = tokio::select! { () = pusher => 0, connections = acceptor => connections };
    assert!((2..=30).contains(&connections), "{connections}");
    assert_eq!(sender.status().dropped, carbon::Dropped::default());
}

#[tokio::test]
async fn it_starts_before_the_name_and_the_port_exist() {
    let sender = Sender::start(destination("no-such-host.invalid:2004"));
    sender.push(batch(1));
    sleep(Duration::from_millis(100)).await;
    assert_eq!(sender.status().due, 1);

    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sender = Sender::start(destination(&free.to_string()));
    sender.push(batch(1));
    sleep(Duration::from_millis(100)).await;
    let listener = TcpListener::bind(free).await.unwrap();
    let mut peer = accept(&listener).await;
    assert_eq!(read_line(&mut peer).await, "a 1 1\n");
}

#[tokio::test]
async fn draining_confirms_what_the_peer_has_read_and_says_what_it_has_not() {
    let (listener, destination) = listener().await;
    let sender = Sender::start(destination.clone());
    sender.push(batch(1));
    let mut peer = accept(&listener).await;
    let drained = tokio::spawn(sender.drain(PATIENCE));
    assert_eq!(read_line(&mut peer).await, "a 1 1\n");
    assert_eq!(peer.read(&mut [0]).await.unwrap(), 0, "our end is closed");
    drop(peer);
    assert!(drained.await.unwrap().is_complete());

    // One that never reads, nor closes.
    let sender = Sender::start(destination);
    let _peer = accept(&listener).await;
    sender.push(batch(2));
    until(&sender, |status| status.sent == 1).await;
    let start = Instant::now();
    let drained = sender.drain(Duration::from_millis(300)).await;
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!((drained.unsent, drained.unconfirmed), (0, 1));
}

#[tokio::test]
async fn draining_does_not_wait_for_a_destination_that_is_away() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sender = Sender::start(destination(&free.to_string()));
    sender.push(batch(1));
    sleep(Duration::from_millis(50)).await;
    let start = Instant::now();
    let drained = sender.drain(PATIENCE).await;
    assert_eq!((drained.unsent, drained.unconfirmed), (1, 0));
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn what_a_stopped_sender_held_can_be_given_to_another() {
    let (listener, destination) = listener().await;
    let sender = Sender::start(destination);
    let mut peer = accept(&listener).await;
    sender.push(batch(1));
    read_line(&mut peer).await;
    assert_eq!(sender.stop(), [batch(1)]);
}
