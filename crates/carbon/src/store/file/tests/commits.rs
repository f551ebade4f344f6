//! Commits that the file has lost: the tally tells which, and tells of none that were never made.

use super::*;

/// A file whose log has three commits beyond those of its making, as after a SIGKILL.
fn killed() -> tempfile::TempDir {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut file, _) = open(dir.path(), MANY);
    for id in 1..=3 {
        file.apply(&append(id, 3000)).unwrap();
    }
    for entry in fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

/// Flips a bit of the first page of the commit that is the `back`-th from the end.
fn flip_commit(dir: &Path, back: usize) {
    let path = log_of(&dir.join(NAME));
    let commits = log::commits(&path);
    let first_page = 32 + commits[commits.len() - 1 - back] * (24 + 4096) + 24;
    let mut bytes = fs::read(&path).unwrap();
    bytes[first_page] ^= 1;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn a_commit_that_a_power_cut_cut_short_is_no_damage_and_more_than_one_is() {
    let dir = killed();
    flip_commit(dir.path(), 1);
    untallied(dir.path(), 1);
    let (_, restored) = open(dir.path(), MANY);
    assert_eq!(restored.batches.into_keys().collect::<Vec<_>>(), [1, 2]);
    let dir = killed();
    flip_commit(dir.path(), 2);
    let error = File::open(dir.path(), MANY, &names(&["a"])).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

/// What SQLite cannot read of a log it takes for free room.
#[test]
fn a_damaged_log_is_left_as_it_is_for_what_is_taken_over_from_it() {
    for frame in 0..4 {
        let dir = killed();
        let log = log_of(&dir.path().join(NAME));
        let mut bytes = fs::read(&log).unwrap();
        // Its checksum alone: the page is what was written.
        bytes[32 + frame * (24 + 4096) + 16] ^= 1;
        fs::write(&log, &bytes).unwrap();
        let error = File::open(dir.path(), MANY, &names(&["a"])).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(fs::read(&log).unwrap() == bytes, "{frame}: the log has changed");
        let aside = begin(dir.path()).unwrap();
        let (mut file, _) = open(dir.path(), MANY);
        assert!(salvage(&aside, &mut file).unwrap().saved.iter().eq(&[1, 2, 3]), "{frame}");
    }
}

#[test]
fn a_power_cut_at_the_beginning_of_a_lap_of_the_log_is_no_damage() {
    let dir = killed();
    let path = dir.path().join(NAME);
    let old_lap = fs::read(log_of(&path)).unwrap();
    // All of it comes into the database, and a new lap begins: its header is on disk, its first frame is not.
    drop(open(dir.path(), MANY));
    let copy = killed();
    let header = fs::read(log_of(&copy.path().join(NAME))).unwrap();
    assert_ne!(header[16..24], old_lap[16..24]);
    fs::write(log_of(&path), [&header[..32], &old_lap[32..]].concat()).unwrap();
    assert_eq!(log::commits(&log_of(&path)), [0; 0]);
    let (_, restored) = open(dir.path(), MANY);
    assert_eq!(restored.batches.into_keys().collect::<Vec<_>>(), [1, 2, 3]);
}

fn tally(dir: &Path) -> PathBuf {
    tally_of(&dir.join(NAME))
}

/// Takes the last `commits` of one appended batch from the tally, as a crash that came before they were written.
fn untallied(dir: &Path, commits: u64) {
    let file = fs::File::options().write(true).open(tally(dir)).unwrap();
    file.set_len(file.metadata().unwrap().len() - commits * 40).unwrap();
}

fn ids(restored: &Restored) -> Vec<u64> {
    restored.batches.keys().copied().collect()
}

fn lost(batches: u64) -> std::collections::BTreeMap<Arc<str>, Lost> {
    let lost = Lost { batches, points: batches };
    (batches > 0).then(|| (Arc::from("a"), lost)).into_iter().collect()
}

/// Opens it twice: what is lost is told once.
fn found(dir: &Path) -> Restored {
    let (file, restored) = open(dir, MANY);
    let commit = file.commit;
    drop(file);
    let (file, again) = open(dir, MANY);
    assert_eq!((again.lost.len(), again.behind, again.unsound, again.blind), (0, 0, 0, false));
    assert_eq!((ids(&again), &again.due), (ids(&restored), &restored.due));
    // Nor is a file written in which nothing has changed: its disk may be full.
    assert_eq!(file.commit, commit);
    restored
}

#[test]
fn a_sigkill_at_any_moment_is_no_loss() {
    let dir = killed();
    let restored = found(dir.path());
    assert_eq!((ids(&restored), restored.behind, restored.blind), (vec![1, 2, 3], 0, false));
    assert!(restored.lost.is_empty() && restored.tallied);
    // Before the tally had the last one.
    let dir = killed();
    untallied(dir.path(), 1);
    let restored = found(dir.path());
    assert_eq!((ids(&restored), restored.behind, restored.blind), (vec![1, 2, 3], 0, false));
    assert_eq!((restored.lost.len(), restored.due.len()), (0, 3));
    // Nor is a power cut, which may take more of it, or leave a part of a write.
    for (bytes, blind) in [(80, true), (1, false), (39, false), (41, true), (100, true), (10_000, true)] {
        let dir = killed();
        let file = fs::File::options().write(true).open(tally(dir.path())).unwrap();
        file.set_len(file.metadata().unwrap().len().saturating_sub(bytes)).unwrap();
        let restored = found(dir.path());
        assert_eq!((ids(&restored), restored.behind, restored.lost.len()), (vec![1, 2, 3], 0, 0), "{bytes}");
        let torn = bytes % 40 != 0;
        assert_eq!(restored.blind, blind || torn, "{bytes}");
        assert_eq!((restored.due.len(), restored.unsound), (3, 0), "{bytes}");
    }
}

#[test]
fn a_log_that_was_cut_after_a_commit_is_told_and_what_it_had_is_counted() {
    let ends = log::commits(&log_of(&killed().path().join(NAME)));
    for gone in 1..=ends.len() {
        let dir = killed();
        let left = ends[..ends.len() - gone].last().copied().unwrap_or(0);
        let file = fs::File::options().write(true).open(log_of(&dir.path().join(NAME))).unwrap();
        file.set_len(if left > 0 { 32 + left as u64 * (24 + 4096) } else { 0 }).unwrap();
        let restored = found(dir.path());
        let batches = (gone as u64).min(3);
        assert_eq!((ids(&restored), restored.lost), ((1..=3 - batches).collect(), lost(batches)), "{gone}");
        // One more is that of the destinations; that of the tables has no number.
        let behind = (gone as u64).min(4);
        assert_eq!((restored.behind, restored.blind, restored.unsound), (behind, false, 0), "{gone}");
    }
}

#[test]
fn a_log_that_was_removed_is_told_and_what_it_had_is_counted() {
    let dir = killed();
    fs::remove_file(log_of(&dir.path().join(NAME))).unwrap();
    let restored = found(dir.path());
    assert_eq!((restored.behind, restored.lost), (4, lost(3)));
}

#[test]
fn a_last_commit_that_was_made_and_is_damaged_is_salvaged_and_the_rest_counted() {
    for flip in (0..).step_by(997).take_while(|at| *at < 4096) {
        let dir = killed();
        let path = log_of(&dir.path().join(NAME));
        let commits = log::commits(&path);
        let mut bytes = fs::read(&path).unwrap();
        let pages = (commits[1]..commits[2]).map(|frame| 32 + frame * (24 + 4096) + 24);
        pages.for_each(|page| bytes[page + flip] ^= 1);
        fs::write(&path, bytes).unwrap();
        let error = File::open(dir.path(), MANY, &names(&["a"])).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        let aside = begin(dir.path()).unwrap();
        let (mut file, _) = open(dir.path(), MANY);
        let salvage = salvage(&aside, &mut file).unwrap();
        let saved = salvage.saved.len() as u64;
        assert!(salvage.counted, "{flip}");
        assert_eq!(salvage.lost, lost(3 - saved), "{flip}");
    }
}

#[test]
fn a_file_that_is_gone_or_empty_costs_what_it_had_and_is_told() {
    let dir = killed();
    let path = dir.path().join(NAME);
    drop(open(dir.path(), MANY));
    let damages: [fn(&Path) -> std::io::Result<()>; 2] =
        [|path| fs::remove_file(path), |path| fs::write(path, "")];
    for damage in damages {
        let copy = tempfile::tempdir().unwrap();
        for from in [path.clone(), tally_of(&path)] {
            fs::copy(&from, copy.path().join(from.file_name().unwrap())).unwrap();
        }
        damage(&copy.path().join(NAME)).unwrap();
        let restored = found(copy.path());
        assert!(restored.behind >= 3 && restored.batches.is_empty(), "{restored:?}");
        assert_eq!(restored.lost, lost(3));
    }
    // With everything in its log, which SQLite would delete.
    for damage in damages {
        let dir = killed();
        damage(&dir.path().join(NAME)).unwrap();
        let error = File::open(dir.path(), MANY, &names(&["a"])).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        let aside = begin(dir.path()).unwrap();
        let (mut file, _) = open(dir.path(), MANY);
        let salvage = salvage(&aside, &mut file).unwrap();
        assert!(salvage.saved.iter().eq(&[1, 2, 3]) && salvage.lost.is_empty(), "{salvage:?}");
    }
}

#[test]
fn an_empty_queue_whose_file_was_removed_has_lost_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = open(dir.path(), MANY);
    file.apply(&append(1, 10)).unwrap();
    file.apply(&Changes { done: vec![(Arc::from("a"), 1)], ..Changes::default() }).unwrap();
    drop(file);
    fs::remove_file(dir.path().join(NAME)).unwrap();
    let restored = found(dir.path());
    assert_eq!((restored.behind, restored.blind, restored.lost.len()), (0, false, 0));
}

#[test]
fn what_was_done_in_lost_commits_is_not_counted_and_what_was_only_in_them_is() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = open(dir.path(), MANY);
    (1..=3).for_each(|id| drop(file.apply(&append(id, 100)).unwrap()));
    drop(file);
    let path = dir.path().join(NAME);
    let (mut file, _) = open(dir.path(), MANY);
    let earlier = fs::read(&path).unwrap();
    // 4 comes and is done, 1 is done, 2 is given up, 5 stays.
    file.apply(&append(4, 100)).unwrap();
    let done = vec![(Arc::from("a"), 1), (Arc::from("a"), 4)];
    file.apply(&Changes { done, forget: vec![2], ..append(5, 100) }).unwrap();
    drop(file);
    fs::write(&path, earlier).unwrap();
    let restored = found(dir.path());
    assert_eq!((restored.behind, restored.lost), (2, lost(1)));
}

