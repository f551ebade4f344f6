//! `stats`: what sdiag prints, in its words and order, names resolved; as a recording with `--json`.

use std::fmt::Write;

use anyhow::Result;
use slurm_snapshot::{
    Answer, Reading, Release, RpcQueue, RpcTables, Statistics, bf_exit_text, rpc_name, schedule_exit_text,
};

use super::{block_on, load, log_errors, print, read_or_advise};
use crate::cli::Options;
use crate::derive;
use crate::source::Wanted;

pub(super) fn stats(options: &Options, json: bool, reset: bool) -> Result<()> {
    let config = load(options)?;
    log_errors(options, &config);
    let wanted = Wanted { rpc: true, names: true, reset };
    let reading = block_on(async { read_or_advise(config.slurm, wanted).await })?;
    if reset {
        return print("The statistics of slurmctld have been reset.\n");
    }
    if json {
        let line = serde_json::to_string(&Answer::Reading(reading))?;
        return print(&format!("{line}\n"));
    }
    print(&document(&reading))
}

fn document(reading: &Reading) -> String {
    let mut text = String::new();
    if let Some(statistics) = &reading.statistics {
        // Writing to a String cannot fail.
        let _ = write_document(&mut text, reading, statistics);
    }
    text
}

fn write_document(out: &mut String, reading: &Reading, s: &Statistics) -> std::fmt::Result {
    let line = "*******************************************************";
    writeln!(
        out,
        "{line}\nsdiag output at {}\nData since      {}",
        moment(s.req_time),
        moment(s.req_time_start)
    )?;
    writeln!(out, "{line}\nServer thread count:  {}", s.server_thread_count)?;
    if let Some(enabled) = s.rpc_queue_enabled {
        writeln!(out, "RPC queue enabled:    {}", u8::from(enabled))?;
    }
    writeln!(out, "Agent queue size:     {}", s.agent_queue_size)?;
    writeln!(out, "Agent count:          {}", s.agent_count)?;
    writeln!(out, "Agent thread count:   {}", s.agent_thread_count)?;
    writeln!(out, "DBD Agent queue size: {}\n", s.dbd_agent_queue_size)?;
    writeln!(out, "Jobs submitted: {}", s.jobs_submitted)?;
    writeln!(out, "Jobs started:   {}", s.jobs_started)?;
    writeln!(out, "Jobs completed: {}", s.jobs_completed)?;
    writeln!(out, "Jobs canceled:  {}", s.jobs_canceled)?;
    writeln!(out, "Jobs failed:    {}\n", s.jobs_failed)?;
    writeln!(out, "Job states ts:  {}", s.job_states_ts.map_or_else(|| "N/A".to_owned(), moment))?;
    writeln!(out, "Jobs pending:   {}", s.jobs_pending)?;
    writeln!(out, "Jobs running:   {}", s.jobs_running)?;
    write_main(out, s)?;
    write_backfill(out, s)?;
    writeln!(out, "\nLatency for 1000 calls to gettimeofday(): {} microseconds", s.gettimeofday_latency)?;
    s.rpc.as_ref().map_or(Ok(()), |tables| write_rpc(out, tables, reading.release))
}

fn write_main(out: &mut String, s: &Statistics) -> std::fmt::Result {
    writeln!(out, "\nMain schedule statistics (microseconds):")?;
    writeln!(out, "\tLast cycle:   {}", s.schedule_cycle_last)?;
    writeln!(out, "\tMax cycle:    {}", s.schedule_cycle_max)?;
    writeln!(out, "\tTotal cycles: {}", s.schedule_cycle_counter)?;
    let mean = |sum| derive::mean(sum, s.schedule_cycle_counter);
    optional(out, "Mean cycle:   ", mean(s.schedule_cycle_sum))?;
    optional(out, "Mean depth cycle:  ", mean(s.schedule_cycle_depth.into()))?;
    let per_minute = derive::cycles_per_minute(s.schedule_cycle_counter, s.req_time, s.req_time_start);
    optional(out, "Cycles per minute: ", per_minute.map(u64::from))?;
    writeln!(out, "\tLast queue length: {}", s.schedule_queue_len)?;
    write_exits(out, "Main scheduler exit:", s.schedule_exit.as_deref(), schedule_exit_text)
}

