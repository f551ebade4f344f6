//! The queue's tests: disks that do not answer, and a folder that another process uses. leaving.rs
//! tests what leaves a queue.
#![expect(clippy::disallowed_methods, reason = "a test starts mkfifo")]

mod ages;
mod clocks;
mod comings;
mod leaving;
mod provisional;
mod recording;
mod removal;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::state::first_id;
use super::*;
use crate::sender::Sender;
use crate::store::{Restored, StoreError, Summary};
use carbon_wire::{MetricNames, Protocol};

const PATIENCE: Duration = Duration::from_secs(150);
const NAMES: [&str; 1] = ["a"];

/// Limits for tests, whose small timestamps must not be too old.
fn limits() -> Limits {
    Limits { max_bytes: 64 << 20, max_age: Duration::MAX, resend_window: Duration::from_secs(600) }
}

fn queue_in(dir: &Path) -> Queue {
    Queue::open(Some(dir.to_owned()), limits(), &NAMES.map(str::to_owned))
}

/// A queue whose file's thread answers nothing.
pub(crate) fn hung() -> (Queue, impl Sized) {
    let (store, thread) = Store::hung();
    (with(store), thread)
}

fn with(store: Store) -> Queue {
    let state = Mutex::new(QueueState::new(limits(), &NAMES.map(str::to_owned)));
    let lock = Mutex::new(None);
    let (store, appended, opened) = (Some(store), Notify::new(), Notify::new());
    Queue { shared: Arc::new(SharedQueue { state, store, lock, appended, opened }) }
}

/// A collector whose memory is in a log that a hung disk does not return must not start as if it
/// had none.
#[tokio::test]
async fn whoever_waits_for_the_file_goes_on_when_it_has_been_read_and_not_before() {
    let (queue, _thread) = hung();
    assert!(
        timeout(Duration::from_millis(50), queue.wait_until_read()).await.is_err()
            && !queue.is_read()
    );
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::open(Some(dir.path().to_owned()), limits(), &NAMES.map(str::to_owned));
    assert!(!queue.is_read(), "its thread has only begun");
    timeout(PATIENCE, queue.wait_until_read()).await.unwrap();
    assert!(queue.is_read());
    timeout(PATIENCE, queue.wait_until_read()).await.unwrap();
    timeout(PATIENCE, Queue::open(None, limits(), &[]).wait_until_read()).await.unwrap();
}

/// A queue in `dir`, after the batches of an earlier run have been read.
async fn reopened(dir: &std::path::Path) -> Queue {
    let queue = queue_in(dir);
    until(&queue, |state| state.restored).await;
    queue
}

/// The folder of a run that ended with one tick in the queue.
async fn left_behind() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let queue = queue_in(dir.path());
    queue.push(&batch(1));
    assert_eq!(queue.close().await, 1);
    dir
}

fn batch(timestamp: i64) -> Batch {
    let mut batch = Batch::new(timestamp);
    batch.push("a".into(), 1.0);
    batch
}

/// A listener in place of Carbon, and the destination for it.
async fn destination() -> (TcpListener, crate::Destination) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let to = crate::Destination {
        protocol: Protocol::Plaintext,
        ..crate::Destination::new("a", address)
    };
    (listener, to)
}

