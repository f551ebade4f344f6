//! The log's tests: every bit flipped, every byte cut, every write and sync refused.

mod crashes;
mod enumeration;
pub(super) mod faults;
mod room;
mod starts;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::log::Log;
use super::*;

const POINTS: u64 = 10;

impl Store {
    /// A store whose thread answers nothing, as on a disk that hangs. The thread exists while the
    /// second value is kept.
    pub(crate) fn hung() -> (Self, impl Sized) {
        let (commands, unheard) = sync_channel(MOST_UNANSWERED);
        (Self { commands }, unheard)
    }

    /// A store whose disk returns batches as `load` says.
    pub(crate) fn loading(
        load: impl Fn(u64) -> Result<Arc<[Frame]>, StoreError> + Send + 'static,
    ) -> Self {
        let (commands, received) = sync_channel(MOST_UNANSWERED);
        std::thread::spawn(move || {
            for command in received {
                if let StoreCommand::Load { id, reply } = command {
                    let _ = reply.send(load(id));
                }
            }
        });
        Self { commands }
    }
}

impl Restored {
    fn points(&self, is_it: impl Fn(Why) -> bool) -> BTreeMap<Arc<str>, u64> {
        let mut points = BTreeMap::new();
        for its in self.counted.iter().filter(|its| is_it(its.why)) {
            *points.entry(Arc::clone(&its.to)).or_default() += its.points;
        }
        points
    }

    /// Points of each destination that are damaged or missing.
    fn lost(&self) -> BTreeMap<Arc<str>, u64> {
        self.points(|why| why == Why::Damaged)
    }

    fn unproved(&self) -> BTreeMap<Arc<str>, u64> {
        self.points(|why| why == Why::Unproved)
    }

    /// These changes, with a tick that has what this start has counted.
    fn told(&self, changes: Changes) -> Changes {
        let told = self.counted.iter().map(|its| (Arc::clone(&its.to), its.id)).collect();
        Changes { told, ..changes }
    }
}

fn name(name: &str) -> Arc<str> {
    Arc::from(name)
}

fn open_at(dir: &Path, max_bytes: u64) -> (Log, Restored) {
    Log::open(dir, max_bytes, false).unwrap()
}

fn open(dir: &Path) -> (Log, Restored) {
    open_at(dir, 64 << 20)
}

fn frame(id: u64, part: u8) -> Frame {
    let body = [id.to_le_bytes().as_slice(), &[part; 4]].concat();
    Frame { points: 5, body }
}

fn kept(id: u64, due: &[&str]) -> AppendedBatch {
    let due = due.iter().copied().map(name).collect();
    AppendedBatch {
        id,
        timestamp: id.cast_signed(),
        pushed: Some(Moment::default()),
        frames: [frame(id, 0), frame(id, 1)].into(),
        due,
        has_states: false,
    }
}

/// (destination, batch, points) that cannot be proved to be read.
fn unproved(entries: &[(&str, u64, u64)]) -> Vec<Counted> {
    let counted = entries.iter().map(|&(to, id, points)| {
        let to = name(to);
        Counted { to, id, points, why: Why::Unproved }
    });
    counted.collect()
}

fn append(ids: impl IntoIterator<Item = u64>) -> Changes {
    Changes {
        append: ids.into_iter().map(|id| kept(id, &["a", "b"])).collect(),
        ..Changes::default()
    }
}

fn done(entries: &[(&str, u64)]) -> Changes {
    Changes { done: entries.iter().map(|&(to, id)| (name(to), id)).collect(), ..Changes::default() }
}

fn state(name: &str, bytes: &[u8]) -> Changes {
    Changes { states: [(name.to_owned(), Arc::from(bytes))].into(), ..Changes::default() }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    folder::segments(dir).unwrap().into_iter().map(|number| folder::segment(dir, number)).collect()
}

/// The destinations of each due batch, with the points that can be read. What is read must be what
/// was written.
fn due(log: &mut Log, restored: &Restored) -> BTreeMap<(String, u64), u64> {
    let mut due = BTreeMap::new();
    for (to, id) in &restored.due {
        let frames = log.load(*id).unwrap();
        assert!(
            frames.iter().all(|found| (0..2).any(|part| *found == frame(*id, part))),
            "a wrong value"
        );
        let points = carbon_wire::points(&frames);
        assert_eq!(
            (points, id.cast_signed()),
            (restored.batches[id].points, restored.batches[id].timestamp)
        );
        due.insert((to.to_string(), *id), points);
    }
    due
}

