//! A disk after the calls that the store has made: what a kill leaves of it, and what a power cut.
//!
//! A kill leaves everything that was written, and of the write that it interrupts a part. A power
//! cut leaves what was synced. Of the names that were made and removed since the folder's last sync
//! it leaves any first ones, or one alone; of the bytes that a file's last sync did not have any
//! first ones, all but one piece (of these, and of these without the end), or one piece alone. Where
//! bytes are missing before others, or the file's size was on the disk before them, there are zeros.
//! A piece is half of what the store writes as one part: a sector may end anywhere.

use std::cmp::Ordering;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use super::faults::Call;

/// The files of a folder.
pub(super) type Files = BTreeMap<Arc<str>, Bytes>;

pub(super) fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The bytes of a file. Most are in many folders, so they are shared, and compared by their hash.
#[derive(Clone, Debug)]
pub(super) struct Bytes(u64, Arc<Vec<u8>>);

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(hash(bytes.as_slice()), Arc::new(bytes))
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl Deref for Bytes {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.1
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Bytes {}

impl PartialOrd for Bytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bytes {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl Hash for Bytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Change {
    /// Its parts.
    Append(Arc<[Bytes]>),
    Truncate(usize),
}

/// A file, whatever its name: what was synced, and what has changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Inode {
    synced: Bytes,
    unsynced: Vec<Change>,
    /// What the kernel shows.
    now: Bytes,
    /// A sync has failed: what was unsynced then may be read as long as the host is up, and no
    /// later sync writes it.
    is_poisoned: bool,
}

impl Inode {
    fn apply(bytes: &Bytes, change: &Change) -> Bytes {
        match change {
            Change::Append(parts) => {
                let parts = parts.iter().flat_map(|part| part.as_slice());
                bytes.iter().chain(parts).copied().collect::<Vec<u8>>().into()
            }
            Change::Truncate(length) => bytes[..bytes.len().min(*length)].to_vec().into(),
        }
    }

    fn change(&mut self, change: Change) {
        self.now = Self::apply(&self.now, &change);
        self.unsynced.push(change);
    }

    fn sync(&mut self) {
        if !self.is_poisoned {
            self.synced = self.now.clone();
            self.unsynced.clear();
        } else if let Some(Change::Truncate(length)) = self.unsynced.last() {
            // The length is written, and what it cut off does not come back.
            assert!(*length <= self.synced.len(), "a part of what a failed sync has left");
            self.synced = Self::apply(&self.synced, &Change::Truncate(*length));
            self.unsynced.clear();
            self.is_poisoned = false;
        }
    }

    /// What a power cut may leave of it, if bytes reach the disk in their order, or `anyhow`.
    fn after_power_cut(&self, anyhow: bool) -> BTreeSet<Bytes> {
        let mut left = BTreeSet::from([self.synced.clone()]);
        let mut now = self.synced.clone();
        for change in &self.unsynced {
            let before = now.clone();
            now = Self::apply(&before, change);
            left.insert(now.clone());
            let Change::Append(parts) = change else { continue };
            let bytes = &now[before.len()..];
            let mut ends = vec![0];
            for part in parts.iter() {
                let (end, length) = (ends[ends.len() - 1], part.len());
                ends.extend((length > 1).then_some(end + length / 2));
                ends.push(end + length);
            }
            let pieces: Vec<_> = ends.windows(2).map(|ends| ends[0]..ends[1]).collect();
            let mut add = |bytes: &[u8]| left.insert([&before, bytes].concat().into());
            let zeroed = |bytes: &[u8], piece: &std::ops::Range<usize>| {
                let mut zeroed = bytes.to_vec();
                zeroed[piece.clone()].fill(0);
                zeroed
            };
            for &end in &ends {
                add(&bytes[..end]);
            }
            if !anyhow {
                continue;
            }
            for &end in &ends {
                add(&[&bytes[..end], &vec![0; bytes.len() - end]].concat());
            }
            for piece in &pieces {
                // The end of the last part may be missing too, or all of it.
                for &end in ends.iter().rev().take(3).filter(|end| **end >= piece.end) {
                    add(&zeroed(&bytes[..end], piece));
                }
                let mut alone = vec![0; bytes.len()];
                alone[piece.clone()].copy_from_slice(&bytes[piece.clone()]);
                add(&alone);
            }
        }
        left
    }
}

/// The folder, as the kernel shows it and as it is on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Disk {
    inodes: Vec<Inode>,
    now: BTreeMap<Arc<str>, usize>,
    synced: BTreeMap<Arc<str>, usize>,
    /// Names that were made (of which file) or removed since the folder's last sync.
    unsynced: Vec<(Arc<str>, Option<usize>)>,
}

