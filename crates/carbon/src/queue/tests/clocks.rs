//! Clocks that are wrong, that are set, and that stand still.

use super::*;
use crate::clock::tests::set as set_clock;

/// 2026, Unix seconds.
const NOW: i64 = 1_780_000_000;

fn at(boot: u64, wall: i64) -> Moment {
    Moment { boot: Duration::from_secs(boot), wall }
}

/// A host without a clock of its own starts in 1970: `status` said "not connected since 1970
/// (56years)".
#[tokio::test]
async fn since_when_something_is_so_does_not_change_when_the_clock_is_set() {
    set_clock(Some(at(100, 20)));
    let (queue, _thread) = hung();
    let outbox = queue.outbox("a");
    queue.push(&batch(NOW));
    queue.push(&batch(NOW + 1));
    queue.shared.state().lose_patience(Instant::now() + COMMIT_PATIENCE);
    queue.shared.state().set_durable(true);
    outbox.update_status(|status| status.connected = true);
    assert_eq!(outbox.status().oldest_unsent, Some(NOW));
    set_clock(Some(at(160, NOW)));
    let status = outbox.status();
    assert_eq!((status.since, status.oldest_since), (NOW - 60, NOW - 60));
    assert_eq!(queue.status().durable_since, Some(NOW - 60));
    // The oldest has moved on when it was sent, and waits since the loss.
    let first = queue.shared.state().next_id - 2;
    outbox.change_ledger(|ledger| ledger.note_written(first, 1));
    assert_eq!((outbox.status().oldest_unsent, outbox.status().oldest_since), (Some(NOW + 1), NOW));
    outbox.note_loss();
    set_clock(Some(at(180, 20)));
    assert_eq!((outbox.status().oldest_since, outbox.status().waits_since), (0, Some(0)));
    set_clock(None);
}
