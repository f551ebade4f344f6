//! `make screenshots`: the dashboards in docs/images, drawn by graphite-web from a few minutes of a busy sandbox.
//!
//! The panels, their positions, units, colours and targets are read from config/grafana, so the pictures show what is
//! imported, although Grafana draws it better. Collapsed rows are opened if their collectors are on, and left out
//! otherwise.

#![forbid(unsafe_code)]

mod page;
mod town;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::{Bustle, Dashboard, Folder, GraphiteWeb, daemon, find_program, wait};

use crate::page::Page;

/// Long enough for a few waves of jobs and the faults; if it were shorter, the axis would show seconds.
const LENGTH: u32 = 400;

/// When Carbon is killed and when it is started again. Only *Collector* shows it, because there is no hole.
const CARBON_AWAY: (u32, u32) = (230, 260);

/// Which dashboards are drawn, and the row at which each picture ends.
const PICTURES: [(&str, &str); 6] = [
    ("overview", "All clusters side by side"),
    ("scheduler", "slurmctld"),
    ("rpc", ""),
    ("jobs", "By partition, account and user (collectors.jobs)"),
    ("cluster", ""),
    ("collector", "Upkeep"),
];

fn main() -> Result<()> {
    find_program("graphite-manage")?;
    let (mut sandbox, mut slurmds) = town::start()?;
    let mut web = GraphiteWeb::spawn(&sandbox.folder, &sandbox.carbon)?;
    let (conf, queue) = (sandbox.slurm.conf().display(), sandbox.path("queue"));
    let carbon = sandbox.carbon.address();
    let toml = format!(
        "[slurm]\nconf = \"{conf}\"\n[queue]\ndir = \"{}\"\n[[carbon]]\nname = \"carbon\"\naddress = \"{carbon}\"\n\
         {}[collectors.rpc_stats]\nusers = 5\n",
        queue.display(),
        town::COLLECTORS
    );
    let _daemon = daemon::spawn_daemon(&sandbox.folder, "daemon", &toml)?;
    let (start, mut bustle, mut done) = (Instant::now(), Bustle::default(), 0);
    // On a busy machine a second's jobs may take longer. The seconds in between are then skipped, except for their
    // events.
    while done < LENGTH {
        let second = u32::try_from(start.elapsed().as_secs())?;
        let passed = |moment: u32| (done..second).contains(&moment);
        // There must be no hole afterwards.
        if passed(CARBON_AWAY.0) {
            sandbox.carbon.process.kill()?;
        }
        if passed(CARBON_AWAY.1) {
            sandbox.carbon.process.spawn()?;
        }
        if second > done {
            bustle.second(&sandbox.slurm, second)?;
            town::second(&sandbox.slurm, done..second, &mut slurmds)?;
            if done / 30 < second / 30 {
                writeln!(std::io::stderr(), "screenshots: {second} of {LENGTH} s")?;
            }
            done = second;
        }
        wait::pause(Duration::from_secs(u64::from(second + 1)).saturating_sub(start.elapsed()));
    }
    web.process.wait_ready()?;
    draw(&sandbox.folder, &web)
}

fn draw(folder: &Folder, web: &GraphiteWeb) -> Result<()> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    for dashboard in Dashboard::all(&root.join("config/grafana"))? {
        let Some((name, end)) = PICTURES.iter().find(|(name, _)| *name == dashboard.name) else { continue };
        let folder = folder.path().join(format!("picture-{name}"));
        std::fs::create_dir_all(&folder)?;
        let page = Page::draw(dashboard, web, end, LENGTH, &folder)?;
        std::fs::write(folder.join("page.json"), page.json().to_string())?;
        let picture = root.join(format!("docs/images/{name}.png"));
        std::fs::write(folder.join("compose.py"), include_str!("compose.py"))?;
        let mut python = sandbox::command(&folder, Path::new("/usr/bin/python3"));
        let output = python.args(["compose.py", "page.json"]).arg(&picture).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let size = std::fs::metadata(&picture).with_context(|| picture.display().to_string())?.len();
        writeln!(std::io::stderr(), "screenshots: docs/images/{name}.png, {} KB", size / 1000)?;
    }
    Ok(())
}
