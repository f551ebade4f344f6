//! Carbon's disk is full: Carbon reads points that it cannot write, and tells nobody but its own
//! figures, which an alert rule watches. When there is room, a restart of Carbon within
//! `resend_window` brings them back.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Result, ensure};
use sandbox::carbon::Options;
use sandbox::{Carbon, Folder, Series, Space, Stage, wait};

use super::{SKIPPED, side_by_side};

#[test]
fn what_carbon_could_not_write_comes_back_when_it_is_started_again() {
    side_by_side(&[("Carbon's disk full, then room, then a restart", full)]);
}

fn full() -> Result<String> {
    let folder = Folder::new()?;
    let disk = folder.path().join("disk");
    fs::create_dir(&disk)?;
    let mount = |options: &str| format!("mount -t tmpfs -o {options} tmpfs {}", disk.display());
    // Room for some 20 files of more than a hundred, of which Carbon's own are the first.
    let Some(space) = Space::new(&folder, &mount("size=1m"))? else {
        return Ok(SKIPPED.to_owned());
    };
    fs::create_dir(folder.path().join("carbon"))?;
    symlink(space.path("disk"), folder.path().join("carbon/whisper"))?;
    let mut stage = Stage::in_folder(folder, &Options { own_figures: true, ..Options::default() })?;
    wait::until("Carbon's own figures", wait::LIMIT, || errors(&stage.carbon).is_some())?;
    stage.daemon.spawn()?;
    stage.carbon.process.line("No space left on device", wait::LIMIT)?;
    wait::until("a count of errors", wait::LIMIT, || {
        errors(&stage.carbon).is_some_and(|count| count > 0.0)
    })?;
    stage.ticks(4)?;
    let missing = stage.collected.compare(&[&stage.carbon])?.missing();
    ensure!(missing > 100, "only {missing} points are missing");
    space.run(&stage.folder, &mount("remount,size=64m"))?;
    stage.carbon.process.stop()?;
    stage.carbon_back()?;
    Ok(format!("{missing} points were missing, {}", stage.clean()?))
}

/// The largest of the numbers of errors that Carbon has stored about itself.
fn errors(carbon: &Carbon) -> Option<f64> {
    let agents = fs::read_dir(carbon.whisper().join("carbon/agents")).ok()?;
    let series =
        agents.flatten().find_map(|agent| Series::read(&agent.path().join("errors.wsp")).ok())?;
    series.points.values().copied().reduce(f64::max)
}
