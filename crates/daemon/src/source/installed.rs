//! The installed readers, and the one that the daemon would start on this host.

use std::path::Path;

use slurm_snapshot::{LIBRARIES, Release};

use super::locate::{self, FoundReaders, ReaderKind};
use super::process::Process;
use crate::config::SlurmSettings;

/// A reader that is installed on this host, or the native one.
#[derive(Debug)]
pub(crate) struct InstalledReader {
    /// Path of the reader's program, or the words that the native reader is in this program.
    pub(crate) program: String,
    /// The Slurm that the reader asks, in words.
    pub(crate) asks: String,
    /// Whether the daemon would use this reader.
    pub(crate) is_used: bool,
}

/// Returns all readers, the programs in the order in which the daemon tries them; lines about the
/// programs that are passed over; and the error that the daemon would have if it could use none.
pub(crate) async fn readers(
    slurm: &SlurmSettings,
) -> (Vec<InstalledReader>, Vec<String>, Option<locate::NoReader>) {
    let (FoundReaders { programs: candidates, is_native, .. }, mut missing) =
        match locate::readers(slurm) {
            Ok(found) => (found, None),
            Err(error) => (FoundReaders::default(), Some(error)),
        };
    let FoundReaders { mut programs, passed_over, .. } = locate::installed();
    programs.extend(
        candidates
            .iter()
            .filter(|program| !programs.contains(program))
            .cloned()
            .collect::<Vec<_>>(),
    );
    let mut readers = Vec::new();
    let mut is_found = false;
    for program in programs {
        let version = Process::version(&program).await;
        let is_used = !is_found && version.is_some() && candidates.contains(&program);
        is_found |= is_used;
        let asks = asks(&program, version.as_deref());
        let program = program.display().to_string();
        readers.push(InstalledReader { program, asks, is_used });
    }
    let asks = format!("statistics only, slurmctld of Slurm 20.11 to {}", newest());
    let program = "native, in this program".to_owned();
    let is_used = is_native && !is_found;
    readers.push(InstalledReader { program, asks, is_used });
    if !is_found && !is_native && missing.is_none() {
        let tried = ["each of those above was tried".to_owned()];
        missing = Some(locate::NoReader::unfit(&tried, &locate::installed_libraries(), slurm));
    }
    (readers, passed_over, missing)
}

fn newest() -> String {
    LIBRARIES.last().map_or_else(String::new, |(_, newest)| newest.to_string())
}

/// Returns in words which Slurm a reader asks. `version` is what its program says about itself;
/// without its libslurm it says nothing, and its name must do.
fn asks(program: &Path, version: Option<&str>) -> String {
    if ReaderKind::named(program) == ReaderKind::Rest {
        return format!("slurmrestd of Slurm 22.05 to {}", newest());
    }
    let said: Option<Release> =
        version.and_then(|version| version.rsplit(' ').next()?.parse().ok());
    let named = || {
        LIBRARIES
            .iter()
            .find(|(number, _)| Some(*number) == locate::number(program))
            .map(|(_, of)| *of)
    };
    match said.or_else(named) {
        Some(release) => format!("Slurm {release}"),
        None => "an unknown release of Slurm".to_owned(),
    }
}
