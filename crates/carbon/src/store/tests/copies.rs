//! Batches that are in two segments, because a commit failed and its segment could not be removed.
//!
//! A start counts no loss for a second copy that is missing if the first is there. It once took such
//! points from any later loss, and forgot that when the first copy had left.

use super::*;

/// A commit that fails, and whose file stays.
fn fail(log: &mut Log, changes: &Changes) {
    faults::set_syncs(Some(0));
    faults::set_keeps_files(true);
    let failed = log.commit(changes);
    faults::set_syncs(None);
    faults::set_keeps_files(false);
    failed.unwrap_err();
}

/// Damages the heads of these records of a segment, or removes the segment if there are none.
fn harm(dir: &Path, segment: u64, records: &[u64]) {
    let file = folder::segment(dir, segment);
    let mut bytes = fs::read(&file).unwrap();
    let heads: Vec<_> = record::records(&bytes)
        .map(Result::unwrap)
        .filter(|record| !matches!(record.head.content, record::Content::Begin { .. }))
        .filter(|record| records.contains(&record.head.number))
        .map(|record| record.offset)
        .collect();
    assert_eq!(heads.len(), records.len());
    heads.into_iter().for_each(|at| bytes[at + 5] ^= 1);
    match records {
        [] => fs::remove_file(&file).unwrap(),
        _ => fs::write(&file, bytes).unwrap(),
    }
}

/// The first copy of batch 6 is in segment 1. A power cut has left the name of the segment of the
/// second failure out, and in segment 4 the records of 6 and 8, but not that of 10.
fn second_copies_are_missing(dir: &Path, second: AppendedBatch) {
    let (mut log, _) = open(dir);
    log.commit(&append([2, 4])).unwrap();
    fail(&mut log, &append([6]));
    fail(&mut log, &append([6, 8]));
    let both = |id| kept(id, &["a", "b"]);
    let append = vec![second, both(8), both(10)];
    log.commit(&Changes { append, ..Changes::default() }).unwrap();
    drop(log);
    harm(dir, 3, &[]);
    harm(dir, 4, &[4, 5]);
}

fn lost(dir: &Path) -> [u64; 2] {
    let lost = open(dir).1.lost();
    ["a", "b"].map(|to| lost.get(to).copied().unwrap_or(0))
}

#[test]
fn a_second_copy_that_is_missing_is_no_loss_also_when_the_first_is_done_and_has_left() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    second_copies_are_missing(dir, kept(6, &["a", "b"]));
    // Of batch 8.
    assert_eq!(lost(dir), [POINTS; 2]);
    let (mut log, restored) = open(dir);
    assert!(due(&mut log, &restored).contains_key(&("a".to_owned(), 6)));
    log.commit(&restored.told(append([12]))).unwrap();
    assert_eq!(lost(dir), [0; 2]);
    let (mut log, _) = open(dir);
    let ids = [2, 4, 6].into_iter().flat_map(|id| [("a", id), ("b", id)]);
    log.commit(&done(&ids.collect::<Vec<_>>())).unwrap();
    assert!(!folder::segment(dir, 1).exists() && folder::segment(dir, 4).exists());
    drop(log);
    assert_eq!(lost(dir), [0; 2]);
}

#[test]
fn a_second_copy_that_is_due_to_fewer_hides_no_later_loss() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    second_copies_are_missing(dir, kept(6, &["b"]));
    assert_eq!(lost(dir)[0], POINTS);
    let (mut log, restored) = open(dir);
    log.commit(&restored.told(append([12]))).unwrap();
    drop(log);
    harm(dir, 4, &[6]);
    // Of batch 10.
    assert_eq!(lost(dir)[0], POINTS);
}

/// After a power cut a segment uses the numbers that the one before it has lost.
#[test]
fn a_second_copy_that_a_power_cut_took_hides_no_loss_of_the_next_segment() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mut log, _) = open(dir);
    log.commit(&append([2, 4])).unwrap();
    fail(&mut log, &append([6, 8]));
    fail(&mut log, &append([6, 8]));
    fail(&mut log, &append([6, 8]));
    log.commit(&append([6, 8])).unwrap();
    drop(log);
    harm(dir, 3, &[]);
    harm(dir, 4, &[]);
    let newest = folder::segment(dir, 5);
    let bytes = fs::read(&newest).unwrap();
    let last = record::records(&bytes).last().unwrap().unwrap();
    fs::write(&newest, &bytes[..last.offset]).unwrap();
    let (mut log, restored) = open(dir);
    assert_eq!((restored.lost().len(), due(&mut log, &restored).len()), (0, 8));
    log.commit(&append([12, 14])).unwrap();
    drop(log);
    harm(dir, 6, &[6]);
    assert_eq!(lost(dir), [POINTS; 2]);
    let begin = folder::segment(dir, 6);
    let mut bytes = fs::read(&begin).unwrap();
    bytes[5] ^= 1;
    fs::write(&begin, bytes).unwrap();
    assert_eq!(lost(dir), [POINTS; 2]);
}

/// The numbers went back to those of a segment that has no record, and the next segment had the
/// number of a batch that was due.
#[test]
fn a_failed_commit_that_is_found_is_still_there_after_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mut log, _) = open(dir);
    log.commit(&append([2, 4])).unwrap();
    fail(&mut log, &append([6, 8]));
    log.commit(&append([6, 8])).unwrap();
    drop(log);
    harm(dir, 3, &[3]);
    let newest = folder::segment(dir, 3);
    let bytes = fs::read(&newest).unwrap();
    fs::write(&newest, &bytes[..bytes.len() - 1]).unwrap();
    let found = |dir| {
        let (mut log, restored) = open(dir);
        (due(&mut log, &restored).into_keys().collect::<BTreeSet<_>>(), log, restored)
    };
    let (before, mut log, restored) = found(dir);
    assert_eq!(before.len(), 8);
    log.commit(&restored.told(append([10]))).unwrap();
    drop(log);
    let (after, ..) = found(dir);
    assert!(after.is_superset(&before), "{before:?}, then {after:?}");
}
