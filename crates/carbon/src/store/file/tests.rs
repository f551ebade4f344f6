//! The file's tests: what is kept comes back, whatever was done to it in between.

mod commits;

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

/// SQLite takes it for an empty database, and all that is behind for free room.
#[test]
fn a_first_page_of_zeroes_is_damage_and_no_empty_file() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = open(dir.path(), MANY);
    file.apply(&append(1, 100)).unwrap();
    drop(file);
    let path = dir.path().join(NAME);
    let mut bytes = fs::read(&path).unwrap();
    bytes[..4096].fill(0);
    fs::write(&path, bytes).unwrap();
    let error = File::open(dir.path(), MANY, &names(&["a"])).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
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
fn a_file_cut_or_flipped_anywhere_is_read_right_or_refused_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = open(dir.path(), MANY);
    for id in 1..=50 {
        file.apply(&append(id, 3000)).unwrap();
    }
    drop(file);
    let path = dir.path().join(NAME);
    let whole = fs::read(&path).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let (mut refused, mut opened) = (0, 0);
    for round in 0..300 {
        let mut bytes = whole.clone();
        if round % 2 == 0 {
            bytes.truncate(random.usize(..whole.len()));
        } else {
            for _ in 0..20 {
                let at = random.usize(..whole.len());
                bytes[at] ^= 1 << random.u8(..8);
            }
        }
        fs::write(&path, &bytes).unwrap();
        let _ = fs::remove_file(dir.path().join(format!("{NAME}-wal")));
        match File::open(dir.path(), MANY, &names(&["a"])) {
            Err(_) => refused += 1,
            Ok((mut file, restored)) => {
                opened += 1;
                for (id, summary) in restored.batches {
                    // A batch comes back as it was, or not at all.
                    if let Ok(frames) = file.load(id, false) {
                        assert_eq!(frames[0].body, vec![7; 3000]);
                        assert_eq!(summary.timestamp, id.cast_signed() * 10);
                    }
                }
                // Further work may fail; it must not panic.
                let _ = file.apply(&append(1000, 3000));
            }
        }
    }
    assert!(refused > 50 && opened > 20, "{refused} refused, {opened} opened");
}

/// A batch of three frames of 10 points each.
fn three(id: u64) -> Kept {
    let frames = [1, 2, 3].map(|n| Frame { points: 10, body: vec![n; 3000] });
    Kept { id, timestamp: id.cast_signed() * 10, frames: frames.into(), due: names(&["a"]) }
}

fn execute(dir: &Path, sql: &str) {
    Connection::open(dir.join(NAME)).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn frames_that_are_gone_while_their_entry_remains_are_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = open(dir.path(), MANY);
    let append = (1..=4).map(three).collect();
    file.apply(&Changes { append, ..Changes::default() }).unwrap();
    drop(file);
    // Of one all, of another the second of three; a third has a text for its timestamp.
    execute(
        dir.path(),
        "DELETE FROM frame WHERE id >> 16 = 1 OR id = (2 << 16) + 1; UPDATE frame SET timestamp = 'x' WHERE id = 3 << 16",
    );
    let (mut file, restored) = open(dir.path(), MANY);
    assert_eq!(restored.lost, [(Arc::from("a"), Lost { batches: 3, points: 50 })].into());
    assert_eq!(restored.due.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(restored.batches[&2].points, 20);
    assert_eq!(file.load(2, false).unwrap().len(), 2);
    drop(file);
    let (_, restored) = open(dir.path(), MANY);
    assert!(restored.lost.is_empty(), "counted again: {:?}", restored.lost);
}

#[test]
fn a_frame_whose_number_was_flipped_is_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = open(dir.path(), MANY);
    file.apply(&Changes { append: vec![three(1), three(2)], ..Changes::default() }).unwrap();
    drop(file);
    execute(dir.path(), "UPDATE frame SET id = id + (8 << 16) WHERE id >> 16 = 1");
    let (mut file, restored) = open(dir.path(), MANY);
    assert_eq!(restored.lost, [(Arc::from("a"), Lost { batches: 1, points: 30 })].into());
    assert_eq!(restored.batches.keys().copied().collect::<Vec<_>>(), [2]);
    assert!(file.load(9, false).is_err());
}

