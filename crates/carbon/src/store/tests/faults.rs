//! Faults of the disk, injected for the current thread.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

thread_local! {
    static ROOM: Cell<Option<usize>> = const { Cell::new(None) };
    static SYNCS: Cell<Option<u32>> = const { Cell::new(None) };
    static WITHOUT_BOOT: Cell<bool> = const { Cell::new(false) };
    static DISK: Cell<Option<u64>> = const { Cell::new(None) };
    static STEPS: Cell<Option<u32>> = const { Cell::new(None) };
    static KEEPS_FILES: Cell<bool> = const { Cell::new(false) };
}

/// The disk has room for only this many more bytes.
pub(in crate::store) fn set_room(bytes: Option<usize>) {
    ROOM.set(bytes);
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

/// The disk refuses to remove files.
pub(in crate::store) fn set_keeps_files(keeps: bool) {
    KEEPS_FILES.set(keeps);
}

pub(in crate::store) fn remove() -> io::Result<()> {
    step()?;
    if KEEPS_FILES.get() { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
}

/// Writes the part of `bytes` that precedes the injected fault, if there is one.
pub(in crate::store) fn write(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    step()?;
    let on_disk = DISK.get().map(|disk| usize::try_from(disk.saturating_sub(used(file))).unwrap());
    let Some(room) = ROOM.get().into_iter().chain(on_disk).min() else { return Ok(()) };
    let fits = bytes.get(..room).filter(|fits| fits.len() < bytes.len());
    if ROOM.get().is_some() {
        ROOM.set(Some(room.saturating_sub(bytes.len())));
    }
    fits.map_or(Ok(()), |fits| file.write_all(fits).and(Err(io::ErrorKind::StorageFull.into())))
}

/// The bytes of all files in the folder of this one.
fn used(file: &File) -> u64 {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let files = std::fs::read_dir(path.parent().unwrap()).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

/// Returns whether a sync is left out: where steps are counted nothing outlives a power cut, and
/// tests make many.
pub(in crate::store) fn sync() -> io::Result<bool> {
    step()?;
    match SYNCS.get() {
        Some(0) => return Err(io::Error::from_raw_os_error(5)),
        Some(times) => SYNCS.set(Some(times - 1)),
        None => {}
    }
    Ok(STEPS.get().is_some())
}
