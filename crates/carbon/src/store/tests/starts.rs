//! What a start finds: damage, evicted batches, and a disk that returns nothing.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// Damage that a start finds must not be counted at every later start.
#[test]
fn what_a_start_counts_is_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = open(dir.path());
    let changes = Changes {
        append: vec![kept(1, &["a"]), kept(2, &["a"])],
        counted: unproved(&[("a", 7, 100)]),
        ..Changes::default()
    };
    log.commit(&changes).unwrap();
    let file = segments(dir.path()).pop().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let begin = record::first(&bytes).unwrap().unwrap().length as usize;
    let batch = record::first(&bytes[begin..]).unwrap().unwrap().length as usize;
    bytes[begin + batch] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let (mut unproved, mut lost) = (0, 0);
    for run in 0..3 {
        let (mut log, restored) = open(dir.path());
        unproved += restored.unproved().values().sum::<u64>();
        lost += restored.lost().values().sum::<u64>();
        let tick = Changes { append: vec![kept(10 + run, &["a"])], ..Changes::default() };
        log.commit(&restored.told(tick)).unwrap();
    }
    assert_eq!(unproved, 100);
    assert!(lost > 0 && lost <= POINTS, "{lost}");
}

/// The second count was stored in place of the first.
#[test]
fn what_two_starts_find_damaged_in_one_record_is_added() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).0.commit(&append([1, 2])).unwrap();
    let file = segments(dir.path()).pop().unwrap();
    let bytes = fs::read(&file).unwrap();
    let record = record::records(&bytes).nth(1).unwrap().unwrap();
    let frames = record.offset + record.length as usize;
    // The third start counted it again, and so did each one after it.
    for (harm, points) in [(Some(frames), 5), (Some(frames + 12), 10), (None, 10)] {
        let mut bytes = fs::read(&file).unwrap();
        harm.into_iter().for_each(|at| bytes[at] ^= 1);
        fs::write(&file, bytes).unwrap();
        let (mut log, restored) = open(dir.path());
        assert_eq!(restored.lost(), [(name("a"), points), (name("b"), points)].into());
        // No tick has the count.
        log.commit(&state("seen", &[7])).unwrap();
    }
}

#[test]
fn what_was_evicted_and_proved_before_a_commit_is_never_called_unproved() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = open(dir.path());
    log.commit(&Changes { append: vec![kept(1, &["a"]), kept(2, &["a"])], ..Changes::default() })
        .unwrap();
    // Removed by max_age, when the file still has it; by max_bytes, when the file no longer has it.
    for (id, forget) in [(1, vec![1]), (9, vec![])] {
        let (counted, done) = (unproved(&[("a", id, 10)]), vec![(name("a"), id)]);
        log.commit(&Changes { forget, counted, done, ..Changes::default() }).unwrap();
    }
    drop(log);
    let (_, restored) = open(dir.path());
    assert_eq!((restored.unproved().len(), restored.due.len()), (0, 1));
}

#[test]
fn a_folder_that_takes_no_segment_for_a_while_looks_like_no_damage() {
    let up = tempfile::tempdir().unwrap();
    let (dir, away) = (up.path().join("queue"), up.path().join("away"));
    fs::create_dir(&dir).unwrap();
    let (mut log, _) = open(&dir);
    log.commit(&Changes { append: vec![kept(1, &["a"])], ..Changes::default() }).unwrap();
    let (mut log, _) = open(&dir);
    fs::rename(&dir, &away).unwrap();
    for _ in 0..5 {
        log.commit(&Changes { append: vec![kept(2, &["a"])], ..Changes::default() }).unwrap_err();
    }
    fs::rename(&away, &dir).unwrap();
    log.commit(&Changes { append: vec![kept(2, &["a"])], ..Changes::default() }).unwrap();
    let (_, restored) = open(&dir);
    assert_eq!((restored.damaged, restored.due.len()), (0, 2));
}

/// The first commit after such a start would remove all segments.
#[test]
fn a_disk_that_refuses_every_read_is_no_empty_log() {
    let dir = tempfile::tempdir().unwrap();
    for run in 0..4 {
        let (mut log, _) = open(dir.path());
        log.commit(&Changes { append: vec![kept(run + 1, &["a"])], ..Changes::default() }).unwrap();
    }
    faults::set_unread(Some(1));
    let refused = Log::open(dir.path(), 64 << 20, true);
    faults::set_unread(None);
    refused.unwrap_err();
    let (_, restored) = open(dir.path());
    assert_eq!((restored.due.len(), restored.damaged), (4, 0));
}

