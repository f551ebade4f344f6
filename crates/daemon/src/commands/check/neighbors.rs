//! The other configurations in the folder of the default one. Each belongs to another daemon, and no two may share
//! paths or a queue.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Report;
use crate::config::{Config, ConfigFile, Flags, default_paths};

/// A line for each thing that this configuration shares with another. Those of other folders are trials.
/// Only a problem where `connects`: a file that is not in use must not stop a reload, which checks its own file first.
pub(super) fn look(config: &Config, connects: bool, report: &mut Report) -> Result<()> {
    let Some(file) = &config.file else { return Ok(()) };
    let is_default = |folder: &&Path| default_paths().iter().any(|path| path.parent() == Some(*folder));
    let Some(folder) = file.parent().filter(is_default) else { return Ok(()) };
    for other in others(folder, file) {
        let name = other.display();
        let read = ConfigFile::read(Some(&other)).map_err(Into::into);
        match read.and_then(|text| Config::load(text, &Flags::default())) {
            Ok(other) => {
                for (text, advice) in shared(config, &other) {
                    let text = format!("configuration: {name} has the same {text}");
                    if connects { report.wrong(&text, advice)? } else { report.costs(&text, advice)? }
                }
            }
            Err(_) => report.unknown(&format!("configuration: {name} is not compared: it has problems"))?,
        }
    }
    Ok(())
}

/// Every file of the folder that `slurm-graphite@NAME.service` could start, except for `file`.
fn others(folder: &Path, file: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut others: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "toml") && path != file).collect();
    others.sort();
    others
}

fn shared(config: &Config, other: &Config) -> Vec<(String, &'static str)> {
    let mut shared = Vec::new();
    if let Some(dir) = config.queue.dir.as_ref().filter(|dir| other.queue.dir.as_ref() == Some(*dir)) {
        shared.push((
            format!("queue.dir, {}", dir.display()),
            "Give each its own: /var/lib/slurm-graphite-NAME for slurm-graphite@NAME.service.",
        ));
    }
    // The name of one cluster is in both paths only where both ask the same Slurm.
    let is_told_apart = config.prefix.has_cluster() && config.slurm != other.slurm;
    if config.prefix == other.prefix && !is_told_apart {
        shared.push((
            format!("prefix, {}", config.prefix),
            "Two daemons would write the same paths: prefix = \"cluster.{cluster}\", with a slurm.conf for each.",
        ));
    }
    shared
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(one: &str, other: &str) -> Vec<String> {
        let found = shared(&Config::of(one), &Config::of(other)).into_iter();
        found.map(|(text, _)| text.split(',').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn the_same_prefix_is_two_clusters_paths_only_with_the_clusters_name_and_a_slurm_conf_each() {
        let of = |prefix: &str, conf: &str| format!("prefix = \"{prefix}\"\n[slurm]\nconf = \"{conf}\"\n");
        assert_eq!(found("", ""), ["prefix"]);
        assert_eq!(found(&of("a", "/x"), &of("a", "/y")), ["prefix"]);
        assert_eq!(found(&of("{cluster}", "/x"), &of("{cluster}", "/x")), ["prefix"]);
        assert_eq!(found(&of("{cluster}", "/x"), &of("{cluster}", "/y")), [""; 0]);
        assert_eq!(found(&of("a", "/x"), &of("b", "/x")), [""; 0]);
    }

    #[test]
    fn a_queue_in_memory_is_shared_with_nobody() {
        let of = |prefix: &str, dir: &str| format!("prefix = \"{prefix}\"\n[queue]\ndir = \"{dir}\"\n");
        assert_eq!(found(&of("a", "/q"), &of("b", "/q")), ["queue.dir"]);
        assert_eq!(found(&of("a", "/q"), &of("b", "/r")), [""; 0]);
        assert_eq!(found("prefix = \"a\"", "prefix = \"b\""), [""; 0]);
    }
}
