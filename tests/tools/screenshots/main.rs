//! `make screenshots`: the dashboards in docs/images, and with INCIDENTS=DIR what an administrator
//! sees of three incidents there, drawn by Grafana's component library.
//!
//! The cluster is simulated: nothing else has hours at 30 s, hundreds of nodes and a file system
//! that hangs. slurm-graphite derives the figures from its statistics (`run --replay`), Carbon
//! stores them, and graphite-web returns what the panels ask for.

#![forbid(unsafe_code)]

mod cluster;
mod figures;

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Context, Result};
use sandbox::panels::{Page, Panels};
use sandbox::{
    Carbon, Dashboard, Folder, GraphiteWeb, carbon, command, output, slurm_graphite, unix_seconds,
    wait,
};
use slurm_snapshot::{Answer, Reading, Release};

use crate::cluster::{Cluster, Incident, TICK};

/// The incidents of docs/images; in each the dashboards that are drawn, and the heading at which
/// each picture ends.
const PICTURES: [(Incident, &[(&str, &str)]); 3] = [
    (
        Incident::Flood,
        &[
            ("overview", "Nodes (collectors.nodes)"),
            ("scheduler", "slurmctld"),
            ("rpc", "Queued and pending RPCs (the queue: Slurm 24.05 and later, where enabled)"),
            ("jobs", "When jobs will start (collectors.jobs)"),
        ],
    ),
    (Incident::FileSystem, &[("cluster", "Reservations and upgrades (collectors.nodes)")]),
    (Incident::Carbon, &[("collector", "Surveys (collectors that are off by default)")]),
];

/// Rows whose collectors are off.
const CLOSED: [&str; 3] = ["collectors.finished", "collectors.slurmdbd", "collectors.controllers"];

/// The incidents, and how many seconds after 02:50 each begins.
const INCIDENTS: [(&str, Incident, i64); 6] = [
    ("file-system", Incident::FileSystem, 420),
    ("flood", Incident::Flood, 420),
    ("slurmdbd", Incident::Slurmdbd, 0),
    ("hang", Incident::Hang, 420),
    ("carbon", Incident::Carbon, 420),
    ("carbon-still", Incident::CarbonStill, 420),
];

/// Seconds that slurmctld and Carbon are away.
const AWAY: i64 = 1500;

/// Hours that have passed at 03:00, and seconds from then to the last tick.
const HOURS: i64 = 6;
const LAST: i64 = 45 * 60;

/// Seconds of a week.
const WEEK: i64 = 7 * 86_400;

/// The hours that a dashboard shows.
const SHOWN: i64 = 3;

fn main() -> Result<()> {
    let library =
        std::env::var_os("GRAFANA_PANELS").context("GRAFANA_PANELS: run `make screenshots`")?;
    let panels = Panels::find(Path::new(&library))?;
    match std::env::var_os("INCIDENTS").filter(|folder| !folder.is_empty()) {
        Some(folder) => incidents(&panels, Path::new(&folder)),
        None => documentation(&panels),
    }
}

/// Three o'clock in the last night that is over.
fn three() -> i64 {
    let now = i64::try_from(unix_seconds()).unwrap_or_default();
    now - now % 86_400 + 3 * 3600 - if now % 86_400 < 4 * 3600 { 86_400 } else { 0 }
}

fn documentation(panels: &Panels) -> Result<()> {
    // The last label of an axis is cut at a quarter of an hour.
    let until = three() + 28 * 60;
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/images"));
    let is_opened = |title: &str| {
        !CLOSED.iter().any(|closed| title.contains(closed)) && title.contains("collectors.")
    };
    for (incident, pictures) in PICTURES {
        let night = Night::simulate(&format!("{incident:?}"), incident, 420)?;
        for (name, end) in pictures {
            night.draw(panels, name, end, until, is_opened, &folder.join(format!("{name}.png")))?;
        }
    }
    Ok(())
}

fn incidents(panels: &Panels, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (incident, kind, begins) in INCIDENTS {
        let night = Night::simulate(incident, kind, begins)?;
        for (clock, seconds) in [("0302", 120), ("0312", 720)] {
            for dashboard in ["overview", "scheduler"] {
                let picture = folder.join(format!("{incident}-{clock}-{dashboard}.png"));
                night.draw(panels, dashboard, "", three() + seconds, |_| false, &picture)?;
            }
        }
    }
    Ok(())
}

/// A night in Carbon.
struct Night {
    web: GraphiteWeb,
    _carbon: Carbon,
    folder: Folder,
}

