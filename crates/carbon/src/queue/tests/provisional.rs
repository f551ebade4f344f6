//! Provisional batches: they go out while none has a later timestamp, and otherwise only after they
//! are confirmed, also by the next run.

use super::*;

/// Writes everything that the destination gets now, and returns the timestamps in this order.
fn write_all(queue: &Queue) -> Vec<i64> {
    let outbox = queue.outbox("a");
    std::iter::from_fn(|| {
        let due = outbox.next_due(DueFilter::All)?;
        outbox.change_ledger(|ledger| ledger.note_written(due.id, 1));
        Some(queue.shared.state().batches.get(&due.id).unwrap().summary.timestamp)
    })
    .collect()
}

/// Two ordinary ticks and, between and after them, provisional ones.
fn pushed(queue: &Queue) {
    for timestamp in 1..=4 {
        if timestamp % 2 == 0 {
            queue.push_provisional(&batch(timestamp));
        } else {
            queue.push(&batch(timestamp));
        }
    }
}

fn has_provisional(queue: &Queue) -> bool {
    queue.shared.state().batches.values().any(|held| held.provisional)
}

#[test]
fn a_provisional_tick_is_never_backlog_before_it_is_confirmed() {
    let queue = Queue::open(None, limits(), &NAMES.map(str::to_owned));
    pushed(&queue);
    let status = queue.outbox("a").status();
    assert_eq!(
        (status.due(), status.unsent.ticks),
        (2, 4),
        "those that wait are unsent, and not due"
    );
    assert_eq!(write_all(&queue), [4, 1, 3]);
    // Also what was written: it may be in the kernel's buffer, which is gone with the connection.
    queue.outbox("a").note_loss();
    assert_eq!(write_all(&queue), [1, 3]);
    let status = queue.outbox("a").status();
    assert_eq!((status.due(), status.unsent.ticks, status.again.ticks), (0, 1, 1));
    assert!(!status.is_complete() && has_provisional(&queue));
    queue.confirm();
    assert!(!has_provisional(&queue));
    assert_eq!(queue.outbox("a").status().due(), 2);
    assert_eq!(write_all(&queue), [2, 4]);
}

/// A tick and the survey behind it: the survey used to keep back a tick that waited for an
/// acknowledgement.
#[test]
fn all_provisional_batches_of_the_newest_slot_go_out() {
    let queue = Queue::open(None, limits(), &NAMES.map(str::to_owned));
    for timestamp in [1, 2, 2] {
        queue.push_provisional(&batch(timestamp));
    }
    queue.push(&batch(2));
    assert_eq!(write_all(&queue), [2, 2, 2]);
    queue.push_provisional(&batch(3));
    queue.push(&batch(4));
    assert_eq!(write_all(&queue), [4], "also the daemon's own figures end a slot");
    assert_eq!(queue.withdraw(), 2);
}

