//! The commands that Slurm exporters for Prometheus run for one scrape. A whole scrape costs more,
//! because here the output is only split into lines.
//!
//! Only the commands for jobs, nodes and partitions, as in the projects' sources: none for sdiag,
//! licences or reservations, and none that needs slurmdbd.

use anyhow::Result;
use sandbox::{Folder, Slurm};

use crate::cluster::{DUMP, calls, forked};
use crate::reader::Cost;

/// The name of each after `#`, and its commands, a line each.
const EXPORTERS: &str = include_str!("exporters.txt");

/// Their table, and how many times as much CPU as `ours` the cheapest one uses.
pub(crate) fn measure(
    folder: &Folder,
    slurm: &Slurm,
    rounds: usize,
    ours: &Cost,
) -> Result<(String, f64)> {
    let mut table = "| what an exporter forks a scrape | commands | job RPCs | CPU | and their \
        lines taken apart in Python | compared with the reader |\n|---|---|---|---|---|---|\n"
        .to_owned();
    let mut cheapest = f64::INFINITY;
    for (name, commands) in EXPORTERS.split("# ").filter_map(|exporter| exporter.split_once('\n')) {
        let before = calls(slurm, DUMP)?;
        let (cost, reading) = forked(folder, slurm, rounds, commands)?;
        let dumps = (calls(slurm, DUMP)? - before) / rounds as f64;
        let (alone, read) = (cost.cpu, cost.cpu + reading);
        let times = read / ours.cpu;
        table.push_str(&format!(
            "| {name} | {} | {dumps:.0} | {:.0} ms | {:.0} ms | {times:.1} |\n",
            commands.lines().count(),
            alone / 1e3,
            read / 1e3
        ));
        cheapest = cheapest.min(times);
    }
    Ok((table, cheapest))
}
