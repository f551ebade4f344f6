//! The tally: what is due to whom a second time, in a small file beside the database.
//!
//! After each commit one write says its number and what it changed; the number is in the database too. SQLite takes a log that
//! was cut off, or whose last commit is damaged, for one that was never longer: then the tally's number is the higher one, and
//! its entries tell what is gone. It is never synced: a crash between a commit and its write leaves it behind, as a power cut
//! does, and then nothing is concluded from it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tracing::warn;

const MAGIC: &[u8; 8] = b"tally 1\n";
/// For all destinations, in a change.
pub(super) const ALL: i64 = 0;
/// The tally is written anew when it has grown by this and by half.
const SLACK: u64 = 32 << 10;
/// A change: three numbers of eight bytes.
const CHANGE: usize = 24;

/// What is due: the points by batch and destination.
pub(super) type Entries = BTreeMap<(u64, i64), u64>;
/// Batch, destination and points; no points: it is done.
pub(super) type Change = (u64, i64, u64);

/// A commit of a file: the file's own number, drawn when it was made, and how many there have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) file: i64,
    pub(super) number: u64,
}

/// A tally as it was read.
#[derive(Debug)]
pub(super) struct Tally {
    /// The last commit that is in it.
    pub(super) commit: Commit,
    pub(super) entries: Entries,
    /// Nothing follows that is not what was written.
    pub(super) whole: bool,
    length: usize,
}

impl Commit {
    /// Of a new file, before its first.
    pub(super) fn first() -> Self {
        Self { file: fastrand::i64(..), number: 0 }
    }

    pub(super) const fn next(self) -> Self {
        Self { number: self.number.saturating_add(1), ..self }
    }
}

impl Tally {
    /// Reads it up to the first place that is not what was written; `None` where there is nothing before that.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let (file, mut rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
        let file = i64::from_le_bytes(*file);
        let mut tally: Option<Self> = None;
        while let Some((number, changes, behind)) = split(file, rest) {
            let commit = Commit { file, number };
            if tally.as_ref().is_some_and(|tally| tally.commit.next() != commit) {
                break;
            }
            let new = Self { commit, entries: Entries::new(), whole: true, length: bytes.len() };
            let tally = tally.get_or_insert(new);
            tally.commit = commit;
            changes.for_each(|change| apply(&mut tally.entries, change));
            rest = behind;
        }
        tally.map(|tally| Self { whole: rest.is_empty(), ..tally })
    }

    /// Whether it knows all that a file knew whose last commit is this one, so that its entries are what was due.
    pub(super) fn covers(&self, commit: Option<Commit>) -> bool {
        commit.is_none_or(|commit| self.commit.file == commit.file && self.commit.number >= commit.number)
    }

    /// How many commits a file lacks whose last one is this.
    pub(super) fn ahead_of(&self, commit: Option<Commit>) -> u64 {
        self.commit.number.saturating_sub(commit.map_or(0, |commit| commit.number))
    }
}

/// Whether nothing tells if a file whose last commit is this one is whole. By one commit a SIGKILL leaves the tally behind.
pub(super) fn is_blind(tally: Option<&Tally>, last: Option<Commit>, is_new: bool) -> bool {
    tally.map_or(!is_new, |tally| {
        let fits = |last: Commit| tally.commit.file == last.file && tally.commit.next().number >= last.number;
        !tally.whole || !last.is_none_or(fits)
    })
}

fn apply(entries: &mut Entries, (batch, destination, points): Change) {
    if points > 0 {
        entries.insert((batch, destination), points);
    } else if destination == ALL {
        let due = entries.range((batch, i64::MIN)..=(batch, i64::MAX));
        let due: Vec<_> = due.map(|(key, _)| *key).collect();
        for key in due {
            entries.remove(&key);
        }
    } else {
        entries.remove(&(batch, destination));
    }
}

/// The first commit in `bytes`: its number, its changes, and what follows it.
fn split(file: i64, bytes: &[u8]) -> Option<(u64, impl Iterator<Item = Change>, &[u8])> {
    let (sum, rest) = bytes.split_first_chunk()?;
    let (number, changes) = rest.split_first_chunk()?;
    let (count, changes) = changes.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*count)).ok()?.checked_mul(CHANGE)?;
    let (changes, behind) = changes.split_at_checked(length)?;
    let summed = rest.get(..rest.len() - behind.len())?;
    let change = |bytes: &[u8]| -> Option<Change> {
        let (batch, bytes) = bytes.split_first_chunk()?;
        let (destination, bytes) = bytes.split_first_chunk()?;
        let points = bytes.first_chunk()?;
        Some((u64::from_le_bytes(*batch), i64::from_le_bytes(*destination), u64::from_le_bytes(*points)))
    };
    let is_sound = u32::from_le_bytes(*sum) == checksum(file, summed);
    is_sound.then(|| (u64::from_le_bytes(*number), changes.chunks_exact(CHANGE).filter_map(change), behind))
}

fn join(commit: Commit, changes: &[Change]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(commit.number.to_le_bytes());
    bytes.extend(u32::try_from(changes.len()).unwrap_or(u32::MAX).to_le_bytes());
    for (batch, destination, points) in changes {
        bytes.extend(batch.to_le_bytes());
        bytes.extend(destination.to_le_bytes());
        bytes.extend(points.to_le_bytes());
    }
    if let Some((sum, summed)) = bytes.split_first_chunk_mut() {
        *sum = checksum(commit.file, summed).to_le_bytes();
    }
    bytes
}

