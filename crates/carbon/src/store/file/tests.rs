//! The file's tests: what is kept comes back, whatever was done to it in between.

mod commits;
mod damage;

use super::*;
use crate::store::aside::{begin, put_back};
use crate::store::{Kept, Lost, Summary};

const MANY: u64 = 64 << 20;

fn names(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn kept(id: u64, bytes: usize, due: &[&str]) -> Kept {
    let frame = Frame { points: 1, body: vec![7; bytes] };
    Kept { id, timestamp: id.cast_signed() * 10, frames: vec![frame].into(), due: names(due) }
}

fn on_disk(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

fn append(id: u64, bytes: usize) -> Changes {
    Changes { append: vec![kept(id, bytes, &["a"])], ..Changes::default() }
}

fn open(dir: &Path, max_bytes: u64) -> (File, Restored) {
    File::open(dir, max_bytes, &names(&["a"])).unwrap()
}

fn both(dir: &Path) -> (File, Restored) {
    File::open(dir, MANY, &names(&["a", "b"])).unwrap()
}

#[test]
fn what_was_committed_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, restored) = open(dir.path(), MANY);
    assert!(restored.batches.is_empty());
    for id in 1..=3 {
        file.apply(&append(id, 100)).unwrap();
    }
    file.apply(&Changes { done: vec![(Arc::from("a"), 2)], ..Changes::default() }).unwrap();
    drop(file);
    let (mut file, restored) = open(dir.path(), MANY);
    assert_eq!(restored.batches.keys().copied().collect::<Vec<_>>(), [1, 3]);
    assert_eq!(restored.batches[&3], Summary { timestamp: 30, points: 1, bytes: 100 });
    assert_eq!(restored.due, [(Arc::from("a"), 1), (Arc::from("a"), 3)]);
    assert_eq!(file.load(3, false).unwrap()[0].body, vec![7; 100]);
}

#[test]
fn a_batch_stays_until_every_destination_is_done_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = File::open(dir.path(), MANY, &names(&["a", "b"])).unwrap();
    file.apply(&Changes { append: vec![kept(1, 10, &["a", "b"])], ..Changes::default() }).unwrap();
    file.apply(&Changes { done: vec![(Arc::from("a"), 1)], ..Changes::default() }).unwrap();
    assert!(file.load(1, false).is_ok());
    file.apply(&Changes { done: vec![(Arc::from("b"), 1)], ..Changes::default() }).unwrap();
    assert!(file.load(1, false).is_err());
}

#[test]
fn a_removed_destination_is_forgotten_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = File::open(dir.path(), MANY, &names(&["a", "b"])).unwrap();
    file.apply(&Changes {
        append: vec![kept(1, 10, &["b"]), kept(2, 10, &["a", "b"])],
        ..Changes::default()
    })
    .unwrap();
    drop(file);
    let (_, restored) = File::open(dir.path(), MANY, &names(&["a", "new"])).unwrap();
    assert_eq!(restored.removed, [("b".to_owned(), 2)]);
    assert_eq!(restored.due, [(Arc::from("a"), 2)], "and a new one starts now");
    assert_eq!(restored.batches.keys().copied().collect::<Vec<_>>(), [2]);
}

#[test]
fn the_file_keeps_its_bound_and_the_oldest_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let bound = 8 << 20;
    let (mut file, _) = open(dir.path(), bound);
    let mut dropped = Vec::new();
    for id in 1..=200 {
        dropped.extend(file.apply(&append(id, 200_000)).unwrap());
        assert!(on_disk(dir.path()) <= bound, "{}", on_disk(dir.path()));
    }
    assert!(!dropped.is_empty());
    assert_eq!(dropped, (1..=dropped.len() as u64).collect::<Vec<_>>());
    assert!(file.load(200, false).is_ok());
}

#[test]
fn a_drained_file_gives_its_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = open(dir.path(), MANY);
    for id in 1..=100 {
        file.apply(&append(id, 200_000)).unwrap();
    }
    assert!(on_disk(dir.path()) > 20_000_000);
    let done = (1..=100).map(|id| (Arc::from("a"), id)).collect();
    file.apply(&Changes { done, ..Changes::default() }).unwrap();
    while file.wants_to_shrink() {
        file.shrink().unwrap();
    }
    assert!(on_disk(dir.path()) < 8 << 20, "{}", on_disk(dir.path()));
    assert_eq!(file.bytes(), on_disk(dir.path()));
}

#[test]
fn a_file_at_its_bound_keeps_it_while_it_shrinks() {
    let dir = tempfile::tempdir().unwrap();
    let bound = 48 << 20;
    let (mut file, _) = open(dir.path(), bound);
    let last = (1..).find(|&id| !file.apply(&append(id, 200_000)).unwrap().is_empty()).unwrap();
    let forget = (1..=last * 3 / 5).collect();
    file.apply(&Changes { forget, ..Changes::default() }).unwrap();
    let mut steps = 0;
    while file.wants_to_shrink() {
        file.shrink().unwrap();
        steps += 1;
        assert!(on_disk(dir.path()) <= bound, "{} after {steps} steps", on_disk(dir.path()));
    }
    assert!(steps > 10 && on_disk(dir.path()) < bound / 2, "{steps} steps, {}", on_disk(dir.path()));
}

#[test]
fn a_second_process_is_told_that_the_file_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let (_file, _) = open(dir.path(), MANY);
    let error = File::open(dir.path(), MANY, &names(&["a"])).unwrap_err();
    assert!(matches!(error, StoreError::Locked(_)), "{error}");
}

#[test]
fn a_file_of_a_newer_version_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = open(dir.path(), MANY);
    file.connection.execute_batch("PRAGMA user_version = 2").unwrap();
    drop(file);
    let error = File::open(dir.path(), MANY, &names(&["a"])).unwrap_err();
    assert!(matches!(error, StoreError::Newer { version: 2, .. }), "{error}");
}

#[test]
fn what_is_put_back_is_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = open(dir.path(), MANY);
    file.apply(&append(1, 100)).unwrap();
    drop(file);
    let aside = begin(dir.path()).unwrap();
    drop(open(dir.path(), MANY));
    put_back(dir.path());
    let (_, restored) = open(dir.path(), MANY);
    assert_eq!(restored.batches.keys().copied().collect::<Vec<_>>(), [1]);
    assert!(!aside.exists());
}

#[test]
fn moved_aside_with_its_log() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(NAME), "not a database, but long enough to look like one ............")
        .unwrap();
    let error = File::open(dir.path(), MANY, &names(&["a"])).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    let aside = begin(dir.path()).unwrap();
    assert!(aside.exists() && !dir.path().join(NAME).exists());
    open(dir.path(), MANY);
}

#[test]
fn the_least_bound_still_keeps_hours_of_small_ticks() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = open(dir.path(), crate::LEAST_FILE_BYTES);
    let dropped: usize = (1..=1000).map(|id| file.apply(&append(id, 6000)).unwrap().len()).sum();
    assert!((300..=360).contains(&(1000 - dropped)), "{dropped}");
    assert!(on_disk(dir.path()) <= crate::LEAST_FILE_BYTES);
}
