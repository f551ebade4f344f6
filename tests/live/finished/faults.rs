//! The faults: each ends, stops or confuses programs while jobs end.

use std::time::Duration;

use anyhow::Result;
use sandbox::{Accounting, Process, wait};

use super::MINUTE;
use super::once::Play;

pub(super) type Fault = (&'static str, fn(&mut Play) -> Result<()>);

/// Those of the short test. The first three only end the daemon.
pub(super) const SHORT: [Fault; 7] = [
    ("the daemon is killed", |play| daemon_killed(play, false)),
    ("the daemon is killed and away", |play| daemon_killed(play, true)),
    ("the daemon is killed again", |play| daemon_killed(play, false)),
    ("slurmdbd is killed", slurmdbd_killed),
    ("MariaDB is killed", mariadb_killed),
    ("slurmdbd is frozen and the daemon killed", slurmdbd_frozen),
    ("slurmdbd and MariaDB are stopped", both_stopped),
];

/// What the long test has in addition.
pub(super) const LONG: [Fault; 14] = [
    ("slurmctld is stopped", |play| slurmctld_ends(play, false, false, false)),
    ("slurmctld is killed", |play| slurmctld_ends(play, true, false, false)),
    ("slurmctld and slurmdbd are stopped", |play| slurmctld_ends(play, false, true, false)),
    ("slurmctld and slurmdbd are killed", |play| slurmctld_ends(play, true, true, false)),
    ("slurmctld is stopped, the daemon killed", |play| slurmctld_ends(play, false, false, true)),
    ("slurmctld, slurmdbd and the daemon are killed", |play| {
        slurmctld_ends(play, true, true, true)
    }),
    ("slurmctld is frozen", slurmctld_frozen),
    ("the job table is away", |play| queries_fail(play, TABLE_AWAY)),
    ("queries take too long", |play| queries_fail(play, NO_TIME)),
    ("the newest job is requeued", |play| newest_requeued(play, false)),
    ("the newest job is requeued in an outage", |play| newest_requeued(play, true)),
    ("a node fails", node_fails),
    ("Carbon is killed", |play| carbon_ends(play, Process::kill)),
    ("Carbon is stopped", |play| carbon_ends(play, Process::stop)),
];

type Ending = fn(&mut Process) -> Result<sandbox::Ended>;

/// SQL that makes queries for jobs fail, and SQL that repairs it.
type Failure = [&'static str; 2];

const TABLE_AWAY: Failure = [
    "rename table slurm_acct_db.sandbox_job_table to slurm_acct_db.away",
    "rename table slurm_acct_db.away to slurm_acct_db.sandbox_job_table",
];

/// It applies to new connections; slurmctld's own goes on.
const NO_TIME: Failure =
    ["set global max_statement_time = 0.0002", "set global max_statement_time = 0"];

fn daemon_killed(play: &mut Play, stays_away: bool) -> Result<()> {
    play.submit()?;
    play.pause(2.0);
    play.stage.daemon.kill()?;
    if stays_away {
        play.pause(2.0);
    }
    play.stage.daemon.spawn()
}

fn slurmdbd_killed(play: &mut Play) -> Result<()> {
    play.stage.accounting.slurmdbd.kill()?;
    play.submit()?;
    play.pause(2.0);
    play.stage.accounting.slurmdbd.start()
}

fn mariadb_killed(play: &mut Play) -> Result<()> {
    play.stage.accounting.mariadbd.kill()?;
    play.submit()?;
    play.pause(2.0);
    play.stage.accounting.mariadbd.start()?;
    // slurmdbd may end at its next query to the database: here, and not in the middle of the next
    // fault.
    let Accounting { slurm, slurmdbd, .. } = &mut play.stage.accounting;
    let answers = || slurm.run("sacctmgr", &["-n", "show", "cluster"]).is_ok();
    wait::until("slurmdbd, or its end", MINUTE, || answers() || slurmdbd.pid().is_none()).map(drop)
}

/// slurmctld waits for slurmdbd with each job that starts, and sbatch for slurmctld: so the jobs
/// are submitted before.
fn slurmdbd_frozen(play: &mut Play) -> Result<()> {
    play.submit()?;
    play.stage.accounting.slurmdbd.freeze()?;
    play.stage.daemon.kill()?;
    play.stage.daemon.spawn()?;
    play.pause(6.0);
    play.stage.accounting.slurmdbd.thaw()
}

fn both_stopped(play: &mut Play) -> Result<()> {
    play.stage.accounting.slurmdbd.stop()?;
    play.stage.accounting.mariadbd.stop()?;
    play.submit()?;
    play.stage.accounting.mariadbd.start()?;
    play.stage.accounting.slurmdbd.start()
}

/// Arrays are cancelled before slurmdbd knows them: then slurmctld, when it is started again,
/// reports their end as their start.
fn slurmctld_ends(play: &mut Play, is_killed: bool, slurmdbd: bool, daemon: bool) -> Result<()> {
    let end: Ending = if is_killed { Process::kill } else { Process::stop };
    if slurmdbd {
        end(&mut play.stage.accounting.slurmdbd)?;
    }
    let arrays = [(&["-H", "--array=1-20"][..], 20), (&["--array=1-20%1"], 20), (&["-H"], 1)];
    let mut ids = Vec::new();
    for (args, tasks) in arrays {
        ids.push(play.cast.submit_endless(&play.stage.accounting, args, tasks)?);
    }
    play.submit()?;
    play.pause(4.0);
    play.cast.cancel(&play.stage.accounting, &ids);
    // A slurmctld that is stopped has saved everything.
    if is_killed {
        play.cast.disturb(&play.stage.accounting)?;
    }
    end(&mut play.stage.accounting.slurm.slurmctld)?;
    if daemon {
        play.stage.daemon.kill()?;
    }
    play.pause(2.0);
    if slurmdbd {
        play.stage.accounting.slurmdbd.start()?;
    }
    play.stage.accounting.slurm.slurmctld.start()?;
    // One that was killed may have forgotten that they were cancelled.
    play.cast.cancel(&play.stage.accounting, &ids);
    if daemon { play.stage.daemon.spawn() } else { Ok(()) }
}

fn slurmctld_frozen(play: &mut Play) -> Result<()> {
    play.submit()?;
    play.stage.accounting.slurm.slurmctld.freeze()?;
    play.pause(5.0);
    play.stage.accounting.slurm.slurmctld.thaw()
}

/// slurmdbd returns an empty list, and success. A daemon that starts meanwhile reads everything
/// again.
fn queries_fail(play: &mut Play, [cause, repair]: Failure) -> Result<()> {
    play.submit()?;
    if play.random.bool() {
        play.stage.daemon.kill()?;
    }
    play.stage.accounting.sql(cause)?;
    if play.stage.daemon.pid().is_none() {
        play.stage.daemon.spawn()?;
    }
    play.submit()?;
    wait::pause(Duration::from_secs(2));
    play.pause(4.0);
    play.stage.accounting.sql(repair).map(drop)
}

/// A job that has ended, and has been counted, runs again: slurmctld changes its row, and adds one.
fn newest_requeued(play: &mut Play, in_an_outage: bool) -> Result<()> {
    play.submit()?;
    play.pause(4.0);
    if in_an_outage {
        play.stage.accounting.slurmdbd.stop()?;
    }
    let args = ["SLURM_TIME_FORMAT=%s", "squeue", "-h", "-t", "completed,failed", "-o", "%e %A"];
    let ended = play.stage.accounting.slurm.run("env", &args)?;
    let mut ended: Vec<&str> = ended.lines().collect();
    ended.sort_unstable();
    // Components of a het job refuse that.
    let requeue = |id: &str| play.stage.accounting.slurm.run("scontrol", &["requeue", id]).is_ok();
    let _requeued = ended.iter().rev().find(|line| line.split(' ').nth(1).is_some_and(requeue));
    if in_an_outage {
        play.submit()?;
        play.pause(2.0);
        play.stage.accounting.slurmdbd.start()?;
    }
    Ok(())
}

fn node_fails(play: &mut Play) -> Result<()> {
    play.submit()?;
    play.pause(2.0);
    play.stage.accounting.slurm.call("scontrol update nodename=c2 state=down reason=test")?;
    play.pause(2.0);
    // Its slurmd may have returned it to service.
    let _resumed = play.stage.accounting.slurm.call("scontrol update nodename=c2 state=resume");
    Ok(())
}

fn carbon_ends(play: &mut Play, end: Ending) -> Result<()> {
    let Some(carbon) = &mut play.stage.carbon else { return Ok(()) };
    end(&mut carbon.process)?;
    play.submit()?;
    play.pause(3.0);
    let Some(carbon) = &mut play.stage.carbon else { return Ok(()) };
    carbon.process.start()
}