fn checksum(file: i64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&file.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// What it may come to with this length when it is new.
const fn most(length: u64) -> u64 {
    length.saturating_add(length / 2).saturating_add(SLACK)
}

/// The tally of an open file.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    /// None: it is behind, and must be written anew.
    file: Option<fs::File>,
    /// The last commit that is in it.
    commit: Option<Commit>,
    length: u64,
    most: u64,
    failed: bool,
}

impl Writer {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, file: None, commit: None, length: 0, most: 0, failed: false }
    }

    /// Bytes that it may come to.
    pub(super) const fn most(&self) -> u64 {
        self.most
    }

    /// Goes on with one that is whole; one that cannot be opened must be written anew.
    pub(super) fn resume(&mut self, tally: &Tally) {
        let length = MAGIC.len().saturating_add(tally.entries.len().saturating_mul(CHANGE));
        self.file = fs::File::options().write(true).open(&self.path).ok();
        self.commit = self.file.as_ref().map(|_| tally.commit);
        self.length = u64::try_from(tally.length).unwrap_or(u64::MAX);
        self.most = most(u64::try_from(length).unwrap_or(u64::MAX));
    }

    /// Adds a commit, unless it is the last one; returns `false` where it must be written anew.
    pub(super) fn add(&mut self, commit: Commit, changes: &[Change]) -> bool {
        if self.commit == Some(commit) {
            return true;
        }
        self.commit = None;
        let Some(file) = self.file.take() else { return false };
        let bytes = join(commit, changes);
        let length = self.length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if length > self.most || file.write_all_at(&bytes, self.length).is_err() {
            return false;
        }
        (self.file, self.commit, self.length) = (Some(file), Some(commit), length);
        true
    }

    /// Writes it anew: this is what is due after `commit`.
    pub(super) fn rewrite(&mut self, commit: Commit, due: &[Change]) {
        let new = PathBuf::from(format!("{}.new", self.path.display()));
        let bytes = [&MAGIC[..], &commit.file.to_le_bytes(), &join(commit, due)].concat();
        let write = || -> io::Result<fs::File> {
            let file = fs::File::create(&new)?;
            file.write_all_at(&bytes, 0)?;
            fs::rename(&new, &self.path)?;
            Ok(file)
        };
        match write() {
            Ok(file) => {
                self.length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                self.most = most(self.length);
                (self.file, self.commit, self.failed) = (Some(file), Some(commit), false);
            }
            Err(error) => {
                let _ = fs::remove_file(&new);
                (self.file, self.commit) = (None, None);
                if !std::mem::replace(&mut self.failed, true) {
                    warn!(file = %self.path.display(), %error, "the queue's tally cannot be written: should the queue's log lose its end, nothing would tell");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: Commit = Commit { file: 77, number: 5 };

    fn next(n: u64) -> Commit {
        Commit { number: COMMIT.number + n, ..COMMIT }
    }

    /// Due after commit 5: (1, 8), (2, 8) and (2, 9); after commit 7: (3, 8).
    fn written(dir: &Path) -> PathBuf {
        let path = dir.join("tally");
        let mut writer = Writer::new(path.clone());
        assert!(!writer.add(COMMIT, &[]), "there is none yet");
        writer.rewrite(COMMIT, &[(1, 8, 10), (2, 8, 20), (2, 9, 20)]);
        assert!(writer.add(next(1), &[(3, 8, 30), (1, 8, 0)]));
        assert!(writer.add(next(2), &[(2, ALL, 0)]));
        path
    }

    #[test]
    fn what_was_added_and_what_is_done_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let tally = Tally::read(&written(dir.path())).unwrap();
        assert!(tally.whole && tally.commit == next(2));
        assert_eq!(tally.entries, [((3, 8), 30)].into());
        assert_eq!([0, 1, 2, 3].map(|n| tally.covers(Some(next(n)))), [true, true, true, false]);
        assert!(!tally.covers(Some(Commit { file: 78, ..COMMIT })), "of another file");
        assert_eq!((tally.ahead_of(Some(COMMIT)), tally.ahead_of(None)), (2, 7));
    }

    #[test]
    fn one_that_is_cut_or_flipped_anywhere_is_read_up_to_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let bytes = fs::read(&path).unwrap();
        let ends = [16 + 16 + 3 * CHANGE, 16 + 32 + 5 * CHANGE, bytes.len()];
        let expected = |at: usize| ends.iter().rposition(|&end| end <= at).map(|n| next(n as u64));
        for at in 0..bytes.len() {
            fs::write(&path, &bytes[..at]).unwrap();
            let tally = Tally::read(&path);
            assert_eq!(tally.as_ref().map(|tally| tally.commit), expected(at), "cut to {at}");
            assert!(tally.is_none_or(|tally| tally.whole == ends.contains(&at)), "cut to {at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            fs::write(&path, &flipped).unwrap();
            let tally = Tally::read(&path);
            let there = if at < 16 { None } else { expected(at) };
            assert_eq!(tally.as_ref().map(|tally| tally.commit), there, "flipped at {at}");
            assert!(tally.is_none_or(|tally| !tally.whole), "flipped at {at}");
        }
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path().join("tally"));
        writer.rewrite(COMMIT, &[]);
        let path = writer.path.clone();
        let added = (1..).take_while(|&n| {
            // Nor does it with a start after each commit.
            writer = Writer::new(path.clone());
            writer.resume(&Tally::read(&path).unwrap());
            writer.add(next(n), &[(n, 8, 0)])
        });
        let added = added.count();
        assert!((700..900).contains(&added), "{added}");
        assert!(fs::metadata(&writer.path).unwrap().len() <= writer.most());
    }
}
