//! The output of sdiag, in its words and order, with the figures of the interval next to it if
//! there are two readings.
//!
//! A line of sdiag is never changed, only extended.

use std::fmt::{Display, Write};

use slurm_points::derive::{self, Cycles};
use slurm_snapshot::{
    BACKFILL_EXITS, ExitReasons, MAIN_EXITS, Reading, Release, RpcQueue, RpcTables, RpcType,
    RpcUser, Statistics,
};

use super::compared::{Compared, RankedRow, type_name, user_name};
use crate::clock;
use crate::printable::printable;

/// The column that figures of the interval end at.
const BESIDE: usize = 72;

/// Returns the text of `stats` for a reading, which has figures of the interval only with
/// `compared`.
pub(crate) fn document(reading: &Reading, compared: Option<Compared<'_>>) -> String {
    let mut page = SdiagText { text: String::new(), compared };
    if let Some(statistics) = &reading.statistics {
        page.write(reading.release, statistics);
    }
    page.text
}

struct SdiagText<'a> {
    text: String,
    compared: Option<Compared<'a>>,
}

impl SdiagText<'_> {
    fn line(&mut self, line: impl Display) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn plain(&mut self, label: &str, value: impl Display) {
        self.line(format_args!("{label}{value}"));
    }

    /// Writes a line of sdiag. If `beside` returns the figure of the last interval, it is added at
    /// the right end of the line.
    fn with(
        &mut self,
        label: impl Display,
        value: impl Display,
        beside: impl FnOnce(&Compared<'_>) -> Option<f64>,
    ) {
        let mut line = format!("{label}{value}");
        if let Some(value) = self.compared.as_ref().and_then(beside) {
            let width: usize = line.chars().map(|c| if c == '\t' { 8 } else { 1 }).sum();
            let _ = write!(line, " {value:>room$.2}", room = BESIDE.saturating_sub(width + 1));
        }
        self.line(line);
    }

    /// Writes a figure of sdiag's, if it has a value. sdiag prints some only if there is something
    /// to say, and not every reader knows all of them.
    fn optional(
        &mut self,
        label: &str,
        value: Option<impl Display>,
        beside: impl FnOnce(&Compared<'_>) -> Option<f64>,
    ) {
        if let Some(value) = value {
            self.with(label, value, beside);
        }
    }

    /// Writes a figure of the interval that sdiag does not have, if it has a value.
    fn own(&mut self, label: &str, value: impl FnOnce(&Compared<'_>) -> Option<f64>) {
        if let Some(value) = self.compared.as_ref().and_then(value) {
            self.with(label, "", |_| Some(value));
        }
    }

    fn write(&mut self, release: Release, s: &Statistics) {
        let line = "*******************************************************";
        self.line(format_args!("{line}\nsdiag output at {}", moment(s.req_time)));
        self.plain("Data since      ", moment(s.req_time_start));
        if let Some(Compared { interval, .. }) = &self.compared {
            let seconds = interval.seconds;
            self.line(format_args!("On the right    the last {seconds:.2} s; jobs per minute"));
        }
        self.line(format_args!("{line}\nServer thread count:  {}", s.server_thread_count));
        self.optional("RPC queue enabled:    ", s.rpc_queue_enabled.map(u8::from), |_| None);
        self.plain("Agent queue size:     ", s.agent_queue_size);
        self.plain("Agent count:          ", s.agent_count);
        self.plain("Agent thread count:   ", s.agent_thread_count);
        self.line(format_args!("DBD Agent queue size: {}\n", s.dbd_agent_queue_size));
        self.with("Jobs submitted: ", s.jobs_submitted, |c| c.jobs(|jobs| jobs.submitted));
        self.with("Jobs started:   ", s.jobs_started, |c| c.jobs(|jobs| jobs.started));
        self.with("Jobs completed: ", s.jobs_completed, |c| c.jobs(|jobs| jobs.completed));
        self.with("Jobs canceled:  ", s.jobs_canceled, |c| c.jobs(|jobs| jobs.canceled));
        self.with("Jobs failed:    ", s.jobs_failed, |c| c.jobs(|jobs| jobs.failed));
        self.plain("\nJob states ts:  ", moment(s.job_states_ts.unwrap_or(0)));
        self.plain("Jobs pending:   ", s.jobs_pending);
        self.plain("Jobs running:   ", s.jobs_running);
        self.main(s);
        self.backfill(s);
        let latency = s.gettimeofday_latency;
        self.line(format_args!(
            "\nLatency for 1000 calls to gettimeofday(): {latency} microseconds"
        ));
        if let Some(tables) = &s.rpc {
            self.rpc(tables, release);
        }
    }

    fn main(&mut self, s: &Statistics) {
        self.line("\nMain schedule statistics (microseconds):");
        self.plain("\tLast cycle:   ", s.schedule_cycle_last);
        self.plain("\tMax cycle:    ", s.schedule_cycle_max);
        let total = s.schedule_cycle_counter;
        self.with("\tTotal cycles: ", total, |c| Some(c.interval.main.count.into()));
        let means = derive::means(s);
        self.optional("\tMean cycle:   ", means.schedule_cycle, |c| c.interval.main.mean_time());
        self.optional("\tMean depth cycle:  ", means.schedule_depth, |c| {
            c.interval.main.mean_depth()
        });
        let a_minute = derive::cycles_per_minute(total, s.req_time, s.req_time_start);
        self.optional("\tCycles per minute: ", a_minute, |c| c.cycles(&c.interval.main));
        self.plain("\tLast queue length: ", s.schedule_queue_len);
        self.own("\tBusy fraction:", |c| c.interval.busy_fraction(&c.interval.main));
        self.exits("Main scheduler exit:", s, |s| s.schedule_exit.as_deref(), MAIN_EXITS);
    }

    fn backfill(&mut self, s: &Statistics) {
        let active = match s.bf_active {
            0 => "",
            _ => " (WARNING: data obtained in the middle of backfilling execution.)",
        };
        self.line(format_args!("\nBackfilling stats{active}"));
        self.plain("\tTotal backfilled jobs (since last slurm start): ", s.bf_backfilled_jobs);
        let label = "\tTotal backfilled jobs (since last stats cycle start): ";
        self.with(label, s.bf_last_backfilled_jobs, |c| c.jobs(|jobs| jobs.backfilled));
        self.plain("\tTotal backfilled heterogeneous job components: ", s.bf_backfilled_het_jobs);
        self.with("\tTotal cycles: ", s.bf_cycle_counter, |c| Some(c.interval.bf.count.into()));
        let last = s.bf_when_last_cycle.map_or("N/A".to_owned(), moment);
        self.plain("\tLast cycle when: ", last);
        self.plain("\tLast cycle: ", s.bf_cycle_last);
        self.optional("\tMax cycle:  ", s.bf_cycle_max, |_| None);
        let means = derive::means(s);
        let mean = |c: &Compared<'_>, sum: Option<_>| c.interval.bf.mean_of(sum?);
        self.optional("\tMean cycle: ", means.bf_cycle, |c| c.interval.bf.mean_time());
        self.optional("\tLast depth cycle: ", s.bf_last_depth, |_| None);
        self.optional("\tLast depth cycle (try sched): ", s.bf_last_depth_try, |_| None);
        self.optional("\tDepth Mean: ", means.bf_depth, |c| c.interval.bf.mean_depth());
        self.optional("\tDepth Mean (try depth): ", means.bf_depth_try, |c| {
            mean(c, c.interval.bf_depth_try)
        });
        self.plain("\tLast queue length: ", s.bf_queue_len);
        self.optional("\tQueue length mean: ", means.bf_queue_len, |c| {
            mean(c, c.interval.bf_queue_len)
        });
        self.optional("\tLast table size: ", s.bf_table_size, |_| None);
        self.optional("\tMean table size: ", means.bf_table_size, |c| {
            mean(c, c.interval.bf_table_size)
        });
        self.own("\tCycles per minute:", |c| c.cycles(&c.interval.bf));
        self.own("\tBusy fraction:", |c| c.interval.busy_fraction(&c.interval.bf));
        self.own("\tCoverage of the queue (last cycle):", |_| derive::bf_coverage(s));
        self.exits("Backfill exit", s, |s| s.bf_exit.as_deref(), BACKFILL_EXITS);
    }

    fn exits(
        &mut self,
        title: &str,
        s: &Statistics,
        of: fn(&Statistics) -> Option<&[u32]>,
        reasons: ExitReasons,
    ) {
        let Some(exits) = of(s) else { return };
        self.line(format_args!("\n{title}"));
        for (index, &count) in exits.iter().enumerate() {
            self.with(
                format_args!("\t{}:", reasons.text(index)),
                format_args!("{count:>2}"),
                |c| count.checked_sub(*of(c.before)?.get(index)?).map(f64::from),
            );
        }
    }

    fn rpc(&mut self, tables: &RpcTables, release: Release) {
        let type_name = |id| type_name(id, release);
        let grown = self.compared.as_ref().map(Compared::served).unwrap_or_default();
        self.line("\nRemote Procedure Call statistics by message type");
        for rpc in by_count(&tables.types, release, |rpc| rpc.count) {
            let (id, RpcType { count, time, .. }) = (u32::from(rpc.id), rpc);
            let total = match &rpc.queue {
                Some(RpcQueue { queued, dropped, cycle_last, cycle_max }) => format!(
                    "{time:<12} queued:{queued:<6} cycle_last:{cycle_last:<6} \
                        cycle_max:{cycle_max:<6} dropped:{dropped}"
                ),
                None => time.to_string(),
            };
            let name = type_name(id);
            let grown = growth(&grown.types, id);
            let average = derive::mean(*time, *count).unwrap_or(0);
            self.line(format_args!(
                "\t{name:<40}({id:>5}) count:{count:<6} ave_time:{average:<6} \
                    total_time:{total}{grown}"
            ));
        }
        self.line("\nRemote Procedure Call statistics by user");
        for user in by_count(&tables.users, release, |user| user.count) {
            let RpcUser { id, count, time, .. } = user;
            let name = user_name(user);
            let name = printable(&name);
            let grown = growth(&grown.users, *id);
            let average = derive::mean(*time, *count).unwrap_or(0);
            self.line(format_args!(
                "\t{name:<16}({id:>8}) count:{count:<6} ave_time:{average:<6} \
                    total_time:{time}{grown}"
            ));
        }
        let Some(pending) = &tables.pending else { return };
        self.line("\nPending RPC statistics");
        if pending.is_empty() {
            self.line("\tNo pending RPCs");
        }
        for pending in pending {
            let name = type_name(pending.id);
            self.line(format_args!("\t{name:<40}({:>5}) count:{:<6}", pending.id, pending.count));
        }
        if !tables.dumped.is_empty() {
            self.line("\nPending RPCs");
        }
        // How many characters of a host list sdiag shows.
        let longest = if release >= Release::new(25, 11) { 80 } else { usize::MAX };
        for (number, dumped) in (1..).zip(&tables.dumped) {
            let hosts: String = dumped.hostlist.chars().take(longest).collect();
            let name = type_name(dumped.id);
            let hosts = printable(&hosts);
            self.line(format_args!("\t{number:>2}: {name:<36} {hosts}"));
        }
    }
}

impl Compared<'_> {
    /// A minute.
    fn cycles(&self, cycles: &Cycles) -> Option<f64> {
        Some(self.interval.per_minute(cycles.count))
    }

    /// A minute.
    fn jobs(&self, of: fn(&derive::JobCounts) -> u32) -> Option<f64> {
        Some(self.interval.per_minute(of(&self.interval.jobs)))
    }
}

fn growth(grown: &[RankedRow], id: u32) -> String {
    let row = grown.iter().find(|row| row.id == id);
    row.map_or_else(String::new, |RankedRow { per_minute, mean, share, .. }| {
        format!(" per_minute:{per_minute:.2} interval_time:{mean:.0} share:{share:.3}")
    })
}

/// Sorts the rows of a table of RPCs by count, the greatest first, as sdiag does. Up to 23.11
/// sdiag's sort is an exchange sort, which leaves rows with the same count in an order of its own.
fn by_count<T>(rows: &[T], release: Release, count: impl Fn(&T) -> u32) -> Vec<&T> {
    let mut rows: Vec<&T> = rows.iter().collect();
    if release >= Release::new(24, 5) {
        rows.sort_by_key(|row| std::cmp::Reverse(count(row)));
        return rows;
    }
    let mut rest = rows.as_mut_slice();
    while let Some((first, others)) = rest.split_first_mut() {
        for other in &mut *others {
            if count(first) < count(other) {
                std::mem::swap(first, other);
            }
        }
        rest = others;
    }
    rows
}

/// A moment as ctime(3) writes it in local time, with the Unix seconds behind it.
fn moment(unix: i64) -> String {
    format!("{} ({unix})", clock::local(unix, "%a %b %d %H:%M:%S %Y"))
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::DumpedRpcs;

    use super::*;

    fn text(release: Release, statistics: Statistics) -> String {
        let mut page = SdiagText { text: String::new(), compared: None };
        page.write(release, &statistics);
        page.text
    }

    fn tables(rpc: RpcTables) -> Statistics {
        Statistics { rpc: Some(rpc), ..Statistics::default() }
    }

    #[test]
    fn before_slurmctld_has_counted_its_jobs_their_moment_is_that_of_0_as_sdiag_has_it() {
        let text = text(Release::new(22, 5), Statistics::default());
        let line = text.lines().find(|line| line.starts_with("Job states ts:")).unwrap();
        assert!(line.ends_with(" (0)") && line.contains(" 19"), "{line}");
    }

    #[test]
    fn a_pending_rpc_has_sdiags_columns_and_from_25_11_on_as_much_of_its_hosts() {
        let dumped = vec![DumpedRpcs { id: 6004, hostlist: "n".repeat(100) }];
        let last_line = |release| {
            let pending = Some(Vec::new());
            let dumped = dumped.clone();
            let text = text(release, tables(RpcTables { pending, dumped, ..RpcTables::default() }));
            text.lines().last().unwrap().to_owned()
        };
        let name = "REQUEST_SIGNAL_TASKS                 ";
        assert_eq!(last_line(Release::new(25, 5)), format!("\t 1: {name}{}", "n".repeat(100)));
        assert_eq!(last_line(Release::new(25, 11)), format!("\t 1: {name}{}", "n".repeat(80)));
    }

    /// Up to 23.11 sdiag's sort is an exchange sort, which keeps no order among equals.
    #[test]
    fn up_to_23_11_rows_with_the_same_count_come_in_sdiags_order() {
        let user = |(id, count)| RpcUser { id, count, ..RpcUser::default() };
        let kind = |(id, count): (u32, u32)| RpcType {
            id: id.try_into().unwrap(),
            count,
            ..RpcType::default()
        };
        let counts = [(1, 1), (2, 2), (3, 1), (4, 2), (5, 3)];
        let order = |release| {
            let types = counts.map(kind).to_vec();
            let users = counts.map(user).to_vec();
            let text = text(release, tables(RpcTables { types, users, ..RpcTables::default() }));
            let ids =
                |line: &str| Some(line.split_once('(')?.1.split_once(')')?.0.trim().to_owned());
            let ids = text.lines().filter(|line| line.contains("ave_time:")).filter_map(ids);
            ids.collect::<Vec<_>>().concat()
        };
        assert_eq!(order(Release::new(24, 5)), "5241352413");
        assert_eq!(order(Release::new(23, 11)), "5421354213");
    }
}
