//! The queue's file, its log or its tally truncated at random places, removed, and bits of them flipped while the daemon is
//! down: the next one always starts, sends nothing that was not collected, and counts and says what is lost, to the point.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sandbox::{
    Collected, Folder, Imitation, Invocation, Manner, Process, Sink, destination, find_program, free_port,
    slurm_graphite, wait,
};

use crate::side_by_side;

const FILE: &str = "queue.sqlite3";
const LOG: &str = "queue.sqlite3-wal";
const TALLY: &str = "queue.sqlite3-tally";
const PATIENCE: Duration = Duration::from_secs(30);
/// Ticks that are left: the first log has room for fifteen, so that some are in the file and some in its next lap.
const TICKS: std::ops::RangeInclusive<usize> = 10..=20;
/// Of each kind, and at once.
const TRIALS: u64 = 12;
const KILLS: u32 = 20;

#[test]
fn a_damaged_store() {
    side_by_side(&[
        ("after an orderly end: the file", || trials(true, &[FILE])),
        ("after a SIGKILL: the log", || trials(false, &[LOG])),
        ("after a SIGKILL: the file and its log", || trials(false, &[FILE, LOG])),
        ("after a SIGKILL: the tally", || trials(false, &[TALLY])),
        ("after a SIGKILL: the log and the tally", || trials(false, &[LOG, TALLY])),
        ("after SIGKILLs at any moment: nothing", kills),
        ("to whom ticks are due: forgotten", nobodys),
    ]);
}

/// What an earlier run left, with Carbon away.
struct Left {
    folder: Folder,
    collected: Collected,
    dir: PathBuf,
}

