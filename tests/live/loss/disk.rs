//! The queue's disk and folder: full, hung, removed, or with a newer version. The daemon runs in every case and reports it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sandbox::carbon::Options;
use sandbox::{Carbon, Folder, Invocation, Series, Space, Stage, find_program, now, wait};

use super::{SKIPPED, side_by_side};

#[test]
fn a_disk_or_file_that_cannot_be_used() {
    side_by_side(&[
        ("the disk full, then freed, then SIGKILL", full),
        ("the disk full of the queue itself", filled),
        ("the queue's directory removed, moved away, mounted over", removed),
        ("the disk hangs, twice, and answers again", hung),
        ("a queue of a newer version", newer),
    ]);
}

/// A stage in this space, whose daemon has begun to send.
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
    stage.said(since, "cannot write ticks to disk")?;
    stage.ticks(4)?;
    fs::remove_file(&filler)?;
    stage.said(since, "ticks are written to disk again")?;
    // What missed its commit is in the next one.
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

/// Writes until there is no space left.
fn fill(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    for size in [4096, 512] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    Ok(())
}

/// Nothing could be written, so nothing that was done left, for ever.
fn filled() -> Result<String> {
    let folder = Folder::new()?;
    let queue = folder.path().join("queue");
    fs::create_dir(&queue)?;
    let script = format!("mount -t tmpfs -o size=400k tmpfs {}", queue.display());
    let Some(space) = Space::new(&folder, &script)? else { return Ok(SKIPPED.to_owned()) };
    let mut stage = stage_in(&space, folder)?;
    stage.daemon.stop()?;
    let mut plan = sandbox::Plan::to(&stage.carbon.address());
    plan.queue = "max_bytes = \"4MiB\"\nresend_window = \"3s\"\n".to_owned();
    stage.configure(&plan)?;
    stage.carbon.process.stop()?;
    let since = now();
    stage.daemon.spawn()?;
    stage.said(since, "cannot write ticks to disk")?;
    stage.ticks(3)?;
    let since = now();
    stage.carbon.process.start()?;
    stage.connected(since)?;
    stage.said(since, "ticks are written to disk again")?;
    stage.until("queue.gauge-file_bytes", |bytes| bytes < 200_000.0)?;
    stage.daemon.kill()?;
    let since = now();
    stage.daemon.spawn()?;
    stage.connected(since)?;
    let errors = stage.collected.said(since, "cannot write ticks to disk");
    ensure!(!errors, "the next run cannot write either");
    Ok(stage.finish()?.clean()?.to_string())
}

/// All of it was called durable, and a SIGKILL lost it.
fn removed() -> Result<String> {
    let folder = Folder::new()?;
    let Some(space) = Space::new(&folder, "true")? else { return Ok(SKIPPED.to_owned()) };
    let mut stage = stage_in(&space, folder)?;
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
        let since = now();
        stage.daemon.spawn()?;
        stage.said(since, "ticks of an earlier run are in the queue")?;
        stage.connected(since)?;
        findings = stage.finish()?.clean()?.to_string();
        stage.daemon.spawn()?;
    }
    stage.daemon.stop()?;
    Ok(findings)
}

/// A frozen file system accepts no write until it is thawed. Whatever happens to this test, it is thawed: when this
/// file is removed, or after two minutes, by a process without the sandbox's mark.
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

    // In the middle of a run: Carbon still gets the ticks that are not on disk.
    let since = now();
    freeze(&space, &stage.folder)?;
    stage.said(since, "the queue's disk does not answer")?;
    stage.ticks(4)?;
    let newest = stage.collected.newest().context("no ticks")?;
    let ticks = stage.carbon.paths().into_iter().find(|(path, _)| path.ends_with("gauge-ticks_run"));
    let ticks = ticks.context("no ticks_run")?.1;
    let stored = || Series::read(&ticks).is_ok_and(|series| series.at(newest).is_some());
    wait::until("a tick that is not on disk", wait::LIMIT, stored)?;
    ensure!(!stage.collected.said(since, "ticks are written to disk again"), "it was not frozen long enough");
    thaw(&stage.folder)?;
    stage.said(since, "ticks are written to disk again")?;
    stage.ticks(2)?;
    let undurable = stage.counter("queue.gauge-undurable")?;
    ensure!(undurable >= 4.0, "{undurable} ticks were counted as undurable");

    // With ticks of an earlier run that exist only there.
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
    stage.said(frozen, "a tick in the queue cannot be read now")?;
    thaw(&stage.folder)?;
    stage.said(frozen, "ticks are written to disk again")?;
    stage.ticks(2)?;
    Ok(format!("{}, {undurable} undurable", stage.finish()?.clean()?))
}

/// This program cannot read such a file, and keeps it for the newer one.
fn newer() -> Result<String> {
    let mut stage = Stage::running()?;
    stage.settled()?.clean()?;
    stage.carbon.process.stop()?;
    stage.ticks(3)?;
    stage.daemon.stop()?;
    let code = "import glob, struct, sys, zlib\n\
        for name in glob.glob(sys.argv[1] + '/queue-*.log'):\n\
        \twith open(name, 'r+b') as file:\n\
        \t\tdata = bytearray(file.read())\n\
        \t\tdata[12] = 100\n\
        \t\tdata[4:8] = struct.pack('<I', zlib.crc32(data[8:struct.unpack_from('<I', data, 8)[0]]))\n\
        \t\tfile.seek(0)\n\
        \t\tfile.write(data)\n";
    let queue = stage.queue().display().to_string();
    Invocation::of(&stage.folder, &find_program("python3")?, &["-c", code, &queue])?.succeed()?;
    let before = segments(&stage.queue())?;
    stage.carbon.process.start()?;
    let since = now();
    stage.daemon.spawn()?;
    let said = stage.said(since, "and this program's is ")?;
    ensure!(said.level == "ERROR", "{}", said.line);
    stage.connected(since)?;
    // Longer than the daemon waits before its next attempt.
    stage.ticks(12)?;
    let errors =
        stage.collected.entries().iter().filter(|entry| entry.at > since && entry.level == "ERROR").count();
    ensure!(errors == 1, "{errors} errors");
    ensure!(
        !before.is_empty() && segments(&stage.queue())? == before,
        "the newer program's files are not as they were"
    );
    stage.daemon.stop()?;
    let findings = stage.settled()?;
    let late = findings.lost.keys().any(|&at| at as f64 > since);
    ensure!(findings.wrong.is_empty() && !late, "{findings}");
    Ok(format!("{} ticks, {} of them kept for the newer program", findings.ticks, findings.lost.len()))
}

/// The contents of each segment of the queue.
fn segments(queue: &Path) -> Result<Vec<Vec<u8>>> {
    let files = fs::read_dir(queue)?.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    files.sort();
    files.into_iter().map(|file| Ok(fs::read(file)?)).collect()
}