/// Three segments, each with batches for both destinations and for one, dones and states.
fn three_segments(dir: &Path) {
    for run in 0..3 {
        let (mut log, restored) = open(dir);
        let first = run * 10 + 1;
        log.commit(&restored.told(append([first]))).unwrap();
        let mut changes =
            Changes { append: vec![kept(first + 1, &["b"])], ..state("seen", &[7; 6]) };
        changes.counted = unproved(&[("a", first + 5, 100 + run)]);
        log.commit(&changes).unwrap();
        log.commit(&append([first + 2])).unwrap();
        log.commit(&done(&[("a", first), ("a", first + 2), ("b", first + 2)])).unwrap();
    }
    assert_eq!(segments(dir).len(), 3);
}

/// The folder with three segments, which batches are due to whom, and its files.
fn undamaged() -> (tempfile::TempDir, BTreeMap<(String, u64), u64>, Vec<PathBuf>) {
    let whole = tempfile::tempdir().unwrap();
    three_segments(whole.path());
    let (mut log, restored) = open(whole.path());
    let (all, files) = (due(&mut log, &restored), segments(whole.path()));
    (whole, all, files)
}

fn copy(from: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in segments(from) {
        fs::copy(&file, dir.path().join(file.file_name().unwrap())).unwrap();
    }
    dir
}

fn missing(
    all: &BTreeMap<(String, u64), u64>,
    found: &BTreeMap<(String, u64), u64>,
    to: &str,
) -> u64 {
    let its = all.iter().filter(|((name, _), _)| name == to);
    its.map(|(key, points)| points - found.get(key).copied().unwrap_or(0)).sum()
}

#[test]
fn what_was_committed_is_there_again_and_what_is_done_is_not() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let (mut log, restored) = open(dir.path());
    let found = due(&mut log, &restored);
    let expected = [0, 10, 20].into_iter().flat_map(|n| [("b", n + 1), ("b", n + 2)]);
    assert!(found.keys().map(|(to, id)| (to.as_str(), *id)).eq(expected), "{found:?}");
    assert!(found.values().all(|&points| points == POINTS));
    assert_eq!((restored.damaged, restored.lost().len()), (0, 0));
    // Each run has counted the losses of the one before.
    assert_eq!(restored.unproved(), [(name("a"), 102)].into());
    assert_eq!(*restored.states["seen"], [7; 6]);
    log.commit(&restored.told(append([50]))).unwrap();
    assert!(open(dir.path()).1.unproved().is_empty());
}

#[test]
fn a_bit_flipped_in_any_byte_costs_its_frame_or_its_record_and_is_counted_to_the_point() {
    // No sync fails in this test.
    faults::set_syncs(Some(u32::MAX));
    let (whole, all, files) = undamaged();
    for (nth, file) in files.iter().enumerate() {
        let bytes = fs::read(file).unwrap();
        let last_record = record::records(&bytes).last().unwrap().unwrap().offset as u64;
        for at in 0..bytes.len() {
            let dir = copy(whole.path());
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(dir.path().join(file.file_name().unwrap()), damaged).unwrap();
            let (mut log, restored) = open(dir.path());
            let found = due(&mut log, &restored);
            let is_last = nth + 1 == files.len() && at as u64 >= last_record;
            for to in ["a", "b"] {
                let (missing, counted) =
                    (missing(&all, &found, to), restored.lost().get(to).copied().unwrap_or(0));
                assert!(missing <= POINTS, "{at} of {nth}: {missing}");
                assert!(
                    missing == counted || is_last && counted == 0,
                    "{at} of {nth}, {to}: {missing}, {counted}"
                );
            }
            // At most sent again to the destination it was due to, never to another.
            let again = found.keys().filter(|key| !all.contains_key(*key)).count();
            assert!(
                again <= 3 && !found.contains_key(&("a".to_owned(), nth as u64 * 10 + 2)),
                "{at} of {nth}: {again}"
            );
            // And it is counted once, although the damage stays.
            if !restored.lost().is_empty() {
                log.commit(&restored.told(append([50]))).unwrap();
                assert!(open(dir.path()).1.lost().is_empty(), "{at} of {nth}: twice");
            }
        }
    }
}

