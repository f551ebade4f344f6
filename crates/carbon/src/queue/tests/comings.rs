//! Folders that go and come back at random, between deliveries, losses, ticks that leave, stops and
//! kills.

use super::removal::{away, copy, not_in_the_log};
use super::*;
use crate::store::Why;

const BOTH: [&str; 2] = ["a", "b"];
const RUNS: u64 = 30;
const STEPS: usize = 40;

/// The ticks that each destination needs, by their timestamps.
fn needed(queue: &Queue) -> Vec<(&'static str, i64)> {
    let state = queue.shared.state();
    let held = |name: &'static str| {
        let its =
            state.batches.iter().filter(|(id, _)| state.destinations[name].ledger.holds(**id));
        its.map(|(_, held)| (name, held.summary.timestamp)).collect::<Vec<_>>()
    };
    BOTH.into_iter().flat_map(held).collect()
}

struct World {
    random: fastrand::Rng,
    up: tempfile::TempDir,
    queue: Queue,
    timestamp: i64,
    connection: u64,
    steps: Vec<&'static str>,
}

impl World {
    async fn new(seed: u64) -> Self {
        let up = tempfile::tempdir().unwrap();
        let queue = Queue::open(Some(up.path().join("queue")), limits(), &BOTH.map(str::to_owned));
        until(&queue, |state| state.restored).await;
        let (random, steps) = (fastrand::Rng::with_seed(seed), vec![]);
        Self { random, up, queue, timestamp: 0, connection: 1, steps }
    }

    fn dir(&self) -> PathBuf {
        self.up.path().join("queue")
    }

    fn push(&mut self) {
        self.timestamp += 1;
        self.queue.push_with_counts(&batch(self.timestamp));
    }

    /// Pushes batches until the queue has found what happened to its folder.
    async fn settle(&mut self) {
        let start = Instant::now();
        loop {
            self.push();
            let newest = self.timestamp;
            let pushed = Instant::now();
            // What a commit could not write while the folder was changed, the next one writes.
            while pushed.elapsed() < Duration::from_secs(2) {
                let is_there = |state: &QueueState| {
                    let mut all = state.batches.values();
                    let has_newest = all.clone().any(|held| held.summary.timestamp == newest);
                    has_newest && state.status.durable && all.all(|held| held.durable)
                };
                if is_there(&self.queue.shared.state()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(start.elapsed() < PATIENCE, "{:?} {:?}", self.queue.status(), self.steps);
        }
    }

    /// Another process begins with what is in the folder.
    async fn start(&mut self) {
        let up = tempfile::tempdir().unwrap();
        copy(&self.dir(), &up.path().join("queue"));
        self.up = up;
        self.queue = Queue::open(Some(self.dir()), limits(), &BOTH.map(str::to_owned));
        until(&self.queue, |state| state.restored).await;
    }

    async fn step(&mut self) {
        let outbox = self.queue.outbox(BOTH[self.random.usize(..2)]);
        let (dir, away) = (self.dir(), away(&self.dir()));
        let what = match self.random.u8(..16) {
            0..3 => {
                self.push();
                "push"
            }
            3..6 => {
                let turns = std::iter::from_fn(|| {
                    let id = outbox.next_due(DueFilter::All)?.id;
                    Some(outbox.change_ledger(|ledger| ledger.note_written(id, self.connection)))
                });
                turns.take(self.random.usize(1..4)).for_each(drop);
                "write"
            }
            6 => {
                self.connection += 2;
                outbox.note_loss();
                "lose"
            }
            7 => {
                let (now, window) = (Instant::now(), limits().resend_window);
                outbox.change_ledger(|ledger| {
                    ledger.note_answer(self.connection, None, Duration::ZERO, now)
                });
                outbox.change_ledger(|ledger| {
                    ledger.note_answer(u64::MAX, Some(now + window), Duration::ZERO, now)
                });
                self.connection += 2;
                "prove"
            }
            8 => {
                let mut state = self.queue.shared.state();
                if let Some(&oldest) = state.batches.keys().next() {
                    state.drop_batch(oldest, Why::Age);
                }
                "expire"
            }
            9..12 if away.exists() => {
                // The queue's thread may be writing into it.
                self.settle().await;
                fs::remove_dir_all(&dir).unwrap();
                fs::rename(&away, &dir).unwrap();
                "come back"
            }
            9..11 => {
                fs::rename(&dir, &away).unwrap();
                self.settle().await;
                "go"
            }
            11 => {
                fs::rename(&dir, &away).unwrap();
                copy(&away, &dir);
                fs::remove_dir_all(&away).unwrap();
                "copy"
            }
            12..14 => {
                self.settle().await;
                "settle"
            }
            14 if self.dir().exists() => {
                self.settle().await;
                let before = needed(&self.queue);
                self.start().await;
                let after = needed(&self.queue);
                let lost: Vec<_> = before.iter().filter(|tick| !after.contains(tick)).collect();
                assert!(lost.is_empty(), "{lost:?} after {:?}", self.steps);
                "kill"
            }
            _ if self.dir().exists() => {
                self.start().await;
                "kill at once"
            }
            _ => "nothing",
        };
        self.steps.push(what);
    }
}

/// A tick that the queue still had and its log did not was loaded again and again.
#[tokio::test]
async fn whatever_happens_to_the_folder_a_start_has_each_tick_in_its_log() {
    for seed in 0..RUNS {
        let mut world = World::new(seed).await;
        for _ in 0..STEPS {
            world.step().await;
        }
        // The second tick has what was counted when the first one found the folder changed.
        world.settle().await;
        world.settle().await;
        world.start().await;
        world.settle().await;
        assert_eq!(not_in_the_log(&world.queue).await, [0; 0], "seed {seed}: {:?}", world.steps);
        let damaged = BOTH.map(|name| world.queue.outbox(name).status().dropped.damaged);
        assert_eq!(damaged, [0; 2], "seed {seed}: {:?}", world.steps);
    }
}