async fn until(queue: &Queue, what: impl Fn(&QueueState) -> bool) {
    let start = std::time::Instant::now();
    while !what(&queue.shared.state()) {
        assert!(start.elapsed() < PATIENCE, "{:?}", queue.status());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A segment that is a FIFO: the thread hangs in open(2), as it would on a disk that does not
/// answer.
struct HungDisk {
    fifo: PathBuf,
}

impl HungDisk {
    fn new(dir: &Path) -> Self {
        let fifo = dir.join("queue-00000000000000000999.log");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        Self { fifo }
    }

    fn answers_again(self) {
        // The thread finds an empty segment, when it has come to it.
        drop(File::options().write(true).open(&self.fifo).unwrap());
    }
}

#[tokio::test]
async fn a_disk_that_hangs_delays_a_tick_by_a_second_and_has_them_all_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let disk = HungDisk::new(dir.path());
    let queue = queue_in(dir.path());
    let outbox = queue.outbox("a");
    let start = Instant::now();
    queue.push(&batch(1));
    assert!(outbox.next_due(DueFilter::All).is_none(), "it may yet come to the disk");
    until(&queue, |state| state.status.undurable == 1).await;
    let waited = start.elapsed();
    assert!((COMMIT_PATIENCE..COMMIT_PATIENCE * 20).contains(&waited), "{waited:?}");
    assert!(outbox.next_due(DueFilter::All).is_some() && !queue.status().durable);
    assert_eq!(queue.status().durable_since, None, "it never was");
    // No more than 64 of a hundred commands wait for the disk, and all batches go to the senders.
    (2..=100).for_each(|timestamp| queue.push(&batch(timestamp)));
    assert_eq!(queue.shared.state().changes.append.len(), 36);
    until(&queue, |state| state.status.undurable == 100).await;
    assert_eq!(outbox.status().due(), 100);

    disk.answers_again();
    until(&queue, |state| state.batches.values().filter(|held| held.durable).count() == 64).await;
    assert!(queue.status().durable && queue.status().durable_since.is_some());
    // Those that were not handed over go along with the next commit.
    (101..=102).for_each(|timestamp| queue.push(&batch(timestamp)));
    until(&queue, |state| state.batches.values().all(|held| held.durable)).await;
    assert_eq!(queue.close().await, 102);
    let again = queue_in(dir.path());
    until(&again, |state| state.batches.len() == 102).await;
}

#[tokio::test]
async fn what_no_commit_has_taken_goes_along_with_the_last_one() {
    let dir = tempfile::tempdir().unwrap();
    let disk = HungDisk::new(dir.path());
    let queue = queue_in(dir.path());
    (1..=100).for_each(|timestamp| queue.push(&batch(timestamp)));
    until(&queue, |state| state.status.undurable == 100).await;
    disk.answers_again();
    // The end gives the disk a second, for the others.
    until(&queue, |state| state.batches.values().filter(|held| held.durable).count() == 64).await;
    assert_eq!(queue.close().await, 100);
    let again = queue_in(dir.path());
    until(&again, |state| state.batches.len() == 100).await;
}

#[tokio::test]
async fn a_tick_is_due_to_the_destinations_that_its_commit_names_whatever_is_configured_meanwhile()
{
    let (queue, _thread) = hung();
    queue.push(&batch(1));
    let id = queue.shared.state().next_id - 1;
    queue.reconfigure(limits(), &["b".to_owned()]);
    queue.shared.state().apply(Event::Committed {
        appended: vec![id],
        ticket: 0,
        dropped: Vec::new(),
        file_bytes: 0,
    });
    assert_eq!(["a", "b"].map(|name| queue.outbox(name).status().due()), [1, 0]);
}

#[tokio::test]
async fn what_is_done_before_its_commit_has_come_is_not_sent_again_by_the_next_run() {
    // With the disk's answer handled before the end, and after it.
    for heard in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let disk = HungDisk::new(dir.path());
        let names = ["a", "b", "c"].map(str::to_owned);
        let at_once = Limits { resend_window: Duration::ZERO, ..limits() };
        let queue = Queue::open(Some(dir.path().to_owned()), at_once, &names);
        (1..=2).for_each(|timestamp| queue.push(&batch(timestamp)));
        until(&queue, |state| state.status.undurable == 2).await;
        let (a, b, c) = (queue.outbox("a"), queue.outbox("b"), queue.outbox("c"));
        let second = a.next_due(DueFilter::All).unwrap().id;
        let first = second - 1;
        // The first is done for all; the second is still due to b.
        [&a, &b, &c].into_iter().for_each(|outbox| {
            assert_eq!(outbox.change_ledger(|ledger| ledger.note_written(first, 1)), Some(false))
        });
        [&a, &c].into_iter().for_each(|outbox| {
            assert_eq!(outbox.change_ledger(|ledger| ledger.note_written(second, 1)), Some(false))
        });
        assert_eq!([&a, &b, &c].map(|outbox| outbox.status().held), [0, 1, 0]);
        disk.answers_again();
        if heard {
            until(&queue, |state| state.status.durable).await;
        }
        assert_eq!(queue.close().await, 1);
        let again = Queue::open(Some(dir.path().to_owned()), limits(), &names);
        until(&again, |state| state.restored).await;
        assert_eq!(
            ["a", "b", "c"].map(|name| again.outbox(name).status().due()),
            [0, 1, 0],
            "{heard}"
        );
        assert_eq!(again.shared.state().batches.len(), 1, "{heard}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_does_not_take_the_last_commit_has_what_it_took_before() {
    let (queue, _thread) = hung();
    let mut restored = Restored { due: vec![(Arc::from("a"), 5)], ..Restored::default() };
    restored
        .batches
        .insert(5, Summary { timestamp: 1, pushed: Some(Moment::now()), points: 3, bytes: 10 });
    queue.shared.state().apply(Event::Opened(restored));
    queue.push(&batch(2));
    let asked = Instant::now();
    assert_eq!(queue.close().await, 1);
    assert_eq!(asked.elapsed(), CLOSE_PATIENCE);
}

#[tokio::test]
async fn an_end_before_the_file_has_been_read_does_not_say_that_everything_is_confirmed() {
    let dir = left_behind().await;
    let mut disk = Some(HungDisk::new(dir.path()));
    let queue = queue_in(dir.path());
    let (listener, to) = destination().await;
    for read in [false, true] {
        let sender = Sender::start(to.clone(), &queue);
        let mut peer = listener.accept().await.unwrap().0;
        while !sender.status().connected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let reads = tokio::spawn(async move { peer.read_to_end(&mut Vec::new()).await });
        let left = sender.drain(PATIENCE).await;
        assert_eq!(reads.await.unwrap().unwrap() > 0, read);
        assert_eq!((left.due(), left.unread, left.is_complete()), (0, 0, read));
        assert_eq!(!left.to_string().contains("could not be read"), read, "{left}");
        if let Some(disk) = disk.take() {
            disk.answers_again();
            until(&queue, |state| state.restored).await;
        }
    }
}

/// The end reported that everything was read, and left the last tick to the next start.
#[tokio::test]
async fn a_tick_whose_commit_is_under_way_at_the_end_is_sent_too() {
    let (queue, _thread) = hung();
    let (listener, to) = destination().await;
    let sender = Sender::start(to, &queue);
    let mut peer = listener.accept().await.unwrap().0;
    while !sender.status().connected {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let reads = tokio::spawn(async move { peer.read_to_end(&mut Vec::new()).await });
    queue.push(&batch(1));
    queue.publish();
    sender.drain(PATIENCE).await;
    assert!(reads.await.unwrap().unwrap() > 0);
}

#[tokio::test]
async fn ticks_that_are_on_no_disk_at_the_end_are_not_told_as_kept() {
    let dir = tempfile::tempdir().unwrap();
    // The folder cannot be created.
    fs::write(dir.path().join("file"), "").unwrap();
    let queue = queue_in(&dir.path().join("file"));
    queue.push(&batch(1));
    until(&queue, |state| state.status.undurable == 1).await;
    assert_eq!(queue.close().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_the_disk_does_not_give_now_is_kept() {
    let (queue, _thread) = hung();
    let outbox = queue.outbox("a");
    let mut restored = Restored { due: vec![(Arc::from("a"), 5)], ..Restored::default() };
    restored
        .batches
        .insert(5, Summary { timestamp: 1, pushed: Some(Moment::now()), points: 3, bytes: 10 });
    queue.shared.state().apply(Event::Opened(restored));
    let due = outbox.next_due(DueFilter::All).unwrap();
    let asked = Instant::now();
    let loaded = outbox.load_frames(&due, false).await;
    assert!(matches!(loaded, Loaded::NotNow(_)), "{loaded:?}");
    assert_eq!(asked.elapsed(), COMMIT_PATIENCE);
    assert_eq!((outbox.status().due(), outbox.status().dropped), (1, Dropped::default()));
    // Live ticks go before it.
    queue.push(&batch(2));
    queue.shared.state().lose_patience(Instant::now() + COMMIT_PATIENCE);
    assert!(outbox.next_due(DueFilter::All).is_some_and(|due| due.id != 5 && due.frames.is_some()));
}

#[tokio::test]
async fn one_bad_sector_does_not_hold_up_the_backlog_for_ever_and_is_counted() {
    let bad =
        || StoreError::Io { path: "queue".into(), source: std::io::Error::from_raw_os_error(5) };
    let store = Store::loading(move |id| match id {
        5 => Err(bad()),
        // Fewer than there were when the file was opened.
        6 => Ok([Frame { points: 1, body: vec![1] }].into()),
        _ => Ok([Frame { points: 3, body: vec![1] }].into()),
    });
    let queue = with(store);
    let outbox = queue.outbox("a");
    let summary = Summary { timestamp: 1, pushed: Some(Moment::now()), points: 3, bytes: 10 };
    let restored = Restored {
        due: [5, 6, 7].map(|id| (Arc::from("a"), id)).to_vec(),
        batches: [5, 6, 7].map(|id| (id, summary)).into(),
        ..Restored::default()
    };
    queue.shared.state().apply(Event::Opened(restored));
    let (first, damaged) = (outbox.next_due(DueFilter::All).unwrap(), |outbox: &Outbox| {
        outbox.status().dropped.damaged
    });
    assert!(
        matches!(outbox.load_frames(&first, false).await, Loaded::NotNow(_))
            && damaged(&outbox) == 0
    );
    for lost in [3, 6] {
        assert!(matches!(
            outbox.load_frames(&outbox.next_due(DueFilter::All).unwrap(), true).await,
            Loaded::Lost
        ));
        assert_eq!(damaged(&outbox), lost);
    }
    let last = outbox.next_due(DueFilter::All).unwrap();
    assert!(last.id == 7 && matches!(outbox.load_frames(&last, true).await, Loaded::Frames(_)));
    assert_eq!((outbox.status().due(), damaged(&outbox)), (1, 6));
}

/// A tick that the log does not have was tried until max_age.
#[tokio::test]
async fn a_tick_that_an_open_log_does_not_have_is_counted_at_once() {
    let queue = with(Store::loading(|_| Err(StoreError::Missing)));
    let outbox = queue.outbox("a");
    let mut restored = Restored { due: vec![(Arc::from("a"), 5)], ..Restored::default() };
    restored
        .batches
        .insert(5, Summary { timestamp: 1, pushed: Some(Moment::now()), points: 3, bytes: 10 });
    queue.shared.state().apply(Event::Opened(restored));
    let due = outbox.next_due(DueFilter::All).unwrap();
    assert!(matches!(outbox.load_frames(&due, false).await, Loaded::Lost));
    assert_eq!((outbox.status().due(), outbox.status().dropped.damaged), (0, 3));
}

#[tokio::test]
async fn a_disk_that_hangs_with_the_backlog_holds_up_no_live_tick() {
    let store = Store::loading(|_| {
        // Longer than any test waits.
        std::thread::park_timeout(PATIENCE);
        Err(StoreError::Gone)
    });
    let queue = with(store);
    let ids = 1..=20;
    let summary = Summary { timestamp: 1, pushed: Some(Moment::now()), points: 1, bytes: 10 };
    let restored = Restored {
        due: ids.clone().map(|id| (Arc::from("a"), id)).collect(),
        batches: ids.map(|id| (id, summary)).collect(),
        ..Restored::default()
    };
    queue.shared.state().apply(Event::Opened(restored));
    let (listener, to) = destination().await;
    let sender = Sender::start(to, &queue);
    let mut peer = listener.accept().await.unwrap().0;
    queue.push(&batch(777));
    let start = Instant::now();
    queue.shared.state().lose_patience(start + COMMIT_PATIENCE);
    let mut live = [0; "a 1 777\n".len()];
    tokio::time::timeout(PATIENCE, peer.read_exact(&mut live)).await.unwrap().unwrap();
    assert_eq!(&live, b"a 1 777\n");
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
    drop(sender);
}

/// Frames that only a disk has which returns nothing.
pub(crate) type OnHungDisk = Vec<(u64, Arc<[Frame]>)>;

/// Every batch of a queue in memory is on a disk that hangs from now on.
pub(crate) fn disk_hangs(queue: &Queue) -> OnHungDisk {
    let mut state = queue.shared.state();
    let taken = state
        .batches
        .iter_mut()
        .filter_map(|(&id, held)| Some((id, held.frames.take()?)))
        .collect();
    state.status.memory_bytes = 0;
    taken
}

/// The disk returns them again.
pub(crate) fn disk_answers(queue: &Queue, disk: OnHungDisk) {
    let mut state = queue.shared.state();
    for (id, frames) in disk {
        let Some(held) = state.batches.get_mut(&id) else { continue };
        let bytes = held.summary.bytes;
        held.frames = Some(frames);
        state.status.memory_bytes += bytes;
    }
}

/// A queue with ticks of 100 points.
async fn with_a_backlog(dir: Option<&Path>, ticks: i64) -> Queue {
    let queue = Queue::open(dir.map(Path::to_owned), limits(), &NAMES.map(str::to_owned));
    for timestamp in 1..=ticks {
        let mut batch = Batch::new(timestamp);
        (0..100).for_each(|n| batch.push(format!("a.{n}"), 1.0));
        queue.push(&batch);
        until(&queue, |state| state.batches.values().all(|held| held.durable)).await;
    }
    queue
}

/// A flood has brought Carbon servers down, and the next run sends all of it again. Without a
/// folder it is the last chance.
#[tokio::test]
async fn a_drain_leaves_a_backlog_that_is_on_disk_to_the_next_run_and_sends_all_that_is_not() {
    let dir = tempfile::tempdir().unwrap();
    for folder in [Some(dir.path()), None] {
        let queue = with_a_backlog(folder, 40).await;
        let (listener, to) = destination().await;
        let sender = Sender::start(crate::Destination { replay_rate: Some(100), ..to }, &queue);
        let mut peer = listener.accept().await.unwrap().0;
        while sender.status().due() == 40 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let began = Instant::now();
        let drained = tokio::spawn(sender.drain(PATIENCE));
        peer.read_to_end(&mut Vec::new()).await.unwrap();
        drop((peer, listener));
        let left = drained.await.unwrap();
        match folder {
            Some(_) => assert!(left.due() > 30, "{left} after {:?}", began.elapsed()),
            None => assert_eq!(left.due(), 0, "{left}"),
        }
        assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_folder_of_another_process_is_refused_with_its_id_and_one_that_ends_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let first = queue_in(dir.path());
    first.locked().await.unwrap();
    let (start, second) = (Instant::now(), queue_in(dir.path()));
    let error = second.locked().await.unwrap_err().to_string();
    assert!(
        error.contains(&format!("process {} uses this directory", std::process::id())),
        "{error}"
    );
    assert!(start.elapsed() >= Duration::from_secs(5), "{:?}", start.elapsed());
    let third = queue_in(dir.path());
    let (ended, locked) = tokio::join!(first.close(), third.locked());
    assert_eq!(ended, 0);
    locked.unwrap();
}

/// A shell that has locked the folder and then does this.
fn holder(dir: &Path, script: &str) -> Child {
    let lock = File::create(dir.join("queue.lock")).unwrap();
    lock.lock().unwrap();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("echo $$; {script}")])
        .stdout(lock)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

async fn until_state(child: &Child, letter: char) {
    let start = Instant::now();
    let status = format!("/proc/{}/status", child.id());
    while !fs::read_to_string(&status).unwrap().contains(&format!("State:\t{letter}")) {
        assert!(start.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Files that are opened late had ids of this run's ticks, which were overwritten.
#[test]
fn a_run_after_a_step_back_of_the_clock_has_no_id_of_the_one_before() {
    let began = Duration::from_secs(1_800_000_000);
    let ticks_of_a_day = 86_400;
    let (before, after) = (first_id(began), first_id(began - Duration::from_millis(1)));
    assert!(after + ticks_of_a_day < before, "{after} {before}");
}

/// Ticks that Carbon had read were unsent in `status` after a planned restart.
#[tokio::test]
async fn what_an_earlier_run_has_sent_is_to_be_sent_again_and_not_unsent() {
    let dir = tempfile::tempdir().unwrap();
    let queue = reopened(dir.path()).await;
    (1..=10).for_each(|timestamp| queue.push(&batch(timestamp)));
    until(&queue, |state| state.batches.values().all(|held| held.durable)).await;
    let outbox = queue.outbox("a");
    for _ in 0..8 {
        let id = outbox.next_due(DueFilter::All).unwrap().id;
        outbox.change_ledger(|ledger| ledger.note_written(id, 1));
    }
    let before = outbox.status();
    assert_eq!((before.unsent.ticks, before.again.ticks), (2, 0));
    queue.close().await;
    let queue = reopened(dir.path()).await;
    let after = queue.outbox("a").status();
    assert_eq!((after.unsent.ticks, after.again.ticks), (2, 8));
}

/// A backlog that had never been sent was called sent, because its destination was connected when
/// the daemon was killed.
#[tokio::test]
async fn what_may_have_been_written_before_a_kill_is_unsent_after_it_and_after_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = reopened(dir.path()).await;
    (1..=10).for_each(|timestamp| queue.push(&batch(timestamp)));
    removal::all_durable(&queue).await;
    let outbox = queue.outbox("a");
    outbox.update_status(|status| status.connected = true);
    for _ in 0..3 {
        let id = outbox.next_due(DueFilter::All).unwrap().id;
        outbox.change_ledger(|ledger| ledger.note_written(id, 1));
    }
    let mut folders = vec![dir];
    for kill in 1..=3_u8 {
        // Its commit records what was written before it.
        queue.push(&batch(10 + i64::from(kill)));
        removal::all_durable(&queue).await;
        let killed = tempfile::tempdir().unwrap();
        removal::copy(folders.last().unwrap().path(), killed.path());
        queue = reopened(killed.path()).await;
        folders.push(killed);
        let status = queue.outbox("a").status();
        assert_eq!((status.unsent.ticks, status.again.ticks), (7 + u64::from(kill), 3), "{kill}");
        assert_eq!(status.oldest_unsent, Some(3), "{kill}");
        assert_eq!(status.waits_since, Some(3), "{kill}");
    }
    // They may have been read, so nobody can call them lost.
    let ids: Vec<u64> = queue.shared.state().batches.keys().copied().collect();
    ids.into_iter().for_each(|id| queue.shared.state().evict(id));
    let status = queue.outbox("a").status();
    assert_eq!((status.unproved, status.dropped.full), (13 - 2, 2), "the last two came later");
}

/// A stopped process would go on after SIGCONT, and two processes would write to the folder.
#[tokio::test]
async fn a_folder_of_a_process_that_is_stopped_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut stopped = holder(dir.path(), "kill -STOP $$");
    until_state(&stopped, 'T').await;
    let error = queue_in(dir.path()).locked().await.unwrap_err().to_string();
    assert!(
        error.contains(&format!("process {} uses this directory; stop it", stopped.id())),
        "{error}"
    );
    stopped.kill().unwrap();
    stopped.wait().unwrap();
}

/// No daemon started until the old one's disk answered.
#[tokio::test]
async fn a_folder_whose_process_cannot_end_is_used_when_it_has_ended_and_until_then_ticks_are_in_memory()
 {
    let dir = tempfile::tempdir().unwrap();
    let earlier = reopened(dir.path()).await;
    for first in (1..=2000).step_by(50) {
        (first..first + 50).for_each(|timestamp| earlier.push(&batch(timestamp)));
        until(&earlier, |state| state.batches.values().all(|held| held.durable)).await;
    }
    assert_eq!(earlier.close().await, 2000);
    // The lock is the child's, as that of a thread which no signal ends.
    let mut dead = holder(dir.path(), "sleep 600 2>/dev/null & echo $! >&2");
    let mut child = String::new();
    std::io::Read::read_to_string(dead.stderr.as_mut().unwrap(), &mut child).unwrap();
    until_state(&dead, 'Z').await;
    let queue = queue_in(dir.path());
    (2001..=4000).for_each(|timestamp| queue.push(&batch(timestamp)));
    queue.locked().await.unwrap();
    queue.push(&batch(4001));
    until(&queue, |state| state.status.error.is_some() && state.unpublished.is_empty()).await;
    let QueueStatus { durable, error, undurable, .. } = queue.status();
    assert!(!durable && undurable == 2001 && !queue.is_read(), "{undurable} {error:?}");
    assert!(error.as_ref().unwrap().contains(&format!("process {} ", dead.id())), "{error:?}");

    let child = rustix::process::Pid::from_raw(child.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    dead.wait().unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    queue.push(&batch(4002));
    until(&queue, |state| state.restored && state.batches.values().all(|held| held.durable)).await;
    let mut all: Vec<_> =
        queue.shared.state().batches.values().map(|held| held.summary.timestamp).collect();
    all.sort_unstable();
    assert!(all.iter().copied().eq(1..=4002), "{}", all.len());
}

/// A disk that takes each tick too late had two lines in the log for each tick.
#[tokio::test]
async fn a_disk_that_takes_each_tick_too_late_is_told_once_until_it_is_in_time() {
    let (queue, _thread) = hung();
    let mut again = Vec::new();
    for (timestamp, is_late) in [(1, true), (2, true), (3, false), (4, true)] {
        queue.push(&batch(timestamp));
        let mut state = queue.shared.state();
        let appended = vec![state.next_id - 1];
        if is_late {
            state.lose_patience(Instant::now() + COMMIT_PATIENCE);
        }
        state.apply(Event::Committed { appended, ticket: 0, dropped: Vec::new(), file_bytes: 0 });
        again.push(!state.said_undurable);
    }
    assert_eq!(again, [false, false, true, false]);
}

#[tokio::test]
async fn a_disk_that_hangs_does_not_keep_the_daemon_from_starting() {
    let dir = tempfile::tempdir().unwrap();
    let disk = HungDisk::new(dir.path());
    let queue = queue_in(dir.path());
    queue.locked().await.unwrap();
    disk.answers_again();
    until(&queue, |state| state.restored).await;
}

#[tokio::test]
async fn what_is_kept_by_name_comes_with_its_batch_and_is_there_in_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let queue = queue_in(dir.path());
    let state = |bytes: &[u8]| [("seen".to_owned(), Arc::from(bytes))];
    queue.push_with(&batch(1), state(b"one"));
    queue.push_with(&batch(2), state(b"two"));
    // Without points it goes with the next commit, which is the last one here.
    queue.push_with(&Batch::new(3), state(b"three"));
    assert_eq!(queue.close().await, 2);
    let again = reopened(dir.path()).await;
    assert_eq!(*again.states().unwrap()["seen"], *b"three");
}

#[tokio::test]
async fn what_is_kept_without_a_batch_counts_as_kept_when_it_is_on_disk_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let disk = HungDisk::new(dir.path());
    let queue = queue_in(dir.path());
    let state = |bytes: &[u8]| [("seen".to_owned(), Arc::from(bytes))];
    let ticket = queue.keep(state(b"one"));
    let patience = COMMIT_PATIENCE * 2;
    assert!(
        tokio::time::timeout(patience, queue.kept(ticket)).await.is_err(),
        "a hung disk has kept nothing"
    );
    disk.answers_again();
    tokio::time::timeout(patience * 5, queue.kept(ticket)).await.unwrap();
    let ticket = queue.keep(state(b"two"));
    tokio::time::timeout(patience * 5, queue.kept(ticket)).await.unwrap();
    // As after a SIGKILL: another process would find what is in the file now.
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(dir.path()).unwrap().flatten() {
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let again = reopened(copy.path()).await;
    assert_eq!(*again.states().unwrap()["seen"], *b"two");
}

#[tokio::test]
async fn the_queue_of_an_earlier_version_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("queue.sqlite3");
    fs::write(&old, "SQLite format 3").unwrap();
    let queue = queue_in(dir.path());
    queue.push(&batch(1));
    assert_eq!(queue.close().await, 1);
    assert_eq!(fs::read(old).unwrap(), b"SQLite format 3");
}

#[tokio::test]
async fn a_hung_disk_keeps_nothing_in_memory_that_is_done() {
    let (queue, _thread) = hung();
    queue.reconfigure(
        Limits { resend_window: Duration::ZERO, ..limits() },
        &NAMES.map(str::to_owned),
    );
    for timestamp in 0..200 {
        queue.push(&batch(timestamp));
        queue.publish();
        for outbox in NAMES.map(|name| queue.outbox(name)) {
            let id = outbox.next_due(DueFilter::All).unwrap().id;
            outbox.change_ledger(|ledger| ledger.note_written(id, 1));
        }
    }
    let state = queue.shared.state();
    assert_eq!((state.batches.len(), state.changes.append.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_the_files_thread_ticks_go_on_in_memory() {
    let (store, thread) = Store::hung();
    drop(thread);
    let queue = with(store);
    // As if the thread could not be started.
    let (said, events) = mpsc::unbounded_channel();
    drop(said);
    tokio::spawn(follow(Arc::clone(&queue.shared), events));
    queue.push(&batch(1));
    tokio::time::sleep(COMMIT_PATIENCE * 2).await;
    assert_eq!(queue.outbox("a").status().due(), 1);
}

/// It waits for its commit however long that takes, so it was always in time.
#[tokio::test]
async fn a_state_that_does_not_fit_leaves_the_queue_durable_and_is_said_once() {
    let (queue, _thread) = hung();
    queue.push_with(&batch(1), [("seen".to_owned(), Arc::from([1]))]);
    let id = *queue.shared.state().batches.keys().next().unwrap();
    let mut state = queue.shared.state();
    state.set_durable(true);
    let refused = || Event::Unkept { error: StoreError::Gone };
    state.apply(refused());
    assert!(state.status.durable && state.said_unkept && state.status.error.is_none());
    // A tick, which has nothing to do with it.
    let committed = |appended, ticket| Event::Committed {
        appended,
        ticket,
        dropped: Vec::new(),
        file_bytes: 0,
    };
    state.apply(committed(vec![id + 1], 0));
    assert!(state.said_unkept);
    state.said_undurable = true;
    state.apply(committed(vec![id], 1));
    assert!(!state.said_unkept && state.said_undurable);
}