fn trials(orderly: bool, files: &[&str]) -> Result<String> {
    let seed = fastrand::u64(..);
    let left = leave(orderly, fastrand::Rng::with_seed(seed).usize(TICKS))?;
    let results: Vec<Result<String>> = std::thread::scope(|scope| {
        let left = &left;
        let running: Vec<_> = (0..TRIALS)
            .map(|n| {
                scope.spawn(move || {
                    trial(left, files, seed, n).with_context(|| format!("seed {seed}, trial {n}"))
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

/// Whole ticks whose entries of the destinations they are due to have gone are due to all.
fn nobodys() -> Result<String> {
    let left = leave(true, *TICKS.start())?;
    let code =
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('DELETE FROM due'); c.commit()";
    let file = left.dir.join(FILE).display().to_string();
    let gone = Invocation::of(&left.folder, &find_program("python3")?, &["-c", code, &file])?.finish()?;
    ensure!(gone.code == Some(0), "{}", gone.stderr);
    // It would know.
    fs::remove_file(left.dir.join(TALLY))?;
    let sink = Sink::start(Manner::Record)?;
    let to = format!("{}protocol = \"plaintext\"\n", destination("carbon", &sink.address()));
    let (mut daemon, mut collected) = daemon(&left.folder, "nobodys", &left.dir, &to)?;
    wait::until("ticks", PATIENCE, || collected.look().is_ok() && collected.counted().count() >= 3)?;
    daemon.stop()?;
    let bytes = sink.bytes();
    let text = String::from_utf8_lossy(&bytes);
    let arrived: BTreeSet<&str> = text.lines().collect();
    for (at, points) in left.collected.counted() {
        for (path, value) in points {
            ensure!(arrived.contains(format!("{path} {value} {at}").as_str()), "{path} at {at} is lost");
        }
    }
    Ok(format!("{} ticks, 0 lost", left.collected.counted().count()))
}

/// No crash is taken for damage.
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
    ensure!(!collected.said(0.0, "cannot be known") && !said(&collected, "ERROR"), "taken for damage");
    let left = Left { folder, collected, dir };
    let ticks = left.collected.counted().count();
    Ok(format!("{ticks} ticks, {KILLS} SIGKILLs: {}", trial(&left, &[], 0, 0)?))
}

fn leave(orderly: bool, ticks: usize) -> Result<Left> {
    let folder = Folder::new()?;
    let dir = folder.path().join("queue");
    let dead = format!("127.0.0.1:{}", free_port()?);
    let (mut daemon, mut collected) = daemon(&folder, "daemon", &dir, &destination("carbon", &dead))?;
    wait::until("ticks", PATIENCE, || collected.look().is_ok() && collected.counted().count() >= ticks)?;
    if orderly {
        daemon.stop()?;
    } else {
        daemon.kill()?;
    }
    collected.look()?;
    Ok(Left { folder, collected, dir })
}

fn daemon(folder: &Folder, name: &str, dir: &Path, destinations: &str) -> Result<(Process, Collected)> {
    let config = folder.path().join(format!("{name}.toml"));
    // Points as large as they may be: the file has hundreds of pages.
    let prefix = ["long"; 4].map(|word| word.repeat(45)).join(".");
    let reader = Imitation::new(folder, &format!("{name}.reader"), "hello; serve")?.toml();
    let dir = dir.display();
    // A second one, which never had anything: its entries keep every tick in the file.
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

fn trial(left: &Left, files: &[&str], seed: u64, n: u64) -> Result<String> {
    let mut random = fastrand::Rng::with_seed(seed.wrapping_add(n));
    let name = format!("trial-{n}");
    let tally_is_damaged = files.contains(&TALLY);
    let dir = left.folder.path().join(&name);
    fs::create_dir(&dir)?;
    for entry in fs::read_dir(&left.dir)? {
        let entry = entry?;
        fs::copy(entry.path(), dir.join(entry.file_name()))?;
    }
    let damages = files.iter().map(|file| damage(&dir.join(file), &mut random));
    let what = damages.collect::<Result<Vec<String>>>()?.join(" and ");
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
    let aside = collected.last("queue.gauge-moved_aside").context("no counter")?;
    let lost = f64::from(u32::try_from(missing)?);
    let exact = (lost - damaged).abs() < 0.5;
    // Only one who has lost both the ticks and the tally cannot know how many they were.
    let unknown = collected.said(0.0, "cannot be known") && tally_is_damaged;
    ensure!(exact || unknown, "{what}: {missing} missing, {damaged} counted, and nothing else said");
    ensure!(missing == 0 || unknown || said(&collected, "ERROR"), "{what}: nothing said");
    if files.iter().all(|file| *file == TALLY) {
        // Damaged alone it costs nothing, and says nothing of what it counts.
        ensure!(
            missing == 0 && exact && !said(&collected, "ERROR"),
            "{what}: {missing} missing, {damaged} counted"
        );
        ensure!(
            collected.said(0.0, "cannot be known") == tally_is_damaged,
            "{what}: taken for another damage"
        );
    }
    let unknown = if unknown { " and said to be more" } else { "" };
    Ok(format!("{what}: {missing} lost, {damaged} counted{unknown}, {aside} aside"))
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

/// Truncates the file, flips bits, wipes a page or removes it; a log it may also cut behind a commit or flip in the last one.
fn damage(path: &Path, random: &mut fastrand::Rng) -> Result<String> {
    let length = fs::metadata(path).with_context(|| path.display().to_string())?.len();
    let file = File::options().read(true).write(true).open(path)?;
    let flip = |at: u64, bit: u8| -> Result<()> {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        byte[0] ^= 1 << bit;
        Ok(file.write_all_at(&byte, at)?)
    };
    let ends = if path.ends_with(LOG) { ends_of_commits(path)? } else { Vec::new() };
    Ok(match random.u8(0..if ends.len() > 1 { 8 } else { 5 }) {
        0 => {
            // A tally that ends with a commit fits a log that ends with the same: nothing could tell.
            let to = random.u64(0..length) | u64::from(path.ends_with(TALLY));
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
            file.write_all_at(&[0; 4096], at)?;
            format!("a page wiped at {at}")
        }
        4 => {
            fs::remove_file(path)?;
            "removed".to_owned()
        }
        5 | 6 => {
            let commits = random.usize(1..ends.len());
            file.set_len(*ends.iter().rev().nth(commits).context("no commit")?)?;
            format!("{commits} of {} commits cut off", ends.len())
        }
        _ => {
            let [.., before, end] = ends.as_slice() else { bail!("no commits") };
            let at = random.u64(*before..*end);
            flip(at, random.u8(0..8))?;
            format!("a bit of the last commit flipped at {at}")
        }
    })
}

/// Where each commit of the present lap of the log ends; a page's header has the size of the database only in a commit's last.
fn ends_of_commits(path: &Path) -> Result<Vec<u64>> {
    let bytes = fs::read(path)?;
    let (header, pages) = bytes.split_at_checked(32).context("a log without a header")?;
    let commits = pages.chunks_exact(24 + 4096).zip(1..).filter_map(|(page, number)| {
        let is_end = page.get(4..8) != Some(&[0; 4]) && page.get(8..16) == header.get(16..24);
        is_end.then_some(32 + number * (24 + 4096))
    });
    Ok(commits.collect())
}
