//! The screen of `stats --watch`: lines for a terminal of this size, from one reading and the one
//! before.
//!
//! Has no terminal and no clock. No control character from slurmctld or a name service reaches the
//! screen.

use slurm_points::derive::{self, Cycles, Interval};
use slurm_snapshot::{Reading, Statistics};

use super::super::stats::{Compared, RankedRow, Served};
use crate::clock;
use crate::printable::cell;

/// Least width of a table of RPCs, columns.
const NARROWEST: usize = 56;
/// Greatest width of a table of RPCs, columns.
const WIDEST: usize = 100;
/// Width of the figures in a table of RPCs, columns. The rest is for the name.
const FIGURES: usize = 38;
/// Number of lines that a wrapped text may have.
const MOST_LINES: usize = 4;

/// The size that is assumed of a terminal that does not tell its own.
pub(super) const USUAL: Size = Size { width: 80, height: 24 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) height: usize,
}

/// The contents of the screen.
#[derive(Clone, Default)]
pub(super) struct View {
    /// Seconds between two readings.
    pub(super) every: u32,
    /// The last reading that succeeded.
    pub(super) now: Option<Box<Reading>>,
    /// The reading before `now` that succeeded.
    pub(super) before: Option<Box<Reading>>,
    /// The reason why there is no newer reading, and advice.
    pub(super) trouble: Option<[String; 2]>,
    /// Seconds that the request under way has taken. `None`: there is none, or it has taken less
    /// than a second.
    pub(super) waits: Option<u64>,
    /// Seconds since the last reading, or since the start.
    pub(super) silent: u64,
    /// The last values of some figures.
    pub(super) history: History,
}

/// Number of values that are remembered of a figure.
const REMEMBERED: usize = 10;

/// The last values of four figures, the newest last: pending and running jobs, and the mean times
/// of a main cycle and of an RPC in each interval.
#[derive(Clone, Default)]
pub(super) struct History([Vec<Option<f64>>; 4]);

impl History {
    fn line(&self) -> String {
        let figures = ["pending", "running", "main", "RPC"].iter().zip(&self.0);
        figures.fold("last 10".to_owned(), |line, (name, values)| {
            format!("{line} {name} {:<REMEMBERED$}", heights(values))
        })
    }
}

/// Each value as a bar, whose height is its share of the largest; a space where there is none.
fn heights(values: &[Option<f64>]) -> String {
    let largest = values.iter().flatten().copied().fold(0.0, f64::max);
    let bar = |value: &Option<f64>| match value {
        None => ' ',
        Some(value) => {
            let eighths = ['▂', '▃', '▄', '▅', '▆', '▇', '█'].into_iter().zip(1_u8..);
            let reached = |step: u8| *value > largest * (f64::from(step) - 0.5) / 7.0;
            eighths.filter(|&(_, step)| reached(step)).last().map_or('▁', |(bar, _)| bar)
        }
    };
    values.iter().map(bar).collect()
}

impl View {
    /// Remembers the figures of the last reading.
    pub(super) fn remember(&mut self) {
        let Some(statistics) = self.now.as_ref().and_then(|now| now.statistics.as_ref()) else {
            return;
        };
        // Before slurmctld has counted them, both are 0.
        let counted = |jobs: u32| statistics.job_states_ts.map(|_| f64::from(jobs));
        let compared = self.compared();
        let main = compared.as_ref().and_then(|compared| compared.interval.main.mean_time());
        let rpc = compared.as_ref().and_then(Compared::mean_rpc);
        let values =
            [counted(statistics.jobs_pending), counted(statistics.jobs_running), main, rpc];
        for (row, value) in self.history.0.iter_mut().zip(values) {
            row.push(value);
            if row.len() > REMEMBERED {
                row.remove(0);
            }
        }
    }

    pub(super) fn compared(&self) -> Option<Compared<'_>> {
        Compared::new(self.before.as_deref()?, self.now.as_deref()?, self.every)
    }
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
    /// The look of a heading of columns: reversed colours.
    Reverse,
    /// The look of a line that somebody should see.
    Bold,
    /// The look of figures that may be outdated.
    Faint,
}