#[test]
fn the_tally_of_another_file_concludes_nothing() {
    let (dir, other) = (killed(), tempfile::tempdir().unwrap());
    let (mut file, _) = open(other.path(), MANY);
    (11..=30).for_each(|id| drop(file.apply(&append(id, 100)).unwrap()));
    drop(file);
    fs::copy(tally(other.path()), tally(dir.path())).unwrap();
    let restored = found(dir.path());
    assert_eq!((restored.behind, restored.lost.len(), restored.blind), (0, 0, true));
    assert_eq!(ids(&restored), [1, 2, 3]);
    // Nor does one that was removed.
    fs::remove_file(tally(dir.path())).unwrap();
    let (_, restored) = open(dir.path(), MANY);
    assert_eq!((restored.lost.len(), restored.due.len(), restored.blind), (0, 3, true));
    // With the file, or its log, nothing is left that knows more than that there was one.
    for left in [NAME.to_owned(), format!("{NAME}-tally")] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(left), "").unwrap();
        assert!(open(dir.path(), MANY).1.blind);
    }
    assert!(!open(tempfile::tempdir().unwrap().path(), MANY).1.blind);
}

#[test]
fn a_tally_that_cannot_be_written_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(tally(dir.path())).unwrap();
    let (mut file, _) = open(dir.path(), MANY);
    file.apply(&append(1, 100)).unwrap();
    fs::remove_dir(tally(dir.path())).unwrap();
    // A full disk takes neither.
    file.fill(true);
    assert!((2..40).any(|id| file.apply(&append(id, 3000)).is_err()));
    file.fill(false);
    file.apply(&append(50, 100)).unwrap();
    file.reconfigure(&names(&["a", "b"]), MANY).unwrap();
    file.apply(&Changes { append: vec![kept(51, 10, &["a", "b"])], ..Changes::default() }).unwrap();
    let known = Tally::read(&tally(dir.path())).unwrap();
    assert_eq!((known.commit, known.entries.len()), (file.commit, file_entries(&file)));
    drop(file);
    let (_, restored) = both(dir.path());
    assert_eq!((restored.behind, restored.lost.len(), restored.blind, restored.unsound), (0, 0, false, 0));
}

