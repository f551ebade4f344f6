//! The thread's tests: what it does and says when the disk or the file fails it.

use std::path::Path;

use super::*;
use crate::store::{Kept, Lost};
use crate::wire::Frame;

fn keeper(dir: &Path) -> (Keeper, mpsc::UnboundedReceiver<Event>) {
    let (mut keeper, events) = unopened(dir);
    keeper.open();
    (keeper, events)
}

fn unopened(dir: &Path) -> (Keeper, mpsc::UnboundedReceiver<Event>) {
    let (said, events) = mpsc::unbounded_channel();
    let destinations = vec![Arc::from("a")];
    (Keeper::new(dir.to_owned(), 64 << 20, destinations, said), events)
}

fn kept(id: u64) -> Kept {
    let frame = Frame { points: 10, body: vec![7; 3000] };
    Kept { id, timestamp: id.cast_signed(), frames: vec![frame].into(), due: vec![Arc::from("a")] }
}

fn append(ids: impl IntoIterator<Item = u64>) -> Changes {
    Changes { append: ids.into_iter().map(kept).collect(), ..Changes::default() }
}

fn restored(events: &mut mpsc::UnboundedReceiver<Event>) -> Restored {
    loop {
        match events.try_recv().unwrap() {
            Event::Opened(restored) => return restored,
            Event::MovedAside { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_was_done_while_the_disk_took_nothing_is_not_sent_again_by_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let (mut keeper, mut events) = keeper_with(&dir, [1, 2, 3]);
    keeper.file.as_ref().unwrap().fill(true);
    let done = vec![(Arc::from("a"), 1)];
    keeper.apply(Changes { done, forget: vec![2], ..append(4..40) });
    let failed = events.try_recv().unwrap();
    assert!(matches!(&failed, Event::Failed { appended, .. } if appended.len() == 36), "{failed:?}");
    keeper.file.as_ref().unwrap().fill(false);
    keeper.apply(append([50]));
    drop(keeper);
    let (_keeper, mut events) = self::keeper(dir.path());
    assert_eq!(restored(&mut events).batches.into_keys().collect::<Vec<_>>(), [3, 50]);
}

fn keeper_with(
    dir: &tempfile::TempDir,
    ids: impl IntoIterator<Item = u64>,
) -> (Keeper, mpsc::UnboundedReceiver<Event>) {
    let (mut keeper, mut events) = keeper(dir.path());
    restored(&mut events);
    keeper.apply(append(ids));
    assert!(matches!(events.try_recv().unwrap(), Event::Committed { .. }));
    (keeper, events)
}

/// Cuts the file in half, which makes SQLite refuse all of it.
fn cut(dir: &Path) {
    let file = std::fs::File::options().write(true).open(dir.join(NAME)).unwrap();
    file.set_len(file.metadata().unwrap().len() / 8192 * 4096).unwrap();
}

#[test]
fn of_a_file_that_was_cut_the_first_half_goes_on_and_the_rest_is_told() {
    let dir = tempfile::tempdir().unwrap();
    drop(keeper_with(&dir, 1..=40));
    cut(dir.path());
    let (_keeper, mut events) = keeper(dir.path());
    let moved = events.try_recv().unwrap();
    let Event::MovedAside { to, saved, counted, .. } = moved else { panic!("{moved:?}") };
    assert!(to.exists() && counted && (10..40).contains(&saved.len()), "{saved:?}");
    let restored = restored(&mut events);
    assert!(restored.batches.keys().eq(&saved));
    let lost = 40 - saved.len() as u64;
    assert_eq!(restored.lost, [(Arc::from("a"), Lost { batches: lost, points: 10 * lost })].into());
}

#[test]
fn what_an_interrupted_run_had_not_taken_over_is_taken_over_by_the_next() {
    for whole in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        drop(keeper_with(&dir, 1..=40));
        // It had been set aside, and the new one has but two batches, or is itself damaged.
        aside::begin(dir.path()).unwrap();
        let (mut file, _) = File::open(dir.path(), 64 << 20, &[Arc::from("a")]).unwrap();
        file.apply(&append(1..=2)).unwrap();
        drop(file);
        if !whole {
            cut(dir.path());
        }
        let (_keeper, mut events) = keeper(dir.path());
        assert!(restored(&mut events).batches.into_keys().eq(1..=40), "{whole}");
        assert!(!aside::pending(dir.path()).exists());
        let (_, mut again) = {
            drop(_keeper);
            keeper(dir.path())
        };
        assert!(restored(&mut again).batches.into_keys().eq(1..=40), "{whole}");
    }
}

#[test]
fn a_file_that_is_replaced_while_the_queue_knows_what_it_had_is_not_counted_here_too() {
    let dir = tempfile::tempdir().unwrap();
    let (mut keeper, mut events) = keeper_with(&dir, 1..=40);
    keeper.file = None;
    cut(dir.path());
    let path = dir.path().to_owned();
    keeper.replace(StoreError::Damaged { path, reason: "a test".to_owned() });
    let restored = restored(&mut events);
    assert!(restored.lost.is_empty() && restored.batches.len() >= 10, "{restored:?}");
}

fn assert_nothing_is_done(dir: &Path, events: &mut mpsc::UnboundedReceiver<Event>) {
    let event = events.try_recv().unwrap();
    assert!(matches!(event, Event::Unavailable(_)), "{event:?}");
    assert!(events.try_recv().is_err());
    assert!(dir.join(NAME).exists() && !aside::pending(dir).exists(), "it is not in its place");
}

#[test]
fn a_damaged_file_for_whose_batches_there_is_no_room_waits_in_its_place_and_loses_none() {
    let dir = tempfile::tempdir().unwrap();
    drop(keeper_with(&dir, 1..=40));
    cut(dir.path());
    let (mut keeper, mut events) = unopened(dir.path());
    aside::begin(dir.path()).unwrap();
    let (file, _) = File::open(dir.path(), 64 << 20, &keeper.destinations).unwrap();
    file.fill(true);
    let path = dir.path().to_owned();
    keeper.take_over(file, StoreError::Damaged { path, reason: "a test".to_owned() }, false);
    assert_nothing_is_done(dir.path(), &mut events);
    keeper.open();
    let restored = restored(&mut events);
    assert!(restored.batches.len() >= 10, "{restored:?}");
    assert_eq!(restored.lost[&keeper.destinations[0]].batches, 40 - restored.batches.len() as u64);
}

#[test]
fn a_damaged_file_for_whose_copy_there_is_no_room_waits_in_its_place_and_loses_none() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut keeper, _) = keeper_with(&dir, [1]);
    (2..=40).for_each(|id| drop(keeper.apply(append([id]))));
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), killed.path().join(entry.file_name())).unwrap();
    }
    // SQLite reads the log no further than to its middle.
    let log = aside::log_of(&killed.path().join(NAME));
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let merged = killed.path().join(format!("{NAME}.salvage.merged"));
    std::os::unix::fs::symlink("/dev/full", &merged).unwrap();
    let (mut keeper, mut events) = self::keeper(killed.path());
    assert_nothing_is_done(killed.path(), &mut events);
    assert!(merged.symlink_metadata().is_err(), "what there is of the copy takes room");
    keeper.open();
    let restored = restored(&mut events);
    assert!(restored.batches.len() >= 39, "{restored:?}");
}

