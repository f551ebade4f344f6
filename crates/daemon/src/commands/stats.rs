//! `stats`: prints the figures of sdiag, in its words and order, with names resolved. With `--json`
//! it prints a reading, as recordings have it. With `--jobs` it prints whose jobs run and wait, or
//! have ended.

mod compared;
mod document;
mod finished;
mod jobs;
mod table;

use anyhow::{Context, Result, bail};
use slurm_snapshot::{Answer, Reading, ReplyKind, ReplyOptions, Request, Role};

pub(super) use self::compared::{Compared, RankedRow, Served};
pub(super) use self::document::document;
pub(super) use self::finished::finished;
pub(super) use self::jobs::jobs;
use super::{block_on, load_quietly, print, print_json, read_or_advise};
use crate::cli::Options;
use crate::survey::HIDDEN_REMEDY;

/// Returns the request for all that sdiag shows.
pub(super) fn all() -> Request {
    let options = ReplyOptions { rpc: true, users: true, ..ReplyOptions::default() };
    Request::new(ReplyKind::Statistics, options)
}

pub(super) fn stats(options: &Options, json: bool, reset: bool) -> Result<()> {
    let config = load_quietly(options)?;
    let request =
        if reset { Request::new(ReplyKind::Reset, ReplyOptions::default()) } else { all() };
    let reading = block_on(read_or_advise(config.slurm, request))?;
    if reset {
        return print("The statistics of slurmctld have been reset.\n");
    }
    if json {
        return print_json(&Answer::Reading(reading));
    }
    print(&document(&reading, None))
}

/// Makes one request, and refuses the reply if a part of it may be hidden from this user.
fn read_whole(options: &Options, request: Request) -> Result<Box<Reading>> {
    let kind = request.reply;
    let reading = block_on(read_or_advise(load_quietly(options)?.slurm, request))?;
    check_whole(&reading, kind)?;
    Ok(reading)
}

/// Refuses a reply of which a part may be hidden from this user.
fn check_whole(reading: &Reading, kind: ReplyKind) -> Result<()> {
    let visibility =
        reading.visibility.as_ref().context("slurmctld did not say what PrivateData hides")?;
    let file = if kind.row().role == Role::Accounting { "slurmdbd.conf" } else { "slurm.conf" };
    match kind.row().private.iter().find(|word| visibility.may_hide(word)) {
        None => Ok(()),
        Some(word) => bail!(
            "PrivateData={word} in {file} may hide part of the reply from this user, so nothing is \
                printed.\n{HIDDEN_REMEDY}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::Visibility;

    use super::*;

    #[test]
    fn a_part_is_not_printed_as_the_whole() {
        let reading = |visibility| Reading { visibility, ..Reading::default() };
        let seen = |word: &str, privileged| {
            Some(Visibility { private: vec![word.to_owned()], privileged })
        };
        for (kind, word) in [
            (ReplyKind::Jobs, "jobs"),
            (ReplyKind::Associations, "usage"),
            (ReplyKind::Associations, "users"),
        ] {
            assert!(check_whole(&reading(seen(word, Some(true))), kind).is_ok());
            assert!(check_whole(&reading(seen("nodes", Some(false))), kind).is_ok());
            let refused =
                check_whole(&reading(seen(word, Some(false))), kind).unwrap_err().to_string();
            assert!(refused.contains("adminlevel=operator"), "{refused}");
            assert!(
                check_whole(&reading(seen(word, None)), kind).is_err()
                    && check_whole(&reading(None), kind).is_err()
            );
        }
    }
}
