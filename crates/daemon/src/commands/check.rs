//! `check`: checks the configuration, and with `--connect` everything that it names: one line each,
//! with advice.
//!
//! `✓` is OK. `✗` is wrong and makes the exit code 1. `–` could not be checked, or is only a note.
//! Nothing is sent but one point with a path of its own, the canary, some hundred times. The
//! daemon's store is never opened.

mod accounting;
mod carbon_conf;
mod costs;
mod delivery;
mod ini;
mod limits;
mod neighbors;
mod rest;
mod rules;
mod series;
mod slurm;
mod storage;
#[cfg(feature = "tls")]
mod tls;

use std::io;
#[cfg(feature = "tls")]
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use carbon::{Batch, Destination, in_words};
use reader_process::open_regular_file;
use serde::Serialize;
use slurm_points::derive::whole_seconds;
use slurm_snapshot::Reading;

use super::{Mark, block_on, load, number, print, print_json, print_marked, slot, start_quiet_log};
use crate::cli::Options;
use crate::config::{Config, ONLY_NAME, VARIABLE, default_paths};
use crate::host::host;
use crate::printable::printable;
use crate::trust::{Disbelief, check_found_file};
use crate::{clock, self_metrics};

/// Seconds by which the clocks of this host and of slurmctld's may seem to differ. A reply may take
/// some of them.
const CLOCKS_DIFFER: u64 = 15;

pub(super) fn check(
    options: &Options,
    json: bool,
    connects: bool,
    storage_schemas: Option<&Path>,
) -> Result<()> {
    let mut report = Report::new(json);
    let checked = match connects {
        true => block_on(everything(options, storage_schemas, &mut report)),
        false => without_connection(options, &mut report),
    };
    report.finish(checked)?;
    if connects && !json { print(&report.summary()) } else { Ok(()) }
}

/// Checks the configuration alone, without --connect. A file must have a destination, because a
/// daemon would refuse it without one.
fn without_connection(options: &Options, report: &mut Report) -> Result<()> {
    let config = load(options)?;
    let config = if config.file.is_some() { config.with_destination()? } else { config };
    report.add_all(configuration(&config));
    if config.carbon.is_empty() {
        report.add(CheckLine::unknown(
            "carbon: no destination; `run` needs a file with [[carbon]], or --carbon HOST:2004",
        ));
    }
    report.add_all(config.carbon.iter().filter_map(|to| {
        let doubt = to.protocol.unusual_port(to.address.port)?;
        Some(CheckLine::unknown(format!("{}: {doubt}", title(to))))
    }));
    report.add_all(neighbors::lines(&config, false));
    report.add_all(absent_slurm_conf(&config));
    report.add_all(limits::lines(&config));
    report.add_all(storage::long_queue(&config));
    report.add_all(rest::token_file(&config));
    #[cfg(feature = "tls")]
    report.add_all(tls::files(&config, false));
    Ok(())
}

/// Returns a note if the slurm.conf that is named does not exist. A daemon waits for it, so it is
/// not a problem, which would prevent a reload.
fn absent_slurm_conf(config: &Config) -> Option<CheckLine> {
    let path = config.slurm.conf.as_ref().filter(|path| !path.exists())?.display();
    Some(CheckLine::costs(
        format!("slurm.conf: there is no {path}, which [slurm] conf or --slurm-conf names"),
        "The daemon waits until the file is there.",
    ))
}

async fn everything(
    options: &Options,
    storage_schemas: Option<&Path>,
    report: &mut Report,
) -> Result<()> {
    let config = load(options)?;
    start_quiet_log(options, &config);
    report.add_all(configuration(&config));
    report.add_all(limits::lines(&config));
    report.add_all(neighbors::lines(&config, true));
    let reading = match &config.slurm.rest.endpoint {
        Some(endpoint) => rest::check(&config, endpoint, report).await,
        None => slurm::check(&config, report).await,
    };
    report.add_all(reading.as_ref().and_then(clock_line));
    let finished = accounting::check(&config, reading.as_ref(), report).await;
    report.add(delivery::queue(&config));
    #[cfg(feature = "tls")]
    report.add_all(tls::files(&config, true));
    let series = match &reading {
        Some(reading) => series::check(&config, reading, finished.as_ref(), report).await,
        None => None,
    };
    if let Some(reading) = &reading {
        report.add_all(costs::lines(&config, reading).await);
    }
    // A Carbon's rules come before its canary, which is a series too.
    let cluster = reading.as_ref().and_then(|reading| reading.cluster.as_deref());
    match carbon_conf::find(&config, storage_schemas).await {
        Ok(Some(place)) => {
            report.add_all(storage::lines(&config, cluster, series.as_ref(), &place))
        }
        Ok(None) => {
            report.rules_elsewhere = true;
            report.add_all(storage::long_queue(&config));
        }
        Err(why) => report.add(CheckLine::unknown(format!("storage-schemas.conf: {why}"))),
    }
    delivery::check(&config, canary(&config, reading.as_ref()).as_ref(), report).await;
    Ok(())
}

