//! `make demo`: a real Slurm cluster with a real Carbon, which is killed in between. The table and
//! the picture show the contents of whisper's files. With KEEP=1 everything stays up until Ctrl-C.

#![forbid(unsafe_code)]

mod picture;
mod table;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::metrics::FIGURES;
use sandbox::{
    Bustle, GraphiteWeb, Process, Sandbox, Sdiag, Series, now, slurm_graphite, unix_seconds, wait,
};
use tools::{exit_code, say};

use crate::table::Table;

const LENGTH: u64 = 30;
/// The demo ends with slurmctld's next count of pending and running jobs, which it makes each half
/// minute; its first one was of none.
const LONGEST: u64 = 2 * LENGTH;
/// The second at which Carbon is killed, and the one at which it is started again.
const KILLED: u64 = 10;
const BACK: u64 = 14;
/// Time that the collector may take to notice that Carbon is back; it retries with growing pauses.
const NOTICED: Duration = Duration::from_secs(60);

/// A tick's reading is complete within this time, so that a later sdiag shows what the collector
/// saw.
const AFTER_THE_TICK: Duration = Duration::from_millis(40);

/// Time that Carbon may take to write the last tick to its files.
const WRITTEN: Duration = Duration::from_secs(10);

/// The part of a metric path before the leaf.
const STATISTICS: &str = "cluster.slurm_sched_stats.gauge-";

const TABLE: &str = "
  Each row is one of whisper's files, read after the collector had ended. \"=\": sdiag had the same
  value 40 ms after the last tick. The points that Carbon lost when it was killed were sent again.
";

fn main() -> ExitCode {
    exit_code("demo", demo())
}

fn demo() -> Result<()> {
    let terminal = std::io::stdout().is_terminal();
    say("\nA Slurm cluster, a Carbon, and slurm-graphite between them, all in a temporary \
            directory on 127.0.0.1.\n\n")?;
    let start = Instant::now();
    let mut sandbox = Sandbox::start()?;
    let (release, folder) = (sandbox.slurm.release()?, sandbox.folder.path().display());
    say(&format!(
        "  cluster    munged, slurmctld {release}, slurmd, carbon-cache: up in {:.1} s, in \
            {folder}\n",
        start.elapsed().as_secs_f64()
    ))?;

    let mut collector = sandbox.collector(&["--interval", "1s"])?;
    say("  collector  slurm-graphite run --interval 1s\n")?;
    say(
        "  jobs       an array, wide ones for backfill, some that fail, some that are cancelled\n",
    )?;
    let begin = unix_seconds();
    let mut end = begin;
    let mut bustle = Bustle::default();
    for second in 1..=LONGEST {
        end = begin + second;
        until_second(end);
        if collector.exit_status()?.is_some() || second >= LENGTH && has_counted(&sandbox, begin) {
            break;
        }
        bustle.second(&sandbox.slurm, u32::try_from(second)?)?;
        let clear = if terminal { "\r" } else { "" };
        match second {
            KILLED => {
                sandbox.carbon.process.kill()?;
                say(&format!(
                    "{clear}  {second:2} s       Carbon is killed (SIGKILL); what was in its \
                        memory is lost\n"
                ))?;
            }
            BACK => {
                sandbox.carbon.process.spawn()?;
                say(&format!(
                    "{clear}  {second:2} s       Carbon is started again                         \n"
                ))?;
            }
            _ => {}
        }
        if terminal {
            let files = sandbox.carbon.paths().len();
            say(&format!("\r  running    {second:2} s, {files} metrics in whisper "))?;
        }
    }
    let resent = || has_resent(&sandbox);
    if resent().is_none() {
        wait::until_some("what Carbon lost, sent again", NOTICED, resent)?;
        end = unix_seconds() + 1;
        until_second(end);
    }
    wait::pause(AFTER_THE_TICK);
    let sdiag = sandbox.slurm.sdiag()?;
    let ended = collector.stop().with_context(|| collector.lines().join("\n"))?;
    say(&format!(
        "{}  stopped    by SIGTERM: {} in {:.2} s\n",
        if terminal { "\r" } else { "" },
        ended.status,
        ended.after.as_secs_f64()
    ))?;
    ensure!(
        ended.status.success(),
        "the collector did not end well:\n{}",
        collector.lines().join("\n")
    );

    wait::until("the last tick in whisper", WRITTEN, || has_written(&sandbox, end))?;
    let table = Table::read(&sandbox.carbon, &sdiag, end)?;
    say(&table.show(terminal && std::env::var_os("NO_COLOR").is_none()))?;
    say(TABLE)?;
    let holes = judge(&table, &sdiag)?;
    let resent = has_resent(&sandbox).context("nothing was sent again")?;
    say(&format!(
        "\n  Carbon was killed and came back: {holes} holes, {resent:.0} points resent.\n"
    ))?;
    if picture::can_draw() {
        let mut web = GraphiteWeb::spawn(&sandbox.folder, &sandbox.carbon)?;
        web.process.wait_ready()?;
        match picture::draw(&sandbox.folder, &web, (begin, end)) {
            Ok(picture) => say(&format!("  As graphite-web draws it: {}\n", picture.display()))?,
            Err(error) => say(&format!("  No picture: {error:#}.\n"))?,
        }
        if std::env::var_os("KEEP").is_some_and(|keep| !keep.is_empty()) {
            return stay(&sandbox, &web, collector);
        }
    } else {
        say("  No picture: graphite-web is not installed.\n")?;
    }
    say(&next()?)
}

