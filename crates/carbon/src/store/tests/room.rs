//! A disk that the queue itself has filled: what is done leaves it although nothing can be written,
//! and nothing else does.

use super::*;

const DISK: u64 = 400 << 10;
/// Segments of 32 KB.
const MAX_BYTES: u64 = 256 << 10;
/// One segment has all that the disk can take.
const ONE_SEGMENT: u64 = 64 << 20;

fn with_disk(dir: &Path, max_bytes: u64) -> Log {
    faults::set_disk(Some(DISK));
    open_at(dir, max_bytes).0
}

/// Commits batches until the disk is full. Returns the ids of those that are on disk, and the one
/// that is not.
fn fill(log: &mut Log) -> (Vec<u64>, AppendedBatch) {
    let mut on_disk = Vec::new();
    for id in 1.. {
        match log.commit(&large(id)) {
            Ok(dropped) => assert_eq!(dropped, [0; 0]),
            Err(error) => {
                assert!(error.is_full(), "{error}");
                return (on_disk, large(id).append.remove(0));
            }
        }
        on_disk.push(id);
    }
    unreachable!()
}

fn all_done(ids: &[u64], owed: AppendedBatch) -> Changes {
    let done = ids.iter().map(|&id| (name("a"), id)).collect();
    Changes { done, append: vec![owed], ..Changes::default() }
}

fn size(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

/// Nothing was removed before the write that records it, and there was never room for that write.
#[test]
fn a_disk_that_the_queue_has_filled_is_free_again_when_everything_is_done() {
    for max_bytes in [1 << 20, ONE_SEGMENT] {
        let dir = tempfile::tempdir().unwrap();
        let mut log = with_disk(dir.path(), max_bytes);
        let (ids, owed) = fill(&mut log);
        let last = owed.id;
        assert!(log.commit(&all_done(&[], owed.clone())).is_err(), "nothing is done");
        assert_eq!(log.commit(&all_done(&ids, owed)).unwrap(), [0; 0]);
        assert!(size(dir.path()) < DISK / 2, "{}", size(dir.path()));
        let next = log.commit(&large(last + 1));
        assert_eq!(next.unwrap(), [0; 0]);
        faults::set_disk(None);
        let (_, restored) = open_at(dir.path(), max_bytes);
        assert_eq!((restored.damaged, restored.lost().len()), (0, 0));
        assert!(restored.batches.into_keys().eq(last..=last + 1));
    }
}

/// What had waited for the disk was more than a segment, so the first commit had no word of what is
/// done.
#[test]
fn a_disk_that_the_queue_has_filled_is_free_again_when_much_has_waited_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = with_disk(dir.path(), MAX_BYTES);
    log.max_bytes = 4 << 20;
    let (ids, owed) = fill(&mut log);
    let last = owed.id + 20;
    let mut changes = all_done(&ids, owed.clone());
    changes.append.extend((owed.id + 1..=last).flat_map(|id| large(id).append));
    let pieces = changes.pieces(MAX_BYTES);
    assert!(pieces.len() > 1);
    for piece in pieces {
        assert_eq!(log.commit(&piece).unwrap(), [0; 0]);
    }
    faults::set_disk(None);
    let (_, restored) = open_at(dir.path(), 4 << 20);
    assert!(restored.batches.into_keys().eq(owed.id..=last));
}

#[test]
fn what_is_done_in_the_middle_waits_for_what_is_due_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = with_disk(dir.path(), 1 << 20);
    let (ids, owed) = fill(&mut log);
    assert!(log.commit(&all_done(&ids[1..], owed.clone())).is_err());
    for id in &ids {
        assert!(log.load(*id).is_ok(), "{id}");
    }
    log.commit(&all_done(&ids, owed)).unwrap();
    faults::set_disk(None);
}

/// Finished jobs would count from 0 again, or twice.
#[test]
fn the_newest_state_and_what_is_evicted_are_copied_before_their_segment_goes() {
    for max_bytes in [1 << 20, ONE_SEGMENT] {
        let dir = tempfile::tempdir().unwrap();
        let mut log = with_disk(dir.path(), max_bytes);
        let counted = unproved(&[("a", 1000, 7), ("a", 1001, 8)]);
        log.commit(&Changes { counted, ..state("counts", &[5; 9000]) }).unwrap();
        let (ids, owed) = fill(&mut log);
        // It proves one of the two.
        let mut changes = all_done(&ids, owed);
        changes.done.push((name("a"), 1001));
        log.commit(&changes).unwrap();
        assert!(size(dir.path()) < DISK / 2, "{}", size(dir.path()));
        assert!(log.has_reserve, "there is room for it again");
        faults::set_disk(None);
        let (_, restored) = open_at(dir.path(), max_bytes);
        assert_eq!(*restored.states["counts"], [5; 9000]);
        assert_eq!(restored.unproved(), [(name("a"), 7)].into());
        assert_eq!(restored.batches.len(), 1);
    }
}

