//! Tests of the log's lines about an outage, and of their number.

use std::sync::{Arc, LazyLock};

use tempfile::NamedTempFile;
use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing::{Dispatch, Level};

use super::world::{self, ReceiverKind, ReceiverState};
use super::*;
use crate::queue::tests::{disk_answers, disk_hangs};

/// Writes the lines that this thread logs from INFO on into a file.
fn log() -> (NamedTempFile, DefaultGuard) {
    // With a single subscriber, tracing asks only the thread that reaches a line first whether it
    // is wanted. A test without a subscriber switched the line off for all tests.
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));
    LazyLock::force(&SECOND);
    let written = NamedTempFile::new().unwrap();
    let writer = Arc::new(written.reopen().unwrap());
    let subscriber =
        tracing_subscriber::fmt().with_max_level(Level::INFO).with_ansi(false).with_writer(writer);
    (written, set_default(subscriber.finish()))
}

/// The lines with these words.
fn lines(written: &NamedTempFile, words: &str) -> Vec<String> {
    let text = std::fs::read_to_string(written.path()).unwrap();
    text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
}

/// The log said "the peer closed the connection", without an address, and never "Connection
/// refused".
#[tokio::test(start_paused = true)]
async fn an_outage_names_the_address_and_each_reason_once() {
    let (written, _guard) = log();
    let _receiver = world::begin(&[ReceiverKind::default()]);
    let queue = queue(WINDOW);
    let sender = start(&queue);
    for outage in 1..=2 {
        push_each(&queue, 1..=20, seconds(10)).await;
        world::set(0, ReceiverState::Down);
        push_each(&queue, 21..=50, seconds(10)).await;
        let lost = lines(&written, "WARN carbon::sender::log_lines: not connected;");
        let refused = lines(&written, "WARN carbon::sender::log_lines: still not connected;");
        assert_eq!((lost.len(), refused.len()), (outage, outage), "{lost:?} {refused:?}");
        assert!(
            lost.iter()
                .all(|line| line.contains("the peer closed") && line.contains("carbon:2003"))
        );
        assert!(
            refused
                .iter()
                .all(|line| line.contains("connection refused") && line.contains("carbon:2003"))
        );
        world::set(0, ReceiverState::Runs);
    }
    sender.stop();
}

/// The ticks on the disk waited for ten minutes without a line, and then they were lost.
#[tokio::test(start_paused = true)]
async fn a_disk_that_returns_nothing_is_said_once_and_so_is_its_return() {
    let (written, _guard) = log();
    let _receiver = world::begin(&[ReceiverKind::default()]);
    let queue = queue(WINDOW);
    (1..=20).for_each(|n| queue.push(&tick(n, 137)));
    let disk = disk_hangs(&queue);
    let sender = start(&queue);
    let said = |words| lines(&written, words).len();
    sleep(seconds(9)).await;
    assert_eq!(said("does not return"), 0, "it may only be slow");
    push_each(&queue, 21..=30, seconds(10)).await;
    assert_eq!((said("does not return"), said("returns ticks again")), (1, 0));
    disk_answers(&queue, disk);
    push_each(&queue, 31..=40, seconds(10)).await;
    assert_eq!((world::stored().len(), said("does not return")), (40, 1));
    sender.stop();
}

/// Whichever comes first, what waits becomes more until it is lost.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_reads_less_than_is_collected_is_said_once() {
    for (by_time, reads, times) in
        [(false, 50.0, 1), (true, 50.0, 1), (false, 300.0, 0), (true, 300.0, 0)]
    {
        let (written, _guard) = log();
        let kind = ReceiverKind { reads, room: 2000.0, ..ReceiverKind::default() };
        let _receiver = world::begin(&[kind]);
        let queue = queue(WINDOW);
        let sender = start_as(&queue, by_time);
        for n in 1..=400 {
            queue.push(&tick(n, 1000));
            sleep(seconds(10)).await;
        }
        let said = lines(&written, "reads less than is collected");
        assert_eq!(said.len(), times, "by time: {by_time}, {reads} a second: {said:?}");
        sender.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_that_closes_every_connection_is_said_once_with_what_it_may_be() {
    let (written, _guard) = log();
    let kind = ReceiverKind { closes_idle_after: Some(Duration::ZERO), ..ReceiverKind::default() };
    let _receiver = world::begin(&[kind]);
    let queue = queue(WINDOW);
    let sender = start(&queue);
    push_each(&queue, 1..=30, seconds(10)).await;
    let said = lines(&written, "closes every connection right after a write");
    assert!(said.len() == 1 && said[0].contains("perhaps the port speaks TLS"), "{said:?}");
    sender.stop();
}

/// "New ticks are sent" was said by time too, where nothing is sent.
#[tokio::test(start_paused = true)]
async fn what_waits_in_doubt_is_said_by_the_order() {
    for (by_time, words) in
        [(false, "New ticks are sent, older ones wait"), (true, "All ticks wait")]
    {
        let (written, _guard) = log();
        let _receiver = world::begin(&[ReceiverKind::default()]);
        let queue = queue(WINDOW);
        let sender = start_as(&queue, by_time);
        push_each(&queue, 1..=10, seconds(10)).await;
        world::set(0, ReceiverState::Hangs);
        push_each(&queue, 11..=30, seconds(10)).await;
        let doubts = lines(&written, "does it hang, or is its cache full?");
        assert!(doubts.len() == 1 && doubts[0].contains(words), "{by_time}: {doubts:?}");
        sender.stop();
    }
}
