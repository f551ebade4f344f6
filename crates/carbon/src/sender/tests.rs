//! The delivery rule against a simulated receiver, with a simulated clock and events in any order.

mod log_lines;
mod world;

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use self::world::{Order, ReceiverKind, ReceiverState, SimulatedStream};
use super::*;
use crate::queue::tests::{disk_answers, disk_hangs};
use crate::queue::{Dropped, Limits};
use carbon_wire::{Batch, Frame, Protocol};

const WINDOW: Duration = Duration::from_secs(600);

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn destination() -> Destination {
    Destination {
        protocol: Protocol::Plaintext,
        ..Destination::new("a", "carbon:2003".parse().unwrap())
    }
}

fn queue(resend_window: Duration) -> Queue {
    Queue::open(
        None,
        Limits { max_bytes: 64 << 20, max_age: Duration::MAX, resend_window },
        &["a".into()],
    )
}

fn start(queue: &Queue) -> Sender {
    start_as(queue, false)
}

fn start_as(queue: &Queue, by_time: bool) -> Sender {
    Sender::start_on::<SimulatedStream>(Destination { by_time, ..destination() }, queue)
}

fn tick(timestamp: i64, points: u32) -> Batch {
    let mut batch = Batch::new(timestamp);
    batch.push("w".into(), points.into());
    batch
}

async fn push_each(queue: &Queue, ticks: RangeInclusive<i64>, pause: Duration) {
    for timestamp in ticks {
        queue.push(&tick(timestamp, 137));
        sleep(pause).await;
    }
}