/// After the reserve had been used for a copy of a state, batches filled the disk before there was a
/// new reserve. The copy could not leave its segment, so nothing that was done left the disk.
#[test]
fn what_the_reserve_was_used_for_leaves_a_reserve_before_anything_else_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = with_disk(dir.path(), ONE_SEGMENT);
    log.commit(&state("counts", &[5; 7900])).unwrap();
    log.commit(&large(1000)).unwrap();
    drop(log);
    // What is written after a start is in another segment.
    let mut log = open_at(dir.path(), ONE_SEGMENT).0;
    let (mut ids, mut owed) = fill(&mut log);
    // The first segment is done, and the state in it is copied. As much has waited as there is room
    // for then.
    for waiting in (1..20).rev() {
        let more: Vec<u64> = (owed.id..owed.id + waiting).collect();
        let append = more.iter().flat_map(|id| large(*id).append).collect();
        let changes = Changes { append, ..all_done(&[1000], owed.clone()) };
        if log.commit(&changes).is_ok() {
            ids.extend(more);
            owed = large(owed.id + waiting).append.remove(0);
            break;
        }
    }
    log.commit(&all_done(&ids, owed)).unwrap();
    assert!(size(dir.path()) < DISK / 2, "{}", size(dir.path()));
    faults::set_disk(None);
    let (_, restored) = open_at(dir.path(), ONE_SEGMENT);
    assert_eq!(*restored.states["counts"], [5; 7900]);
    assert_eq!(restored.batches.len(), 1);
}

/// It was forgotten with its segment, which stayed: nothing said that it is done, and the segment
/// never left.
#[test]
fn what_is_done_in_a_segment_that_cannot_be_removed_is_recorded_later() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).0.commit(&append([1])).unwrap();
    let (mut log, _) = open(dir.path());
    log.commit(&append([2])).unwrap();
    let first = segments(dir.path()).remove(0);
    let both = |id| [(name("a"), id), (name("b"), id)];
    let changes = Changes { done: both(1).into(), ..append([3]) };
    faults::set_room(Some(0));
    faults::set_keeps_files(true);
    let refused = log.commit(&changes);
    faults::set_room(None);
    assert!(refused.unwrap_err().is_full());
    // The disk has room again before it removes files.
    log.commit(&changes).unwrap();
    faults::set_keeps_files(false);
    let there = copy(dir.path());
    assert!(open(there.path()).1.batches.into_keys().eq([2, 3]));
    for id in 3..7 {
        let changes = Changes { done: both(id - 1).into(), ..append([id + 1]) };
        log.commit(&changes).unwrap();
    }
    assert!(!first.exists());
}

/// After a kill before the removal they were due again, and what was delivered then was counted as
/// lost on a full disk.
#[test]
fn what_max_bytes_has_counted_is_not_due_again_where_its_segment_stays() {
    let (dir, max_bytes) = (tempfile::tempdir().unwrap(), 256 << 10);
    let mut log = open_at(dir.path(), max_bytes).0;
    faults::set_keeps_files(true);
    let dropped =
        (1..).find_map(|id| Some(log.commit(&large(id)).unwrap()).filter(|its| !its.is_empty()));
    faults::set_keeps_files(false);
    let dropped = dropped.unwrap();
    let (_, restored) = open_at(dir.path(), max_bytes);
    assert!(restored.counted.iter().map(|its| its.id).eq(dropped.iter().copied()));
    assert!(dropped.iter().all(|id| !restored.batches.contains_key(id)));
}

/// Until the disk recovered, each attempt left files, which no record names.
#[test]
fn states_that_cannot_be_recorded_leave_no_files() {
    let files = |dir: &Path| folder::states(dir).unwrap().len();
    for (syncs, is_new) in [(0, true), (1, true), (2, true), (3, true), (2, false)] {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = open(dir.path());
        log.commit(&state("counts", &[0])).unwrap();
        if is_new {
            log = open(dir.path()).0;
        }
        for round in 0..20 {
            faults::set_syncs(Some(syncs));
            log.commit(&state("counts", &[round])).unwrap_err();
        }
        faults::set_syncs(None);
        assert!(files(dir.path()) <= 2, "{syncs}: {}", files(dir.path()));
        log.commit(&state("counts", &[21])).unwrap();
        assert_eq!(*open(dir.path()).1.states["counts"], [21]);
    }
    // Nor does the segment's name, which is in the way.
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = open(dir.path());
    fs::create_dir(folder::segment(dir.path(), 1)).unwrap();
    (0..20).for_each(|round| drop(log.commit(&state("counts", &[round])).unwrap_err()));
    assert_eq!(files(dir.path()), 0);
}

/// Each commit copied them into a new segment, since they filled it.
#[test]
fn states_that_are_larger_than_a_segment_are_not_written_at_each_commit() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open_at(dir.path(), ONE_SEGMENT).0;
    log.commit(&state("counts", &[5; 1 << 20])).unwrap();
    let files = |_| segments(dir.path()).pop().unwrap();
    let written = (1..=400).map(|id| {
        log.commit(&all_done(&[id - 1], large(id).append.remove(0))).unwrap();
        files(id)
    });
    let files: BTreeSet<PathBuf> = written.collect();
    // 400 batches of 8 kB are 6 segments of 512 kB.
    assert!((5..9).contains(&files.len()), "{}", files.len());
    assert!(size(dir.path()) < 6 << 20, "{}", size(dir.path()));
}