#[test]
fn a_cut_at_any_byte_costs_what_follows_it_in_its_segment_and_is_counted_where_another_follows() {
    let (whole, all, files) = undamaged();
    for (nth, file) in files.iter().enumerate() {
        let bytes = fs::read(file).unwrap();
        for at in 0..bytes.len() {
            let dir = copy(whole.path());
            fs::write(dir.path().join(file.file_name().unwrap()), &bytes[..at]).unwrap();
            let (mut log, restored) = open(dir.path());
            let found = due(&mut log, &restored);
            // The batches that end after the cut, with their destinations and how many points are
            // after it.
            let behind: BTreeMap<u64, (Vec<Arc<str>>, u64)> = record::records(&bytes)
                .map(Result::unwrap)
                .filter_map(|record| match record.head.content {
                    record::Content::Group(record::Group { batch: Some(batch), .. }) => {
                        let record::BatchHead { id, due, frames, .. } = batch;
                        let head = record.offset as u64 + u64::from(record.length);
                        let ends = (1..).map(|nth| head + nth * u64::from(frames[0].bytes));
                        let lost =
                            ends.take(2).filter(|&end| head > at as u64 || end > at as u64).count()
                                as u64;
                        (lost > 0).then_some((id, (due, lost * 5)))
                    }
                    _ => None,
                })
                .collect();
            for to in ["a", "b"] {
                let (missing, counted) =
                    (missing(&all, &found, to), restored.lost().get(to).copied().unwrap_or(0));
                // Nobody knows whether the batches that were cut off were done.
                let its = behind.values().filter(|(due, _)| due.contains(&name(to)));
                let its: u64 = its.map(|(_, points)| points).sum();
                let expected = if nth + 1 == files.len() { 0 } else { its };
                assert!(
                    counted == expected && (counted >= missing || expected == 0),
                    "{at} of {nth}, {to}: {counted}"
                );
            }
            let gone = all.iter().filter(|(key, points)| found.get(*key) != Some(*points));
            assert!(
                gone.clone().all(|((_, id), _)| behind.contains_key(id)),
                "{at} of {nth}: before the cut"
            );
        }
    }
}

#[test]
fn a_disk_that_is_full_at_any_byte_loses_nothing_that_was_there_and_goes_on_when_there_is_room() {
    let (size, second) = {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = open(dir.path());
        log.commit(&append([1])).unwrap();
        let first = log.bytes();
        log.commit(&append([2])).unwrap();
        (first, usize::try_from(log.bytes() - first).unwrap())
    };
    for room in 0..usize::try_from(size).unwrap() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = open(dir.path());
        log.commit(&append([1])).unwrap();
        faults::set_room(Some(room));
        let failed = log.commit(&append([2]));
        let again = log.commit(&append([3]));
        faults::set_room(None);
        assert!(again.is_err() && failed.is_ok() == (room >= second), "{room}");
        let is_there = failed.is_ok();
        assert_goes_on(log, dir.path(), if is_there { &[1, 2] } else { &[1] }, room);
    }
}

/// Asserts that what was committed is there, that a refused batch is in the next commit, and that
/// the next run finds both.
fn assert_goes_on(mut log: Log, dir: &Path, there: &[u64], at: usize) {
    for &id in there {
        assert!(log.load(id).is_ok(), "{at}: {id} is not there");
    }
    log.commit(&append([9])).unwrap();
    log.commit(&append([10])).unwrap();
    log.commit(&done(&[("a", 1), ("b", 1)])).unwrap();
    drop(log);
    let (mut log, restored) = open(dir);
    let ids: BTreeSet<u64> = restored.batches.keys().copied().collect();
    let expected: BTreeSet<u64> =
        there.iter().copied().filter(|&id| id != 1).chain([9, 10]).collect();
    assert_eq!((ids, restored.lost().len()), (expected, 0), "{at}");
    due(&mut log, &restored);
}