impl Look {
    fn line(self, text: String) -> ScreenLine {
        ScreenLine { text, look: self }
    }

    fn bold_if(is_bold: bool) -> Self {
        if is_bold { Self::Bold } else { Self::Plain }
    }
}

/// The lines, cut to the size of the terminal.
pub(super) fn screen(view: &View, size: Size) -> Vec<ScreenLine> {
    let mut lines = silence(view, size.width);
    let fresh = lines.len();
    let statistics = view.now.as_ref().and_then(|now| now.statistics.as_ref());
    if let Some((reading, statistics)) = view.now.as_ref().zip(statistics) {
        let compared = view.compared();
        summary(&mut lines, view, reading, statistics, compared.as_ref());
        let room = Size { height: size.height.saturating_sub(lines.len()), ..size };
        tables(&mut lines, room, reading, compared.as_ref());
    }
    if fresh > 1 {
        let old = lines.iter_mut().skip(fresh).filter(|line| line.look != Look::Reverse);
        old.for_each(|line| line.look = Look::Faint);
    }
    lines.truncate(size.height);
    lines.iter_mut().for_each(|line| line.text = cell(&line.text, size.width));
    lines
}

/// Returns the first line of the screen and, if the figures below are old, the lines that say why.
fn silence(view: &View, width: usize) -> Vec<ScreenLine> {
    let now = view.now.as_ref();
    let cluster = now.and_then(|now| now.cluster.as_deref()).unwrap_or("the cluster");
    let statistics = now.and_then(|now| now.statistics.as_ref());
    let at = statistics.map(|s| clock::local(s.req_time, "%Y-%m-%d %H:%M:%S")).unwrap_or_default();
    let head = format!("slurmctld of {cluster:<24} {at:<19} every {} s, q to end", view.every);
    let mut lines = vec![Look::Bold.line(head)];
    if let Some([why, advice]) = &view.trouble {
        let why = format!("no reading for {} s: {why}", view.silent);
        for (text, look) in [(&why, Look::Bold), (advice, Look::Plain)] {
            lines.extend(wrapped(text, width).into_iter().map(|line| look.line(line)));
        }
    }
    let waits = view.waits.map(|seconds| format!("waiting for slurmctld for {seconds} s"));
    lines.extend(waits.map(|text| Look::Bold.line(text)));
    lines
}

/// Breaks `text` between words into lines of at most `width` columns. Only the first `MOST_LINES`
/// are kept, so that most of a screen is left for the figures.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let fits =
            |line: &&mut String| line.chars().count().saturating_add(word.chars().count()) < width;
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

/// The lines about slurmctld, its jobs and its schedulers.
fn summary(
    lines: &mut Vec<ScreenLine>,
    view: &View,
    reading: &Reading,
    s: &Statistics,
    compared: Option<&Compared<'_>>,
) {
    let is_busy = derive::threads_fraction(reading, s) > Some(0.5);
    lines.push(Look::bold_if(is_busy).line(format!(
        "server threads {:<5} agents {:<5} agent queue {:<7} DBD queue {:<8}",
        s.server_thread_count, s.agent_count, s.agent_queue_size, s.dbd_agent_queue_size
    )));
    let seconds = |since: Option<i64>| {
        since.map_or_else(|| "-".to_owned(), |since| s.req_time.saturating_sub(since).to_string())
    };
    let count = |jobs: Option<u32>| jobs.map_or_else(|| "-".to_owned(), |jobs| jobs.to_string());
    lines.push(Look::Plain.line(format!(
        "jobs           pending {:<9} running {:<9} counted {} s ago",
        count(s.jobs_pending()),
        count(s.jobs_running()),
        seconds(s.job_states_ts)
    )));
    let interval = compared.map(|c| c.interval);
    let rate =
        |of: fn(&derive::JobCounts) -> u32| number(interval.map(|i| i.per_minute(of(&i.jobs))));
    lines.push(Look::Plain.line(format!(
        "  per minute   submit {:<5} start {:<5} complete {:<5} cancel {:<5} fail {}",
        rate(|j| j.submitted),
        rate(|j| j.started),
        rate(|j| j.completed),
        rate(|j| j.canceled),
        rate(|j| j.failed)
    )));
    lines.push(Look::Plain.line(view.history.line()));
    schedulers(lines, s, interval);
    lines.push(Look::Plain.line(format!(
        "          last began {} ago{}, covered {} of its queue",
        s.bf_when_last_cycle.map_or_else(|| "-".to_owned(), |since| seconds(Some(since)) + " s"),
        if s.bf_active == 0 { "" } else { " and is running" },
        percent(derive::bf_coverage(s))
    )));
}

