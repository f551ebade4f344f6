//! A segment of the queue is truncated at random places, removed, or has bits flipped while the daemon is down. The
//! next daemon always starts, sends nothing that was not collected, and counts and reports exactly what is lost.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sandbox::{
    Collected, Folder, Imitation, Manner, Process, Sink, destination, free_port, slurm_graphite, wait,
};

use super::side_by_side;

const PATIENCE: Duration = wait::LIMIT;
/// How many ticks each of three runs leaves in its own segment.
const TICKS: std::ops::RangeInclusive<usize> = 3..=8;
/// Trials of each kind, which run at once.
const TRIALS: u64 = 12;
const KILLS: u32 = 20;

/// Which segment is damaged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    None,
    /// The next segment records what this one contained.
    Middle,
    /// Nothing records what is missing from its end.
    Last,
}

#[test]
fn a_damaged_store() {
    side_by_side(&[
        ("after orderly ends: a segment in the middle", || trials(true, Which::Middle)),
        ("after SIGKILLs: a segment in the middle", || trials(false, Which::Middle)),
        ("after a SIGKILL: the last segment", || trials(false, Which::Last)),
        ("after SIGKILLs at any moment: nothing", kills),
    ]);
}

/// What an earlier run left while Carbon was down.
struct Left {
    folder: Folder,
    collected: Collected,
    dir: PathBuf,
}

fn trials(orderly: bool, which: Which) -> Result<String> {
    let seed = fastrand::u64(..);
    let left = leave(orderly, &mut fastrand::Rng::with_seed(seed))?;
    let results: Vec<Result<String>> = std::thread::scope(|scope| {
        let left = &left;
        let running: Vec<_> = (0..TRIALS)
            .map(|n| {
                scope.spawn(move || {
                    trial(left, which, seed, n).with_context(|| format!("seed {seed}, trial {n}"))
                })
            })
            .collect();
        running.into_iter().map(|trial| trial.join().unwrap()).collect()
    });
    let mut figures = format!("{} ticks, {TRIALS} damages, 0 wrong:", left.collected.counted().count());
    for result in results {
        write!(figures, " {};", result?)?;
    }
    Ok(figures)
}

/// A crash does not count as damage.
fn kills() -> Result<String> {
    let folder = Folder::new()?;
    let dir = folder.path().join("queue");
    let dead = format!("127.0.0.1:{}", free_port()?);
    let (mut daemon, mut collected) = daemon(&folder, "daemon", &dir, &destination("carbon", &dead))?;
    wait::until("a tick", PATIENCE, || collected.look().is_ok() && collected.counted().count() >= 1)?;
    for _ in 0..KILLS {
        daemon.kill()?;
        daemon.spawn()?;
        wait::pause(Duration::from_millis(fastrand::u64(..1200)));
    }
    daemon.kill()?;
    collected.look()?;
    ensure!(!said(&collected, "ERROR"), "taken for damage");
    let left = Left { folder, collected, dir };
    let ticks = left.collected.counted().count();
    Ok(format!("{ticks} ticks, {KILLS} SIGKILLs: {}", trial(&left, Which::None, 0, 0)?))
}

fn leave(orderly: bool, random: &mut fastrand::Rng) -> Result<Left> {
    let folder = Folder::new()?;
    let dir = folder.path().join("queue");
    let dead = format!("127.0.0.1:{}", free_port()?);
    let (mut daemon, mut collected) = daemon(&folder, "daemon", &dir, &destination("carbon", &dead))?;
    let mut ticks = 0;
    for run in 0..3 {
        ticks += random.usize(TICKS);
        if run > 0 {
            daemon.spawn()?;
        }
        wait::until("ticks", PATIENCE, || collected.look().is_ok() && collected.counted().count() >= ticks)?;
        if orderly {
            daemon.stop()?;
        } else {
            daemon.kill()?;
        }
    }
    collected.look()?;
    Ok(Left { folder, collected, dir })
}

fn daemon(folder: &Folder, name: &str, dir: &Path, destinations: &str) -> Result<(Process, Collected)> {
    let config = folder.path().join(format!("{name}.toml"));
    // Points of the largest size, so that a segment has hundreds of pages.
    let prefix = ["long"; 4].map(|word| word.repeat(45)).join(".");
    let reader = Imitation::new(folder, &format!("{name}.reader"), "hello; serve")?.toml();
    let dir = dir.display();
    // A second destination that never received anything: it keeps every tick in the queue.
    let other = destination("other", &format!("127.0.0.1:{}", free_port()?));
    let text = format!(
        "prefix = \"{prefix}\"\ndrain_timeout = \"1s\"\n[slurm]\n{reader}[queue]\ndir = \"{dir}\"\n{destinations}{other}"
    );
    fs::write(&config, text)?;
    let config = config.display().to_string();
    let flags =
        ["run", "--config", &config, "--interval", "1s", "--log-level", "trace", "--log-format", "json"];
    let mut process = Process::new(folder, name, slurm_graphite()?).args(flags);
    process.spawn()?;
    let collected = Collected::new(process.log());
    Ok((process, collected))
}

