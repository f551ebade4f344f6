//! The installed readers, and the one that the daemon would start on this host.

use std::path::{Path, PathBuf};

use slurm_snapshot::{LIBRARIES, Release};

use super::locate::{self, ReaderKind};
use super::process::Process;
use crate::config::SlurmSettings;

/// A reader program.
#[derive(Debug)]
pub(crate) struct InstalledReader {
    pub(crate) program: PathBuf,
    /// What it asks, in words.
    pub(crate) asks: String,
    /// The daemon would start this one.
    pub(crate) is_used: bool,
}

/// All of them, in the order in which the daemon tries them; the error says why it would start none.
pub(crate) async fn readers(slurm: &SlurmSettings) -> (Vec<InstalledReader>, Option<locate::NoReader>) {
    let (candidates, mut missing) = match locate::readers(slurm) {
        Ok(candidates) => (candidates, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let mut programs = locate::installed();
    programs
        .extend(candidates.iter().filter(|program| !programs.contains(program)).cloned().collect::<Vec<_>>());
    let (mut readers, mut is_found) = (Vec::new(), false);
    for program in programs {
        let version = Process::version(&program).await;
        let is_used = !is_found && version.is_some() && candidates.contains(&program);
        is_found |= is_used;
        readers.push(InstalledReader { asks: asks(&program, version.as_deref()), program, is_used });
    }
    if !is_found && missing.is_none() {
        let tried = ["each of those above was tried".to_owned()];
        missing = Some(locate::NoReader::unfit(&tried, &locate::installed_libraries()));
    }
    (readers, missing)
}

/// `version` is what a reader says about itself; without its libslurm it says nothing, and its name must do.
fn asks(program: &Path, version: Option<&str>) -> String {
    let newest = LIBRARIES.last().map_or_else(String::new, |(_, newest)| newest.to_string());
    match ReaderKind::named(program) {
        ReaderKind::Libslurm => {}
        ReaderKind::Native => return format!("statistics only, slurmctld of Slurm 20.11 to {newest}"),
        ReaderKind::Rest => return format!("slurmrestd of Slurm 22.05 to {newest}"),
    }
    let said: Option<Release> = version.and_then(|version| version.rsplit(' ').next()?.parse().ok());
    let named =
        || LIBRARIES.iter().find(|(number, _)| Some(*number) == locate::number(program)).map(|(_, of)| *of);
    match said.or_else(named) {
        Some(release) => format!("Slurm {release}"),
        None => "an unknown release of Slurm".to_owned(),
    }
}
