//! What a damaged file has lost, and what was saved of it.

use std::collections::BTreeSet;

use super::*;
use crate::store::{Changes, Lost};

#[tokio::test]
async fn what_a_damaged_file_has_lost_is_counted_for_its_destination() {
    let (queue, _thread) = hung();
    let lost = [(Arc::from("a"), Lost { batches: 2, points: 70 })].into();
    let mut restored = Restored { lost, due: vec![(Arc::from("a"), 5)], ..Restored::default() };
    restored.batches.insert(5, Summary { timestamp: 1, points: 30, bytes: 10 });
    queue.shared.state().apply(Event::Opened(restored));
    let damaged = || queue.place("a").share().dropped.damaged;
    assert_eq!(damaged(), 70);
    // A frame of 10 points does not fit its checksum when its turn comes, and when it comes again.
    queue.shared.state().shrink_batch(5, 20);
    queue.shared.state().shrink_batch(5, 20);
    assert_eq!(damaged(), 80);
    // And the file is found damaged in the middle of the run, with nothing in it that can be read.
    moved_aside(&queue, []);
    assert_eq!((damaged(), queue.place("a").share().due), (100, 0));
}

#[tokio::test]
async fn what_was_saved_from_a_file_is_neither_lost_nor_due_twice() {
    let (queue, _thread) = hung();
    let due = |ids: [u64; 2]| ids.map(|id| (Arc::from("a"), id)).to_vec();
    let summary = Summary { timestamp: 1, points: 30, bytes: 10 };
    let batches = |ids: [u64; 2]| ids.map(|id| (id, summary)).into();
    let place = queue.place("a");
    let opened = Restored { due: due([5, 6]), batches: batches([5, 6]), ..Restored::default() };
    queue.shared.state().apply(Event::Opened(opened));
    moved_aside(&queue, [4, 6]);
    // The new file has 6, and 4, with which everybody was done.
    let again = Restored { due: due([4, 6]), batches: batches([4, 6]), ..Restored::default() };
    queue.shared.state().apply(Event::Opened(again));
    let share = place.share();
    assert_eq!((share.due, share.bytes, share.dropped.damaged), (1, 10, 30));
    assert_eq!(queue.shared.state().forget, [5, 4]);
    place.written(6);
    place.confirmed();
    assert!(queue.shared.state().batches.is_empty(), "6 was due twice");
}

#[tokio::test]
async fn a_tick_that_was_saved_from_a_file_in_part_goes_there_again_whole_or_is_done() {
    for part in [500, 600] {
        let (queue, _thread) = hung();
        let mut batch = Batch::new(1);
        (0..600).for_each(|n| batch.push(format!("a.{n}"), 1.0));
        queue.push(&batch);
        let id = queue.shared.state().next_id - 1;
        let committed = Event::Committed { appended: vec![id], dropped: Vec::new(), file_bytes: 0 };
        queue.shared.state().apply(committed);
        moved_aside(&queue, [id]);
        let restored = Restored {
            due: vec![(Arc::from("a"), id)],
            batches: [(id, Summary { timestamp: 1, points: part, bytes: 10 })].into(),
            ..Restored::default()
        };
        queue.shared.state().apply(Event::Opened(restored));
        let points = |changes: Changes| changes.append.iter().map(|kept| points(&kept.frames)).sum::<u64>();
        let expected = if part < 600 { 600 } else { 0 };
        assert_eq!(points(queue.shared.state().last_changes()), expected);
        assert_eq!(points(queue.shared.state().changes(0)), expected, "with the next commit");
        assert_eq!(points(queue.shared.state().changes(0)), 0, "it is on its way");
        queue.shared.state().apply(Event::Failed { appended: vec![id], error: StoreError::Gone });
        let place = queue.place("a");
        place.written(id);
        place.confirmed();
        assert_eq!(queue.shared.state().done, [(Arc::from("a"), id)], "the file would send it again");
    }
}

fn moved_aside<const N: usize>(queue: &Queue, saved: [u64; N]) {
    let error = StoreError::Damaged { path: "queue".into(), reason: "a test".to_owned() };
    let saved = BTreeSet::from(saved);
    queue.shared.state().apply(Event::MovedAside { to: "aside".into(), error, saved, counted: false });
}