#[test]
fn a_flipped_bit_costs_its_frame_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = open(dir.path(), MANY);
    file.apply(&Changes { append: vec![three(1)], ..Changes::default() }).unwrap();
    drop(file);
    execute(dir.path(), "UPDATE frame SET points = 11 WHERE id = (1 << 16) + 1");
    let (mut file, restored) = open(dir.path(), MANY);
    assert_eq!(restored.batches[&1].points, 30, "what is due says how many there were");
    let frames = file.load(1, false).unwrap();
    assert_eq!(frames.iter().map(|frame| frame.body[0]).collect::<Vec<_>>(), [1, 3]);
}

fn both(dir: &Path) -> (File, Restored) {
    File::open(dir, MANY, &names(&["a", "b"])).unwrap()
}

/// Batches 1 and 2, due to both but that `a` has had 2.
fn left_for_both() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = both(dir.path());
    let append = vec![kept(1, 10, &["a", "b"]), kept(2, 10, &["b"])];
    file.apply(&Changes { append, ..Changes::default() }).unwrap();
    dir
}

fn due_to_both() -> Vec<(u64, Arc<str>)> {
    vec![(1, Arc::from("a")), (1, Arc::from("b")), (2, Arc::from("b"))]
}

fn due(restored: Restored) -> Vec<(u64, Arc<str>)> {
    let mut due: Vec<_> = restored.due.into_iter().map(|(name, id)| (id, name)).collect();
    due.sort();
    due
}

#[test]
fn a_damaged_entry_of_one_destination_is_no_loss_while_anothers_is_sound() {
    let (a, b) = (Arc::from("a"), Arc::from("b"));
    let entry = format!("batch = 1 AND destination = {}", rows::number("a"));
    for (damage, everything) in [
        ("points = points + 4", false),
        ("checksum = checksum + 1", false),
        ("destination = destination + 1", false),
        ("batch = batch + 1024", true),
        ("points = 'x'", true),
    ] {
        for aside in [false, true] {
            let dir = left_for_both();
            execute(dir.path(), &format!("UPDATE due SET {damage} WHERE {entry}"));
            fs::remove_file(tally_of(&dir.path().join(NAME))).unwrap();
            let restored = if aside {
                let aside = begin(dir.path()).unwrap();
                let (mut file, _) = both(dir.path());
                assert!(!salvage(&aside, &mut file).unwrap().counted, "{damage}");
                file.restore().unwrap()
            } else {
                let (_, restored) = both(dir.path());
                assert_eq!(restored.unsound, 1, "{damage}");
                restored
            };
            let mut expected = vec![(1, Arc::clone(&a)), (1, Arc::clone(&b)), (2, Arc::clone(&b))];
            if everything {
                expected.insert(2, (2, Arc::clone(&a)));
            }
            assert_eq!(due(restored), expected, "{damage}, aside {aside}");
            let (_, again) = both(dir.path());
            assert_eq!((again.unsound, again.due.len()), (0, expected.len()), "{damage}, aside {aside}");
        }
    }
}

#[test]
fn where_the_tally_knows_a_damaged_entry_changes_nothing() {
    let damages = ["points = points + 4", "batch = batch + 1024", "points = 'x'", "destination = 7"];
    let update = |damage| format!("UPDATE due SET {damage} WHERE batch = 1");
    let delete = ["DELETE FROM due WHERE batch = 1".to_owned(), "DELETE FROM due".to_owned()];
    for damage in damages.map(update).into_iter().chain(delete) {
        for aside in [false, true] {
            let dir = left_for_both();
            execute(dir.path(), &damage.replace("destination = 7", "destination = destination + 1"));
            let restored = if aside {
                let aside = begin(dir.path()).unwrap();
                let (mut file, _) = both(dir.path());
                let salvage = salvage(&aside, &mut file).unwrap();
                assert!(salvage.counted && salvage.lost.is_empty(), "{damage}");
                file.restore().unwrap()
            } else {
                let (_, restored) = both(dir.path());
                assert!(restored.lost.is_empty() && restored.tallied, "{damage}");
                assert_eq!(restored.unsound > 0, damage.starts_with("UPDATE"), "{damage}");
                restored
            };
            assert_eq!(due(restored), due_to_both(), "{damage}, aside {aside}");
            let (_, again) = both(dir.path());
            assert_eq!((again.unsound, again.behind, due(again)), (0, 0, due_to_both()), "{damage}");
        }
    }
}

