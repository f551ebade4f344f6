//! Tests, with a window of zero, of what a SIGKILL in a replay may send twice.

use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;

const TICKS: u32 = 40;

fn at_once() -> Limits {
    Limits { resend_window: Duration::ZERO, ..limits() }
}

/// The state of a written tick was recorded on disk only with the next tick, so that a SIGKILL sent
/// again all ticks of a whole interval: 40 of 40.
#[tokio::test]
async fn a_kill_in_a_replay_sends_one_tick_twice_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::open(Some(dir.path().to_owned()), at_once(), &NAMES.map(str::to_owned));
    (1..=TICKS).for_each(|timestamp| queue.push(&batch(timestamp.into())));
    assert_eq!(u32::try_from(queue.close().await), Ok(TICKS));
    let queue = Queue::open(Some(dir.path().to_owned()), at_once(), &NAMES.map(str::to_owned));
    until(&queue, |state| state.restored).await;
    let (listener, to) = destination().await;
    let sender = Sender::start(to, &queue);
    let mut lines = BufReader::new(listener.accept().await.unwrap().0).lines();
    let mut arrived = Vec::new();
    while u32::try_from(arrived.len()) != Ok(TICKS) {
        let Some(line) = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap()
        else {
            // It was renewed.
            lines = BufReader::new(listener.accept().await.unwrap().0).lines();
            continue;
        };
        arrived.push(line.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap());
        let due = removal::after_a_kill(dir.path()).await.0;
        let again: Vec<_> = arrived.iter().filter(|timestamp| due.contains(timestamp)).collect();
        assert!(again.len() <= 1, "{again:?} would be sent again");
    }
    sender.stop();
}

/// Such a disk kept everything from being sent.
#[tokio::test]
async fn a_disk_that_records_nothing_holds_up_the_replay_for_a_second() {
    let queue = with(Store::loading(|_| Ok([Frame { points: 1, body: vec![1] }].into())));
    queue.reconfigure(at_once(), &NAMES.map(str::to_owned));
    queue.shared.state().apply(Event::Opened(Restored::default()));
    (1..=TICKS).for_each(|timestamp| queue.push(&batch(timestamp.into())));
    queue.publish();
    let (listener, to) = destination().await;
    let start = Instant::now();
    let sender = Sender::start(to, &queue);
    let mut lines = BufReader::new(listener.accept().await.unwrap().0).lines();
    let mut arrived = 0;
    while arrived < TICKS {
        match tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap() {
            Some(_) => arrived += 1,
            None => lines = BufReader::new(listener.accept().await.unwrap().0).lines(),
        }
    }
    let took = start.elapsed();
    assert!((COMMIT_PATIENCE..COMMIT_PATIENCE * 10).contains(&took), "{took:?}");
    sender.stop();
}
