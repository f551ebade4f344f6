//! `make bench`: what delivery costs at 100,000 points a tick, compared with a bare loop that
//! writes prepared frames, into a sink that only reads and into a real carbon-cache; and what
//! memory the backlog of an outage takes.
//!
//! The variants run alternately, each round starts with another one, and the median counts, because
//! after the first variant carbon-cache is still writing what that has sent. Each run waits until
//! carbon-cache is idle.
//!
//! The queue and the sender run in this process: no slurmctld produces 100,000 points a tick.

#![forbid(unsafe_code)]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use carbon::{Batch, Destination, Limits, Queue, Sender};
use sandbox::carbon::Options;
use sandbox::{Carbon, Folder, Manner, Sink, free_port, wait};
use tokio::runtime::Builder;
use tools::contender::{TURNS, Turns, cpu, in_turn};
use tools::{exit_code, none_above, say};

const POINTS: usize = 100_000;
const TICKS: u32 = 10;
/// An hour of ticks every 30 s.
const OUTAGE_TICKS: u32 = 120;

/// The targets.
const MOST_OF_OURS: f64 = 1.0 / 0.95;
const MOST_A_POINT: f64 = 0.25;
const MOST_GROWTH_KIB: f64 = 65_536.0;

fn main() -> ExitCode {
    exit_code("bench", bench())
}

fn bench() -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let folder = Folder::new()?;
    let mut cache = Carbon::start(&folder, "carbon", &Options::keeping("30s:2h"))?;
    say(&format!(
        "{TICKS} ticks of 100,000 points, from the first push until everything is confirmed; \
         medians of {TURNS} turns, with the least and the greatest in brackets\n\n| | points/s | \
         compared with the bare loop |\n|---|---|---|\n"
    ))?;
    let reads = Sink::start(Manner::Discard)?;
    let sink = reads.address();
    let ours = |address: &str, folder| runtime.block_on(ours(address, folder));
    let [bare_sink, memory_sink, disk_sink, synced] = in_turn([
        Box::new(|_| bare(&sink)),
        Box::new(|_| ours(&sink, None)),
        Box::new(|_| ours(&sink, Some(&folder))),
        Box::new(|_| synced(&folder)),
    ])?;
    row("a bare loop of ready frames into a sink", &bare_sink, &bare_sink)?;
    row("queue in memory and sender into the sink", &memory_sink, &bare_sink)?;
    row("queue on disk and sender into the sink", &disk_sink, &bare_sink)?;
    row(
        "a bare loop that writes each tick to a file and syncs it, and sends nothing",
        &synced,
        &bare_sink,
    )?;
    // Carbon creates the files at the first tick, which is not what is measured.
    bare(&cache.address())?;
    let pid = cache.process.pid().context("carbon-cache has ended")?;
    let idle = |measure: &dyn Fn() -> Result<f64>| rest(pid).and_then(|()| measure());
    let [bare_carbon, disk_carbon] = in_turn([
        Box::new(|_| idle(&|| bare(&cache.address()))),
        Box::new(|_| idle(&|| ours(&cache.address(), Some(&folder)))),
    ])?;
    row("a bare loop of ready frames into carbon-cache", &bare_carbon, &bare_carbon)?;
    row("queue on disk and sender into carbon-cache", &disk_carbon, &bare_carbon)?;

    let growth = runtime.block_on(outage(&folder))?;
    say(&format!(
        "\nThe backlog of an hour's outage at that size: drained with {growth} KiB more RSS.\n"
    ))?;

    none_above([
        (
            "the bare loop's rate into Carbon compared with ours",
            median(&bare_carbon) / median(&disk_carbon),
            MOST_OF_OURS,
        ),
        ("µs a point into the sink", 1e6 / median(&disk_sink), MOST_A_POINT),
        ("KiB of growth", growth as f64, MOST_GROWTH_KIB),
    ])
}

fn tick(number: u32) -> Batch {
    let mut batch = Batch::new(1_800_000_000 + 30 * i64::from(number));
    for point in 0..POINTS {
        batch.push(format!("cluster.bench.group{}.gauge-{point}", point % 100), f64::from(number));
    }
    batch
}

/// Points a second.
type Rates = Turns<f64>;

fn median(rates: &Rates) -> f64 {
    rates.median(|&rate| rate)
}

fn row(name: &str, rates: &Rates, bare: &Rates) -> Result<()> {
    let (least, most) = rates.range(|rate| rate / 1e6);
    let (median, ratio) = (median(rates) / 1e6, median(rates) / median(bare));
    say(&format!("| {name} | {median:.3} M ({least:.3} to {most:.3}) | {ratio:.2} |\n"))
}

