//! The demo's picture: what graphite-web draws of whisper's files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sandbox::http::{self, encoded};
use sandbox::{Folder, GraphiteWeb, command, find_program, output};

const JOIN: &str = include_str!("picture.py");
const PYTHON: &str = "/usr/bin/python3";
const SIZE: (u64, u64) = (640, 300);
/// Pixels of the width that graphite-web's axis and margins need.
const MARGIN: u64 = 60;

/// A title, and the curves below it.
const PANELS: [(&str, &[&str]); 4] = [
    (
        "Main scheduler's cycles, ms",
        &["alias(scale(cluster.slurm_sched_stats.gauge-main_last_cycle,0.001),'last cycle')"],
    ),
    (
        "slurmctld's time for RPCs, ms a second",
        &["aliasByNode(highestAverage(scale(perSecond(\
            cluster.slurm_rpc_stats.type.*.gauge-total_time),0.001),5),3)"],
    ),
    (
        "Jobs",
        &[
            "alias(cluster.slurm_sched_stats.gauge-jobs_submitted,'submitted')",
            "alias(cluster.slurm_sched_stats.gauge-jobs_started,'started')",
            "alias(cluster.slurm_sched_stats.gauge-jobs_completed,'completed')",
            "alias(cluster.slurm_sched_stats.gauge-main_last_queue_length,'in the queue')",
        ],
    ),
    (
        "Ticks that wait for Carbon: all were sent, so no curve has a gap",
        &["alias(cluster.slurm_graphite.*.carbon.*.gauge-queue_ticks,'waiting')"],
    ),
];

/// Draws the time between these two moments into one picture next to the folder of the programs,
/// and returns its path.
pub(crate) fn draw(
    folder: &Folder,
    web: &GraphiteWeb,
    (from, until): (u64, u64),
) -> Result<PathBuf> {
    let script = folder.write("picture/join.py", JOIN)?;
    let joined = folder.path().join("picture/demo.png");
    let mut words = vec![script, joined.display().to_string()];
    for (number, (title, curves)) in PANELS.iter().enumerate() {
        let query = query(title, curves, (from, until));
        let picture = http::ask(web.port, "GET", &format!("/render?{query}"), "")?;
        let file = folder.path().join(format!("picture/{number}.png"));
        fs::write(&file, picture)?;
        words.push(file.display().to_string());
    }
    output(command(folder.path(), Path::new(PYTHON)), &words)?;
    // The folder goes with the demo.
    let program = std::env::current_exe()?;
    let whole = program.ancestors().nth(2).context("no target folder")?.join("demo.png");
    fs::copy(joined, &whole).with_context(|| format!("cannot write {}", whole.display()))?;
    Ok(whole)
}

/// Whether graphite-web is installed: not every distribution has it.
pub(crate) fn can_draw() -> bool {
    find_program("graphite-manage").is_ok()
}

/// The query for a panel to /render.
fn query(title: &str, curves: &[&str], (from, until): (u64, u64)) -> String {
    let (width, height) = SIZE;
    // A line across the panel for each second without a connection, as wide as a second is.
    let second = (width - MARGIN) / until.saturating_sub(from).max(1) + 1;
    let away = format!(
        "alias(color(lineWidth(drawAsInfinite(removeBelowValue(offset(scale(\
            cluster.slurm_graphite.*.carbon.*.gauge-connected,-1),1),1)),{second}),'ffd7d7'),\
            'Carbon was away')"
    );
    let targets = std::iter::once(away.as_str()).chain(curves.iter().copied());
    let targets: String = targets.map(|target| format!("&target={}", encoded(target))).collect();
    format!(
        "from={from}&until={until}&width={width}&height={height}&title={}&bgcolor=white&fgcolor=black\
            &majorGridLineColor=cccccc&minorGridLineColor=eeeeee&hideLegend=false&lineWidth=2&yMin=0{targets}",
        encoded(title)
    )
}
