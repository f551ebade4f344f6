//! A folder that is removed, moved away, replaced or taken by another daemon while the queue uses
//! it.

use super::*;

/// An accident of the folder.
type Happening = (&'static str, fn(&Path));

pub(super) fn away(dir: &Path) -> PathBuf {
    dir.with_extension("away")
}

fn remove_files(dir: &Path, is_one: impl Fn(&str) -> bool) {
    for file in fs::read_dir(dir).unwrap().flatten() {
        if is_one(file.file_name().to_str().unwrap()) {
            fs::remove_file(file.path()).unwrap();
        }
    }
}

/// Names and sizes.
fn listed(dir: &Path) -> Vec<(std::ffi::OsString, u64)> {
    let files = fs::read_dir(dir).unwrap().flatten();
    let mut files: Vec<_> =
        files.filter_map(|file| Some((file.file_name(), file.metadata().ok()?.len()))).collect();
    files.sort();
    files
}

/// A copy as of one moment: a queue that runs writes and removes files meanwhile, and one file copied
/// before and another after that look like no kill.
pub(super) fn copy(from: &Path, to: &Path) {
    loop {
        let before = listed(from);
        fs::create_dir_all(to).unwrap();
        for (name, _) in &before {
            let copied = fs::copy(from.join(name), to.join(name));
            assert!(copied.is_ok() || !from.join(name).exists(), "{copied:?}");
        }
        if listed(from) == before {
            return;
        }
        fs::remove_dir_all(to).unwrap();
    }
}

const HAPPENINGS: [Happening; 5] = [
    ("removed", |dir| fs::remove_dir_all(dir).unwrap()),
    ("moved away", |dir| fs::rename(dir, away(dir)).unwrap()),
    ("emptied", |dir| remove_files(dir, |_| true)),
    ("without its segments", |dir| remove_files(dir, |name| name.ends_with(".log"))),
    ("restored from a copy", |dir| {
        fs::rename(dir, away(dir)).unwrap();
        copy(&away(dir), dir);
    }),
];

/// The timestamps that are due and the states that a start would find after a SIGKILL now.
pub(super) async fn after_a_kill(dir: &Path) -> (Vec<i64>, BTreeMap<String, Arc<[u8]>>) {
    let killed = tempfile::tempdir().unwrap();
    copy(dir, killed.path());
    let queue = reopened(killed.path()).await;
    let state = queue.shared.state();
    let due = state.batches.iter().filter(|(id, _)| state.destinations["a"].ledger.holds(**id));
    (due.map(|(_, held)| held.summary.timestamp).collect(), state.states.clone())
}

pub(super) async fn all_durable(queue: &Queue) {
    until(queue, |state| state.status.durable && state.batches.values().all(|held| held.durable))
        .await;
}

/// A folder, the queue's in it, and the second run of a queue that has three ticks there.
async fn after_three_ticks() -> (tempfile::TempDir, PathBuf, Queue) {
    let up = tempfile::tempdir().unwrap();
    let dir = up.path().join("queue");
    let queue = queue_in(&dir);
    (1..=3).for_each(|timestamp| queue.push(&batch(timestamp)));
    assert_eq!(queue.close().await, 3);
    let queue = reopened(&dir).await;
    (up, dir, queue)
}

/// Everything was said to be on disk, and a SIGKILL lost 40 of 40 ticks.
#[tokio::test]
async fn what_is_in_memory_is_written_again_when_its_files_are_gone() {
    for (what, happen) in HAPPENINGS {
        let up = tempfile::tempdir().unwrap();
        let dir = up.path().join("queue");
        let queue = queue_in(&dir);
        queue.push_with(&batch(1), [("seen".to_owned(), Arc::from(&b"one"[..]))]);
        queue.push(&batch(2));
        all_durable(&queue).await;
        let outbox = queue.outbox("a");
        let (second, _) = (outbox.next_due(DueFilter::All).unwrap().id, happen(&dir));
        // It is done, and no folder that comes back may bring it again.
        queue.reconfigure(
            Limits { resend_window: Duration::ZERO, ..limits() },
            &NAMES.map(str::to_owned),
        );
        outbox.change_ledger(|ledger| ledger.note_written(second, 1));
        queue.push(&batch(3));
        until(&queue, |state| state.batches.len() == 2).await;
        all_durable(&queue).await;
        queue.push(&batch(4));
        all_durable(&queue).await;
        let (due, states) = after_a_kill(&dir).await;
        assert_eq!(due, [1, 3, 4], "{what}");
        assert_eq!(*states["seen"], *b"one", "{what}");
        assert_eq!(outbox.status().dropped, Dropped::default(), "{what}");
        assert_eq!(queue.close().await, 3, "{what}");
    }
}

#[tokio::test]
async fn a_stop_after_the_folder_is_gone_leaves_on_disk_what_it_says() {
    let up = tempfile::tempdir().unwrap();
    let dir = up.path().join("queue");
    let queue = queue_in(&dir);
    queue.push(&batch(1));
    all_durable(&queue).await;
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(queue.close().await, 1);
    assert_eq!(after_a_kill(&dir).await.0, [1]);
}

#[tokio::test]
async fn ticks_that_were_only_in_the_removed_files_are_counted_at_once() {
    let (_up, dir, queue) = after_three_ticks().await;
    fs::rename(&dir, away(&dir)).unwrap();
    queue.push(&batch(4));
    let outbox = queue.outbox("a");
    until(&queue, |state| state.batches.len() == 1).await;
    all_durable(&queue).await;
    assert_eq!((outbox.status().due(), outbox.status().dropped.damaged), (1, 3));
    // They are not lost after all.
    fs::remove_dir_all(&dir).unwrap();
    fs::rename(away(&dir), &dir).unwrap();
    queue.push(&batch(5));
    until(&queue, |state| state.batches.len() == 5 && state.status.durable).await;
    all_durable(&queue).await;
    assert_eq!(after_a_kill(&dir).await.0, [1, 2, 3, 4, 5]);
}

/// Both wrote into one folder, and the one whose segment had the other's name removed it.
#[tokio::test]
async fn a_folder_that_another_daemon_has_taken_is_left_alone() {
    let up = tempfile::tempdir().unwrap();
    let dir = up.path().join("queue");
    let queue = queue_in(&dir);
    queue.push(&batch(1));
    all_durable(&queue).await;
    fs::rename(&dir, away(&dir)).unwrap();
    let other = reopened(&dir).await;
    other.push(&batch(100));
    all_durable(&other).await;
    let before = after_a_kill(&dir).await.0;
    queue.push(&batch(2));
    until(&queue, |state| !state.status.durable && state.status.undurable == 1).await;
    assert_eq!(queue.outbox("a").status().due(), 2, "they go on in memory");
    assert_eq!((after_a_kill(&dir).await.0, before), (vec![100], vec![100]));
    assert_eq!(other.close().await, 1);
}

/// The batches that a destination still needs and the log does not have.
pub(super) async fn not_in_the_log(queue: &Queue) -> Vec<i64> {
    let held: Vec<(u64, i64)> = queue
        .shared
        .state()
        .batches
        .iter()
        .map(|(&id, held)| (id, held.summary.timestamp))
        .collect();
    let (store, mut missing) = (queue.shared.store.as_ref().unwrap(), Vec::new());
    for (id, timestamp) in held {
        if store.load(id).await.is_err() {
            missing.push(timestamp);
        }
    }
    missing
}

/// A batch that was counted when its files were gone was evicted in the files that came back: each
/// later start kept the ticks for the senders, and the log had forgotten them.
#[tokio::test]
async fn what_comes_back_with_its_files_is_in_the_log_of_later_starts_too() {
    let (_up, dir, queue) = after_three_ticks().await;
    let outbox = queue.outbox("a");
    let second = outbox.next_due(DueFilter::All).unwrap().id + 1;
    outbox.change_ledger(|ledger| ledger.note_written(second, 1));
    fs::rename(&dir, away(&dir)).unwrap();
    queue.push(&batch(4));
    until(&queue, |state| state.batches.len() == 1).await;
    all_durable(&queue).await;
    queue.push(&batch(5));
    all_durable(&queue).await;
    fs::remove_dir_all(&dir).unwrap();
    fs::rename(away(&dir), &dir).unwrap();
    queue.push(&batch(6));
    until(&queue, |state| state.batches.len() == 6).await;
    all_durable(&queue).await;
    for run in 7..10 {
        let killed = tempfile::tempdir().unwrap();
        copy(&dir, killed.path());
        let again = reopened(killed.path()).await;
        again.push(&batch(run));
        all_durable(&again).await;
        assert_eq!(not_in_the_log(&again).await, [0; 0]);
        assert_eq!(again.shared.state().batches.len(), 7);
        let status = again.outbox("a").status();
        assert_eq!((status.due(), status.unproved, status.dropped), (7, 0, Dropped::default()));
    }
}

/// The log was told to forget what had just come back with it.
#[tokio::test]
async fn what_comes_back_at_once_is_not_forgotten() {
    let (_up, dir, queue) = after_three_ticks().await;
    fs::rename(&dir, away(&dir)).unwrap();
    copy(&away(&dir), &dir);
    queue.push(&batch(4));
    until(&queue, |state| state.batches.values().filter(|held| held.durable).count() == 4).await;
    queue.push(&batch(5));
    all_durable(&queue).await;
    assert_eq!(not_in_the_log(&queue).await, [0; 0]);
    assert_eq!(after_a_kill(&dir).await.0, [1, 2, 3, 4, 5]);
}

/// The clock was behind when this run began, or the files are of a daemon that was started later:
/// their ids are higher than this run's first one, and were taken for ticks that it had had.
#[tokio::test]
async fn files_of_a_run_that_began_later_are_sent_and_not_forgotten() {
    let up = tempfile::tempdir().unwrap();
    let [dir, mount, between] = ["queue", "mount", "between"].map(|name| up.path().join(name));
    let queue = reopened(&dir).await;
    queue.push(&batch(10));
    all_durable(&queue).await;
    let last = queue.shared.state().next_id;
    for (dir, first_id, timestamps) in [(&mount, last + 1000, 1..=3), (&between, last + 500, 4..=4)]
    {
        let other = queue_in(dir);
        other.shared.state().next_id = first_id;
        timestamps.for_each(|timestamp| other.push(&batch(timestamp)));
        other.close().await;
    }
    fs::rename(&dir, away(&dir)).unwrap();
    fs::rename(&mount, &dir).unwrap();
    for timestamp in 11..14 {
        queue.push(&batch(timestamp));
        all_durable(&queue).await;
    }
    assert_eq!(queue.outbox("a").status().due(), 7);
    assert_eq!(not_in_the_log(&queue).await, [0; 0]);
    let (mut due, _) = after_a_kill(&dir).await;
    due.sort_unstable();
    assert_eq!(due, [1, 2, 3, 10, 11, 12, 13]);
    // This run knows that its own batch with a lower id is sent, if files come back that do not.
    copy(&away(&dir), &mount);
    let outbox = queue.outbox("a");
    while let Some(next) = outbox.next_due(DueFilter::All) {
        outbox.change_ledger(|ledger| ledger.note_written(next.id, 1));
    }
    let later = Instant::now() + Duration::from_secs(3600);
    outbox.change_ledger(|ledger| ledger.note_answer(1, None, Duration::ZERO, Instant::now()));
    outbox.change_ledger(|ledger| ledger.note_answer(2, Some(later), Duration::ZERO, later));
    all_durable(&queue).await;
    fs::remove_dir_all(&dir).unwrap();
    fs::rename(&mount, &dir).unwrap();
    queue.push(&batch(14));
    all_durable(&queue).await;
    assert_eq!(outbox.status().due(), 1);
    // A third run's ids are between this run's.
    fs::remove_dir_all(&dir).unwrap();
    fs::rename(&between, &dir).unwrap();
    queue.push(&batch(15));
    all_durable(&queue).await;
    assert_eq!(outbox.status().due(), 3);
}
