//! The write-ahead log as an earlier run left it: whether commits lie behind what SQLite could read of it, and all of its
//! pages.
//!
//! SQLite takes a damaged place for the end of the log, and says nothing of what follows. A commit that a crash cut short has no
//! last frame and is not counted, or is the only one that cannot be read: a power cut may have kept its last frame and not
//! the first. What a truncated log no longer has the tally tells. The format is that of
//! <https://www.sqlite.org/fileformat2.html#walformat>.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::aside::log_of;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
const PAGE: usize = 4096;

/// A page as a commit has written it.
struct Frame<'a> {
    number: u32,
    ends_commit: bool,
    page: &'a [u8],
}

/// The frames of the present lap, in order, each with its place in the log.
fn frames(bytes: &[u8]) -> impl Iterator<Item = (usize, Frame<'_>)> {
    let salt = bytes.get(16..24);
    // Frames of an earlier lap lie behind, under another salt; after a crash at the beginning of a lap nothing else, and
    // the database has them. The header's may itself be damaged: that its checksum tells.
    let frames = bytes.get(HEADER..).unwrap_or_default().chunks_exact(FRAME_HEADER + PAGE);
    let mut salts = frames.clone().filter_map(|frame| frame.get(8..16));
    let first = if is_header_sound(bytes) { None } else { salts.find(|salt| *salt != [0; 8]) };
    frames.enumerate().filter_map(move |(index, frame)| {
        let (number, rest) = frame.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk::<4>()?;
        let frame_salt = rest.get(..8);
        let page = frame.get(FRAME_HEADER..)?;
        let frame = Frame { number: u32::from_be_bytes(*number), ends_commit: *size != [0; 4], page };
        let is_present = frame_salt == salt || (first.is_some() && frame_salt == first);
        is_present.then_some((index, frame))
    })
}

fn is_header_sound(bytes: &[u8]) -> bool {
    let words: Vec<[u8; 4]> = bytes
        .iter()
        .take(HEADER)
        .copied()
        .collect::<Vec<_>>()
        .chunks_exact(4)
        .filter_map(|word| word.try_into().ok())
        .collect();
    let Some([0x37, 0x7f, 0x06, order @ 0x82..=0x83]) = words.first() else { return false };
    let big = *order == 0x83;
    let read = |word: [u8; 4]| if big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) };
    let mut sums = (0_u32, 0_u32);
    for pair in words.iter().take(6).copied().map(read).collect::<Vec<_>>().chunks_exact(2) {
        if let [even, odd] = *pair {
            sums.0 = sums.0.wrapping_add(even).wrapping_add(sums.1);
            sums.1 = sums.1.wrapping_add(odd).wrapping_add(sums.0);
        }
    }
    words.get(6..8) == Some(&[sums.0.to_be_bytes(), sums.1.to_be_bytes()])
}

/// The number of frames up to and including each commit in the log, in order; none where there is no log.
pub(super) fn commits(log: &Path) -> Vec<usize> {
    let bytes = fs::read(log).unwrap_or_default();
    frames(&bytes).filter(|(_, frame)| frame.ends_commit).map(|(index, _)| index + 1).collect()
}

/// Copies the database at `from` to `to` with all pages that its log has up to the last commit, whatever their checksums: one
/// page that is damaged spoils those of all that follow. Returns `false` where there is no log.
pub(super) fn merge(from: &Path, to: &Path) -> io::Result<bool> {
    let bytes = fs::read(log_of(from)).unwrap_or_default();
    let Some(last) = frames(&bytes).filter(|(_, frame)| frame.ends_commit).last() else { return Ok(false) };
    fs::copy(from, to)?;
    let file = File::options().write(true).open(to)?;
    // No commit makes a database larger than by what the log has; a number beyond that is damaged.
    let most = file.metadata()?.len().saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    for (_, Frame { number, page, .. }) in frames(&bytes).take_while(|(index, _)| *index <= last.0) {
        let at = u64::from(number).checked_sub(1).and_then(|number| number.checked_mul(4096));
        if let Some(at) = at.filter(|&at| at < most) {
            file.write_all_at(page, at)?;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_of_the_present_lap_are_counted() {
        let file = std::env::temp_dir().join(format!("carbon-log-{}", std::process::id()));
        let mut bytes = vec![0; HEADER];
        bytes[16..24].copy_from_slice(b"saltsalt");
        for (size, salt) in [(0, b"saltsalt"), (2, b"saltsalt"), (3, b"saltsalt"), (9, b"earlier!")] {
            bytes.extend([0, 0, 0, 1, 0, 0, 0, size]);
            bytes.extend(salt);
            bytes.extend([0; 8 + PAGE]);
        }
        fs::write(&file, &bytes).unwrap();
        assert_eq!(commits(&file), [2, 3]);
        bytes[16] ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert_eq!(commits(&file), [2, 3], "the header's salt is damaged");
        bytes[..HEADER + 16].fill(0);
        fs::write(&file, &bytes).unwrap();
        assert_eq!(commits(&file), [2, 3], "and with it the first frame's");
        fs::remove_file(&file).unwrap();
        assert!(commits(&file).is_empty());
    }

    #[test]
    fn a_log_is_merged_up_to_its_last_commit_and_wild_numbers_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("file"), dir.path().join("merged"));
        fs::write(&from, [0; 2 * PAGE]).unwrap();
        assert!(!merge(&from, &to).unwrap(), "no log");
        let mut log = vec![0; HEADER];
        for (number, commit, fill) in [(1_u32, 0, 1), (1, 1, 2), (u32::MAX, 1, 3), (3, 1, 4), (2, 0, 5)] {
            log.extend(number.to_be_bytes());
            log.extend([0, 0, 0, commit]);
            log.extend([0; 16]);
            log.extend([fill; PAGE]);
        }
        fs::write(log_of(&from), &log).unwrap();
        assert!(merge(&from, &to).unwrap());
        let merged = fs::read(&to).unwrap();
        assert_eq!(merged.len(), 3 * PAGE);
        assert_eq!([merged[0], merged[PAGE], merged[2 * PAGE]], [2, 0, 4]);
    }
}