/// A line about a clock of this host that is not slurmctld's: ticks have this host's time.
fn clock_line(reading: &Reading) -> Option<CheckLine> {
    let theirs = reading.statistics.as_ref()?.req_time;
    let ahead = whole_seconds(reading.time).saturating_sub(theirs);
    (ahead.unsigned_abs() > CLOCKS_DIFFER).then(|| {
        let by = in_words(Duration::from_secs(ahead.unsigned_abs()));
        let side = if ahead > 0 { "ahead of" } else { "behind" };
        CheckLine::wrong(
            format!("clock: this host's is {by} {side} slurmctld's; ticks have this host's time"),
            "Set both from the same source: `timedatectl` and `chronyc tracking` show what each has.",
        )
    })
}

/// Reads the text of a file of somebody else's, and does not wait for a pipe in its place.
fn read_text(path: &Path) -> io::Result<String> {
    io::read_to_string(open_regular_file(path)?.0)
}

/// Returns the mode of a file, or 0 if the file cannot be looked at.
#[cfg(feature = "tls")]
fn rights(path: &Path) -> u32 {
    path.metadata().map_or(0, |file| file.mode())
}

/// Returns the lines about the configuration file that is used, and about default files that are
/// not believed.
fn configuration(config: &Config) -> Vec<CheckLine> {
    let passed_over = config.passed_over.iter().map(|text| {
        let advice = "Run this command as that user, or give the file and its directories to root.";
        CheckLine::wrong(text, advice)
    });
    passed_over.chain([configuration_in_use(config)]).collect()
}

fn configuration_in_use(config: &Config) -> CheckLine {
    if let Some(file) = &config.file {
        let text = format!("configuration: {}", file.display());
        return match check_found_file(file) {
            Err(error @ Disbelief::Distrusted { .. }) => CheckLine::costs(
                format!("{text}; {error}: they can say which program is started"),
                "Give it and its directories to root or the daemon's user, and use `chmod go-w`.",
            ),
            _ => CheckLine::good(text),
        };
    }
    if !config.passed_over.is_empty() {
        return CheckLine::good("configuration: flags and defaults only");
    }
    let missing: Vec<_> = default_paths().iter().map(|path| path.display().to_string()).collect();
    let text =
        format!("configuration: flags and defaults only; there is no {}", missing.join(" or "));
    match std::env::var_os(VARIABLE) {
        Some(_) => CheckLine::unknown(format!("{text}, which {VARIABLE} names")),
        None => CheckLine::good(text),
    }
}

/// The lines. Each is printed as soon as it is known; with `json` all of them at the end.
struct Report {
    json: bool,
    lines: Vec<CheckLine>,
    /// Whether Carbon's rules could not be read because Carbon is on another host, as it mostly is.
    rules_elsewhere: bool,
    /// Whether every line could be printed.
    printed: Result<()>,
}

/// One line of `check`, for a person and for a script.
#[derive(Serialize)]
struct CheckLine {
    mark: Mark,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl CheckLine {
    fn good(text: impl Into<String>) -> Self {
        Self { mark: Mark::Good, text: text.into(), advice: None }
    }

    /// A line that says what is wrong, and what to do about it.
    fn wrong(text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { mark: Mark::Wrong, text: text.into(), advice: Some(advice.into()) }
    }

    /// A line about what was not checked, and why.
    fn unknown(text: impl Into<String>) -> Self {
        Self { mark: Mark::Note, text: text.into(), advice: None }
    }

    /// A line about what costs something and passes by itself, and how to avoid it.
    fn costs(text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { mark: Mark::Note, ..Self::wrong(text, advice) }
    }
}

impl Report {
    const fn new(json: bool) -> Self {
        Self { json, lines: Vec::new(), rules_elsewhere: false, printed: Ok(()) }
    }

    fn add(&mut self, line: CheckLine) {
        if !self.json && self.printed.is_ok() {
            let advice = line
                .advice
                .as_ref()
                .map_or_else(String::new, |advice| format!("\n  {}", printable(advice)));
            self.printed = print_marked(line.mark, &format!("{}{advice}", printable(&line.text)));
        }
        self.lines.push(line);
    }