fn trial(left: &Left, which: Which, seed: u64, n: u64) -> Result<String> {
    let mut random = fastrand::Rng::with_seed(seed.wrapping_add(n));
    let name = format!("trial-{n}");
    let dir = left.folder.path().join(&name);
    fs::create_dir(&dir)?;
    let mut segments = Vec::new();
    for entry in fs::read_dir(&left.dir)? {
        let entry = entry?;
        let path = dir.join(entry.file_name());
        fs::copy(entry.path(), &path)?;
        segments.extend(Some(path).filter(|path| path.extension().is_some_and(|end| end == "log")));
    }
    segments.sort();
    let what = match (which, segments.as_slice()) {
        (Which::None, _) => "undamaged".to_owned(),
        (Which::Middle, [_, middle, _]) => damage(middle, &mut random)?,
        (Which::Last, [_, _, last]) => damage(last, &mut random)?,
        (_, others) => bail!("{} segments", others.len()),
    };
    let sink = Sink::start(Manner::Record)?;
    let to = format!("{}protocol = \"plaintext\"\n", destination("carbon", &sink.address()));
    let (mut daemon, mut collected) = daemon(&left.folder, &name, &dir, &to)?;
    wait::until("ticks", PATIENCE, || collected.look().is_ok() && collected.counted().count() >= 4)?;
    daemon.stop()?;
    collected.look()?;
    let bytes = sink.bytes();
    let text = String::from_utf8_lossy(&bytes);
    let arrived: BTreeSet<&str> = text.lines().collect();
    for line in &arrived {
        ensure!(
            known(line, &left.collected) || known(line, &collected),
            "{what}: was never collected: {line}"
        );
    }
    let counted = |collected: &Collected| {
        let lines = collected
            .counted()
            .flat_map(|(at, points)| points.iter().map(move |(path, value)| format!("{path} {value} {at}")));
        lines.filter(|line| !arrived.contains(line.as_str())).count()
    };
    ensure!(counted(&collected) == 0, "{what}: {} new datapoints are missing", counted(&collected));
    let missing = counted(&left.collected);
    let damaged = collected.last("carbon.gauge-points_dropped_damaged").context("no counter")?;
    let lost = f64::from(u32::try_from(missing)?);
    match which {
        Which::None => {
            ensure!(missing == 0 && damaged == 0.0, "{what}: {missing} missing, {damaged} counted")
        }
        Which::Middle => {
            ensure!((lost - damaged).abs() < 0.5, "{what}: {missing} missing, {damaged} counted")
        }
        Which::Last => ensure!(damaged <= lost, "{what}: {missing} missing, {damaged} counted"),
    }
    ensure!((damaged == 0.0) || said(&collected, "ERROR"), "{what}: nothing said");
    Ok(format!("{what}: {missing} lost, {damaged} counted"))
}

fn said(collected: &Collected, level: &str) -> bool {
    collected.entries().iter().any(|entry| entry.level == level)
}

fn known(line: &str, collected: &Collected) -> bool {
    let mut words = line.split(' ');
    let (Some(path), Some(value), Some(at)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let (Ok(value), Ok(at)) = (value.parse(), at.parse()) else { return false };
    collected.is_collected(at, path, value)
}

/// Truncates the segment, flips bits, wipes a page or removes it.
fn damage(path: &Path, random: &mut fastrand::Rng) -> Result<String> {
    let length = fs::metadata(path).with_context(|| path.display().to_string())?.len();
    let file = File::options().read(true).write(true).open(path)?;
    let flip = |at: u64, bit: u8| -> Result<()> {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        byte[0] ^= 1 << bit;
        Ok(file.write_all_at(&byte, at)?)
    };
    Ok(match random.u8(0..5) {
        0 => {
            let to = random.u64(0..length);
            file.set_len(to)?;
            format!("cut to {to} of {length}")
        }
        1 => {
            let at = random.u64(0..length);
            flip(at, random.u8(0..8))?;
            format!("a bit flipped at {at}")
        }
        2 => {
            let flips = random.u32(2..40);
            for _ in 0..flips {
                flip(random.u64(0..length), random.u8(0..8))?;
            }
            format!("{flips} bits flipped")
        }
        3 => {
            let at = random.u64(0..length) / 4096 * 4096;
            file.write_all_at(&vec![0; usize::try_from((length - at).min(4096))?], at)?;
            format!("a page wiped at {at}")
        }
        _ => {
            fs::remove_file(path)?;
            "removed".to_owned()
        }
    })
}