fn file_entries(file: &File) -> usize {
    let mut entries = 0;
    rows::due(&file.connection, rows::Order::Oldest, |_| entries += 1).unwrap();
    entries
}

/// Reads behind its end SQLite takes for errors of the disk, and a log for all that the file lacks.
#[test]
fn a_file_that_is_too_short_beside_a_log_that_is_whole_is_damage() {
    let (mut refused, mut random) = (0, fastrand::Rng::with_seed(3));
    for _ in 0..20 {
        let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut file, _) = open(dir.path(), MANY);
        (1..=12).for_each(|id| drop(file.apply(&append(id, 100_000)).unwrap()));
        for entry in fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let whole = fs::File::options().write(true).open(copy.path().join(NAME)).unwrap();
        whole.set_len(random.u64(4096..whole.metadata().unwrap().len())).unwrap();
        let (mut file, told) = match File::open(copy.path(), MANY, &names(&["a"])) {
            Ok((file, restored)) => (file, restored.lost),
            Err(error) => {
                assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
                refused += 1;
                let aside = begin(copy.path()).unwrap();
                let (mut file, _) = open(copy.path(), MANY);
                let salvage = salvage(&aside, &mut file).unwrap();
                assert!(salvage.counted);
                (file, salvage.lost)
            }
        };
        let mut lost: u64 = told.values().map(|lost| lost.points).sum();
        for id in file.restore().unwrap().batches.into_keys() {
            if let Err(error) = file.load(id, false) {
                assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
                lost += 1;
            }
        }
        let there = (1..=12).filter(|id| file.load(*id, false).is_ok()).count() as u64;
        assert_eq!(there + lost, 12);
    }
    assert!(refused > 10, "{refused}");
}
