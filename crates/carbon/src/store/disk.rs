//! What the queue does to its folder: the lock, lists of segments, complete and synced writes. Tests inject faults
//! here.

use std::borrow::Cow;
use std::fs::{self, File, TryLockError};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::StoreError;
#[cfg(test)]
use super::tests::faults;

/// The file that a daemon keeps locked while it uses the folder. It contains the daemon's process id.
const LOCK: &str = "queue.lock";
/// The unit of a read, and of what cannot be read because of a bad sector.
const PAGE: usize = 4096;

pub(super) fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK);
    let opened = fs::create_dir_all(dir)
        .and_then(|()| File::options().write(true).create(true).truncate(false).open(&path));
    let mut file = opened.map_err(|source| StoreError::Io { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => {
            // Only read by a process that cannot lock it.
            let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let pid = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
            Err(StoreError::Locked { dir: dir.to_owned(), pid })
        }
        Err(TryLockError::Error(source)) => Err(StoreError::Io { path, source }),
    }
}

/// Used if the kernel does not show the boot id, as under the shipped unit (`ProcSubset=pid`). Then the batches of
/// every earlier run count as those of an earlier boot.
pub(super) const NO_BOOT: [u8; 16] = [0; 16];

/// The boot id of the host.
pub(super) fn boot() -> [u8; 16] {
    #[cfg(test)]
    if faults::is_without_boot() {
        return NO_BOOT;
    }
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&hex, 16).unwrap_or_default().to_be_bytes()
}

/// The segment whose first record has `number`.
pub(super) fn segment(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("queue-{number:020}.log"))
}

/// Every segment, oldest first.
pub(super) fn segments(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("queue-")?.strip_suffix(".log"));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The readable pages of a segment, with zeros in place of the others.
pub(super) fn read_pages(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
    for (page, at) in bytes.chunks_mut(PAGE).zip((0..).step_by(PAGE)) {
        let _ = file.read_exact_at(page, at);
    }
    Ok(bytes)
}

/// Writes all of it, in one system call if the kernel accepts that, and without copying.
pub(super) fn write(mut file: &File, parts: &[Cow<'_, [u8]>]) -> io::Result<()> {
    #[cfg(test)]
    faults::write(file, &parts.concat())?;
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = slices.as_mut_slice();
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    faults::remove()?;
    fs::remove_file(path)
}

/// Returns when what was written to the file, or a name created in the folder, is on the disk.
pub(super) fn sync(file: &File) -> io::Result<()> {
    #[cfg(test)]
    faults::sync()?;
    file.sync_data()
}
