//! Faults of the disk, injected for the current thread.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};

thread_local! {
    static ROOM: Cell<Option<usize>> = const { Cell::new(None) };
    static SYNCS: Cell<Option<u32>> = const { Cell::new(None) };
    static WITHOUT_BOOT: Cell<bool> = const { Cell::new(false) };
    static KEEPS_FILES: Cell<bool> = const { Cell::new(false) };
}

/// The disk has room for only this many more bytes.
pub(in crate::store) fn set_room(bytes: Option<usize>) {
    ROOM.set(bytes);
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
    if KEEPS_FILES.get() { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
}

/// Writes the part of `bytes` that precedes the injected fault, if there is one.
pub(in crate::store) fn write(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    let Some(room) = ROOM.get() else { return Ok(()) };
    let fits = bytes.get(..room).filter(|fits| fits.len() < bytes.len());
    ROOM.set(Some(room.saturating_sub(bytes.len())));
    fits.map_or(Ok(()), |fits| file.write_all(fits).and(Err(io::ErrorKind::StorageFull.into())))
}

pub(in crate::store) fn sync() -> io::Result<()> {
    match SYNCS.get() {
        Some(0) => Err(io::Error::from_raw_os_error(5)),
        Some(times) => {
            SYNCS.set(Some(times - 1));
            Ok(())
        }
        None => Ok(()),
    }
}