fn write_backfill(out: &mut String, s: &Statistics) -> std::fmt::Result {
    let active = if s.bf_active == 0 {
        ""
    } else {
        " (WARNING: data obtained in the middle of backfilling execution.)"
    };
    writeln!(out, "\nBackfilling stats{active}")?;
    writeln!(out, "\tTotal backfilled jobs (since last slurm start): {}", s.bf_backfilled_jobs)?;
    writeln!(out, "\tTotal backfilled jobs (since last stats cycle start): {}", s.bf_last_backfilled_jobs)?;
    writeln!(out, "\tTotal backfilled heterogeneous job components: {}", s.bf_backfilled_het_jobs)?;
    writeln!(out, "\tTotal cycles: {}", s.bf_cycle_counter)?;
    writeln!(out, "\tLast cycle when: {}", s.bf_when_last_cycle.map_or_else(|| "N/A".to_owned(), moment))?;
    writeln!(out, "\tLast cycle: {}", s.bf_cycle_last)?;
    writeln!(out, "\tMax cycle:  {}", s.bf_cycle_max)?;
    let mean = |sum| derive::mean(sum, s.bf_cycle_counter);
    optional(out, "Mean cycle: ", mean(s.bf_cycle_sum))?;
    writeln!(out, "\tLast depth cycle: {}", s.bf_last_depth)?;
    writeln!(out, "\tLast depth cycle (try sched): {}", s.bf_last_depth_try)?;
    optional(out, "Depth Mean: ", mean(s.bf_depth_sum.into()))?;
    optional(out, "Depth Mean (try depth): ", mean(s.bf_depth_try_sum.into()))?;
    writeln!(out, "\tLast queue length: {}", s.bf_queue_len)?;
    optional(out, "Queue length mean: ", mean(s.bf_queue_len_sum.into()))?;
    writeln!(out, "\tLast table size: {}", s.bf_table_size)?;
    optional(out, "Mean table size: ", mean(s.bf_table_size_sum.into()))?;
    write_exits(out, "Backfill exit", s.bf_exit.as_deref(), bf_exit_text)
}

fn write_rpc(out: &mut String, tables: &RpcTables, release: Release) -> std::fmt::Result {
    let type_name = |id: u32| rpc_name(id, release).map_or_else(|| id.to_string(), str::to_owned);
    let ave = |time: u64, count: u32| derive::mean(time, count).unwrap_or(0);
    writeln!(out, "\nRemote Procedure Call statistics by message type")?;
    for rpc in by_count(&tables.types, |rpc| rpc.count) {
        let (name, average) = (type_name(rpc.id.into()), ave(rpc.time, rpc.count));
        write!(out, "\t{name:<40}({:>5}) count:{:<6} ave_time:{average:<6} ", rpc.id, rpc.count)?;
        let Some(queue) = &rpc.queue else {
            writeln!(out, "total_time:{}", rpc.time)?;
            continue;
        };
        let RpcQueue { queued, dropped, cycle_last, cycle_max } = queue;
        write!(out, "total_time:{:<12} queued:{queued:<6} cycle_last:{cycle_last:<6} ", rpc.time)?;
        writeln!(out, "cycle_max:{cycle_max:<6} dropped:{dropped}")?;
    }
    writeln!(out, "\nRemote Procedure Call statistics by user")?;
    for user in by_count(&tables.users, |user| user.count) {
        let name = user.name.clone().unwrap_or_else(|| user.id.to_string());
        let average = ave(user.time, user.count);
        write!(out, "\t{name:<16}({:>8}) count:{:<6} ave_time:{average:<6} ", user.id, user.count)?;
        writeln!(out, "total_time:{}", user.time)?;
    }
    writeln!(out, "\nPending RPC statistics")?;
    if tables.pending.is_empty() {
        writeln!(out, "\tNo pending RPCs")?;
    }
    for pending in &tables.pending {
        writeln!(out, "\t{:<40}({:>5}) count:{:<6}", type_name(pending.id), pending.id, pending.count)?;
    }
    if !tables.dumped.is_empty() {
        writeln!(out, "\nPending RPCs")?;
    }
    for (index, dumped) in tables.dumped.iter().enumerate() {
        writeln!(out, "\t{:>2}: {:<40} {}", index + 1, type_name(dumped.id), dumped.hostlist)?;
    }
    Ok(())
}

/// The most frequent first, as sdiag sorts.
fn by_count<T>(rows: &[T], count: impl Fn(&T) -> u32) -> Vec<&T> {
    let mut rows: Vec<&T> = rows.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(count(row)));
    rows
}

/// A line that sdiag prints only where there is something to say.
fn optional(out: &mut String, label: &str, value: Option<u64>) -> std::fmt::Result {
    value.map_or(Ok(()), |value| writeln!(out, "\t{label}{value}"))
}

fn write_exits(
    out: &mut String,
    title: &str,
    exits: Option<&[u32]>,
    name: impl Fn(usize) -> std::borrow::Cow<'static, str>,
) -> std::fmt::Result {
    let Some(exits) = exits else { return Ok(()) };
    writeln!(out, "\n{title}")?;
    exits.iter().enumerate().try_for_each(|(index, count)| writeln!(out, "\t{}:{count:>2}", name(index)))
}

/// As ctime(3) writes it in local time, with the Unix seconds behind it.
fn moment(unix: i64) -> String {
    jiff::Timestamp::from_second(unix)
        .map(|at| at.to_zoned(jiff::tz::TimeZone::system()).strftime("%a %b %d %H:%M:%S %Y").to_string())
        .map_or_else(|_| unix.to_string(), |local| format!("{local} ({unix})"))
}
