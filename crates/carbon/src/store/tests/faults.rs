//! Faults of the disk, injected for the current thread, and a record of what the store does to it.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

thread_local! {
    static ROOM: Cell<Option<usize>> = const { Cell::new(None) };
    static SYNCS: Cell<Option<u32>> = const { Cell::new(None) };
    static WITHOUT_BOOT: Cell<bool> = const { Cell::new(false) };
    static FILE: Cell<Option<u64>> = const { Cell::new(None) };
    static DISK: Cell<Option<u64>> = const { Cell::new(None) };
    static STEPS: Cell<Option<u32>> = const { Cell::new(None) };
    static KEEPS_FILES: Cell<bool> = const { Cell::new(false) };
    static UNREAD: Cell<Option<u64>> = const { Cell::new(None) };
    static RECORD: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

/// A call that has changed a file of the log, or the folder.
#[derive(Clone, Debug)]
pub(in crate::store) enum Call {
    Create(String),
    /// What was appended, in the parts in which it was written.
    Write(String, Vec<Vec<u8>>),
    Truncate(String, u64),
    /// Whether it succeeded.
    Sync(String, bool),
    SyncFolder,
    Remove(String),
}

/// Records calls from now on.
pub(in crate::store) fn record() {
    RECORD.set(Some(Vec::new()));
}

/// How many calls are recorded.
pub(in crate::store) fn recorded() -> usize {
    RECORD.with_borrow(|calls| calls.as_ref().map_or(0, Vec::len))
}

/// The calls since [`record`].
pub(in crate::store) fn take_record() -> Vec<Call> {
    RECORD.take().unwrap()
}

/// Records a call, except for the reserve, whose bytes nobody reads.
fn note(path: &Path, call: impl FnOnce(String) -> Call) {
    RECORD.with_borrow_mut(|calls| {
        let name = path.file_name().unwrap().to_str().unwrap();
        if let Some(calls) = calls
            && !name.starts_with("queue.reserve")
        {
            calls.push(call(name.to_owned()));
        }
    });
}

pub(in crate::store) fn is_recording() -> bool {
    RECORD.with_borrow(Option::is_some)
}

fn path(file: &File) -> PathBuf {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

pub(in crate::store) fn create(path: &Path) {
    note(path, Call::Create);
}

pub(in crate::store) fn truncate(file: &File, bytes: u64) -> io::Result<()> {
    step()?;
    if KEEPS_FILES.get() {
        return Err(io::Error::from_raw_os_error(5));
    }
    if is_recording() {
        note(&path(file), |name| Call::Truncate(name, bytes));
    }
    Ok(())
}

/// The disk has room for only this many more bytes.
pub(in crate::store) fn set_room(bytes: Option<usize>) {
    ROOM.set(bytes);
}

/// No file may have more bytes than these, as with `ulimit -f`.
pub(in crate::store) fn set_file(bytes: Option<u64>) {
    FILE.set(bytes);
}

/// The disk has this many bytes for all files of the folder.
pub(in crate::store) fn set_disk(bytes: Option<u64>) {
    DISK.set(bytes);
}

/// The process is killed after this many more writes, syncs and removals: none after them has any
/// effect.
pub(in crate::store) fn set_steps(steps: Option<u32>) {
    STEPS.set(steps);
}

/// Whether the process has been killed.
pub(in crate::store) fn is_killed() -> bool {
    STEPS.get() == Some(0)
}

fn step() -> io::Result<()> {
    match STEPS.get() {
        Some(0) => Err(io::Error::other("killed")),
        Some(steps) => {
            STEPS.set(Some(steps - 1));
            Ok(())
        }
        None => Ok(()),
    }
}

/// The disk syncs only this many more times.
pub(in crate::store) fn set_syncs(times: Option<u32>) {
    SYNCS.set(times);
}

/// The kernel does not show the boot id.
pub(in crate::store) fn set_without_boot(without: bool) {
    WITHOUT_BOOT.set(without);
}

pub(in crate::store) fn is_without_boot() -> bool {
    WITHOUT_BOOT.get()
}

/// The disk returns nothing of this segment and those after it.
pub(in crate::store) fn set_unread(segment: Option<u64>) {
    UNREAD.set(segment);
}

pub(in crate::store) fn read(path: &Path) -> io::Result<()> {
    let is_unread = |first| path >= super::folder::segment(path.parent().unwrap(), first);
    let is_log = path.extension().is_some_and(|its| its == "log");
    match UNREAD.get() {
        Some(first) if is_log && is_unread(first) => Err(io::Error::from_raw_os_error(5)),
        _ => Ok(()),
    }
}

/// The disk refuses to remove files, and to cut them off.
pub(in crate::store) fn set_keeps_files(keeps: bool) {
    KEEPS_FILES.set(keeps);
}

pub(in crate::store) fn remove(path: &Path) -> io::Result<()> {
    step()?;
    if KEEPS_FILES.get() {
        return Err(io::Error::from_raw_os_error(5));
    }
    if path.exists() {
        note(path, Call::Remove);
    }
    Ok(())
}

/// Writes the part of `parts` that precedes the injected fault, if there is one.
pub(in crate::store) fn write(mut file: &File, parts: &[Cow<'_, [u8]>]) -> io::Result<()> {
    step()?;
    let on_disk = DISK.get().map(|disk| usize::try_from(disk.saturating_sub(used(file))).unwrap());
    let room = ROOM.get().into_iter().chain(on_disk).min().unwrap_or(usize::MAX);
    let has = FILE.get().map(|most| most.saturating_sub(file.metadata().unwrap().len()));
    let in_file = has.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap());
    let (room, error) = if in_file < room {
        (in_file, io::ErrorKind::FileTooLarge)
    } else {
        (room, io::ErrorKind::StorageFull)
    };
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    if is_recording() {
        let mut left = room;
        let mut fits: Vec<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
        for part in &mut fits {
            part.truncate(left);
            left -= part.len();
        }
        fits.retain(|part| !part.is_empty());
        note(&path(file), |name| Call::Write(name, fits));
    }
    if ROOM.get().is_some() {
        ROOM.set(Some(room.saturating_sub(bytes)));
    }
    if bytes <= room {
        return Ok(());
    }
    file.write_all(&parts.concat()[..room]).and(Err(error.into()))
}

/// The bytes of all files in the folder of this one.
fn used(file: &File) -> u64 {
    let path = path(file);
    let files = std::fs::read_dir(path.parent().unwrap()).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

/// Fails as injected. Nothing is synced: no power cut but a recorded one comes in a test.
pub(in crate::store) fn sync(file: &File) -> io::Result<()> {
    step()?;
    let synced = match SYNCS.get() {
        Some(0) => Err(io::Error::from_raw_os_error(5)),
        Some(times) => {
            SYNCS.set(Some(times - 1));
            Ok(())
        }
        None => Ok(()),
    };
    if is_recording() {
        let path = path(file);
        if !path.is_dir() {
            note(&path, |name| Call::Sync(name, synced.is_ok()));
        } else if synced.is_ok() {
            note(&path, |_| Call::SyncFolder);
        }
    }
    synced
}