/// A line for each of the two schedulers, below their heading.
fn schedulers(lines: &mut Vec<ScreenLine>, s: &Statistics, interval: Option<Interval>) {
    let columns = |[name, last, mean, max, rate, busy, depth, queue]: [&str; 8]| {
        format!("{name:<10}{last:>9}{mean:>9}{max:>9}{rate:>10}{busy:>8}{depth:>9}{queue:>16}")
    };
    let heading = columns(["scheduler", "last", "mean", "max", "/min", "busy", "depth", "queue"]);
    lines.push(Look::Reverse.line(heading));
    let mut scheduler = |name: &str,
                         last: u32,
                         max: Option<u32>,
                         depth: Option<u64>,
                         queue: u32,
                         cycles: Option<Cycles>| {
        let both = interval.zip(cycles);
        let busy = both.and_then(|(interval, cycles)| interval.busy_fraction(&cycles));
        lines.push(Look::bold_if(busy > Some(0.5)).line(columns([
            name,
            &duration(Some(last.into())),
            &duration(cycles.and_then(|cycles| cycles.mean_time())),
            &duration(max.map(f64::from)),
            &number(both.map(|(interval, cycles)| interval.per_minute(cycles.count))),
            &percent(busy),
            &number(cycles.map_or(depth.map(derive::exact_f64), |cycles| cycles.mean_depth())),
            &queue.to_string(),
        ])));
    };
    let main_depth = derive::means(s).schedule_depth.or_else(|| s.schedule_cycle_depth.map(|_| 0));
    let main = interval.map(|interval| interval.main);
    let main_max = Some(s.schedule_cycle_max);
    let bf_depth = s.bf_last_depth.map(u64::from);
    scheduler("main", s.schedule_cycle_last, main_max, main_depth, s.schedule_queue_len, main);
    let backfill = interval.map(|interval| interval.bf);
    scheduler("backfill", s.bf_cycle_last, s.bf_cycle_max, bf_depth, s.bf_queue_len, backfill);
}

/// Adds the tables of RPCs by type and by user, with as many rows as there is room for. If both are
/// too long, three of five rows are for types.
fn tables(
    lines: &mut Vec<ScreenLine>,
    room: Size,
    reading: &Reading,
    compared: Option<&Compared<'_>>,
) {
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

/// Adds one table of RPCs. Names take the width that the figures leave, and an ellipsis shows that
/// one was cut.
fn table(lines: &mut Vec<ScreenLine>, title: &str, of: &str, rows: &[RankedRow], room: Size) {
    let width = room.width.clamp(NARROWEST, WIDEST).saturating_sub(FIGURES);
    let columns = |[name, rate, mean, time, share]: [&str; 5]| {
        format!("{name:<width$}{rate:>10}{mean:>10}{time:>10}{share:>8}")
    };
    lines.push(Look::Plain.line(String::new()));
    let heading = columns([&format!("{title}, {of}"), "/min", "mean", "time", "share"]);
    lines.push(Look::Reverse.line(heading));
    lines.extend(rows.iter().take(room.height).map(|row| {
        Look::Plain.line(columns([
            &cell(&row.name, width.saturating_sub(1)),
            &number(Some(row.per_minute).filter(|rate| *rate > 0.0)),
            &duration(Some(row.mean)),
            &duration(Some(derive::exact_f64(row.time))),
            &percent(Some(row.share)),
        ]))
    }));
}

/// Formats a time in µs, in a unit that leaves up to three digits before the point. `None` becomes
/// `-`.
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
mod tests;