#[test]
fn a_sync_that_fails_at_any_step_makes_another_segment_and_nothing_is_written_behind_it() {
    for syncs in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = open(dir.path());
        faults::set_syncs(Some(syncs));
        let mut there = Vec::new();
        for id in 1..=4 {
            let sizes = |files: Vec<PathBuf>| {
                files.into_iter().map(|file| fs::metadata(file).unwrap().len())
            };
            let before: Vec<u64> = sizes(segments(dir.path())).collect();
            if log.commit(&append([id])).is_ok() {
                there.push(id);
            } else if there.is_empty() {
                assert!(segments(dir.path()).is_empty(), "a segment without a record that counts");
            } else if id > syncs.into() {
                // The first batch that fails is written to the segment; after it nothing is.
                assert_eq!(sizes(segments(dir.path())).collect::<Vec<u64>>(), before);
            }
        }
        faults::set_syncs(None);
        // The first commit takes two syncs.
        assert_eq!(there.len(), (syncs as usize).saturating_sub(1).min(4), "{syncs}");
        if there.is_empty() {
            log.commit(&append([1])).unwrap();
            there.push(1);
        }
        assert_goes_on(log, dir.path(), &there, syncs as usize);
    }
}

/// The same file was tried for ever, so nothing was durable again until a restart.
#[test]
fn a_file_that_may_not_grow_makes_another_segment() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = open(dir.path());
    log.commit(&append([1])).unwrap();
    faults::set_file(Some(log.bytes() + 40));
    assert!(log.commit(&append([2])).is_err());
    log.commit(&append([2])).unwrap();
    faults::set_file(None);
    assert_eq!(segments(dir.path()).len(), 2);
    let (_, restored) = open(dir.path());
    assert!(restored.batches.into_keys().eq([1, 2]) && restored.damaged == 0);
}

#[test]
fn a_batch_whose_commit_failed_is_neither_sent_twice_nor_lost_when_it_goes_with_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = open(dir.path());
    log.commit(&append([1])).unwrap();
    faults::set_syncs(Some(0));
    assert!(log.commit(&append([2, 3])).is_err());
    faults::set_syncs(None);
    // 2 was removed while in memory, 3 is still due to b.
    log.commit(&Changes { append: vec![kept(3, &["b"]), kept(4, &["a"])], ..Changes::default() })
        .unwrap();
    let (mut log, restored) = open(dir.path());
    let found: Vec<(String, u64)> = due(&mut log, &restored).into_keys().collect();
    let expected = [("a", 1), ("a", 4), ("b", 1), ("b", 3)].map(|(to, id)| (to.to_owned(), id));
    assert_eq!(found, expected);
    assert!(restored.lost().is_empty());
}

/// A batch of some 8 KB.
fn large(id: u64) -> Changes {
    let frames = [Frame { points: 5, body: vec![7; 8000] }].into();
    Changes { append: vec![AppendedBatch { frames, ..kept(id, &["a"]) }], ..Changes::default() }
}

#[test]
fn max_bytes_takes_the_oldest_segment_and_its_batches_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let max_bytes = 256 << 10;
    let (mut log, _) = open_at(dir.path(), max_bytes);
    let mut gone = Vec::new();
    for id in 1..=200 {
        gone.extend(log.commit(&large(id)).unwrap());
        let bytes: u64 =
            segments(dir.path()).into_iter().map(|file| fs::metadata(file).unwrap().len()).sum();
        assert!(bytes <= max_bytes && bytes == log.bytes(), "{bytes} after {id}");
    }
    assert!(gone.iter().copied().eq(1..=gone.len() as u64) && gone.len() > 150, "{gone:?}");
    let (_, restored) = open_at(dir.path(), max_bytes);
    assert!(restored.lost().is_empty(), "evicted, not damaged");
    assert!(restored.batches.into_keys().eq(gone.len() as u64 + 1..=200));
}

/// The segments were as large as the lower limit, and all of them went.
#[test]
fn a_lower_max_bytes_keeps_the_newest_that_fit() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = open_at(dir.path(), 256 << 20);
    for id in 1..=1000 {
        assert_eq!(log.commit(&large(id)).unwrap(), [0; 0]);
    }
    let (before, max_bytes) = (log.bytes(), 4 << 20);
    assert!(before > 15 << 19, "{before}");
    let gone = log.commit(&Changes { max_bytes: Some(max_bytes), ..large(1001) }).unwrap();
    let bytes: u64 =
        segments(dir.path()).into_iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!((max_bytes * 3 / 4..=max_bytes).contains(&bytes), "{bytes}");
    let (_, restored) = open_at(dir.path(), max_bytes);
    assert!(restored.batches.into_keys().eq(gone.len() as u64 + 1..=1001));
}