/// Leaves everything up until Ctrl-C, which ends this process; the folder's guard then ends the
/// others.
fn stay(sandbox: &Sandbox, web: &GraphiteWeb, mut collector: Process) -> Result<()> {
    collector.spawn()?;
    let (port, curve) = (web.port, format!("{STATISTICS}main_last_cycle"));
    say(&format!(
        "
  Until Ctrl-C, the cluster, slurm-graphite, Carbon and graphite-web stay up:

    http://127.0.0.1:{port}/                         graphite-web: every metric, in a tree
    http://127.0.0.1:{port}/render?target={curve}&from=-5min
    SLURM_CONF={} sbatch --wrap 'sleep 9'

",
        sandbox.slurm.conf().display()
    ))?;
    loop {
        wait::pause(Duration::from_secs(3600));
    }
}

/// The three commands to try next.
fn next() -> Result<String> {
    let program = slurm_graphite()?;
    let here = std::env::current_dir()?;
    let program = program.strip_prefix(&here).unwrap_or(&program).display();
    Ok(format!(
        "
  Next, on a host of your own cluster where sdiag works:

    {program} stats --watch 5                         what slurmctld does now
    {program} check --connect --carbon HOST:2004      what is still missing for your Carbon
    {program} run --carbon HOST:2004                  send it; README.md has the packages

"
    ))
}

/// Whether slurmctld has counted its jobs since this moment, by what is in whisper.
fn has_counted(sandbox: &Sandbox, since: u64) -> bool {
    let counted = sandbox.carbon.series(&format!("{STATISTICS}job_states_ts"));
    counted.is_ok_and(|series| series.last().is_some_and(|point| point.1 > since as f64))
}

/// Whether Carbon has written what every tick has: a figure of sdiag, and the collector's own.
/// It writes one file after the other.
fn has_written(sandbox: &Sandbox, tick: u64) -> bool {
    let always =
        |path: &str| path.contains(".slurm_graphite.") || path.ends_with(".gauge-jobs_submitted");
    let mut paths = sandbox.carbon.paths().into_iter().filter(|(path, _)| always(path));
    paths.all(|(_, file)| Series::read(&file).is_ok_and(|series| series.at(tick).is_some()))
}

/// Number of points that were resent, by the collector's own figures in its last tick, once nothing
/// is queued any more.
fn has_resent(sandbox: &Sandbox) -> Option<f64> {
    let paths = sandbox.carbon.paths();
    let last = |leaf: &str| {
        let path = paths.keys().find(|path| path.ends_with(leaf))?;
        sandbox.carbon.series(path).ok()?.last().map(|point| point.1)
    };
    last(".gauge-points_resent")
        .filter(|&resent| resent > 0.0 && last(".gauge-queue_resend") == Some(0.0))
}

/// The demo is a test too: every metric that people's dashboards use must be there, without holes.
/// On a busy machine a tick may be without its reading. Returns the largest number of holes.
fn judge(table: &Table, sdiag: &Sdiag) -> Result<usize> {
    let mut most = 0;
    for figure in FIGURES.iter().filter(|figure| figure.seed && figure.in_sdiag(sdiag).is_some()) {
        let row = table.row(figure.leaf).with_context(|| format!("{} is missing", figure.leaf))?;
        ensure!(row.holes <= 1, "{} has {} holes", figure.leaf, row.holes);
        most = most.max(row.holes);
    }
    Ok(most)
}

fn until_second(second: u64) {
    wait::pause(Duration::from_secs_f64((second as f64 - now()).max(0.0)));
}
