//! What `stats --watch` draws: lines for a terminal of this size, from one reading and the one before.
//!
//! Has no terminal and no clock. No control character from slurmctld or a name service reaches the screen.

use slurm_points::derive::{self, Cycles};
use slurm_snapshot::{Reading, Statistics};

use super::super::stats::{Compared, RankedRow, Served};
use crate::clock;
use crate::printable::cell;

/// The width of a table of RPCs, and of the figures in it.
const NARROWEST: usize = 56;
const WIDEST: usize = 100;
const FIGURES: usize = 38;
/// Of a text that is wrapped.
const MOST_LINES: usize = 4;

/// A terminal without a size.
pub(super) const USUAL: Size = Size { width: 80, height: 24 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) height: usize,
}

/// What is to be seen.
pub(super) struct View<'a> {
    /// The last reading that succeeded.
    pub(super) now: Option<&'a Reading>,
    /// The one before it.
    pub(super) before: Option<&'a Reading>,
    /// Why there is no newer one.
    pub(super) trouble: Option<Trouble<'a>>,
    /// For how many seconds a request has been under way, if that is unusual.
    pub(super) waits: Option<u64>,
    /// Seconds since the last reading, or since the start.
    pub(super) silent: u64,
    /// Seconds between two readings.
    pub(super) every: u32,
}

/// What has failed, and what to do.
#[derive(Clone, Copy)]
pub(super) struct Trouble<'a> {
    pub(super) why: &'a str,
    pub(super) advice: &'a str,
}

/// One line, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScreenLine {
    pub(super) text: String,
    pub(super) look: Look,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    /// A heading of columns.
    Reverse,
    /// What somebody should see.
    Bold,
    /// What may no longer be so.
    Faint,
}

/// The lines, cut to the size of the terminal.
pub(super) fn screen(view: &View<'_>, size: Size) -> Vec<ScreenLine> {
    let mut lines = vec![head(view)];
    lines.extend(silence(view, size.width));
    let fresh = lines.len();
    if let Some((reading, statistics)) = view.now.and_then(|now| Some((now, now.statistics.as_ref()?))) {
        let compared = view.before.and_then(|before| Compared::new(before, reading, view.every));
        summary(&mut lines, reading, statistics, compared.as_ref());
        let room = Size { height: size.height.saturating_sub(lines.len()), ..size };
        tables(&mut lines, room, reading, compared.as_ref());
    }
    if fresh > 1 {
        let old = lines.iter_mut().skip(fresh).filter(|line| line.look != Look::Reverse);
        old.for_each(|line| line.look = Look::Faint);
    }
    lines.truncate(size.height);
    lines.iter_mut().for_each(|line| line.fit(size.width));
    lines
}

/// Why the figures below are old.
fn silence(view: &View<'_>, width: usize) -> Vec<ScreenLine> {
    let mut lines = Vec::new();
    if let Some(Trouble { why, advice }) = view.trouble {
        let said = wrapped(&format!("no reading for {} s: {why}", view.silent), width);
        lines.extend(said.into_iter().map(ScreenLine::bold));
        lines.extend(wrapped(advice, width).into_iter().map(ScreenLine::plain));
    }
    lines
        .extend(view.waits.map(|seconds| ScreenLine::bold(format!("waiting for slurmctld for {seconds} s"))));
    lines
}

/// Words in lines of this width: as many lines as leave most of a screen to the figures.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let fits = |line: &&mut String| line.chars().count().saturating_add(word.chars().count()) < width;
        match lines.last_mut().filter(fits) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines.truncate(MOST_LINES);
    lines
}

fn head(view: &View<'_>) -> ScreenLine {
    let cluster = view.now.and_then(|now| now.cluster.as_deref()).unwrap_or("the cluster");
    let at = view
        .now
        .and_then(|now| now.statistics.as_ref())
        .map(|s| clock::local(s.req_time, "%Y-%m-%d %H:%M:%S"))
        .unwrap_or_default();
    ScreenLine::bold(format!("slurmctld of {cluster:<24} {at:<19} every {} s, q to end", view.every))
}