#[test]
fn what_an_interrupted_run_has_made_and_cannot_be_written_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    drop(keeper_with(&dir, 1..=40));
    aside::begin(dir.path()).unwrap();
    let (mut file, _) = File::open(dir.path(), 64 << 20, &[Arc::from("a")]).unwrap();
    file.apply(&append(1..=40)).unwrap();
    file.apply(&Changes { forget: (1..=40).collect(), ..Changes::default() }).unwrap();
    drop(file);
    // Its list of free pages: nobody looks at it before a page is wanted.
    let path = dir.path().join(NAME);
    let mut bytes = std::fs::read(&path).unwrap();
    let trunk = u32::from_be_bytes(bytes[32..36].try_into().unwrap()) as usize;
    bytes[(trunk - 1) * 4096..][..8].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let (mut keeper, mut events) = keeper(dir.path());
    let event = events.try_recv().unwrap();
    assert!(matches!(event, Event::Unavailable(StoreError::Damaged { .. })), "{event:?}");
    keeper.open();
    assert!(restored(&mut events).batches.into_keys().eq(1..=40));
}

#[test]
fn a_disk_that_lets_no_file_shrink_is_asked_again_with_the_next_change_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let (mut keeper, mut events) = keeper_with(&dir, 1..=1000);
    keeper.apply(Changes { forget: (1..=999).collect(), ..Changes::default() });
    assert!(matches!(events.try_recv().unwrap(), Event::Committed { .. }));
    keeper.file.as_ref().unwrap().refuse(true);
    keeper.shrink();
    assert!(!keeper.file.as_ref().unwrap().wants_to_shrink());
    assert!(events.try_recv().is_err(), "its batches are as well kept as before");
    keeper.file.as_ref().unwrap().refuse(false);
    keeper.apply(Changes { forget: vec![1000], ..Changes::default() });
    assert!(keeper.file.as_ref().unwrap().wants_to_shrink());
}