/// The record that names it could not be read.
#[test]
fn a_disk_that_does_not_return_the_newest_segment_loses_no_state() {
    let dir = tempfile::tempdir().unwrap();
    for run in 1..4 {
        let (mut log, _) = open(dir.path());
        log.commit(&Changes { append: vec![kept(run, &["a"])], ..state("seen", &[7]) }).unwrap();
    }
    faults::set_unread(Some(3));
    let (_, restored) = Log::open(dir.path(), 64 << 20, true).unwrap();
    faults::set_unread(None);
    assert_eq!(restored.batches.len(), 2);
    let (_, restored) = open(dir.path());
    assert!(restored.damaged_states.is_empty(), "{:?}", restored.damaged_states);
    assert_eq!((restored.batches.len(), restored.damaged), (3, 0));
}

/// Too many open files, or too little memory, is no damage.
#[test]
fn only_what_the_disk_cannot_read_counts_as_damaged() {
    let dir = tempfile::tempdir().unwrap();
    for run in 1..4 {
        open(dir.path()).0.commit(&append([run])).unwrap();
    }
    let file = segments(dir.path()).remove(1);
    fs::remove_file(&file).unwrap();
    // It can be opened, but not read: EISDIR.
    fs::create_dir(&file).unwrap();
    Log::open(dir.path(), 64 << 20, true).unwrap_err();
}

/// A segment without a record had the number of the next one, which was removed in its place.
#[test]
fn a_commit_with_nothing_to_record_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = open(dir.path());
    log.commit(&Changes::default()).unwrap();
    assert_eq!((segments(dir.path()).len(), log.bytes()), (0, 0));
    log.commit(&append([1])).unwrap();
    let (mut log, _) = open(dir.path());
    log.commit(&Changes { forget: vec![7], ..done(&[("a", 7)]) }).unwrap();
    assert_eq!(segments(dir.path()).len(), 1);
}

/// What a start has only ignored, a later one found again.
#[test]
fn a_start_that_may_not_repair_does_not_open() {
    let dir = tempfile::tempdir().unwrap();
    for ids in [[1, 2], [3, 4]] {
        let (mut log, _) = open(dir.path());
        ids.into_iter().for_each(|id| drop(log.commit(&append([id])).unwrap()));
    }
    let files = segments(dir.path());
    let whole = fs::read(&files[1]).unwrap();
    let last = record::records(&whole).last().unwrap().unwrap().offset;
    // The last record is torn, or the only one.
    for (end, left) in [(whole.len() - 3, 3), (last - 3, 2)] {
        fs::write(&files[1], &whole[..end]).unwrap();
        faults::set_keeps_files(true);
        let refused = Log::open(dir.path(), 64 << 20, false);
        faults::set_keeps_files(false);
        assert!(matches!(refused, Err(StoreError::Io { .. })), "{end}");
        assert_eq!(fs::read(&files[1]).unwrap(), whole[..end], "{end}");
        let (_, restored) = open(dir.path());
        assert_eq!((restored.batches.len(), restored.damaged), (left, 0), "{end}");
        let rest = fs::read(&files[1]).unwrap_or_default();
        assert_eq!(rest, whole[..if left == 3 { last } else { 0 }]);
    }
}

/// A name that is no segment of ours made the log unusable, or let its numbers overflow.
#[test]
fn only_names_of_twenty_digits_below_2_to_the_63_are_segments() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = open(dir.path());
    log.commit(&Changes { append: vec![kept(1, &["a"])], ..Changes::default() }).unwrap();
    let names = ["queue-5.log", "queue-18446744073709551615.log", "queue-+0000000000000000005.log"];
    names.iter().for_each(|name| fs::write(dir.path().join(name), "").unwrap());
    for run in 0..2 {
        let (mut log, restored) = open(dir.path());
        assert_eq!((restored.damaged, restored.due.len()), (0, 1 + run));
        let id = 2 + u64::try_from(run).unwrap();
        log.commit(&Changes { append: vec![kept(id, &["a"])], ..Changes::default() }).unwrap();
    }
}

