//! Faults of the queue's disk and of its folder.

use std::fs::{self, File};
use std::io::Write;

use anyhow::{Context as _, Result};
use sandbox::{Invocation, Manner, find_program, now, wait};

use super::faults::{Fault, away, back};
use crate::{ALL, Soak, VOLUME_SIZE, shell};

pub(crate) const FAULTS: &[(&str, Fault)] = &[
    ("queue: disk full", disk_full),
    ("queue: disk full of the queue itself", disk_full_of_itself),
    // Twice, because the daemon may write into it meanwhile.
    ("queue: folder removed, then daemon: SIGKILL", |soak| {
        folder_goes(soak, "rm -rf Q || rm -rf Q", "true")
    }),
    ("queue: folder moved away, then daemon: SIGKILL", |soak| {
        folder_goes(soak, "mv Q Q.old", "rm -rf Q.old")
    }),
    ("queue: folder moved away and restored, then daemon: SIGKILL", |soak| {
        folder_goes(soak, "mv Q Q.old", "rm -rf Q; mv Q.old Q")
    }),
    ("queue: mounted over and uncovered, then daemon: SIGKILL", |soak| {
        folder_goes(soak, "mount -t tmpfs tmpfs Q", "umount -l Q")
    }),
];

/// A tick that is not on disk would be lost with the process, so all ticks must be on disk before
/// the next fault.
fn disk_full(soak: &mut Soak) -> Result<()> {
    let (filler, since) = (soak.volume().join("filler"), now());
    let mut file = File::create(&filler)?;
    for size in [1 << 20, 4096, 512] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    // A file that is open would keep its space after it was removed.
    drop(file);
    soak.lasts(2.0, 20.0);
    fs::remove_file(&filler)?;
    soak.stage.tick()?;
    // A log that already has room for them does not grow.
    if soak.stage.collected.said(since, "cannot write ticks to disk") {
        soak.stage.said(since, "ticks are written to disk again")?;
    }
    soak.stage.tick()
}

/// In an outage the queue grows until its disk is full. When everything was sent, it must find room
/// again by itself.
fn disk_full_of_itself(soak: &mut Soak) -> Result<()> {
    soak.ill.behave(Some(Manner::Discard))?;
    soak.have_recovered(ALL)?;
    let since = now();
    away(soak);
    // Files that are done make room for some time, so that the disk is full only for a moment.
    let again = "ticks are written to disk again";
    let full_since = wait::until_some("a disk that is full", wait::LIMIT * 4, || {
        shrink(soak).and_then(|()| soak.stage.ticks(12)).ok()?;
        let entries = soak.stage.collected.entries();
        let is_full = |line: &str| line.contains("cannot write ticks to disk");
        let last =
            entries.iter().rfind(|entry| is_full(&entry.line) || entry.line.contains(again))?;
        (last.at > since && is_full(&last.line)).then_some(last.at)
    })?;
    soak.pause(0.0, 4.0);
    back(soak)?;
    soak.stage.said(full_since, again)?;
    resize(soak, VOLUME_SIZE)?;
    soak.stage.tick()
}

/// Leaves less room than the ticks of the next seconds need.
fn shrink(soak: &Soak) -> Result<()> {
    let df = format!("df --output=used -k {} | tail -n 1", soak.volume().display());
    let used = Invocation::of_program(&soak.stage.folder, &find_program("sh")?, &["-ec", &df])?
        .finish()?;
    let used: u64 = used.stdout.trim().parse().with_context(|| format!("{used:?}"))?;
    resize(soak, &format!("{}k", used + 64))
}

fn resize(soak: &Soak, size: &str) -> Result<()> {
    shell(&soak.stage.folder, &format!("mount -o remount,size={size} {}", soak.volume().display()))
}

/// The folder goes in an outage, and something else is done to it or to its place. What has not
/// been sent must be in the folder that the daemon finds when it is started again, unless it is
/// older than the last start: then it is in the files alone.
fn folder_goes(soak: &mut Soak, first: &str, then: &str) -> Result<()> {
    // Two windows: nothing of an earlier run can become due again.
    soak.recovered()?;
    soak.stage.ticks(12)?;
    soak.recovered()?;
    away(soak);
    soak.pause(1.0, 4.0);
    for script in [first, then] {
        let queue = soak.stage.queue().display().to_string();
        shell(&soak.stage.folder, &script.replace('Q', &queue))?;
        soak.stage.ticks(3)?;
        soak.stage.until("queue.gauge-durable", |durable| durable > 0.5)?;
        soak.stage.tick()?;
    }
    soak.stage.restart(true)?;
    soak.pause(1.0, 4.0);
    back(soak)
}