/// A tick that is withdrawn while it is written used to count as sent and as withdrawn.
#[tokio::test]
async fn a_tick_that_is_withdrawn_while_it_is_written_is_counted_once() {
    let (listener, to) = destination().await;
    let queue = Queue::open(None, limits(), &NAMES.map(str::to_owned));
    let _sender = Sender::start(to, &queue);
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut large = Batch::new(1);
    (0..100_000).for_each(|n| large.push(format!("{}.{n}", "a".repeat(200)), 1.0));
    queue.push_provisional(&large);
    let outbox = queue.outbox("a");
    let mut bytes = vec![0; 1 << 20];
    assert!(tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await.unwrap().unwrap() > 0);
    assert_eq!(queue.withdraw(), 1);
    queue.push(&batch(2));
    let mut end = String::new();
    while !end.ends_with("a 1 2\n") {
        let count = tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await.unwrap().unwrap();
        end.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    let start = Instant::now();
    while outbox.status().sent == 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", outbox.status());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let status = outbox.status();
    assert_eq!((status.sent, status.dropped.withdrawn), (1, 100_000));
}

#[test]
fn what_is_withdrawn_is_counted_where_it_was_never_sent_and_not_sent_again() {
    let queue = Queue::open(None, limits(), &NAMES.map(str::to_owned));
    pushed(&queue);
    assert_eq!(write_all(&queue), [4, 1, 3]);
    assert_eq!(queue.withdraw(), 1, "2 was never sent");
    assert_eq!(queue.outbox("a").status().dropped, Dropped { withdrawn: 1, ..Dropped::default() });
    queue.outbox("a").note_loss();
    assert_eq!(write_all(&queue), [1, 3]);
    assert_eq!(queue.outbox("a").status().unproved, 1, "4 may not have been read");
    assert_eq!(queue.withdraw(), 0);
}

#[tokio::test]
async fn a_restart_does_not_make_a_provisional_tick_an_ordinary_one() {
    for confirmed in [None, Some(false), Some(true)] {
        let dir = tempfile::tempdir().unwrap();
        let queue = queue_in(dir.path());
        pushed(&queue);
        until(&queue, |state| state.batches.values().all(|held| held.durable)).await;
        match confirmed {
            Some(true) => queue.confirm(),
            Some(false) => assert_eq!(queue.withdraw(), 2),
            None => {}
        }
        queue.close().await;
        let again = reopened(dir.path()).await;
        assert_eq!(has_provisional(&again), confirmed.is_none());
        let written = write_all(&again);
        assert_eq!(written, if confirmed == Some(true) { vec![1, 2, 3, 4] } else { vec![1, 3] });
        again.confirm();
        assert_eq!(write_all(&again), if confirmed.is_none() { vec![2, 4] } else { vec![] });
        assert_eq!(again.outbox("a").status().dropped.damaged, 0);
    }
}

#[tokio::test]
async fn a_provisional_tick_that_is_done_leaves_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let at_once = Limits { resend_window: Duration::ZERO, ..limits() };
    let names = NAMES.map(str::to_owned);
    let queue = Queue::open(Some(dir.path().to_owned()), at_once.clone(), &names);
    queue.push_provisional(&batch(1));
    until(&queue, |state| state.batches.values().all(|held| held.durable)).await;
    assert_eq!(write_all_once(&queue), 1);
    queue.close().await;
    let again = Queue::open(Some(dir.path().to_owned()), at_once, &names);
    until(&again, |state| state.restored).await;
    assert!(again.shared.state().batches.is_empty() && !has_provisional(&again));
}

/// Writes one tick, which is done then.
fn write_all_once(queue: &Queue) -> usize {
    let outbox = queue.outbox("a");
    let due = outbox.next_due(DueFilter::All).unwrap();
    outbox.change_ledger(|ledger| ledger.note_written(due.id, 1));
    1
}

/// The peer's kernel has not acknowledged the tick before: the cable is out. What is written now
/// would arrive when it is back.
#[tokio::test]
async fn a_provisional_tick_is_not_put_behind_bytes_that_nobody_acknowledges() {
    let (listener, to) = destination().await;
    let queue = Queue::open(None, limits(), &NAMES.map(str::to_owned));
    let _sender = Sender::start(to, &queue);
    let (mut stream, _) = listener.accept().await.unwrap();
    // More than the peer's kernel takes while its program does not read, and less than ours takes.
    let mut large = Batch::new(1);
    (0..2_000).for_each(|n| large.push(format!("{}.{n}", "a".repeat(200)), 1.0));
    queue.push(&large);
    let outbox = queue.outbox("a");
    let start = Instant::now();
    while outbox.status().sent == 0 || outbox.status().unacked == 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", outbox.status());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    queue.push_provisional(&batch(2));
    // Ten looks.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(queue.withdraw(), 1, "it was not written");
    let (mut read, mut bytes) = (String::new(), vec![0; 1 << 20]);
    queue.push(&batch(3));
    while !read.ends_with("a 1 3\n") {
        let count = tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await.unwrap().unwrap();
        read.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    assert!(!read.contains("a 1 2\n"));
}