#[tokio::test]
async fn a_last_commit_of_many_segments_evicts_no_more_than_it_has_to() {
    let (dir, max_bytes) = (tempfile::tempdir().unwrap(), 4 << 20);
    let batches = |ids: std::ops::RangeInclusive<u64>| {
        let frames: Arc<[Frame]> = [Frame { points: 5, body: vec![7; 300 << 10] }].into();
        let append = ids
            .map(|id| AppendedBatch { frames: Arc::clone(&frames), ..kept(id, &["a"]) })
            .collect();
        Changes { append, ..state("seen", b"last") }
    };
    let start = || Store::start(dir.path().to_owned(), max_bytes).0;
    assert_eq!(start().close(batches(1..=2)).await, Some(vec![]));
    assert_eq!(start().close(batches(3..=10)).await, Some(vec![]));
    let (log, restored) = open_at(dir.path(), max_bytes);
    assert!(restored.batches.into_keys().eq(1..=10) && log.bytes() < max_bytes);
    assert_eq!(*restored.states["seen"], *b"last");
    assert!(log.segments.values().all(|segment| segment.bytes < 640 << 10), "{:?}", log.segments);
}

#[test]
fn states_are_in_the_last_commit_with_the_batches_that_belong_to_them() {
    let pieces = Changes { append: append([1, 2]).append, ..state("sent", b"2") }.pieces(64 << 20);
    let each: Vec<_> =
        pieces.iter().map(|piece| (piece.append.len(), piece.states.len())).collect();
    assert_eq!(each, [(2, 0), (0, 1)]);
    let mut changes = Changes { append: append([1, 2]).append, ..state("sent", b"2") };
    changes.append[1].has_states = true;
    let pieces = changes.pieces(64 << 20);
    let each: Vec<_> =
        pieces.iter().map(|piece| (piece.append.len(), piece.states.len())).collect();
    assert_eq!(each, [(1, 0), (1, 1)]);
    assert_eq!(append([1]).pieces(64 << 20).len(), 1);
    assert_eq!(state("sent", b"2").pieces(64 << 20).len(), 1);
}

#[test]
fn the_newest_state_of_each_name_and_what_is_evicted_outlive_their_segments() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = open_at(dir.path(), 256 << 10);
    log.commit(&state("old", b"first")).unwrap();
    log.commit(&Changes {
        counted: unproved(&[("a", 1000, 7), ("a", 1001, 8)]),
        ..state("old", b"second")
    })
    .unwrap();
    for id in 1..=100_u64 {
        let states = (id == 50)
            .then(|| ("new".to_owned(), Arc::from(id.to_le_bytes().as_slice())))
            .into_iter()
            .collect();
        // All batches are done at once: only the states are left.
        log.commit(&Changes { states, ..large(id) }).unwrap();
        log.commit(&done(&[("a", id)])).unwrap();
    }
    log.commit(&done(&[("a", 1001)])).unwrap();
    assert!(segments(dir.path()).len() <= 2, "what is done with stays");
    let (_, restored) = open_at(dir.path(), 256 << 10);
    assert_eq!(*restored.states["old"], *b"second");
    assert_eq!(*restored.states["new"], 50_u64.to_le_bytes());
    assert_eq!(restored.unproved(), [(name("a"), 7)].into(), "a later done cancels it");
}

/// A commit that is cut off after each byte, of each kind of record with a body.
#[test]
fn of_a_power_cut_in_the_middle_of_a_commit_nothing_is_told() {
    for cut in [append([2]), state("counts", &[5; 40])] {
        let whole = tempfile::tempdir().unwrap();
        let (mut log, _) = open(whole.path());
        log.commit(&append([1])).unwrap();
        let before = log.bytes();
        log.commit(&cut).unwrap();
        let file = segments(whole.path()).pop().unwrap();
        let bytes = fs::read(&file).unwrap();
        for end in usize::try_from(before).unwrap()..bytes.len() {
            fs::write(&file, &bytes[..end]).unwrap();
            let dir = copy(whole.path());
            for run in 0..3 {
                let (mut log, restored) = open(dir.path());
                assert_eq!((restored.damaged, restored.lost().len()), (0, 0), "{end}, run {run}");
                assert!(
                    restored.batches.keys().copied().eq([1].into_iter().chain(10..10 + run)),
                    "{end}, run {run}"
                );
                log.commit(&append([10 + run])).unwrap();
            }
        }
    }
}

