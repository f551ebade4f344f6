//! The queue's disk and file: full, hung, locked, of a newer version. The daemon runs whatever it is, and says so.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::carbon::Options;
use sandbox::{
    Carbon, Collected, Folder, Imitation, Invocation, Manner, Process, Series, Sink, Space, Stage,
    destination, find_program, now, slurm_graphite, wait,
};

use crate::{SKIPPED, side_by_side};

#[test]
fn a_disk_or_file_that_cannot_be_used() {
    side_by_side(&[
        ("the disk full, then freed, then SIGKILL", full),
        ("a damaged file on a disk without room for what is taken over from it", no_room),
        ("the disk hangs, twice, and answers again", hung),
        ("the store locked by another daemon", locked),
        ("the store of a newer version", newer),
    ]);
}

/// A stage whose daemon, which is in the space, has begun to send.
fn stage_in(space: &Space, folder: Folder) -> Result<Stage> {
    let mut carbon = Carbon::new(&folder, "carbon", &Options::default())?;
    carbon.process.start()?;
    let mut stage = Stage::with(folder, carbon)?;
    stage.move_into(space, false)?;
    stage.daemon.spawn()?;
    stage.steady()?;
    Ok(stage)
}

fn full() -> Result<String> {
    let folder = Folder::new()?;
    let queue = folder.path().join("queue");
    fs::create_dir(&queue)?;
    let script = format!("mount -t tmpfs -o size=3m tmpfs {}", queue.display());
    let Some(space) = Space::new(&folder, &script)? else { return Ok(SKIPPED.to_owned()) };
    let mut stage = stage_in(&space, folder)?;
    let (filler, since) = (space.path("queue/filler"), now());
    fill(&filler)?;
    stage.said(since, "ticks cannot be kept on disk")?;
    stage.ticks(4)?;
    fs::remove_file(&filler)?;
    stage.said(since, "ticks are kept on disk again")?;
    // What had missed its commit goes along with the next.
    stage.ticks(2)?;
    let undurable = stage.counter("queue.gauge-undurable")?;
    ensure!(undurable >= 4.0, "{undurable} ticks were counted as undurable");
    stage.carbon.process.kill()?;
    stage.daemon.kill()?;
    stage.carbon.process.start()?;
    let since = now();
    stage.daemon.spawn()?;
    stage.said(since, "ticks of an earlier run are in the queue")?;
    stage.connected(since)?;
    Ok(format!("{}, {undurable} undurable", stage.finish()?.clean()?))
}

/// The log's pages are what was written, but its first checksum is not: all of it can be taken over.
fn no_room() -> Result<String> {
    let folder = Folder::new()?;
    let queue = folder.path().join("queue");
    fs::create_dir(&queue)?;
    let script = format!("mount -t tmpfs -o size=3m tmpfs {}", queue.display());
    let Some(space) = Space::new(&folder, &script)? else { return Ok(SKIPPED.to_owned()) };
    let mut stage = stage_in(&space, folder)?;
    stage.carbon.process.kill()?;
    stage.ticks(20)?;
    stage.daemon.kill()?;
    let log = File::options().read(true).write(true).open(space.path("queue/queue.sqlite3-wal"))?;
    let mut sum = [0];
    log.read_exact_at(&mut sum, 48)?;
    log.write_all_at(&[sum[0] ^ 1], 48)?;
    // There is room for a new file, and for no more.
    let filler = space.path("queue/filler");
    fill(&filler)?;
    let most = fs::metadata(&filler)?.len().saturating_sub(96 << 10);
    File::options().write(true).open(&filler)?.set_len(most)?;
    let since = now();
    stage.daemon.spawn()?;
    let said = stage.said(since, "the queue's file cannot be used")?;
    ensure!(said.line.contains("salvage.merged"), "{}", said.line);
    stage.ticks(3)?;
    ensure!(!stage.collected.said(since, "a new one takes its place"), "it was not full");
    fs::remove_file(&filler)?;
    stage.said(since, "a new one takes its place")?;
    stage.carbon.process.start()?;
    stage.connected(since)?;
    stage.ticks(1)?;
    Ok(stage.finish()?.clean()?.to_string())
}

/// Until there is no room left.
fn fill(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    for size in [4096, 512] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    Ok(())
}

/// A file system that is frozen takes no write until it is thawed, which it is whatever becomes of this test: with this
/// file, or after two minutes, by a process that does not carry the sandbox's mark.
fn frozen(folder: &Folder) -> PathBuf {
    folder.path().join("frozen")
}

fn freeze(space: &Space, folder: &Folder) -> Result<()> {
    let (queue, frozen) = (folder.path().join("queue"), frozen(folder));
    fs::write(&frozen, "")?;
    let (queue, frozen) = (queue.display(), frozen.display());
    let wait = format!("for i in $(seq 600); do test -e {frozen} || break; sleep 0.2; done");
    let script = format!("fsfreeze -f {queue} && {wait}; fsfreeze -u {queue}");
    space.run(folder, &format!("setsid env -i PATH=\"$PATH\" sh -c '{script}' >/dev/null 2>&1 </dev/null &"))
}

fn thaw(folder: &Folder) -> Result<()> {
    Ok(fs::remove_file(frozen(folder))?)
}