/// A head whose checksum is right need not make sense.
#[test]
fn totals_and_numbers_near_the_largest_do_not_overflow() {
    for (number, total) in [(1, u64::MAX - 3), (u64::MAX, 0), (u64::MAX - 1, u64::MAX)] {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = open(dir.path());
        (log.number, log.totals) = (number, [(name("a"), total)].into());
        for id in 1..4 {
            log.totals.insert(name("a"), total);
            let _ = log.commit(&Changes { append: vec![kept(id, &["a"])], ..Changes::default() });
        }
        for file in fs::read_dir(dir.path()).unwrap().flatten() {
            if file.file_name().to_str().unwrap().ends_with(".log") {
                fs::rename(file.path(), folder::segment(dir.path(), 1)).unwrap();
            }
        }
        let (mut log, _) = open(dir.path());
        log.commit(&Changes { append: vec![kept(9, &["a"])], ..Changes::default() }).unwrap();
        assert!(open(dir.path()).1.due.contains(&(name("a"), 9)));
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Only the daemon's user may read job names and users, whatever user and umask started it.
#[tokio::test]
async fn only_the_daemons_user_may_read_the_queue() {
    let up = tempfile::tempdir().unwrap();
    let dir = up.path().join("queue");
    let run = async |id| {
        let (store, lock, _events) = Store::start(dir.clone(), 64 << 20);
        lock.await.unwrap().unwrap();
        assert!(store.close(append([id])).await.is_some());
    };
    run(1).await;
    let files =
        || fs::read_dir(&dir).unwrap().flatten().map(|file| file.path()).collect::<Vec<_>>();
    assert_eq!(files().len(), 3, "a segment, the lock and the reserve");
    assert!(files().iter().all(|file| mode(file) == 0o600) && mode(&dir) == 0o700);
    // Of a version that did not care.
    files()
        .iter()
        .for_each(|file| fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap());
    fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
    run(2).await;
    assert!(files().iter().all(|file| mode(file) == 0o600) && mode(&dir) == 0o700);
    // A folder with files of others, such as /tmp, is not the daemon's to close.
    fs::write(dir.join("theirs"), "").unwrap();
    fs::set_permissions(dir.join("theirs"), Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
    run(3).await;
    assert_eq!((mode(&dir), mode(&dir.join("theirs"))), (0o755, 0o644));
}

/// In a folder that others may write, root would have written its process id into any file.
#[test]
fn a_lock_that_is_a_link_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let theirs = dir.path().join("theirs");
    fs::write(&theirs, "text").unwrap();
    std::os::unix::fs::symlink(&theirs, dir.path().join("queue.lock")).unwrap();
    assert!(matches!(folder::lock(dir.path()), Err(StoreError::Io { .. })));
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "text");
}

/// A folder that came back has what is written to it once more. If that copy was torn, the log
/// forgot both.
#[test]
fn a_torn_copy_of_a_batch_costs_nothing_of_the_first_one() {
    let whole = tempfile::tempdir().unwrap();
    let (mut log, _) = open(whole.path());
    log.commit(&append([1])).unwrap();
    let file = segments(whole.path()).pop().unwrap();
    let first = fs::read(&file).unwrap().len();
    log.commit(&append([1])).unwrap();
    let bytes = fs::read(&file).unwrap();
    for cut in first..=bytes.len() {
        fs::write(&file, &bytes[..cut]).unwrap();
        let dir = copy(whole.path());
        for run in 0..3 {
            let (mut log, restored) = open(dir.path());
            assert_eq!(
                (restored.lost().len(), restored.damaged),
                (0, 0),
                "{cut} of {}, run {run}",
                bytes.len()
            );
            log.commit(&append([10 + run])).unwrap();
            let due = due(&mut log, &restored);
            assert_eq!(
                due.get(&("a".to_owned(), 1)),
                Some(&POINTS),
                "{cut} of {}, run {run}",
                bytes.len()
            );
        }
    }
}

/// Damages the heads of these records of a segment, and cuts off its last `cut` bytes.
fn harm(dir: &Path, segment: u64, records: &[u64], cut: usize) {
    let file = folder::segment(dir, segment);
    let mut bytes = fs::read(&file).unwrap();
    let heads = record::records(&bytes).map(Result::unwrap);
    let heads = heads.filter(|its| !matches!(its.head.content, record::Content::Begin { .. }));
    let heads: Vec<_> =
        heads.filter(|its| records.contains(&its.head.number)).map(|its| its.offset).collect();
    assert_eq!(heads.len(), records.len());
    heads.into_iter().for_each(|at| bytes[at + 5] ^= 1);
    fs::write(&file, &bytes[..bytes.len() - cut]).unwrap();
}

/// The numbers went back to those of a segment that has no record, and the next segment had the
/// number of a batch that was due.
#[test]
fn a_failed_commit_that_a_start_finds_is_there_at_the_next_start_too() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mut log, _) = open(dir);
    log.commit(&append([2, 4])).unwrap();
    faults::set_syncs(Some(0));
    faults::set_keeps_files(true);
    log.commit(&append([6, 8])).unwrap_err();
    faults::set_syncs(None);
    faults::set_keeps_files(false);
    log.commit(&append([6, 8])).unwrap();
    drop(log);
    harm(dir, 3, &[3], 1);
    let found = || {
        let (mut log, restored) = open(dir);
        (due(&mut log, &restored).into_keys().collect::<BTreeSet<_>>(), log, restored)
    };
    let (before, mut log, restored) = found();
    assert_eq!(before.len(), 8);
    log.commit(&restored.told(append([10]))).unwrap();
    drop(log);
    let (after, _, restored) = found();
    assert!(after.is_superset(&before), "{before:?}, then {after:?}");
    // It was counted once, although it is there.
    assert!(restored.lost().is_empty(), "{:?}", restored.lost());
}