/// Waits until a process uses less than a twentieth of a CPU.
fn rest(pid: u32) -> Result<()> {
    wait::until("carbon-cache at rest", Duration::from_secs(300), || {
        let before = cpu(pid).unwrap_or_default();
        wait::pause(Duration::from_secs(1));
        cpu(pid).is_ok_and(|after| after.saturating_sub(before) < Duration::from_millis(50))
    })
    .map(drop)
}

/// Prepared frames, joined into one text for each tick.
fn ready() -> Result<Vec<Vec<u8>>> {
    let frames = |number| anyhow::Ok(carbon::frames(&tick(number))?.into_iter());
    (0..TICKS).map(|number| Ok(frames(number)?.flat_map(|frame| frame.body).collect())).collect()
}

/// Ticks a second that are written to a file as prepared frames, with a sync for each tick.
fn synced(folder: &Folder) -> Result<f64> {
    let (ticks, path) = (ready()?, folder.path().join("synced"));
    let mut file = fs::File::create(&path)?;
    let start = Instant::now();
    for bytes in &ticks {
        file.write_all(bytes)?;
        file.sync_data()?;
    }
    let rate = rate(start.elapsed());
    fs::remove_file(path)?;
    Ok(rate)
}

/// Ticks a second that are written as prepared frames and confirmed.
fn bare(address: &str) -> Result<f64> {
    let ticks = ready()?;
    let mut stream = TcpStream::connect(address)?;
    let start = Instant::now();
    for bytes in &ticks {
        stream.write_all(bytes)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(rate(start.elapsed()))
}

/// Ticks a second from the first push until everything is confirmed.
async fn ours(address: &str, folder: Option<&Folder>) -> Result<f64> {
    let ticks: Vec<Batch> = (0..TICKS).map(tick).collect();
    let dir = folder.map(|folder| folder.path().join("delivery"));
    let queue = open(dir.clone());
    let sender = Sender::start(destination(address)?, &queue);
    until(|| sender.status().connected).await?;
    let start = Instant::now();
    for tick in &ticks {
        queue.push(tick);
        tokio::task::yield_now().await;
    }
    until(|| sender.status().sent >= u64::from(TICKS) * POINTS as u64).await?;
    let left = sender.drain(Duration::from_secs(120)).await;
    let rate = rate(start.elapsed());
    ensure!(left.is_complete(), "{left}");
    queue.close().await;
    if let Some(dir) = dir {
        fs::remove_dir_all(dir)?;
    }
    Ok(rate)
}

/// Queues an hour's ticks without a receiver and then sends them: how much more memory that takes
/// than a tick.
async fn outage(folder: &Folder) -> Result<u64> {
    let port = free_port()?;
    let to = destination(&format!("127.0.0.1:{port}"))?;
    let queue = open(Some(folder.path().join("outage")));
    let sender = Sender::start(Destination { replay_rate: Some(1_000_000), ..to }, &queue);
    let mut before = 0;
    for number in 0..OUTAGE_TICKS {
        queue.push(&tick(number));
        let due = u64::from(number) + 1;
        until(|| sender.status().due() >= due).await?;
        if number == 2 {
            before = rss()?;
        }
    }
    let mut peak = rss()?;
    let _reads = Sink::on(port, Manner::Discard)?;
    until(|| {
        peak = peak.max(rss().unwrap_or(0));
        sender.status().due() == 0
    })
    .await?;
    queue.close().await;
    Ok(peak.saturating_sub(before))
}

fn open(dir: Option<std::path::PathBuf>) -> Queue {
    let limits = Limits {
        max_bytes: 2 << 30,
        max_age: Duration::from_secs(24 * 3600),
        resend_window: Duration::from_secs(600),
    };
    Queue::open(dir, limits, &["bench".to_owned()])
}

fn destination(address: &str) -> Result<Destination> {
    Ok(Destination { replay_rate: Some(u32::MAX), ..Destination::new("bench", address.parse()?) })
}

async fn until(mut condition: impl FnMut() -> bool) -> Result<()> {
    let limit = Instant::now() + Duration::from_secs(300);
    while !condition() {
        ensure!(Instant::now() < limit, "nothing moves");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn rate(time: Duration) -> f64 {
    f64::from(TICKS) * 1e5 / time.as_secs_f64()
}

fn rss() -> Result<u64> {
    sandbox::proc::rss_kib(std::process::id()).context("no VmRSS")
}
