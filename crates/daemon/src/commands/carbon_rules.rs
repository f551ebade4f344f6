//! `carbon-rules`: the rules that Carbon needs for this configuration, printed, or written into
//! Carbon's own files.
//!
//! Carbon is mostly on another host, and a configuration manager often writes its files, so the
//! rules are printed unless --write is given. The text that is printed is the one that would be
//! written, markers included.

mod block;
mod creates;
mod open_folder;
mod replace;
mod rules;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

pub(super) use self::block::Block;
use self::open_folder::ConfLocation;
use self::replace::Staged;
pub(super) use self::rules::{aggregation, schemas};
use super::print;
use crate::cli::RulesFile;
use crate::config::Config;

/// Name of Carbon's file with the archives of each series.
pub(super) const SCHEMAS: &str = "storage-schemas.conf";
/// Name of Carbon's file with the roll-up of each series.
pub(super) const AGGREGATION: &str = "storage-aggregation.conf";
/// Name of Carbon's file with its settings, such as MAX_CREATES_PER_MINUTE.
const CARBON: &str = "carbon.conf";
/// Ending of the name under which a file is kept as the site had it, before the first change.
const BACKUP: &str = "before-slurm-graphite";

/// Returns the rules to print: those of both files, or of the one that is named.
pub(super) fn text(config: &Config, file: Option<RulesFile>) -> String {
    match file {
        Some(RulesFile::Schemas) => schemas(config).text,
        Some(RulesFile::Aggregation) => aggregation().text,
        None => format!(
            "# {SCHEMAS}: put this above all other rules\n\n{}\n\n# {AGGREGATION}: put this above \
                all other rules\n\n{}",
            schemas(config).text,
            aggregation().text
        ),
    }
}

/// Puts the rules into Carbon's files in `folder`, or only says what would change.
pub(super) fn write(
    config: &Config,
    folder: &Path,
    dry_run: bool,
    max_creates: Option<u32>,
) -> Result<()> {
    let schemas = Change::read_and_edit(&folder.join(SCHEMAS), None, |old| {
        Ok(schemas(config).put_into(old)?)
    })?;
    let aggregation = Change::read_and_edit(&folder.join(AGGREGATION), Some(&schemas), |old| {
        Ok(aggregation().put_into(old)?)
    })?;
    let mut changes = vec![schemas, aggregation];
    if let Some(most) = max_creates {
        changes.push(Change::read_and_edit(&folder.join(CARBON), None, |old| {
            creates::raised(old, most)
        })?);
    }
    let report = changes.iter().map(|change| change.report(dry_run)).collect::<String>();
    if dry_run {
        return print(&report);
    }
    // What can fail comes first: a file is only replaced when all of them can be.
    let staged: Vec<Vec<Staged<'_>>> = changes
        .iter()
        .filter(|change| change.is_needed())
        .map(Change::stage)
        .collect::<Result<_>>()?;
    for file in staged.into_iter().flatten() {
        file.commit()?;
    }
    print(&report)?;
    print(match changes.iter().map(Change::is_needed).collect::<Vec<_>>()[..] {
        [.., true] if max_creates.is_some() => {
            "Restart Carbon, which reads carbon.conf only at its start: `systemctl restart \
                carbon-cache`\n"
        }
        [false, false, ..] => "Nothing to restart\n",
        _ => {
            "carbon-cache reads these rules within a minute; any other Carbon must be restarted. \
                Start slurm-graphite after that\n"
        }
    })
}

/// A file of Carbon's as it is, and as it should be.
struct Change {
    /// The file behind all symbolic links: a link to it stays one.
    place: ConfLocation,
    /// Bytes of the file as it is. `None`: there is no such file yet.
    old: Option<Vec<u8>>,
    new: Vec<u8>,
    /// Metadata of the file from which the new file gets its owner and mode.
    like: Metadata,
}

impl Change {
    /// Reads the file and edits it. If it does not exist, it is made with the owner and mode of
    /// `like`; without `like` that is an error.
    fn read_and_edit(
        path: &Path,
        like: Option<&Self>,
        edit: impl FnOnce(&[u8]) -> Result<Vec<u8>>,
    ) -> Result<Self> {
        let shown = || path.display().to_string();
        let place = ConfLocation::find(path).with_context(shown)?;
        let (like, old) = match (place.read_file(), like) {
            (Ok((metadata, old)), _) => (metadata, Some(old)),
            // A link that leads nowhere is not a missing file.
            (Err(error), Some(like))
                if error.kind() == ErrorKind::NotFound && !path.is_symlink() =>
            {
                (like.like.clone(), None)
            }
            (Err(error), _) => return Err(open_folder::explain(error).context(shown())),
        };
        let new = edit(old.as_deref().unwrap_or_default())
            .with_context(|| place.path.display().to_string())?;
        Ok(Self { place, old, new, like })
    }

    fn is_needed(&self) -> bool {
        self.old.as_ref() != Some(&self.new)
    }

    fn backup(&self) -> OsString {
        let mut name = self.place.name.clone();
        name.push(".");
        name.push(BACKUP);
        name
    }

    /// The site's own file, if it has no backup yet. A file that this command has written before is
    /// not the site's own.
    fn to_back_up(&self) -> Option<&Vec<u8>> {
        let has_backup = self.place.has_neighbour(&self.backup());
        self.old.as_ref().filter(|old| !has_backup && !block::has_one(old))
    }

    /// Writes the backup, if one is due, and the new file under temporary names. Returns both, in
    /// the order in which they are to take their places.
    fn stage(&self) -> Result<Vec<Staged<'_>>> {
        let backup = self.to_back_up().map(|old| (self.backup(), old));
        let files = backup.into_iter().chain([(self.place.name.clone(), &self.new)]);
        files
            .map(|(name, text)| Staged::new(&self.place, name, text, &self.like))
            .collect::<Result<_>>()
            .with_context(|| format!("{} is not changed", self.place.path.display()))
    }

    /// Says in one line what was done to the file, or would be.
    fn report(&self, dry_run: bool) -> String {
        let path = self.place.path.display();
        if !self.is_needed() {
            return format!("{path}: nothing to change\n");
        }
        if dry_run {
            return self.preview();
        }
        let name = self.backup();
        if self.to_back_up().is_none() && !self.place.has_neighbour(&name) {
            return format!("{path}: written\n");
        }
        let backup = self.place.path.with_file_name(name);
        format!("{path}: written; {} is the file before the first change\n", backup.display())
    }

    /// Returns the lines that would go and those that would come, from the first line that changes
    /// to the last.
    fn preview(&self) -> String {
        let [old, new] =
            [self.old.as_deref().unwrap_or_default(), &self.new].map(String::from_utf8_lossy);
        let [mut old, mut new] = [&old, &new].map(|text| text.lines().collect::<Vec<_>>());
        let head = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        old = old.split_off(head);
        new = new.split_off(head);
        let tail =
            old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
        let mut text =
            format!("{}: from line {} on\n", self.place.path.display(), head.saturating_add(1));
        for (sign, lines) in [('-', old), ('+', new)] {
            for line in lines.iter().take(lines.len() - tail) {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{sign}{line}");
            }
        }
        text
    }
}
