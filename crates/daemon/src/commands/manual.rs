//! `manual DIR`: the manual pages and the shells' completions, for packages and `make install`.
//!
//! Nothing is written twice: commands and options come from the command line's own description, and the keys of the
//! configuration from the comments in the shipped file.

mod configuration;
mod roff;

use std::path::Path;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use clap_complete::{Generator, Shell};
use clap_mangen::Man;

use self::roff::ManualPage;
use crate::cli::{Cli, Options};

const NAME: &str = "slurm-graphite";

/// What the command line does not know of itself: sections of terms, and below each what it means.
const SECTIONS: &str = include_str!("manual/sections.md");

/// Writes everything into `folder`, which is made where it does not exist.
pub(super) fn write(folder: &Path) -> Result<()> {
    let place = || folder.display().to_string();
    std::fs::create_dir_all(folder).with_context(place)?;
    for (file, text) in [
        ("slurm-graphite.1", program()?),
        (
            "slurm-graphite.toml.5",
            configuration::page(include_str!("../../../../config/slurm-graphite.toml")),
        ),
    ] {
        std::fs::write(folder.join(file), text).with_context(place)?;
    }
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut visible(), NAME, &mut script);
        // A program with a hyphen in its name gets two names in bash's script: clap-rs/clap#6421.
        let script = String::from_utf8_lossy(&script).replace("slurm__subcmd__graphite", "slurm__graphite");
        std::fs::write(folder.join(shell.file_name(NAME)), script).with_context(place)?;
    }
    Ok(())
}

/// The command line without this command, which is no user's business.
fn visible() -> clap::Command {
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    clap::Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommands(shown.collect::<Vec<_>>())
        .about(all.get_about().cloned().unwrap_or_default())
        .long_about(all.get_long_about().cloned().unwrap_or_default())
}

/// slurm-graphite(1): one page for all commands, with the options that they share once.
fn program() -> Result<String> {
    let command = visible();
    let shared = Options::augment_args(clap::Command::new(NAME));
    let is_shared = |arg: &clap::Arg| shared.get_arguments().any(|other| other.get_id() == arg.get_id());

    let mut page = ManualPage::new(NAME, 1, &about(&command));
    page.section("SYNOPSIS");
    page.term_line(NAME, " command [options]");
    page.section("DESCRIPTION");
    page.text(&command.get_long_about().map(ToString::to_string).unwrap_or_default());
    page.section("COMMANDS");
    for sub in command.get_subcommands() {
        let has_shared = sub.get_arguments().any(is_shared);
        page.subsection(&format!("{NAME} {}", sub.get_name()));
        page.text(&format!(
            "{}.{}",
            about(sub),
            if has_shared { " It takes the options below too." } else { "" }
        ));
        // Hidden, not left out: an option may require another.
        let own = sub.clone().mut_args(|arg| if is_shared(&arg) { arg.hide(true) } else { arg });
        page.rendered(&options(own)?);
    }
    page.section("OPTIONS");
    page.text("Each goes over the configuration's value.");
    page.rendered(&options(shared)?);
    let mut term = "";
    for line in SECTIONS.lines().filter(|line| !line.is_empty()) {
        match (line.strip_prefix("## "), line.strip_prefix(": ")) {
            (Some(heading), _) => page.section(heading),
            (_, Some(meaning)) => page.term(term, meaning),
            _ => term = line,
        }
    }
    page.section("SEE ALSO");
    page.text("`slurm-graphite.toml`(5), `sdiag`(1), `slurm.conf`(5), `munged`(8), `systemctl`(1)");
    Ok(page.finish())
}

/// What clap_mangen makes of a command's options, without its heading.
fn options(command: clap::Command) -> Result<String> {
    let mut bytes = Vec::new();
    let man = Man::new(command.disable_help_flag(true));
    man.render_options_section(&mut bytes).context("writing to memory")?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().skip_while(|line| !line.starts_with(".TP")).map(|line| format!("{line}\n")).collect())
}

fn about(command: &clap::Command) -> String {
    let text = command.get_about().map(ToString::to_string).unwrap_or_default();
    text.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_command_and_every_option_once() {
        let page = program().unwrap();
        let mut options = std::collections::BTreeSet::new();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let heading = format!(".SS \"slurm\\-graphite {}\"\n", command.get_name().replace('-', "\\-"));
            assert_eq!(page.matches(&heading).count(), 1, "{heading}{page}");
            options.extend(command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)));
        }
        for shared in Options::augment_args(clap::Command::new(NAME)).get_arguments() {
            let long = format!("\n\\fB\\-\\-{}\\fR", shared.get_long().unwrap().replace('-', "\\-"));
            assert_eq!(page.matches(&long).count(), 1, "{long}");
        }
        for long in options {
            let long = format!("\n\\fB\\-\\-{}\\fR", long.replace('-', "\\-"));
            assert!(page.contains(&long), "{long}");
        }
    }

    #[test]
    fn nobody_is_offered_the_hidden_command() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let mut files = 0;
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            // "manual" is a word; its argument is not.
            assert!(!text.to_lowercase().contains("folder>") && !text.contains("for packages"), "{text}");
            files += 1;
        }
        assert_eq!(files, 5);
    }
}
