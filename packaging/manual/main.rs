//! `manual-pages FOLDER` writes the manual pages and the shells' completions, for packages and
//! `make install`.
//!
//! Nothing is written twice: commands and options come from the daemon's own description of its
//! command line, and the keys of the configuration from the comments in the shipped file.

#[path = "../../crates/daemon/src/cli.rs"]
#[expect(dead_code, reason = "only what it says of itself is used")]
mod cli;
mod configuration;
#[path = "../../crates/daemon/src/config/flags.rs"]
mod flags;
mod page;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_complete::{Generator, Shell};
use clap_mangen::Man;

use crate::cli::{Cli, Options};
use crate::page::ManualPage;

/// Stands for the daemon's `config`, from which cli.rs takes flags, and parsers of values, of which
/// there are none here.
mod config {
    pub(crate) use crate::flags::{Flags, OnceFlags, PathFlags, StatsFlags};

    pub(crate) fn duration(_: &str) -> Result<std::time::Duration, String> {
        Err(String::new())
    }

    pub(crate) fn seconds(_: &str) -> Result<u32, String> {
        Err(String::new())
    }
}

const NAME: &str = "slurm-graphite";

/// The configuration as it is installed.
const SHIPPED: &str = include_str!("../../config/slurm-graphite.toml");

/// Sections that the command line does not have: terms, and below each its meaning.
const SECTIONS: &str = include_str!("sections.md");

fn main() -> Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).context("usage: manual-pages FOLDER")?);
    let write = |file: &str, text: String| {
        let path = folder.join(file);
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    };
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    write("slurm-graphite.1", program()?)?;
    write("slurm-graphite.toml.5", configuration::page(SHIPPED))?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command(), NAME, &mut script);
        // A program with a hyphen in its name gets two names in bash's script: clap-rs/clap#6421.
        let script =
            String::from_utf8_lossy(&script).replace("slurm__subcmd__graphite", "slurm__graphite");
        write(&shell.file_name(NAME), script)?;
    }
    Ok(())
}

fn command() -> Command {
    Cli::command().disable_help_subcommand(true)
}

/// slurm-graphite(1): one page for all commands, with the options that they share once.
fn program() -> Result<String> {
    let command = command();
    let shared = <Options>::augment_args(Command::new(NAME));
    let is_shared =
        |arg: &clap::Arg| shared.get_arguments().any(|other| other.get_id() == arg.get_id());

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

/// The options of a command as clap_mangen prints them, without their heading.
fn options(command: Command) -> Result<String> {
    let mut bytes = Vec::new();
    let man = Man::new(command.disable_help_flag(true));
    man.render_options_section(&mut bytes).context("writing to memory")?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text
        .lines()
        .skip_while(|line| !line.starts_with(".TP"))
        .map(|line| format!("{line}\n"))
        .collect())
}

fn about(command: &Command) -> String {
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
        for command in Cli::command().get_subcommands() {
            let heading =
                format!(".SS \"slurm\\-graphite {}\"\n", command.get_name().replace('-', "\\-"));
            assert_eq!(page.matches(&heading).count(), 1, "{heading}{page}");
            options.extend(
                command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)),
            );
        }
        for shared in <Options>::augment_args(Command::new(NAME)).get_arguments() {
            let long =
                format!("\n\\fB\\-\\-{}\\fR", shared.get_long().unwrap().replace('-', "\\-"));
            assert_eq!(page.matches(&long).count(), 1, "{long}");
        }
        for long in options {
            let long = format!("\n\\fB\\-\\-{}\\fR", long.replace('-', "\\-"));
            assert!(page.contains(&long), "{long}");
        }
    }
}
