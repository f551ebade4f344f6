//! The queue's disk and folder: full, hung, removed, or with a newer version. The daemon runs in
//! every case and reports it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sandbox::{Folder, Invocation, Series, Space, Stage, find_program, now, wait};

use super::{SKIPPED, side_by_side};

const FULL: &str = "cannot write ticks to disk";
const HUNG: &str = "the queue's disk does not answer";
const AGAIN: &str = "ticks are written to disk again";

#[test]
fn a_disk_or_file_that_cannot_be_used() {
    side_by_side(&[
        ("the disk full, then freed, then SIGKILL", full),
        ("the queue's directory removed, moved away, mounted over", removed),
        ("the disk hangs, twice, and answers again", hung),
        ("a queue of a newer version", newer),
    ]);
}

fn full() -> Result<String> {
    let folder = Folder::new()?;
    let queue = folder.path().join("queue");
    fs::create_dir(&queue)?;
    let script = format!("mount -t tmpfs -o size=3m tmpfs {}", queue.display());
    let Some(space) = Space::new(&folder, &script)? else { return Ok(SKIPPED.to_owned()) };
    let mut stage = Stage::within(folder, &space, false)?.run()?;
    let (filler, since) = (space.path("queue/filler"), now());
    let mut file = File::create(&filler)?;
    for size in [4096, 512] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    drop(file);
    stage.said(since, FULL)?;
    stage.ticks(4)?;
    let said = stage.collected.news(since).filter(|entry| entry.line.contains(FULL)).count();
    ensure!(said == 1, "said {said} times");
    fs::remove_file(&filler)?;
    stage.said(since, AGAIN)?;
    // What missed its commit is in the next one.
    stage.ticks(2)?;
    let undurable = undurable(&stage)?;
    stage.carbon.process.kill()?;
    stage.daemon.kill()?;
    stage.carbon.process.start()?;
    stage.resume()?;
    Ok(format!("{}, {undurable} undurable", stage.clean()?))
}

fn undurable(stage: &Stage) -> Result<f64> {
    let undurable = stage.counter("queue.gauge-undurable")?;
    ensure!(undurable >= 4.0, "{undurable} ticks were counted as undurable");
    Ok(undurable)
}

/// All of it was called durable, and a SIGKILL lost it.
fn removed() -> Result<String> {
    let folder = Folder::new()?;
    let Some(space) = Space::new(&folder, "true")? else { return Ok(SKIPPED.to_owned()) };
    let mut stage = Stage::within(folder, &space, false)?.run()?;
    let queue = stage.queue().display().to_string();
    let mut findings = String::new();
    let mount = format!("mount -t tmpfs tmpfs {queue}");
    for happens in [format!("rm -rf {queue}"), format!("mv {queue} {queue}.away"), mount] {
        stage.ticks(1)?;
        stage.carbon.process.stop()?;
        stage.ticks(3)?;
        let since = now();
        space.run(&stage.folder, &happens)?;
        stage.said(since, "the queue's files were removed")?;
        stage.ticks(2)?;
        stage.daemon.kill()?;
        stage.carbon.process.start()?;
        stage.resume()?;
        findings = stage.clean()?;
        stage.daemon.spawn()?;
    }
    stage.daemon.stop()?;
    Ok(findings)
}

/// A frozen file system accepts no write until it is thawed. Whatever happens to this test, it is
/// thawed: when this file is removed, or after two minutes, by a process without the sandbox's
/// mark.
fn frozen(folder: &Folder) -> PathBuf {
    folder.path().join("frozen")
}

/// Freezes it, and waits until the daemon has noticed; returns since when.
fn freeze(space: &Space, stage: &mut Stage) -> Result<f64> {
    let (queue, frozen, since) = (stage.queue(), frozen(&stage.folder), now());
    fs::write(&frozen, "")?;
    let (queue, frozen) = (queue.display(), frozen.display());
    let wait = format!("for i in $(seq 600); do test -e {frozen} || break; sleep 0.2; done");
    let script = format!("fsfreeze -f {queue} && {wait}; fsfreeze -u {queue}");
    let away =
        format!("setsid env -i PATH=\"$PATH\" sh -c '{script}' >/dev/null 2>&1 </dev/null &");
    space.run(&stage.folder, &away)?;
    stage.said(since, HUNG)?;
    Ok(since)
}

