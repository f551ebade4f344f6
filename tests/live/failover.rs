//! The backup controller takes over, and the primary comes back: readings continue, no figure mixes
//! the two, and the controller that answers is the one that `scontrol ping` shows.
#![expect(
    clippy::print_stdout,
    reason = "the harness captures it, and a test that cannot go on fails"
)]

use sandbox::daemon::surveys;
use sandbox::pair::{Pair, SLURMCTLD_TIMEOUT};
use sandbox::{Daemon, Folder, Recorded, now, wait};

/// More than anything here counts, or measures in minutes, and far less than a wrapped difference.
const ABSURD: f64 = 1e8;

/// Two controllers with munged; none of them runs. `None` if separate host names are not allowed.
pub(crate) fn pair(folder: &Folder) -> Option<Pair> {
    let Some(mut pair) = Pair::new(folder).unwrap() else {
        println!(
            "SKIPPED: two controllers on one host need a host name each: root, or user namespaces"
        );
        return None;
    };
    pair.slurm.munged.start().unwrap();
    Some(pair)
}

#[test]
fn readings_go_on_with_the_backup_and_with_the_primary_again_and_nothing_jumps() {
    let folder = Folder::new().unwrap();
    let Some(mut pair) = pair(&folder) else { return };
    pair.primary.start().unwrap();
    pair.backup.start().unwrap();
    for _ in 0..3 {
        pair.slurm.submit(&["--wrap", "true"]).unwrap();
    }
    let slurm = format!("conf = \"{}\"\ntimeout = \"60s\"", pair.slurm.conf().display());
    let mut daemon = Daemon::start(&folder, &slurm).unwrap();
    daemon.tick_with(true, 0.0, wait::LIMIT).unwrap();
    daemon.ticks(5).unwrap();

    let killed = now();
    pair.primary.kill().unwrap();
    pair.backup.line("Running as primary controller", wait::LIMIT).unwrap();
    let over = now();
    let first = daemon.tick_with(true, killed + 1.0, wait::LIMIT).unwrap() as f64;
    assert!(first - over < SLURMCTLD_TIMEOUT as f64, "{:.1} s", first - over);
    daemon.ticks(5).unwrap();

    let before = pair.primary.lines().len();
    pair.primary.start().unwrap();
    // A backup of 24.05.8, the last of its branch, never gives control back, however often the
    // primary asks, and goes on.
    let stays = pair.slurm.release().unwrap().starts_with("24.05");
    // How long it takes is slurmctld's own: in 24.11 half a minute.
    let line = if stays {
        pair.backup.line("not completely done relinquishing control", wait::LIMIT)
    } else {
        pair.primary.line_after(before, "Running as primary controller", wait::LIMIT)
    };
    let (line, back) = (line.unwrap(), now());
    let again = daemon.tick_with(true, back, wait::LIMIT).unwrap() as f64 - back;
    assert!(again < SLURMCTLD_TIMEOUT as f64, "{again:.1} s after {line:?}");
    daemon.ticks(5).unwrap();
    daemon.check_ticks().unwrap();
    check_values(daemon.recorded().unwrap(), if stays { 2 } else { 3 });
    daemon.stop().unwrap();
    // That backup does not end at SIGTERM either.
    if stays { pair.backup.kill() } else { pair.backup.stop() }.unwrap();
}

#[test]
fn who_answers_is_who_answers_scontrol_ping() {
    let folder = Folder::new().unwrap();
    let Some(mut pair) = pair(&folder) else { return };
    pair.primary.start().unwrap();
    let slurm = format!("conf = \"{}\"\ntimeout = \"60s\"", pair.slurm.conf().display());
    let mut daemon = Daemon::start_surveying(&folder, &slurm, &surveys(&["controllers"])).unwrap();
    assert_eq!(who_answers(&pair, &mut daemon), [true, false]);
    pair.backup.start().unwrap();
    assert_eq!(who_answers(&pair, &mut daemon), [true, true]);
    pair.primary.kill().unwrap();
    assert_eq!(who_answers(&pair, &mut daemon), [false, true]);
    pair.backup.line("Running as primary controller", wait::LIMIT).unwrap();
    assert_eq!(who_answers(&pair, &mut daemon), [false, true]);
    pair.backup.kill().unwrap();
    assert_eq!(who_answers(&pair, &mut daemon), [false, false]);
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
}

/// Whether the primary and the backup answer; `scontrol ping` and the next figures must agree.
fn who_answers(pair: &Pair, daemon: &mut Daemon) -> Vec<bool> {
    // It fails if nobody answers.
    let said = pair.slurm.run("sh", &["-c", "scontrol ping || true"]).unwrap();
    let lines = said.lines().filter(|line| line.starts_with("Slurmctld("));
    let up: Vec<bool> = lines.map(|line| line.trim_end().ends_with("is UP")).collect();
    let since = now();
    let next = |recorded: &Recorded, name: &str, leaf: &str| {
        let values = recorded.series(&format!("cluster.slurm_controllers.{name}.gauge-{leaf}"));
        values.into_iter().find(|(at, _)| *at as f64 > since)
    };
    let published = ["primary", "backup1"].map(|name| {
        let limit = wait::LIMIT;
        let (at, up) = daemon.until(name, limit, |recorded| next(recorded, name, "up")).unwrap();
        let time =
            next(daemon.recorded().unwrap(), name, "answer_time").filter(|(time, _)| *time == at);
        assert_eq!(time.is_some(), up > 0.5, "{name} at {at}");
        up > 0.5
    });
    assert_eq!(up, published, "{said}");
    up
}

/// No figure is negative or absurd, or comes from a controller that has not started scheduling; so
/// many controllers were read.
fn check_values(recorded: &Recorded, controllers: usize) {
    for (path, values) in recorded.slurm() {
        let leaf = path.rsplit("gauge-").next().unwrap();
        let is_time =
            ["req_time", "req_time_start", "job_states_ts", "bf_last_cycle_when"].contains(&leaf);
        let sane = |value: f64| if is_time { value > 1e9 } else { (0.0..ABSURD).contains(&value) };
        let wrong: Vec<_> = values.iter().filter(|(_, value)| !sane(**value)).collect();
        assert!(wrong.is_empty(), "{path}: {wrong:?}");
    }
    let since: Vec<f64> = recorded.statistics("req_time_start").into_values().collect();
    assert!(since.is_sorted(), "each controller counts from its own beginning: {since:?}");
    let mut beginnings = since;
    beginnings.dedup();
    assert_eq!(beginnings.len(), controllers, "{beginnings:?}");
}