/// After a power cut any page of the last commit may be missing. The start removed the segment, and
/// no commit succeeded until the next one.
#[test]
fn a_batch_that_is_damaged_before_a_torn_one_keeps_its_frames_and_commits_go_on() {
    let whole = tempfile::tempdir().unwrap();
    let (mut log, _) = open(whole.path());
    log.commit(&append([1])).unwrap();
    let (mut log, _) = open(whole.path());
    log.commit(&append([2, 3])).unwrap();
    let file = segments(whole.path()).pop().unwrap();
    let bytes = fs::read(&file).unwrap();
    let records: Vec<_> = record::records(&bytes).map(Result::unwrap).collect();
    let [_, first, last, ..] = records.as_slice() else { panic!("{records:?}") };
    for harm in first.offset + first.length as usize..last.offset {
        for end in [last.offset + last.length as usize, bytes.len()] {
            let dir = copy(whole.path());
            let mut harmed = bytes[..end].to_vec();
            harmed[harm] ^= 1;
            if let Some(byte) = harmed.get_mut(last.offset + last.length as usize) {
                *byte ^= 1;
            }
            fs::write(dir.path().join(file.file_name().unwrap()), harmed).unwrap();
            let (mut log, restored) = open(dir.path());
            let found: BTreeSet<u64> = restored.batches.into_keys().collect();
            log.commit(&append([4])).unwrap();
            let again: BTreeSet<u64> = open(dir.path()).1.batches.into_keys().collect();
            assert_eq!(again, &found | &[4].into(), "{harm}, {end}");
        }
    }
}

/// What the first cut has left was settled by the commit that the second one cut off.
#[test]
fn of_power_cuts_in_the_middle_of_commits_of_several_runs_nothing_is_told() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut there = BTreeSet::new();
        for run in 1..6 {
            let at = format!("seed {seed}, run {run}");
            let (mut log, restored) = open(dir.path());
            assert_eq!((restored.damaged, restored.lost().len()), (0, 0), "{at}");
            let found: BTreeSet<u64> = restored.batches.into_keys().collect();
            assert!(found.is_superset(&there), "{at}: {found:?} of {there:?}");
            there = found;
            if random.bool() {
                log.commit(&append([100 + run])).unwrap();
                there.insert(100 + run);
            }
            let files = segments(dir.path());
            let size = |file: &Path| fs::metadata(file).map_or(0, |metadata| metadata.len());
            let before = files.last().map_or(0, |file| size(file));
            let cut =
                Changes { states: state("counts", &[5; 40]).states, ..append([run, 10 + run]) };
            log.commit(&cut).unwrap();
            let file = segments(dir.path()).pop().unwrap();
            let before = if files.contains(&file) { before } else { 0 };
            let bytes = fs::read(&file).unwrap();
            let end = random.usize(usize::try_from(before).unwrap()..bytes.len());
            fs::write(&file, &bytes[..end]).unwrap();
        }
    }
}

#[test]
fn a_new_segment_without_a_record_is_no_gap_in_any_run() {
    let whole = tempfile::tempdir().unwrap();
    let (mut log, _) = open(whole.path());
    log.commit(&append([1])).unwrap();
    let (mut log, _) = open(whole.path());
    log.commit(&append([2])).unwrap();
    let file = segments(whole.path()).pop().unwrap();
    let bytes = fs::read(&file).unwrap();
    let second = record::records(&bytes).nth(1).unwrap().unwrap();
    // No record of the second segment is whole.
    for end in 0..second.offset + second.length as usize {
        fs::write(&file, &bytes[..end]).unwrap();
        let dir = copy(whole.path());
        for run in 0..3 {
            let (mut log, restored) = open(dir.path());
            assert_eq!((restored.damaged, restored.lost().len()), (0, 0), "{end}, run {run}");
            let ids = [1].into_iter().chain(10..10 + run);
            assert!(restored.batches.into_keys().eq(ids), "{end}, run {run}");
            log.commit(&append([10 + run])).unwrap();
        }
    }
    // A run that had nothing to store, and recorded that.
    for _ in 0..3 {
        let (mut log, restored) = open(whole.path());
        assert_eq!((restored.damaged, restored.lost().len()), (0, 0));
        log.commit(&append([])).unwrap();
    }
}

