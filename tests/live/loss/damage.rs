//! A segment of the queue is removed, or has bits flipped at random places, while the daemon is down. The next daemon
//! always starts, sends nothing that was not collected, and counts and reports exactly what is lost.
//!
//! crates/carbon/tests/inside/store flips bits and cuts at every byte.

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
        ("after orderly ends: bits of the middle are flipped", || damaged(true, flip)),
        ("after SIGKILLs: the middle is removed", || damaged(false, |path, _| Ok(fs::remove_file(path)?))),
    ]);
}

/// Three runs leave a segment each, and the second is damaged: the third records what it contained.
fn damaged(orderly: bool, damage: Damage) -> Result<String> {
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
    damage(&segments[1], &mut random)?;
    stage.daemon.spawn()?;
    stage.carbon_back()?;
    let findings = stage.finish().with_context(|| format!("seed {seed}"))?;
    ensure!(findings.wrong.is_empty(), "seed {seed}: {findings}");
    let counted = stage.of_carbon("points_dropped_damaged")?;
    let errors = stage.collected.entries().iter().any(|entry| entry.level == "ERROR");
    ensure!(counted == 0.0 || errors, "seed {seed}: nothing said of {counted} points");
    let lost = findings.missing() as f64;
    ensure!(lost == counted, "seed {seed}: {lost} are missing, {counted} were counted");
    Ok(format!("{lost} lost and counted"))
}

fn flip(path: &Path, random: &mut Rng) -> Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    for _ in 0..random.u32(1..40) {
        let (at, mut byte) = (random.u64(0..length), [0]);
        file.read_exact_at(&mut byte, at)?;
        byte[0] ^= 1 << random.u8(0..8);
        file.write_all_at(&byte, at)?;
    }
    Ok(())
}
