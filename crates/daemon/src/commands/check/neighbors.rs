//! The other configurations in the folder of the default one. Each belongs to another daemon, and
//! no two may share paths. A queue that two would share is refused by its lock.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::CheckLine;
use crate::config::{Config, ConfigFile, Flags, default_paths};

const ADVICE: &str = "Two daemons would write the same paths: prefix = \"cluster.{cluster}\", with \
    a slurm.conf for each.";

/// Returns a line for each other configuration with the same paths. Configurations in other folders
/// are trials. Without `connects` the line is only a note: a file that is not in use must not stop
/// a reload, which checks its own file first.
pub(super) fn lines(config: &Config, connects: bool) -> Vec<CheckLine> {
    let Some(file) = &config.file else { return Vec::new() };
    let is_default =
        |folder: &&Path| default_paths().iter().any(|path| path.parent() == Some(*folder));
    let Some(folder) = file.parent().filter(is_default) else { return Vec::new() };
    let line = |other: PathBuf| {
        let name = other.display();
        let text = ConfigFile::read(Some(&other)).map_err(Into::into);
        let Ok(other) = text.and_then(|text| Config::load(text, &Flags::default())) else {
            return Some(CheckLine::unknown(format!(
                "configuration: {name} is not compared: it has problems"
            )));
        };
        let text = format!("configuration: {name} has the same prefix, {}", config.prefix);
        let of_problem = if connects { CheckLine::wrong } else { CheckLine::costs };
        share_paths(config, &other).then(|| of_problem(text, ADVICE))
    };
    // Every file that `slurm-graphite@NAME.service` could start.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    // A pipe would hang.
    let is_other = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "toml") && path != file && path.is_file()
    };
    let others: BTreeSet<PathBuf> = entries.filter(is_other).collect();
    others.into_iter().filter_map(line).collect()
}

/// Whether the daemons of both configurations would write the same paths. The cluster's name tells
/// the paths apart only if each daemon asks another Slurm.
fn share_paths(config: &Config, other: &Config) -> bool {
    let is_told_apart = config.prefix.has_cluster() && config.slurm != other.slurm;
    config.prefix == other.prefix && !is_told_apart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_prefix_is_two_clusters_paths_only_with_the_clusters_name_and_a_slurm_conf_each() {
        let configuration = |prefix: &str, conf: &str| {
            format!("prefix = \"{prefix}\"\n[slurm]\nconf = \"{conf}\"\n")
        };
        let share = |one: &str, other: &str| {
            share_paths(&Config::parse_valid(one), &Config::parse_valid(other))
        };
        assert!(share("", ""));
        assert!(share(&configuration("a", "/x"), &configuration("a", "/y")));
        assert!(share(&configuration("{cluster}", "/x"), &configuration("{cluster}", "/x")));
        assert!(!share(&configuration("{cluster}", "/x"), &configuration("{cluster}", "/y")));
        assert!(!share(&configuration("a", "/x"), &configuration("b", "/x")));
    }
}