/// Thaws it, and waits until it is used again.
fn thaw(stage: &mut Stage, since: f64) -> Result<()> {
    ensure!(!stage.collected.said(since, AGAIN), "it was not frozen long enough");
    fs::remove_file(frozen(&stage.folder))?;
    stage.said(since, AGAIN)?;
    stage.ticks(2)
}

fn hung() -> Result<String> {
    let folder = Folder::new()?;
    let path = folder.path().display();
    fs::create_dir(folder.path().join("queue"))?;
    let script = format!(
        "truncate -s 32M {path}/disk && mkfs.ext4 -q {path}/disk && mount -o loop {path}/disk \
            {path}/queue"
    );
    let Some(space) = Space::of_root(&folder, &script)? else {
        return Ok("skipped: only root with a loop device can freeze a file system".to_owned());
    };
    let mut stage = Stage::within(folder, &space, false)?.run()?;

    // In the middle of a run: Carbon still gets the ticks that are not on disk.
    let since = freeze(&space, &mut stage)?;
    stage.ticks(4)?;
    let newest = stage.collected.newest().context("no ticks")?;
    let ticks =
        stage.carbon.paths().into_iter().find(|(path, _)| path.ends_with("gauge-ticks_run"));
    let ticks = ticks.context("no ticks_run")?.1;
    let stored = || Series::read(&ticks).is_ok_and(|series| series.at(newest).is_some());
    wait::until("a tick that is not on disk", wait::LIMIT, stored)?;
    thaw(&mut stage, since)?;
    let undurable = undurable(&stage)?;

    // With ticks of an earlier run that exist only there.
    stage.carbon.process.kill()?;
    stage.ticks(3)?;
    let since = now();
    stage.restart(true)?;
    stage.said(since, "ticks of an earlier run are in the queue")?;
    stage.ticks(1)?;
    let since = freeze(&space, &mut stage)?;
    stage.carbon_back()?;
    stage.said(since, "disk does not return ticks that wait")?;
    thaw(&mut stage, since)?;
    Ok(format!("{}, {undurable} undurable", stage.clean()?))
}

/// This program cannot read such a file, and keeps it for the newer one.
fn newer() -> Result<String> {
    let mut stage = Stage::running()?;
    stage.settled()?.clean()?;
    stage.carbon.process.stop()?;
    stage.ticks(3)?;
    stage.daemon.stop()?;
    let code = "import struct, sys, zlib\nfor name in sys.argv[1:]:\n\twith open(name, 'r+b') as \
        file:\n\t\tdata = bytearray(file.read())\n\t\tdata[12] = 100\n\t\tdata[4:8] = \
        struct.pack('<I', zlib.crc32(data[8:struct.unpack_from('<I', data, 8)[0]]))\n\
        \t\tfile.seek(0)\n\t\tfile.write(data)\n";
    let segments: Vec<String> =
        stage.segments()?.iter().map(|path| path.display().to_string()).collect();
    let args =
        ["-c", code].into_iter().chain(segments.iter().map(String::as_str)).collect::<Vec<_>>();
    Invocation::of_program(&stage.folder, &find_program("python3")?, &args)?.succeed()?;
    let before = contents(&stage)?;
    stage.carbon.process.start()?;
    let since = now();
    stage.daemon.spawn()?;
    let said = stage.said(since, "and this program's is ")?;
    ensure!(said.level == "ERROR", "{}", said.line);
    stage.connected(since)?;
    // Longer than the daemon waits before its next attempt.
    stage.ticks(12)?;
    let errors = stage.collected.news(since).filter(|entry| entry.level == "ERROR").count();
    ensure!(errors == 1, "{errors} errors");
    ensure!(
        !before.is_empty() && contents(&stage)? == before,
        "the newer program's files are not as they were"
    );
    stage.daemon.stop()?;
    let findings = stage.settled()?;
    let late = findings.lost.keys().any(|&at| at as f64 > since);
    ensure!(findings.wrong.is_empty() && !late, "{findings}");
    Ok(format!(
        "{} ticks, {} of them kept for the newer program",
        findings.ticks,
        findings.lost.len()
    ))
}

fn contents(stage: &Stage) -> Result<Vec<Vec<u8>>> {
    stage.segments()?.iter().map(|segment: &PathBuf| Ok(fs::read::<&Path>(segment)?)).collect()
}