#[test]
fn a_flipped_name_is_no_removed_destination() {
    let (a, b): (Arc<str>, Arc<str>) = (Arc::from("a"), Arc::from("b"));
    for damage in ["name = 'c'", "id = id + 1", "checksum = checksum + 1", "checksum = 'x'"] {
        let dir = left_for_both();
        execute(dir.path(), &format!("UPDATE destination SET {damage} WHERE name = 'b'"));
        let (_, restored) = both(dir.path());
        assert_eq!((restored.removed.len(), restored.unsound), (0, 1), "{damage}");
        let expected = [(1, Arc::clone(&a)), (1, Arc::clone(&b)), (2, Arc::clone(&b))];
        assert_eq!(due(restored), expected, "{damage}");

        // Nobody can say that it was b's, which is there no longer: all that are get it.
        let dir = left_for_both();
        execute(dir.path(), &format!("UPDATE destination SET {damage} WHERE name = 'b'"));
        let (_, restored) = open(dir.path(), MANY);
        assert!(restored.removed.is_empty() && restored.unsound > 0, "{damage}");
        assert_eq!(due(restored), [(1, Arc::clone(&a)), (2, Arc::clone(&a))], "{damage}");
    }
}

#[test]
fn what_can_be_read_of_a_cut_or_flipped_file_is_taken_over_and_the_rest_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = open(dir.path(), MANY);
    for id in 1..=60 {
        file.apply(&Changes { append: vec![three(id)], ..Changes::default() }).unwrap();
    }
    drop(file);
    let whole = fs::read(dir.path().join(NAME)).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    let (mut refused, mut exact, mut saved_points) = (0, 0, 0);
    for round in 0..200 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let mut bytes = whole.clone();
        match round % 3 {
            0 => bytes.truncate(random.usize(4096..whole.len())),
            1 => (0..20).for_each(|_| bytes[random.usize(..whole.len())] ^= 1 << random.u8(..8)),
            _ => {
                let at = random.usize(1..whole.len() / 4096) * 4096;
                bytes[at..at + 4096].fill(0);
            }
        }
        fs::write(&path, &bytes).unwrap();
        let Err(error) = File::open(dir.path(), MANY, &names(&["a"])) else { continue };
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        refused += 1;
        let aside = begin(dir.path()).unwrap();
        let (mut file, _) = open(dir.path(), MANY);
        let salvage = salvage(&aside, &mut file).unwrap();
        assert!(aside.exists());
        let points: u64 = salvage
            .saved
            .iter()
            .flat_map(|id| {
                file.load(*id, false).unwrap().iter().map(|frame| u64::from(frame.points)).collect::<Vec<_>>()
            })
            .sum();
        let restored = file.restore().unwrap();
        assert!(restored.lost.is_empty() && restored.batches.keys().eq(&salvage.saved));
        let lost: u64 = salvage.lost.values().map(|lost| lost.points).sum();
        assert!(points + lost <= 60 * 30, "round {round}: {points} and {lost}");
        assert!(
            !salvage.counted || points + lost == 60 * 30,
            "round {round}: {points} and {lost}, all counted"
        );
        exact += usize::from(salvage.counted);
        saved_points += points;
    }
    assert!(
        refused > 100 && exact * 10 > refused * 9 && saved_points > 160_000,
        "{refused}, {exact}, {saved_points}"
    );
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