    fn add_all(&mut self, lines: impl IntoIterator<Item = CheckLine>) {
        lines.into_iter().for_each(|line| self.add(line));
    }

    /// Returns the last line, for a check in which nothing is wrong.
    fn summary(&self) -> String {
        let has_notes = self.lines.iter().any(|line| line.mark == Mark::Note);
        let notes = if has_notes { "; see the notes with –" } else { "" };
        let rules = match self.rules_elsewhere {
            true => {
                "; Carbon's rules, on another host, were not checked (--storage-schemas FILE \
                    checks a copy)"
            }
            false => "",
        };
        format!("no problem found{notes}{rules}\n")
    }

    /// Ends the report: with `json` it prints all lines, also if the checks could not be completed.
    /// Returns an error if something is wrong.
    fn finish(&mut self, checked: Result<()>) -> Result<()> {
        if self.json {
            let failure =
                checked.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
            self.lines.extend(
                failure
                    .lines()
                    .map(|text| CheckLine { mark: Mark::Wrong, ..CheckLine::unknown(text) }),
            );
        }
        let wrong = self.lines.iter().filter(|line| line.mark == Mark::Wrong).count();
        if self.json {
            let document =
                serde_json::json!({ "ok": checked.is_ok() && wrong == 0, "lines": self.lines });
            self.printed = print_json(&document);
        }
        std::mem::replace(&mut self.printed, Ok(()))?;
        checked?;
        ensure!(wrong == 0, "{} failed; see the advice above", number(wrong, "check", "checks"));
        Ok(())
    }
}

/// The name of a destination in a line: `carbon main`, or `carbon localhost:2004` if it has none.
fn title(to: &Destination) -> String {
    if to.name == ONLY_NAME {
        format!("carbon {}", to.address)
    } else {
        format!("carbon {}", to.name)
    }
}

/// Bytes without the end of a line that Carbon's plaintext receiver accepts; at more it closes the
/// connection.
const LONGEST_LINE: usize = 16_384;

/// Returns the canary: one point whose value is this moment, so that it can be told from an earlier
/// check's. The batch repeats it so often that a plaintext receiver would close the connection over
/// its pickle. `None`: the prefix needs the cluster's name, and slurmctld has not told it.
fn canary(config: &Config, reading: Option<&Reading>) -> Option<Batch> {
    let host = host();
    let cluster = reading.and_then(|reading| reading.cluster.as_deref());
    let prefix = config.prefix.expand(cluster, &host)?;
    let now = clock::now().as_secs_f64().floor();
    let mut batch = Batch::new(slot(now, config.interval));
    let path = self_metrics::canary(&prefix, &host);
    for _ in 0..=LONGEST_LINE / path.len().max(1) {
        batch.push(path.clone(), now);
    }
    Some(batch)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use slurm_snapshot::Statistics;

    use super::*;

    /// Guards against "no problem found" on a host whose clock is an hour ahead.
    #[test]
    fn a_clock_that_is_not_slurmctlds_is_said() {
        let line = |ahead: i64| {
            let statistics = Some(Statistics { req_time: 100_000, ..Statistics::default() });
            let time = 100_000.0 + f64::from(i32::try_from(ahead).unwrap());
            clock_line(&Reading { time, statistics, ..Reading::default() })
        };
        assert!(line(15).is_none() && line(-15).is_none());
        for (ahead, words) in
            [(3600, "1 h 0 min ahead of slurmctld's"), (-3600, "1 h 0 min behind slurmctld's")]
        {
            let line = line(ahead).unwrap();
            assert!(line.mark == Mark::Wrong && line.text.contains(words), "{}", line.text);
        }
    }

    #[test]
    fn files_with_which_others_could_become_the_daemon_are_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "").unwrap();
        let config = Config { file: Some(path.clone()), ..Config::default() };
        let toml = format!(
            "[[carbon]]\naddress = \"a:1\"\ntls = true\ncert_file = \"/none\"\nkey_file = \"{}\"\n",
            path.display()
        );
        for (mode, configuration_is_good, key_is_good) in
            [(0o600, true, true), (0o640, true, true), (0o644, true, false), (0o602, false, false)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let line = configuration_in_use(&config);
            assert_eq!(line.mark == Mark::Good, configuration_is_good, "{mode:o}: {}", line.text);
            #[cfg(feature = "tls")]
            {
                let lines = tls::files(&Config::parse_valid(&toml), false);
                let is_said = lines.iter().any(|line| line.text.contains("may write or read it"));
                assert_eq!(is_said, !key_is_good, "{mode:o}");
            }
        }
    }
}
