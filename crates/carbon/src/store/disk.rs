//! The operations of the queue on its files: new ones, complete and synced writes, cuts, removal.
//! Tests inject faults here, and record each call.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::io::Errno;

#[cfg(test)]
use super::tests::faults;

/// The mode of each file of the queue.
pub(super) const OWN_FILE: u32 = 0o600;
/// The unit of a read, and of what cannot be read because of a bad sector.
const PAGE: usize = 4096;

/// The boot id if neither the kernel nor the unit says one. Then the batches of every earlier run
/// count as those of an earlier boot.
pub(super) const NO_BOOT: [u8; 16] = [0; 16];

/// The boot id of the host. The shipped unit hides the kernel's file of it (`ProcSubset=pid`), and
/// passes on systemd's.
pub(super) fn boot() -> [u8; 16] {
    #[cfg(test)]
    if faults::is_without_boot() {
        return NO_BOOT;
    }
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let text = text.or_else(|| std::env::var("SLURM_GRAPHITE_BOOT_ID").ok());
    let hex: String = text.unwrap_or_default().chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&hex, 16).unwrap_or_default().to_be_bytes()
}

/// Reads all of a file.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    #[cfg(test)]
    faults::read(path)?;
    fs::read(path)
}

/// Whether an error says that the disk cannot return what is there. Too many open files, for
/// example, say nothing of the disk. The errors that ext4, XFS and btrfs give for a corrupt inode
/// or block count, too.
pub(super) fn is_damage(error: &io::Error) -> bool {
    let damage = [Errno::IO, Errno::UCLEAN, Errno::BADMSG, Errno::NODATA];
    error.raw_os_error().is_some_and(|raw| damage.iter().any(|one| one.raw_os_error() == raw))
}

/// The readable pages of a segment, with zeros in place of the others.
pub(super) fn read_pages(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
    for (page, at) in bytes.chunks_mut(PAGE).zip((0..).step_by(PAGE)) {
        #[cfg(test)]
        if faults::read(path).is_err() {
            continue;
        }
        let _ = file.read_exact_at(page, at);
    }
    Ok(bytes)
}

/// Creates a file that only this user may read.
pub(super) fn create(path: &Path) -> io::Result<File> {
    let file = File::options().append(true).create_new(true).mode(OWN_FILE).open(path)?;
    #[cfg(test)]
    faults::create(path);
    Ok(file)
}

/// Writes all parts to the file, in one system call if the kernel accepts that, and without
/// copying.
pub(super) fn write(mut file: &File, parts: &[Cow<'_, [u8]>]) -> io::Result<()> {
    #[cfg(test)]
    faults::write(file, parts)?;
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

/// Cuts off what is behind the first `bytes` of the file.
pub(super) fn truncate(file: &File, bytes: u64) -> io::Result<()> {
    #[cfg(test)]
    faults::truncate(file, bytes)?;
    file.set_len(bytes)
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    faults::remove(path)?;
    fs::remove_file(path)
}

/// Returns when what was written to the file, or a name created in the folder, is on the disk.
pub(super) fn sync(file: &File) -> io::Result<()> {
    #[cfg(test)]
    return faults::sync(file);
    #[cfg(not(test))]
    file.sync_data()
}