impl Disk {
    /// A disk that has these files, after a power cut.
    pub(super) fn new(files: &Files) -> Self {
        let inode = |synced: &Bytes| {
            let (synced, now) = (synced.clone(), synced.clone());
            Inode { synced, now, unsynced: Vec::new(), is_poisoned: false }
        };
        let inodes = files.values().map(inode).collect();
        let now: BTreeMap<_, _> = files.keys().cloned().zip(0..).collect();
        Self { inodes, synced: now.clone(), now, unsynced: Vec::new() }
    }

    /// What the kernel shows.
    pub(super) fn files(&self) -> Files {
        self.now
            .iter()
            .map(|(name, &inode)| (name.clone(), self.inodes[inode].now.clone()))
            .collect()
    }

    pub(super) fn call(&mut self, call: &Call) {
        let inode = |disk: &Self, name: &String| disk.now[name.as_str()];
        match call {
            Call::Create(name) => {
                let name: Arc<str> = Arc::from(name.as_str());
                self.now.insert(Arc::clone(&name), self.inodes.len());
                self.unsynced.push((name, Some(self.inodes.len())));
                self.inodes.push(Inode::default());
            }
            Call::Remove(name) => {
                self.now.remove(name.as_str());
                self.unsynced.push((Arc::from(name.as_str()), None));
            }
            Call::Write(name, parts) => {
                let inode = inode(self, name);
                let parts = parts.iter().map(|part| Bytes::from(part.clone()));
                self.inodes[inode].change(Change::Append(parts.collect()));
            }
            Call::Truncate(name, length) => {
                let (inode, length) = (inode(self, name), usize::try_from(*length).unwrap());
                self.inodes[inode].change(Change::Truncate(length));
            }
            Call::Sync(name, succeeded) => {
                let inode = inode(self, name);
                match succeeded {
                    true => self.inodes[inode].sync(),
                    false => self.inodes[inode].is_poisoned = true,
                }
            }
            Call::SyncFolder => {
                self.synced = self.now.clone();
                self.unsynced.clear();
            }
        }
    }

    /// The disk after each part of this call that a kill may leave.
    pub(super) fn parts_of(&self, call: &Call) -> Vec<Self> {
        let Call::Write(name, parts) = call else { return Vec::new() };
        let mut left = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            for end in [part.len() / 2, part.len()] {
                let mut written = parts[..index].to_vec();
                written.push(part[..end].to_vec());
                let mut disk = self.clone();
                disk.call(&Call::Write(name.clone(), written));
                left.push(disk);
            }
        }
        left
    }

    /// The folders that a power cut may leave, if names and bytes reach the disk in their order, or
    /// `anyhow`.
    pub(super) fn after_power_cut(&self, anyhow: bool) -> BTreeSet<Files> {
        let mut all_names = BTreeSet::new();
        let apply = |changes: &[(Arc<str>, Option<usize>)]| {
            let mut names = self.synced.clone();
            for (name, inode) in changes {
                match inode {
                    Some(inode) => names.insert(name.clone(), *inode),
                    None => names.remove(name),
                };
            }
            names
        };
        for end in 0..=self.unsynced.len() {
            all_names.insert(apply(&self.unsynced[..end]));
            all_names.extend(self.unsynced.get(end..=end).filter(|_| anyhow).map(apply));
        }
        let cut = |inode: &Inode| inode.after_power_cut(anyhow);
        let each: Vec<BTreeSet<Bytes>> = self.inodes.iter().map(cut).collect();
        let mut left = BTreeSet::new();
        for names in all_names {
            for rest in [|inode: &Inode| inode.now.clone(), |inode: &Inode| inode.synced.clone()] {
                let files: Files = names
                    .iter()
                    .map(|(name, &inode)| (name.clone(), rest(&self.inodes[inode])))
                    .collect();
                for (name, &inode) in &names {
                    for bytes in each[inode].iter().filter(|bytes| **bytes != files[name]) {
                        let mut files = files.clone();
                        files.insert(name.clone(), bytes.clone());
                        left.insert(files);
                    }
                }
                left.insert(files);
            }
        }
        left
    }
}
