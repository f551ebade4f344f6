//! A name service that hangs, or fails, while users without an association have levels.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::accounting::USERS;
use sandbox::{
    Accounting, Folder, Invocation, Manner, Process, Sink, find_program, is_root, slurm_graphite,
    wait,
};

use super::{MINUTE, Sent, jobs, toml};

/// Users of every Debian whom slurmdbd does not know: the name service hangs for the first and
/// fails for the other one.
const STRANGERS: [(&str, u32); 2] = [("bin", 2), ("sys", 3)];

/// The rounds stopped while it hung, and a user for whom it failed had two paths for good.
#[test]
fn a_name_service_that_hangs_or_fails_holds_up_only_its_own_users_who_get_one_path() -> Result<()> {
    if !is_root() {
        return Ok(());
    }
    let folder = Folder::new()?;
    let mut accounting = Accounting::start(&folder)?;
    // A user without an association may submit jobs.
    accounting.slurm.replace(&["AccountingStorageEnforce="], "")?;
    accounting.slurm.slurmctld.stop()?;
    accounting.slurm.slurmctld.start()?;
    let source = folder.write("names.c", include_str!("names.c"))?;
    let [library, hangs, fails] =
        ["names.so", "hangs", "fails"].map(|name| folder.path().join(name));
    let args = ["-shared", "-fPIC", "-o", &library.display().to_string(), &source];
    Invocation::of_program(&folder, &find_program("cc")?, &args)?.succeed()?;
    fs::write(&hangs, "")?;
    fs::write(&fails, "")?;
    let sink = Sink::start(Manner::Record)?;
    let toml = folder.write("daemon.toml", &toml(&folder, &accounting.slurm, &sink))?;
    let args = ["run", "--config", &toml, "--interval", "1s", "--log-format", "json"];
    let mut daemon = Process::new(&folder, "daemon", slurm_graphite()?)
        .args(args)
        .env("LD_PRELOAD", &library)
        .env("HANGS", &hangs)
        .env("FAILS", &fails);
    daemon.spawn()?;
    let sent = || Sent::parse(&sink.bytes());
    let total = |level: &str| {
        let path = format!("{level}.work.gauge-jobs_total");
        sent().ok().and_then(|sent| sent.last(&path))
    };
    wait::until("a round", MINUTE, || sent().is_ok_and(|sent| sent.rounds() > 0))?;
    let (games, known) = USERS[0];
    for (_, user) in STRANGERS.into_iter().chain([(games, known)]) {
        let args = ["--parsable", "--output=/dev/null", "--wrap", "true"];
        accounting.slurm.run_as(user, "sbatch", &args)?;
    }
    jobs::until_rows(&accounting, "time_end > 0 and `partition` <> ''", 3);
    wait::until("the job of a known user", MINUTE, || {
        total("total") == Some(1) && total(&format!("user.{games}")) == Some(1)
    })?;
    let rounds = sent()?.rounds();
    wait::until("ten more rounds", MINUTE, || {
        sent().is_ok_and(|sent| sent.rounds() > rounds + 10)
    })?;
    ensure!(total("total") == Some(1), "their names may come: {:?} jobs", total("total"));
    let failed = daemon.lines();
    let failed: Vec<_> =
        failed.iter().filter(|line| line.contains("cannot be read from slurmdbd")).collect();
    ensure!(failed.is_empty(), "{failed:?}");

    fs::remove_file(&hangs)?;
    fs::remove_file(&fails)?;
    // A look-up that failed is repeated after half a minute.
    wait::until("the others", MINUTE * 2, || total("total") == Some(3))?;
    wait::pause(Duration::from_secs(3));
    let sent = sent()?;
    let mut levels = sent.levels();
    levels.retain(|level| level.contains("user"));
    let expected = [STRANGERS[0].0, games, STRANGERS[1].0].map(|name| format!("user.{name}"));
    ensure!(levels == expected, "{levels:?}");
    daemon.stop()?;
    Ok(())
}