/// A damaged batch, which only the next segment shows. That one has no whole record, so a start
/// removes it.
fn with_a_loss(dir: &Path) {
    open(dir).0.commit(&append([2, 4])).unwrap();
    open(dir).0.commit(&append([6])).unwrap();
    harm(dir, 1, &[2], 0);
    harm(dir, 3, &[], 1);
}

/// The next `begin` did not say any more what the loss was part of, and what was settled hid the
/// next loss.
#[test]
fn a_loss_that_a_segment_without_a_record_has_told_hides_no_later_one() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    with_a_loss(dir);
    for batch in [4, 2] {
        let (mut log, restored) = open(dir);
        let expected = [(name("a"), POINTS), (name("b"), POINTS)].into();
        assert_eq!(restored.lost(), expected, "of batch {batch}");
        log.commit(&restored.told(append([8 + batch]))).unwrap();
        if batch == 4 {
            harm(dir, 1, &[1], 0);
        }
    }
    assert!(open(dir).1.lost().is_empty());
}

/// The start cuts off what shows the loss. Its count was on the disk with the first tick.
#[test]
fn a_loss_is_counted_by_the_start_that_finds_it_and_not_by_its_first_commit() {
    for is_full in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        with_a_loss(dir);
        if is_full {
            let files = fs::read_dir(dir).unwrap();
            let used: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
            // Full also without what the start removes: there is only the room of the reserve.
            faults::set_disk(Some(used - 200));
        }
        let expected = [(name("a"), POINTS), (name("b"), POINTS)].into();
        for kill in 1..=3 {
            assert_eq!(open(dir).1.lost(), expected, "before kill {kill}, full: {is_full}");
        }
        faults::set_disk(None);
        let (mut log, restored) = open(dir);
        log.commit(&restored.told(append([8]))).unwrap();
        assert!(open(dir).1.lost().is_empty());
    }
}

/// The numbers of what it had began at an offset in bytes of the next one: where that was above
/// them, the loss was counted at every start, and where it was below, other batches that were done
/// hid it.
#[test]
fn a_segment_that_is_gone_is_counted_once() {
    for done_before in [0, 200] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let (mut log, _) = open(dir);
        for id in 0..=done_before {
            log.commit(&append([2 * id + 2])).unwrap();
            log.commit(&done(&[("a", 2 * id), ("b", 2 * id)])).unwrap();
        }
        let numbers = folder::segments(dir).unwrap();
        for id in [1001, 1003] {
            open(dir).0.commit(&append([id])).unwrap();
        }
        let gone = folder::segments(dir).unwrap()[numbers.len()];
        fs::remove_file(folder::segment(dir, gone)).unwrap();
        let expected = [(name("a"), POINTS), (name("b"), POINTS)].into();
        let (mut log, restored) = open(dir);
        assert_eq!(restored.lost(), expected, "behind {done_before} batches");
        log.commit(&restored.told(append([1005]))).unwrap();
        assert!(open(dir).1.lost().is_empty());
    }
}