fn summary(lines: &mut Vec<ScreenLine>, reading: &Reading, s: &Statistics, compared: Option<&Compared<'_>>) {
    let busy = derive::threads_fraction(reading, s).unwrap_or(0.0) > 0.5;
    let threads = format!(
        "server threads {:<5} agents {:<5} agent queue {:<7} DBD queue {:<8}",
        s.server_thread_count, s.agent_count, s.agent_queue_size, s.dbd_agent_queue_size
    );
    lines.push(ScreenLine { text: threads, look: if busy { Look::Bold } else { Look::Plain } });
    lines.push(ScreenLine::plain(format!(
        "jobs           pending {:<9} running {:<9} counted {} s ago",
        s.jobs_pending,
        s.jobs_running,
        s.job_states_ts.map_or_else(|| "-".to_owned(), |at| s.req_time.saturating_sub(at).to_string())
    )));
    let jobs = compared.map(|c| (c.interval, c.interval.jobs));
    let rate = |of: fn(&derive::JobCounts) -> u32| number(jobs.map(|(i, jobs)| i.per_minute(of(&jobs))));
    lines.push(ScreenLine::plain(format!(
        "  per minute   submit {:<5} start {:<5} complete {:<5} cancel {:<5} fail {}",
        rate(|j| j.submitted),
        rate(|j| j.started),
        rate(|j| j.completed),
        rate(|j| j.canceled),
        rate(|j| j.failed)
    )));
    lines.push(ScreenLine::plain(String::new()));
    lines.push(ScreenLine::heading(format!(
        "{:<10}{:>9}{:>9}{:>9}{:>10}{:>8}{:>9}{:>16}",
        "scheduler", "last", "mean", "max", "/min", "busy", "depth", "queue"
    )));
    let interval = compared.map(|c| c.interval);
    let mut scheduler =
        |name: &str, last: u32, max: Option<u32>, depth: Option<u64>, queue: u32, cycles: Option<Cycles>| {
            let both = interval.zip(cycles);
            let mean = cycles.and_then(|cycles| cycles.mean_time());
            let a_minute = both.map(|(interval, cycles)| interval.per_minute(cycles.count));
            let fraction = both.and_then(|(interval, cycles)| interval.busy_fraction(&cycles));
            let depth = cycles.map_or(depth.map(derive::exact_f64), |cycles| cycles.mean_depth());
            lines.push(ScreenLine {
                text: format!(
                    "{name:<10}{:>9}{:>9}{:>9}{:>10}{:>8}{:>9}{queue:>16}",
                    duration(Some(last.into())),
                    duration(mean),
                    duration(max.map(f64::from)),
                    number(a_minute),
                    percent(fraction),
                    number(depth)
                ),
                look: if fraction > Some(0.5) { Look::Bold } else { Look::Plain },
            });
        };
    let main_depth = derive::means(s).schedule_depth.or_else(|| s.schedule_cycle_depth.map(|_| 0));
    let main = interval.map(|interval| interval.main);
    let (main_max, bf_depth) = (Some(s.schedule_cycle_max), s.bf_last_depth.map(u64::from));
    scheduler("main", s.schedule_cycle_last, main_max, main_depth, s.schedule_queue_len, main);
    let backfill = interval.map(|interval| interval.bf);
    scheduler("backfill", s.bf_cycle_last, s.bf_cycle_max, bf_depth, s.bf_queue_len, backfill);
    let age = s.bf_when_last_cycle.map(|at| s.req_time.saturating_sub(at));
    lines.push(ScreenLine::plain(format!(
        "          last began {} ago{}, covered {} of its queue",
        age.map_or_else(|| "-".to_owned(), |age| format!("{age} s")),
        if s.bf_active == 0 { "" } else { " and is running" },
        percent(derive::bf_coverage(s)).trim_start()
    )));
}

/// Types and users, as many as there is room for: three of five lines for types where there are more of both.
fn tables(lines: &mut Vec<ScreenLine>, room: Size, reading: &Reading, compared: Option<&Compared<'_>>) {
    let (Served { types, users }, of) = match compared {
        Some(compared) => (compared.served(), format!("{:.0} s", compared.interval.seconds)),
        None => (Served::all(reading), "all".to_owned()),
    };
    // Each table has an empty line and a heading.
    let Some(rows) = room.height.checked_sub(4).filter(|&rows| rows >= 2) else { return };
    let fair = (rows * 3 / 5).max(1);
    let for_types = types.len().min(fair.max(rows.saturating_sub(users.len())));
    table(lines, "RPCs by type", &of, &types, Size { height: for_types, ..room });
    let for_users = rows.saturating_sub(for_types);
    table(lines, "RPCs by user", &of, &users, Size { height: for_users, ..room });
}

/// The name takes what the figures leave, and is cut with a sign.
fn table(lines: &mut Vec<ScreenLine>, title: &str, of: &str, rows: &[RankedRow], room: Size) {
    let name = room.width.clamp(NARROWEST, WIDEST).saturating_sub(FIGURES);
    lines.push(ScreenLine::plain(String::new()));
    lines.push(ScreenLine::heading(format!(
        "{:<name$}{:>10}{:>10}{:>10}{:>8}",
        format!("{title}, {of}"),
        "/min",
        "mean",
        "time",
        "share"
    )));
    for row in rows.iter().take(room.height) {
        let a_minute = (row.per_minute > 0.0).then_some(row.per_minute);
        lines.push(ScreenLine::plain(format!(
            "{:<name$}{:>10}{:>10}{:>10}{:>8}",
            &cell(&row.name, name.saturating_sub(1)),
            number(a_minute),
            duration(Some(row.mean)),
            duration(Some(derive::exact_f64(row.time))),
            percent(Some(row.share))
        )));
    }
}

impl ScreenLine {
    fn plain(text: String) -> Self {
        Self { text, look: Look::Plain }
    }

    fn heading(text: String) -> Self {
        Self { text, look: Look::Reverse }
    }

    fn bold(text: String) -> Self {
        Self { text, look: Look::Bold }
    }

    fn fit(&mut self, width: usize) {
        self.text = cell(&self.text, width);
    }
}

/// In the unit that leaves up to three digits before the point.
fn duration(micros: Option<f64>) -> String {
    match micros {
        None => "-".to_owned(),
        Some(micros) if micros < 999.5 => format!("{micros:.0} µs"),
        Some(micros) if micros < 999_500.0 => format!("{:.1} ms", micros / 1e3),
        Some(micros) if micros < 999.5e6 => format!("{:.1} s", micros / 1e6),
        Some(micros) => format!("{:.1} h", micros / 3.6e9),
    }
}

fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 999.5 => format!("{value:.1}"),
        Some(value) if value < 999_500.0 => format!("{:.1}k", value / 1e3),
        Some(value) => format!("{:.1}M", value / 1e6),
    }
}

fn percent(fraction: Option<f64>) -> String {
    fraction.map_or_else(|| "-".to_owned(), |fraction| format!("{:.1} %", fraction * 100.0))
}

#[cfg(test)]
#[path = "../../../tests/inside/screen.rs"]
mod tests;