/// Sends a backlog of 30 minutes, with live ticks every 30 s, until everything is stored. Returns
/// how long that took.
async fn drains(kind: ReceiverKind, live: u32, by_time: bool) -> Duration {
    let _receiver = world::begin(&[ReceiverKind { strict: by_time, ..kind }]);
    let queue = queue(WINDOW);
    (1..=60).for_each(|n| queue.push(&tick(n, live * 30)));
    let sender = start_as(&queue, by_time);
    let began = Instant::now();
    for next in 61.. {
        queue.push(&tick(next, live * 30));
        sleep(seconds(29)).await;
        let status = sender.status();
        if status.due() == 0 && !status.in_doubt && i64::try_from(world::stored().len()) == Ok(next)
        {
            break;
        }
        assert!(
            began.elapsed() < seconds(4 * 3600),
            "{live} of {kind:?} does not drain: {status:?}"
        );
        sleep(seconds(1)).await;
    }
    sender.stop();
    let often: Vec<_> = world::writes().into_iter().filter(|(_, writes)| *writes > 2).collect();
    assert!(often.is_empty(), "written more than twice: {often:?}; {live} of {kind:?}");
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_backlog_drains_into_a_receiver_that_stores_little_more_than_is_collected() {
    for (order, by_time) in [
        (Order::Oldest, false),
        (Order::Shared, false),
        (Order::Oldest, true),
        (Order::Newest, true),
    ] {
        for (live, kind, most) in [
            (
                1000,
                ReceiverKind { reads: 2000.0, room: 100_000.0, order, ..ReceiverKind::default() },
                6000,
            ),
            (
                300,
                ReceiverKind { reads: 360.0, room: 12_500.0, order, ..ReceiverKind::default() },
                12_000,
            ),
            (
                5,
                ReceiverKind {
                    stores: 10.0,
                    cache: 5000.0,
                    full: true,
                    room: 12_500.0,
                    order,
                    ..ReceiverKind::default()
                },
                6000,
            ),
        ] {
            let after = drains(kind, live, by_time).await;
            assert!(after < seconds(most), "{live} of {kind:?} in {after:?}, by time: {by_time}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_healthy_receiver_gets_an_hour_of_backlog_in_seconds() {
    let _receiver = world::begin(&[ReceiverKind::default()]);
    let queue = queue(WINDOW);
    (1..=120).for_each(|n| queue.push(&tick(n, 137)));
    let sender = start(&queue);
    let began = Instant::now();
    while sender.status().due() > 0 {
        sleep(seconds(1)).await;
    }
    sender.stop();
    assert!(began.elapsed() < seconds(10), "{:?}", began.elapsed());
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Hangs(Duration),
    /// Killed, and started again after this.
    Killed(Duration),
    /// The receiver's host is gone for this long.
    Gone(Duration),
    /// The daemon is killed, and started again after this.
    Restarted(Duration),
    /// The daemon ends in the normal way.
    Ended,
    /// The name now leads to the other receiver.
    Moved,
    /// The daemon is restarted, and soon after that Carbon is killed.
    RestartedThenKilled(Duration),
    HangsThenKilled(Duration),
    /// The queue's disk returns nothing for so long, and a few seconds into it Carbon is killed.
    DiskHangs(Duration),
    /// The receiver goes away, and for this long something else has its port.
    Replaced(ReceiverState, Duration),
}

/// A receiver is killed, and started again after this.
async fn killed(at: usize, after: Duration) {
    world::set(at, ReceiverState::Down);
    sleep(after).await;
    world::set(at, ReceiverState::Runs);
}

/// One receiver or two, a configuration, and faults: all from one seed.
async fn nothing_is_lost(seed: u64, by_time: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let window = seconds(random.choice([20, 60, 600]).unwrap());
    let interval = seconds(random.choice([1, 10, 30, 120, 700]).unwrap());
    let between = |random: &mut fastrand::Rng, most: Duration| most.mul_f64(random.f64());
    let points = random.choice([30, 137, 10_000]).unwrap();
    let kind = ReceiverKind {
        holds: between(&mut random, window / 2),
        // Less than a tick would need a step of the receiver for each part of it.
        room: f64::from(points).max(random.choice([1000.0, 12_500.0, 100_000.0]).unwrap()),
        order: random.choice([Order::Oldest, Order::Shared, Order::Newest]).unwrap(),
        closes_idle_after: random
            .choice([None, None, Some(seconds(20)), Some(seconds(120))])
            .unwrap(),
        proxy_closes_after: random.choice([None, None, Some(seconds(35))]).unwrap(),
        most_connections: random.choice([usize::MAX, usize::MAX, usize::MAX, 1]).unwrap(),
        strict: by_time,
        ..ReceiverKind::default()
    };
    // After something that is not Carbon it is never cleared of that: no connection to it lasts.
    let never_lasts = by_time && kind.most_connections == 1;
    let kind = if never_lasts { ReceiverKind { closes_idle_after: None, ..kind } } else { kind };
    // A timer that would make an answer worthless; over TLS it causes no answer.
    let timer = random.choice([kind.proxy_closes_after, Some(seconds(2))]).unwrap();
    let kind = if random.bool() {
        ReceiverKind { tls: true, proxy_closes_after: timer, ..kind }
    } else {
        kind
    };
    let mut events = Vec::new();
    for _ in 0..random.usize(1..6) {
        let long = between(&mut random, window * 3);
        let short = between(&mut random, seconds(30));
        // A program that keeps one connection and forgets all is a receiver of one connection, as
        // far as can be seen.
        let greets =
            if kind.most_connections == 1 { ReceiverState::Talks } else { ReceiverState::Greets };
        let others = [ReceiverState::Talks, greets, ReceiverState::DeadBackend];
        let other = random.choice(others).unwrap();
        events.push(match random.u8(0..11) {
            0 => Fault::Hangs(long),
            1 => Fault::Killed(short),
            2 => Fault::Gone(long),
            3 => Fault::Restarted(short),
            4 => Fault::Ended,
            5 => Fault::Moved,
            6 => Fault::RestartedThenKilled(short),
            7 => Fault::HangsThenKilled(long),
            8 => Fault::DiskHangs(long),
            _ => Fault::Replaced(other, long),
        });
    }
    let what = format!("seed {seed}: {window:?} {interval:?} {points} {kind:?} {events:?}");
    let _receivers = world::begin(&[kind, kind]);
    let queue = queue(window);
    let ticks = Arc::new(std::sync::atomic::AtomicI64::new(0));
    let mut pushing = tokio::task::JoinSet::new();
    let (pushed, to) = (Arc::clone(&ticks), queue.clone());
    pushing.spawn(async move {
        loop {
            let next = pushed.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            to.push(&tick(next, points));
            sleep(interval).await;
        }
    });
    let mut sender = start_as(&queue, by_time);
    let mut at = 0;
    for event in events {
        sleep(window + between(&mut random, window)).await;
        match event {
            Fault::Hangs(long) => {
                world::set(at, ReceiverState::Hangs);
                sleep(long).await;
                world::set(at, ReceiverState::Runs);
            }
            Fault::Killed(after) => {
                killed(at, after).await;
            }
            Fault::Gone(after) => {
                world::set(at, ReceiverState::Gone);
                sleep(after).await;
                world::set(at, ReceiverState::Runs);
            }
            Fault::Restarted(after) => {
                sender.stop();
                sleep(after).await;
                sender = start_as(&queue, by_time);
            }
            Fault::Ended => {
                sender.drain(seconds(5)).await;
                queue.outbox("a").note_loss();
                sender = start_as(&queue, by_time);
            }
            Fault::Moved => {
                world::set(at, ReceiverState::Down);
                at = 1 - at;
                world::move_name(at);
                world::set(at, ReceiverState::Runs);
            }
            Fault::RestartedThenKilled(after) => {
                sender.drain(seconds(5)).await;
                queue.outbox("a").note_loss();
                sender = start_as(&queue, by_time);
                sleep(after).await;
                killed(at, seconds(3)).await;
            }
            Fault::Replaced(other, long) => {
                world::set(at, ReceiverState::Down);
                world::set(at, other);
                sleep(long).await;
                killed(at, seconds(3)).await;
            }
            Fault::DiskHangs(long) => {
                let disk = disk_hangs(&queue);
                sleep(seconds(3)).await;
                killed(at, seconds(3)).await;
                sleep(long).await;
                disk_answers(&queue, disk);
            }
            Fault::HangsThenKilled(long) => {
                world::set(at, ReceiverState::Hangs);
                sleep(long).await;
                killed(at, seconds(3)).await;
            }
        }
    }
    pushing.shutdown().await;
    let last = ticks.load(std::sync::atomic::Ordering::Relaxed);
    let began = Instant::now();
    let all: std::collections::BTreeSet<i64> = (1..=last).collect();
    while world::stored() != all {
        let missing: Vec<i64> = all.difference(&world::stored()).copied().collect();
        assert!(
            began.elapsed() < seconds(4 * 3600),
            "lost {} from {:?}: {:?}; {what}",
            missing.len(),
            missing.first(),
            sender.status()
        );
        sleep(seconds(10)).await;
    }
    let status = sender.status();
    assert_eq!((status.dropped, status.unproved), (Dropped::default(), 0), "{what}");
    sender.stop();
}

fn seeds() -> std::ops::Range<u64> {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    first..first + seeds
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_whatever_happens_in_whatever_order() {
    for seed in seeds() {
        nothing_is_lost(seed, false).await;
    }
}

/// A store that refuses what is older than its newest point lost the whole backlog, without a sign.
#[tokio::test(start_paused = true)]
async fn by_time_a_store_that_refuses_older_points_gets_every_tick_whatever_happens() {
    for seed in seeds() {
        nothing_is_lost(seed, true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_closes_what_is_idle_gets_each_tick_at_most_three_times() {
    let kind = ReceiverKind { closes_idle_after: Some(seconds(20)), ..ReceiverKind::default() };
    let _receiver = world::begin(&[kind]);
    let queue = queue(WINDOW);
    let sender = start(&queue);
    push_each(&queue, 1..=60, seconds(60)).await;
    let status = sender.status();
    sender.stop();
    assert!(world::writes().values().all(|writes| *writes <= 3), "{:?}", world::writes());
    assert!(status.held < 20, "ticks are done: {status:?}");
}

/// Each close was a loss: with a timer below 3 s each tick was sent again and again until max_age,
/// and none was ever done.
#[tokio::test(start_paused = true)]
async fn a_peer_that_soon_closes_what_is_idle_gets_each_tick_few_times() {
    for (seed, (millis, interval, ticks)) in (0..8)
        .flat_map(|seed| [(2000, 3, 300), (2000, 30, 60), (750, 1, 900)].map(|kind| (seed, kind)))
    {
        // Of the delays before the next connection, on which it depends how soon four closes agree.
        fastrand::seed(seed);
        let timer = Duration::from_millis(millis);
        let kind = ReceiverKind { closes_idle_after: Some(timer), ..ReceiverKind::default() };
        let _receiver = world::begin(&[kind]);
        let queue = queue(seconds(60));
        let sender = start(&queue);
        push_each(&queue, 1..=ticks, seconds(interval)).await;
        let status = sender.status();
        sender.stop();
        let most = world::writes().values().copied().max().unwrap();
        let what = format!("{timer:?}, every {interval} s, seed {seed}");
        assert!(
            u64::from(most) <= status.connects,
            "{what}: a tick was written {most} times: {status:?}"
        );
        assert!(status.connects <= 12, "{what}: {status:?}");
        assert!(status.held * interval < 180, "{what}: ticks are done: {status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewed_connection_is_no_loss_and_ticks_are_done_a_window_later() {
    let _receiver = world::begin(&[ReceiverKind::default()]);
    let queue = queue(WINDOW);
    let sender = start(&queue);
    push_each(&queue, 1..=100, seconds(30)).await;
    let status = sender.status();
    assert_eq!((status.connects, status.resent, status.due()), (1, 0, 0));
    assert!((20..30).contains(&status.held) && status.renewals >= 45, "once a minute: {status:?}");
    sender.stop();
    // At whatever moment of a renewal it ends, a healthy receiver is asked.
    for wait in [0, 7, 31, 44] {
        let sender = start(&queue);
        sleep(seconds(60 + wait)).await;
        let left = sender.drain(seconds(5)).await;
        assert!(left.is_complete(), "after {wait} s: {left}");
        queue.outbox("a").note_loss();
    }
}

/// A receiver that takes one connection used to get four ticks of a backlog a minute, and all of
/// them again every ten minutes.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_takes_one_connection_gets_every_tick_and_proves_nothing() {
    for by_time in [false, true] {
        let _receiver =
            world::begin(&[ReceiverKind { most_connections: 1, ..ReceiverKind::default() }]);
        let queue = queue(WINDOW);
        (1..=3600).for_each(|n| queue.push(&tick(n, 137)));
        let sender = start_as(&queue, by_time);
        push_each(&queue, 3601..=3630, seconds(20)).await;
        let stored = world::stored().len();
        assert_eq!(stored, 3630, "an hour of ticks in ten minutes");
        assert_eq!(sender.status().held, 3630, "no window has passed");
        push_each(&queue, 3631..=3780, seconds(20)).await;
        let status = sender.status();
        assert_eq!(
            (world::stored().len(), status.renewals, status.connects, status.due()),
            (3780, 0, 1, 0)
        );
        assert!(status.seen_to_run > 60, "{status:?}");
        assert!(world::writes().values().all(|writes| *writes == 1), "sent again");
        assert!((30..40).contains(&status.held) && status.unread == status.held, "{status:?}");
        sender.stop();
    }
}

/// "Once, at replay_rate" would pour twelve hours of ticks into nothing in ten minutes.
#[tokio::test(start_paused = true)]
async fn a_proxy_with_a_dead_backend_gets_little_of_a_backlog_and_nothing_is_lost_in_it() {
    for (most_connections, by_time) in
        [(usize::MAX, false), (1, false), (usize::MAX, true), (1, true)]
    {
        let _receiver =
            world::begin(&[ReceiverKind { most_connections, ..ReceiverKind::default() }]);
        world::set(0, ReceiverState::DeadBackend);
        let queue = queue(WINDOW);
        (1..=1440).for_each(|n| queue.push(&tick(n, 137)));
        let sender = start_as(&queue, by_time);
        push_each(&queue, 1441..=1460, seconds(30)).await;
        let written: u32 = world::writes().values().sum();
        // One for each attempt at a second connection, and live ticks.
        assert!(
            written < 400,
            "{written} ticks were written to nobody, by time: {by_time}, {most_connections}"
        );
        world::set(0, ReceiverState::Down);
        world::set(0, ReceiverState::Runs);
        push_each(&queue, 1461..=1500, seconds(30)).await;
        assert_eq!((world::stored().len(), sender.status().due()), (1500, 0));
        sender.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_holds_back_only_what_is_on_it() {
    let _receiver = world::begin(&[ReceiverKind::default()]);
    let queue = queue(WINDOW);
    (1..=10).for_each(|n| queue.push(&tick(n, 137)));
    let disk = disk_hangs(&queue);
    push_each(&queue, 11..=20, seconds(1)).await;
    let sender = start(&queue);
    push_each(&queue, 21..=50, seconds(1)).await;
    assert_eq!(world::stored(), (11..=50).collect(), "those in memory");
    disk_answers(&queue, disk);
    push_each(&queue, 51..=70, seconds(1)).await;
    assert_eq!(world::stored(), (1..=70).collect());
    sender.stop();
}

/// New ticks wait behind the backlog, so rounds that do for newest first let it grow.
#[tokio::test(start_paused = true)]
async fn by_time_a_backlog_shrinks_although_answers_take_long_or_the_receiver_has_hung() {
    let late = ReceiverKind { strict: true, answers_after: seconds(5), ..ReceiverKind::default() };
    let good = ReceiverKind { strict: true, ..ReceiverKind::default() };
    for (kind, hangs) in [(late, 0), (good, 300)] {
        let _receiver = world::begin(&[kind]);
        let queue = queue(WINDOW);
        (1..=60).for_each(|n| queue.push(&tick(n, 137)));
        let sender = start_as(&queue, true);
        world::set(0, ReceiverState::Hangs);
        push_each(&queue, 61..=60 + hangs, seconds(1)).await;
        world::set(0, ReceiverState::Runs);
        push_each(&queue, 61 + hangs..=900, seconds(1)).await;
        let (stored, unsent) = (world::stored(), sender.status().unsent.ticks);
        assert!(unsent < 20 && stored.len() > 860, "{unsent} wait, {} are stored", stored.len());
        sender.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn by_time_nothing_goes_before_what_a_hung_disk_has() {
    let _receiver = world::begin(&[ReceiverKind { strict: true, ..ReceiverKind::default() }]);
    let queue = queue(WINDOW);
    (1..=10).for_each(|n| queue.push(&tick(n, 137)));
    let disk = disk_hangs(&queue);
    let sender = start_as(&queue, true);
    push_each(&queue, 11..=300, seconds(10)).await;
    assert!(world::stored().is_empty() && sender.status().connected, "{:?}", world::stored());
    disk_answers(&queue, disk);
    push_each(&queue, 301..=310, seconds(10)).await;
    assert_eq!(world::stored(), (1..=310).collect());
    sender.stop();
}

/// A tick of this run would go before what an earlier run has left in the file.
#[tokio::test(start_paused = true)]
async fn by_time_nothing_is_sent_until_the_file_is_open_or_for_ten_minutes() {
    let _receiver = world::begin(&[ReceiverKind::default()]);
    let (queue, _thread) = crate::queue::tests::hung();
    let sender = start_as(&queue, true);
    queue.push(&tick(1, 137));
    queue.publish();
    sleep(seconds(599)).await;
    assert!(world::stored().is_empty());
    sleep(seconds(2)).await;
    assert_eq!(world::stored(), [1].into());
    sender.stop();
}

/// A restart within the first backoff looks like an idle timer: it made 30 connections a minute,
/// for ever.
#[tokio::test(start_paused = true)]
async fn quick_restarts_are_no_idle_timer_and_a_wrong_belief_ends_after_an_hour() {
    let _receiver = world::begin(&[ReceiverKind::default()]);
    let queue = queue(WINDOW);
    let sender = start(&queue);
    let mut connections = Vec::new();
    for n in 1..=480 {
        queue.push(&tick(n, 137));
        sleep(seconds(4)).await;
        // Once alone, and once after two ticks in a row.
        if [10, 50, 51].contains(&n) {
            world::set(0, ReceiverState::Down);
            world::set(0, ReceiverState::Runs);
        }
        sleep(seconds(6)).await;
        if n % 6 == 0 {
            connections.push(world::connections());
        }
    }
    let each_minute: Vec<usize> = connections.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let most =
        |minutes: std::ops::Range<usize>| each_minute[minutes].iter().copied().max().unwrap();
    assert!(most(2..7) <= 3, "after one restart: {each_minute:?}");
    assert!(most(70..79) <= 3, "after an hour: {each_minute:?}");
    sender.stop();
}

#[tokio::test(start_paused = true)]
async fn a_hang_of_a_quarter_of_an_hour_is_doubted_and_nothing_is_lost_with_it() {
    let _receiver = world::begin(&[ReceiverKind::default()]);
    let queue = queue(WINDOW);
    let sender = start(&queue);
    let mut doubted = 0;
    for n in 1..=120 {
        match n {
            20 => world::set(0, ReceiverState::Hangs),
            50 => world::set(0, ReceiverState::Runs),
            _ => {}
        }
        queue.push(&tick(n, 137));
        sleep(seconds(30)).await;
        doubted += u32::from(sender.status().in_doubt);
    }
    let status = sender.status();
    assert_eq!((world::stored().len(), status.due(), status.in_doubt), (120, 0, false));
    assert!((20..35).contains(&doubted), "{doubted} of 30 ticks in doubt");
    assert!(status.connects <= 3, "{status:?}");
    sender.stop();
}

#[tokio::test(start_paused = true)]
async fn with_a_window_of_zero_nothing_is_written_twice_and_what_is_unproved_at_a_loss_is_counted()
{
    let _receiver = world::begin(&[ReceiverKind::default()]);
    let queue = queue(Duration::ZERO);
    let sender = start(&queue);
    for n in 1..=100 {
        if n % 10 == 0 {
            world::set(0, ReceiverState::Down);
            sleep(seconds(5)).await;
            world::set(0, ReceiverState::Runs);
        }
        queue.push(&tick(n, 137));
        sleep(seconds(30)).await;
    }
    let status = sender.status();
    assert!(world::writes().values().all(|writes| *writes == 1), "{:?}", world::writes());
    // At most the points of a period and a half since the last answer, for each of ten kills.
    assert!((10..=40).contains(&status.unproved), "{status:?}");
    assert_eq!(world::stored().len(), 100, "all were read, though nobody knew");
    sender.stop();
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_always_slow_to_answer_gets_its_backlog() {
    let kind = ReceiverKind { answers_after: seconds(4), ..ReceiverKind::default() };
    let _receiver = world::begin(&[kind]);
    let queue = queue(WINDOW);
    (1..=20).for_each(|n| queue.push(&tick(n, 137)));
    let sender = start(&queue);
    push_each(&queue, 21..=200, seconds(30)).await;
    assert_eq!(world::stored().len(), 200);
    sender.stop();
}

/// The daemon used to close such a connection after ten minutes, and then had none.
#[tokio::test(start_paused = true)]
async fn a_certificate_that_expires_costs_no_connection_that_works() {
    let _receiver = world::begin(&[ReceiverKind { tls: true, ..ReceiverKind::default() }]);
    let queue = queue(WINDOW);
    let sender = start(&queue);
    push_each(&queue, 1..=10, seconds(30)).await;
    world::expire(0);
    push_each(&queue, 11..=200, seconds(30)).await;
    let status = sender.status();
    assert_eq!((world::stored().len(), status.connects, status.due()), (200, 1, 0), "{status:?}");
    sender.stop();
}

/// The connection was closed after the stall time-out, as if the receiver's host were gone, and
/// then there was none.
#[tokio::test(start_paused = true)]
async fn a_lack_of_file_descriptors_costs_no_connection_that_works() {
    let _receiver = world::begin(&[ReceiverKind::default()]);
    let queue = queue(WINDOW);
    let sender = start(&queue);
    push_each(&queue, 1..=10, seconds(30)).await;
    world::lack(0, true);
    let before = world::connections();
    push_each(&queue, 11..=200, seconds(30)).await;
    let status = sender.status();
    assert_eq!((world::stored().len(), status.connects, status.due()), (200, 1, 0), "{status:?}");
    assert_eq!(world::connections(), before, "it had one all the same");
    world::lack(0, false);
    push_each(&queue, 201..=220, seconds(30)).await;
    assert!(world::connections() > before && sender.status().unread < 20, "it is renewed again");
    sender.stop();
}

/// The connection was closed after ten minutes, because "the receiver accepts no second
/// connection", and nothing was sent until the name service was back.
#[tokio::test(start_paused = true)]
async fn a_name_that_cannot_be_looked_up_for_an_hour_costs_no_connection_and_no_renewal() {
    for reconnects in [true, false] {
        let _receiver = world::begin(&[ReceiverKind::default()]);
        let queue = queue(WINDOW);
        let reconnect_every = reconnects.then_some(seconds(60));
        let to = Destination { reconnect_every, ..destination() };
        let sender = Sender::start_on::<SimulatedStream>(to, &queue);
        push_each(&queue, 1..=10, seconds(30)).await;
        // After a renewal that was refused, the next ones go by name.
        world::lack(0, !reconnects);
        push_each(&queue, 11..=14, seconds(30)).await;
        world::unname(true);
        world::lack(0, false);
        let renewals = sender.status().renewals;
        push_each(&queue, 15..=134, seconds(30)).await;
        let status = sender.status();
        assert_eq!(
            (world::stored().len(), status.connects, status.due()),
            (134, 1, 0),
            "{status:?}"
        );
        assert!(status.renewals > renewals + 50 && status.unread < 20, "{status:?}");
        // One that has gone away is noticed as ever.
        world::set(0, ReceiverState::Down);
        sleep(seconds(30)).await;
        assert!(!sender.status().connected);
        world::set(0, ReceiverState::Runs);
        world::unname(false);
        push_each(&queue, 135..=140, seconds(30)).await;
        assert_eq!((world::stored().len(), sender.status().connects), (140, 2));
        sender.stop();
    }
}

/// Calling it again at once, with the backlog, would be a flood into somebody else's service.
#[tokio::test(start_paused = true)]
async fn a_port_that_sends_data_is_called_once_a_minute_and_gets_no_backlog_until_a_window_without_it()
 {
    for by_time in [false, true] {
        let _receiver = world::begin(&[ReceiverKind::default()]);
        world::set(0, ReceiverState::Talks);
        let queue = queue(WINDOW);
        (1..=20).for_each(|n| queue.push(&tick(n, 137)));
        let sender = start_as(&queue, by_time);
        push_each(&queue, 21..=80, seconds(10)).await;
        assert!(sender.status().not_carbon && !sender.status().connected);
        assert!(
            (5..=11).contains(&world::connections()),
            "{} in ten minutes",
            world::connections()
        );
        assert!(world::writes().len() <= world::connections() + 1, "{:?}", world::writes());
        world::set(0, ReceiverState::Down);
        world::set(0, ReceiverState::Runs);
        push_each(&queue, 81..=130, seconds(10)).await;
        assert!(sender.status().not_carbon && world::stored().len() <= 50, "{:?}", sender.status());
        push_each(&queue, 131..=200, seconds(10)).await;
        assert_eq!((world::stored().len(), sender.status().not_carbon), (200, false));
        sender.stop();
    }
}

/// The points of such a tick counted as sent, and then as read.
#[tokio::test(start_paused = true)]
async fn a_tick_that_cannot_be_encoded_is_counted_as_lost_and_holds_up_nothing() {
    let _receiver = world::begin(&[ReceiverKind::default()]);
    let queue = queue(WINDOW);
    queue.push(&tick(1, 137));
    queue.push(&tick(2, 137));
    let mut frames = disk_hangs(&queue);
    frames[0].1 = [Frame { points: 1, body: vec![1] }].into();
    disk_answers(&queue, frames);
    let sender = start(&queue);
    push_each(&queue, 3..=4, seconds(10)).await;
    let status = sender.status();
    assert_eq!((status.dropped.damaged, status.sent, status.due(), status.held), (1, 3, 0, 3));
    assert_eq!(world::stored(), (2..=4).collect());
    sender.stop();
}