impl Night {
    fn simulate(name: &str, incident: Incident, begins: i64) -> Result<Self> {
        writeln!(std::io::stderr(), "screenshots: the night of {name}")?;
        fastrand::seed(7);
        let folder = Folder::new()?;
        let schemas =
            "[surveys]\npattern = slurm_(nodes|jobs|partitions)\\.\nretentions = 60s:9d\n\
                       [everything]\npattern = .*\nretentions = 30s:9d\n"
                .to_owned();
        let mut carbon = Carbon::spawn(
            &folder,
            "carbon",
            &carbon::Options { schemas, ..carbon::Options::default() },
        )?;
        let mut web = GraphiteWeb::spawn(&folder, &carbon)?;
        carbon.process.wait_ready()?;
        let address = carbon.address();
        let config = folder.write(
            "night.toml",
            &format!(
                "[[carbon]]\nname = \"carbon\"\naddress = \"{address}\"\n[collectors.rpc_stats]\n\
                    users = 7\n"
            ),
        )?;
        let mut newest = 0;
        for (incident, ago) in [(Incident::Nothing, WEEK), (incident, 0)] {
            let (recording, lines, last) = simulate(incident, begins, ago)?;
            let file = folder.write("night.jsonl", &recording)?;
            let daemon = command(folder.path(), &slurm_graphite()?);
            output(daemon, ["run", "--prefix", "cluster", "--replay", &file, "--config", &config])?;
            TcpStream::connect(("127.0.0.1", carbon.line_port))?.write_all(lines.as_bytes())?;
            newest = u64::try_from(last)?;
        }
        for path in [
            "cluster.slurm_jobs.total.gauge-records",
            "carbon.agents.graphite1-a.errors",
            "cluster.slurm_health.gauge-up",
        ] {
            wait::until(path, wait::LIMIT, || {
                carbon.series(path).is_ok_and(|series| series.at(newest).is_some())
            })?;
        }
        web.process.wait_ready()?;
        Ok(Self { web, _carbon: carbon, folder })
    }

    fn draw(
        &self,
        panels: &Panels,
        dashboard: &str,
        end: &str,
        until: i64,
        is_opened: impl Fn(&str) -> bool,
        picture: &Path,
    ) -> Result<()> {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/grafana"));
        let all = Dashboard::all(root)?;
        let dashboard =
            all.into_iter().find(|one| one.name == dashboard).context("no such dashboard")?;
        let variables = dashboard.opened(&self.web, &[("prefix", "cluster"), ("most", "10")])?;
        let seconds = (u64::try_from(until - SHOWN * 3600)?, u64::try_from(until)?);
        let page = Page::request(&dashboard, &self.web, &variables, seconds, is_opened)?.above(end);
        panels.draw(&self.folder, &page, Some(picture))?;
        writeln!(std::io::stderr(), "screenshots: {}", picture.display())?;
        Ok(())
    }
}

/// The recording of a night's statistics, this many seconds ago, and lines with the other figures.
/// The time of the last tick is the third.
fn simulate(incident: Incident, begins: i64, ago: i64) -> Result<(String, String, i64)> {
    let (start, end) = (three() - ago - HOURS * 3600, three() - ago + LAST);
    let begins = three() - ago - 600 + begins;
    let mut cluster = Cluster::new(start);
    let (mut recording, mut lines) = (String::new(), String::new());
    for number in 0..(end - start) / i64::from(TICK) {
        let since = cluster.statistics.req_time + i64::from(TICK) - begins;
        if incident == Incident::CarbonStill && since > 0 {
            break;
        }
        cluster.step(incident, u32::try_from(since).ok().map(f64::from));
        let is_away = (0..AWAY).contains(&since);
        lines += &figures::lines(&cluster, u32::try_from(number)?, incident, is_away, since);
        if incident == Incident::Hang && is_away {
            continue;
        }
        let time = cluster.statistics.req_time as f64;
        let reading = Reading {
            id: number.unsigned_abs(),
            time,
            uptime: Some(time - 1e9),
            elapsed: 2100,
            release: Release::new(23, 11),
            cluster: Some("cluster".to_owned()),
            statistics: Some(cluster.statistics.clone()),
            ..Reading::default()
        };
        recording += &serde_json::to_string(&Answer::Reading(Box::new(reading)))?;
        recording.push('\n');
    }
    Ok((recording, lines, cluster.statistics.req_time))
}