/// Batches, states and evictions at random on a disk that is too small, with a kill at any write,
/// sync or removal.
#[test]
fn a_kill_at_any_point_on_a_full_disk_loses_nothing_that_was_committed() {
    faults::set_disk(None);
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let (mut next, mut round) = (1, 0_u32);
        // What is committed and not done; what may or may not be there; what was committed with
        // each state.
        let (mut due, mut unsure) = (BTreeSet::new(), BTreeSet::new());
        let (mut counts, mut newer): (u32, Vec<u32>) = (0, Vec::new());
        // What is too old, and in no tick that is on the disk: surely, and perhaps.
        let (mut old, mut perhaps_old) = (BTreeSet::new(), BTreeSet::new());
        for run in 0..5 {
            faults::set_disk(None);
            let (mut log, restored) = open_at(dir.path(), MAX_BYTES);
            let at = format!("seed {seed}, run {run}");
            let found: BTreeSet<u64> = restored.batches.keys().copied().collect();
            assert!(found.is_superset(&due), "{at}: lost {:?}", due.difference(&found));
            assert!(
                found.iter().all(|id| due.contains(id) || unsure.contains(id)),
                "{at}: {found:?} again"
            );
            let counted: BTreeSet<u64> = restored.counted.iter().map(|its| its.id).collect();
            let all = &counted | &found;
            assert!(old.is_subset(&all), "{at}: {old:?} is not counted: {all:?}");
            assert!(counted.is_subset(&perhaps_old), "{at}: {counted:?}, not {perhaps_old:?}");
            assert!(counted.is_disjoint(&found), "{at}: {counted:?} are due");
            (old, perhaps_old) = (counted.clone(), counted);
            let mut told = restored.told(Changes::default()).told;
            assert_eq!((restored.damaged, restored.lost().len()), (0, 0), "{at}");
            let counted = restored.states.get("counts");
            let counted =
                counted.map_or(0, |bytes| u32::from_le_bytes(bytes[..4].try_into().unwrap()));
            assert!(
                counted == counts || newer.contains(&counted),
                "{at}: {counted}, not {counts} or {newer:?}"
            );
            (due, counts) = (found, counted);
            (unsure, newer) = (BTreeSet::new(), Vec::new());
            faults::set_disk(Some(random.u64(100 << 10..250 << 10)));
            faults::set_steps(Some(random.u32(1..200)));
            let mut owed = Changes::default();
            while !faults::is_killed() {
                let mut changes = Changes::default();
                for _ in 0..random.u32(0..4) {
                    changes.append.extend(large(next).append);
                    next += 1;
                }
                if random.u32(0..5) == 0 {
                    round += 1;
                    let bytes =
                        [round.to_le_bytes().as_slice(), &vec![1; random.usize(0..9000)]].concat();
                    changes.states.insert("counts".to_owned(), bytes.into());
                    newer.push(round);
                }
                let all: Vec<u64> =
                    due.iter().chain(owed.append.iter().map(|kept| &kept.id)).copied().collect();
                let share = random.u32(0..4);
                let done = all.into_iter().filter(|_| random.u32(0..4) < share);
                changes.done = done.map(|id| (name("a"), id)).collect();
                unsure.extend(changes.append.iter().map(|kept| kept.id));
                changes.done.iter().for_each(|(_, id)| {
                    due.remove(id);
                    unsure.insert(*id);
                });
                if random.u32(0..3) == 0
                    && let Some(id) = due.pop_first()
                {
                    changes.forget.push(id);
                    let (to, points, why) = (name("a"), 5, Why::Age);
                    changes.counted.push(Counted { to, id, points, why });
                    unsure.insert(id);
                    old.insert(id);
                    perhaps_old.insert(id);
                }
                // What was counted before is in a tick now.
                if !changes.append.is_empty() {
                    old.retain(|id| !told.contains(&(name("a"), *id)));
                    changes.told = std::mem::take(&mut told);
                }
                told.extend(changes.counted.iter().map(|its| (name("a"), its.id)));
                owed = owed.and(changes);
                let state = owed.states.get("counts").cloned();
                match log.commit(&owed) {
                    Ok(dropped) => {
                        due.extend(owed.append.iter().map(|kept| kept.id));
                        due.retain(|id| !dropped.contains(id));
                        perhaps_old.retain(|id| !owed.told.contains(&(name("a"), *id)));
                        old.extend(&dropped);
                        perhaps_old.extend(&dropped);
                        told.extend(dropped.iter().map(|id| (name("a"), *id)));
                        unsure.extend(dropped);
                        owed = Changes::default();
                        if let Some(bytes) = state {
                            counts = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                            newer.clear();
                        }
                    }
                    Err(_) if random.u32(0..8) == 0 => {
                        faults::set_disk(Some(random.u64(100 << 10..400 << 10)))
                    }
                    Err(_) => {}
                }
            }
            faults::set_steps(None);
        }
    }
    faults::set_disk(None);
}