#[test]
fn a_failed_segment_that_stays_is_void_and_costs_nothing_of_the_one_before() {
    let size = {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = open(dir.path());
        log.commit(&append([2])).unwrap();
        usize::try_from(log.bytes()).unwrap()
    };
    // Refused at any byte, or by the sync after the last one.
    for room in 0..=size + 200 {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).0.commit(&append([1])).unwrap();
        let (mut log, _) = open(dir.path());
        faults::set_keeps_files(true);
        faults::set_room(Some(room));
        faults::set_syncs(Some(0));
        assert!(log.commit(&append([2])).is_err());
        faults::set_keeps_files(false);
        faults::set_room(None);
        faults::set_syncs(None);
        log.commit(&Changes { append: vec![kept(3, &["a", "b"])], ..state("seen", b"two") })
            .unwrap();
        assert_eq!(segments(dir.path()).len(), 3);
        for run in 0..2 {
            let (_, restored) = open(dir.path());
            assert_eq!((restored.damaged, restored.lost().len()), (0, 0), "{room}, run {run}");
            assert!(restored.batches.into_keys().eq([1, 3]), "{room}, run {run}");
        }
    }
}

/// CLOCK_BOOTTIME begins at 0 after a reboot, so by that clock nothing old would ever be too old.
/// The shipped unit hides the boot id.
#[test]
fn without_a_boot_id_every_run_is_another_boot() {
    let dir = tempfile::tempdir().unwrap();
    let pushed = || {
        let (mut log, restored) = open(dir.path());
        log.commit(&append([1])).unwrap();
        restored.batches.get(&1).map(|summary| summary.pushed)
    };
    assert_eq!((pushed(), pushed()), (None, Some(Some(Moment::default()))));
    faults::set_without_boot(true);
    assert_eq!((pushed(), pushed()), (Some(None), Some(None)));
    faults::set_without_boot(false);
}

#[tokio::test]
async fn another_format_is_refused_and_left_alone() {
    for version in [record::VERSION - 1, record::VERSION + 1] {
        refused(version).await;
    }
}

async fn refused(other: u8) {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let file = &segments(dir.path())[1];
    let mut bytes = fs::read(file).unwrap();
    let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
    bytes[12] = other;
    let sum = crc32fast::hash(&bytes[8..length]);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    fs::write(file, &bytes).unwrap();
    // Nor is the torn end of another cut off.
    let newest = segments(dir.path()).pop().unwrap();
    let torn = fs::read(&newest).unwrap();
    let torn = &torn[..torn.len() - 1];
    fs::write(&newest, torn).unwrap();
    let error = Log::open(dir.path(), 64 << 20, true).unwrap_err();
    assert!(
        matches!(error, StoreError::OtherVersion { version, .. } if version == other),
        "{error}"
    );
    assert!(segments(dir.path()).len() == 3 && fs::read(file).unwrap() == bytes);
    assert_eq!(fs::read(newest).unwrap(), torn);
    // Nor is it read again and again: the last commit would be the occasion.
    let (store, _lock, mut events) = Store::start(dir.path().to_owned(), 64 << 20);
    assert_eq!(store.close(append([1])).await, None);
    assert!(matches!(
        events.recv().await,
        Some(Event::Failed { error: StoreError::OtherVersion { .. }, .. })
    ));
    assert!(matches!(events.recv().await, Some(Event::Failed { .. })));
}

#[test]
fn a_destination_that_is_gone_keeps_its_ticks() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = open(dir.path());
    log.commit(&Changes { append: vec![kept(1, &["a", "b"])], ..Changes::default() }).unwrap();
    let (mut log, restored) = open(dir.path());
    assert_eq!(restored.due, [(name("a"), 1), (name("b"), 1)]);
    log.commit(&done(&[("a", 1)])).unwrap();
    let (_, restored) = open(dir.path());
    assert_eq!(restored.due, [(name("b"), 1)], "it is configured again");
}

#[test]
fn a_folder_is_one_processs() {
    let dir = tempfile::tempdir().unwrap();
    let lock = folder::lock(dir.path()).unwrap();
    let error = folder::lock(dir.path()).unwrap_err();
    let pid = std::process::id();
    assert!(matches!(&error, StoreError::Locked { pid: Some(its), .. } if *its == pid), "{error}");
    assert!(error.to_string().contains(&format!("process {pid} uses this directory")), "{error}");
    drop(lock);
    folder::lock(dir.path()).unwrap();
}
