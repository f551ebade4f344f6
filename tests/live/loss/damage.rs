//! A segment of the queue is truncated, wiped, removed, or has bits flipped, at random places, while the daemon is down. The
//! next daemon always starts, sends nothing that was not collected, and counts and reports exactly what is lost.
//!
//! crates/carbon/tests/inside/store does that at every byte.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use sandbox::Stage;
use sandbox::carbon::Options;

use super::{LONG, side_by_side};

type Damage = fn(&Path, &mut Rng) -> Result<()>;

#[test]
fn a_damaged_store() {
    side_by_side(&[
        ("after orderly ends: the middle is cut", || middle(true, cut)),
        ("after orderly ends: bits of the middle are flipped", || middle(true, flip)),
        ("after SIGKILLs: a page of the middle is wiped", || middle(false, wipe)),
        ("after SIGKILLs: the middle is removed", || middle(false, |path, _| Ok(fs::remove_file(path)?))),
        ("after SIGKILLs: the end is cut", end),
    ]);
}

/// The next segment records what this one contained.
fn middle(orderly: bool, damage: Damage) -> Result<String> {
    let (lost, counted) = damaged(orderly, 1, damage)?;
    ensure!(lost == counted, "{lost} are missing, {counted} were counted");
    Ok(format!("{lost} lost and counted"))
}

/// Nothing records what is missing from the end of the last segment.
fn end() -> Result<String> {
    let (lost, counted) = damaged(false, 2, cut)?;
    ensure!(counted <= lost, "{lost} are missing, {counted} were counted");
    Ok(format!("{lost} lost, {counted} counted"))
}

/// Three runs leave a segment each, and the one with this index is damaged. Returns how many points are missing then, and
/// how many are counted.
fn damaged(orderly: bool, index: usize, damage: Damage) -> Result<(f64, f64)> {
    let seed = fastrand::u64(..);
    let (mut random, mut stage) = (Rng::with_seed(seed), Stage::new(&Options::default())?);
    stage.carbon.process.stop()?;
    // Points of the largest size, so that a segment has hundreds of pages.
    stage.plan.top = format!("prefix = \"{}\"\n", LONG.map(|word| word.repeat(45)).join("."));
    stage.plan.drain = "1s";
    stage.configure()?;
    for _ in 0..3 {
        stage.daemon.spawn()?;
        stage.ticks(random.usize(3..=8))?;
        if orderly { stage.daemon.stop() } else { stage.daemon.kill() }?;
        stage.collected.look()?;
    }
    let segments = stage.segments()?;
    ensure!(segments.len() == 3, "{segments:?}");
    damage(&segments[index], &mut random)?;
    stage.daemon.spawn()?;
    stage.carbon_back()?;
    let findings = stage.finish().with_context(|| format!("seed {seed}"))?;
    ensure!(findings.wrong.is_empty(), "seed {seed}: {findings}");
    let counted = stage.of_carbon("points_dropped_damaged")?;
    let errors = stage.collected.entries().iter().any(|entry| entry.level == "ERROR");
    ensure!(counted == 0.0 || errors, "seed {seed}: nothing said of {counted} points");
    Ok((findings.missing() as f64, counted))
}

/// The file, and a random place in it.
fn somewhere(path: &Path, random: &mut Rng) -> Result<(File, u64)> {
    let file = File::options().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    Ok((file, random.u64(0..length)))
}

fn cut(path: &Path, random: &mut Rng) -> Result<()> {
    let (file, at) = somewhere(path, random)?;
    Ok(file.set_len(at)?)
}

fn flip(path: &Path, random: &mut Rng) -> Result<()> {
    for _ in 0..random.u32(1..40) {
        let ((file, at), mut byte) = (somewhere(path, random)?, [0]);
        file.read_exact_at(&mut byte, at)?;
        byte[0] ^= 1 << random.u8(0..8);
        file.write_all_at(&byte, at)?;
    }
    Ok(())
}

fn wipe(path: &Path, random: &mut Rng) -> Result<()> {
    let (file, at) = somewhere(path, random)?;
    let (page, length) = (at / 4096 * 4096, file.metadata()?.len());
    Ok(file.write_all_at(&vec![0; usize::try_from((length - page).min(4096))?], page)?)
}