fn hung() -> Result<String> {
    let folder = Folder::new()?;
    let path = folder.path().display();
    fs::create_dir(folder.path().join("queue"))?;
    let script = format!(
        "truncate -s 32M {path}/disk && mkfs.ext4 -q {path}/disk && mount -o loop {path}/disk {path}/queue"
    );
    let Some(space) = Space::of_root(&folder, &script)? else {
        return Ok("skipped: only root with a loop device can freeze a file system".to_owned());
    };
    let mut stage = stage_in(&space, folder)?;

    // In the middle of a run: Carbon goes on getting what is not on disk.
    let since = now();
    freeze(&space, &stage.folder)?;
    stage.said(since, "the queue's disk does not answer")?;
    stage.ticks(4)?;
    let newest = stage.collected.newest().context("no ticks")?;
    let ticks = stage.carbon.paths().into_iter().find(|(path, _)| path.ends_with("gauge-ticks_run"));
    let ticks = ticks.context("no ticks_run")?.1;
    let stored = || Series::read(&ticks).is_ok_and(|series| series.at(newest).is_some());
    wait::until("a tick that is not on disk", Duration::from_secs(4), stored)?;
    ensure!(!stage.collected.said(since, "ticks are kept on disk again"), "it was not frozen long enough");
    thaw(&stage.folder)?;
    stage.said(since, "ticks are kept on disk again")?;
    stage.ticks(2)?;
    let undurable = stage.counter("queue.gauge-undurable")?;
    ensure!(undurable >= 4.0, "{undurable} ticks were counted as undurable");

    // With ticks of an earlier run that are nowhere but there.
    stage.carbon.process.kill()?;
    stage.ticks(3)?;
    stage.daemon.kill()?;
    let since = now();
    stage.daemon.spawn()?;
    stage.said(since, "ticks of an earlier run are in the queue")?;
    stage.ticks(1)?;
    let frozen = now();
    freeze(&space, &stage.folder)?;
    stage.said(frozen, "the queue's disk does not answer")?;
    stage.carbon.process.start()?;
    stage.connected(frozen)?;
    stage.said(frozen, "a kept tick cannot be read now")?;
    thaw(&stage.folder)?;
    stage.said(frozen, "ticks are kept on disk again")?;
    stage.ticks(2)?;
    Ok(format!("{}, {undurable} undurable", stage.finish()?.clean()?))
}

fn locked() -> Result<String> {
    let mut stage = Stage::running()?;
    let sink = Sink::start(Manner::Record)?;
    let config = stage.folder.path().join("second.toml");
    let text = format!(
        "prefix = \"second\"\n[slurm]\n{}[queue]\ndir = \"{}\"\n{}",
        Imitation::good(&stage.folder)?.toml(),
        stage.queue().display(),
        destination("sink", &sink.address())
    );
    fs::write(&config, text)?;
    let config = config.display().to_string();
    let flags =
        ["run", "--config", &config, "--interval", "1s", "--log-level", "trace", "--log-format", "json"];
    let mut second = Process::new(&stage.folder, "second", slurm_graphite()?).args(flags);
    second.spawn()?;
    second.line("another process uses it; two daemons need two queue.dir", Duration::from_secs(20))?;
    let mut collected = Collected::new(second.log());
    wait::until("three ticks of the second", Duration::from_secs(20), || {
        collected.look().is_ok() && collected.counted().count() >= 3
    })?;
    wait::until("points of the second", Duration::from_secs(5), || !sink.bytes().is_empty())?;
    let undurable = collected.last("queue.gauge-undurable").context("no counter")?;
    ensure!(undurable >= 1.0, "the second counts {undurable} undurable ticks");
    second.stop()?;
    stage.daemon.kill()?;
    let since = now();
    stage.daemon.spawn()?;
    stage.said(since, "ticks of an earlier run are in the queue")?;
    stage.connected(since)?;
    Ok(stage.finish()?.clean()?.to_string())
}

/// What such a file has is beyond this program; it is kept for the newer one.
fn newer() -> Result<String> {
    let mut stage = Stage::running()?;
    stage.settled()?.clean()?;
    stage.carbon.process.stop()?;
    stage.ticks(3)?;
    stage.daemon.stop()?;
    let file = stage.queue().join("queue.sqlite3");
    let code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA user_version = 99'); c.close()";
    let python = find_program("python3")?;
    let set = Invocation::of(&stage.folder, &python, &["-c", code, &file.display().to_string()])?.finish()?;
    ensure!(set.code == Some(0), "{}", set.stderr);
    stage.carbon.process.start()?;
    let since = now();
    stage.daemon.spawn()?;
    stage.said(since, "newer than this program")?;
    stage.connected(since)?;
    stage.ticks(3)?;
    let aside = stage.counter("queue.gauge-moved_aside")?;
    ensure!((aside - 1.0).abs() < 0.1, "{aside} files were counted as moved aside");
    let kept = fs::read_dir(stage.queue())?
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("queue.sqlite3."));
    ensure!(kept, "the file is gone");
    let findings = stage.finish()?;
    #[expect(clippy::cast_precision_loss, reason = "Unix time")]
    let late = findings.lost.keys().any(|&at| at as f64 > since);
    ensure!(findings.wrong.is_empty() && !late, "{findings}");
    Ok(format!("{} ticks, {} in the file set aside", findings.ticks, findings.lost.len()))
}
