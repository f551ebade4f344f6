//! Damage of the file itself: what is not what was written is told and never sent, the rest goes on.

use super::*;

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
