//! slurmdbd's statistics compared with `sacctmgr show stats`, and who may read them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use sandbox::accounting::{CLUSTER, USERS};
use sandbox::{Accounting, Folder, Sdiag, is_root, now, run, wait};
use slurm_snapshot::{Answer, DbdRollup, DbdStatistics, Failure, Reply};

use super::{answers, reading};

const REQUEST: &str = r#"{"slurmdbd":{"id":1,"options":{"users":true}}}"#;

/// The RPCs that each of our requests adds: the request itself, and the connection that it opens
/// and closes.
const OURS: [&str; 3] = ["DBD_GET_STATS", "SLURM_PERSIST_INIT", "DBD_FINI"];

fn statistics(folder: &Folder, accounting: &Accounting) -> Result<DbdStatistics> {
    match reading(folder, &accounting.slurm, None, REQUEST)?.reply {
        Some(Reply::Slurmdbd(statistics)) => Ok(*statistics),
        other => bail!("{other:?}"),
    }
}

fn shown(accounting: &Accounting) -> Result<String> {
    accounting.slurm.run("sacctmgr", &["show", "stats"])
}

/// The roll-ups of our cluster in sacctmgr's output: numbers by period and label.
fn rollups(text: &str) -> Result<BTreeMap<String, BTreeMap<String, u64>>> {
    let head = format!("Cluster '{CLUSTER}' rollup statistics");
    let lines = text.lines().skip_while(|line| *line != head).skip(1);
    let mut rollups: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let mut period = String::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let (label, value) = match line.split_once(" last ran ") {
            Some((its, when)) => {
                period = its.trim().to_lowercase();
                let seconds =
                    when.rsplit_once('(').and_then(|(_, seconds)| seconds.strip_suffix(')'));
                ("last ran", seconds)
            }
            None => line
                .trim()
                .split_once(':')
                .map(|(label, value)| (label, Some(value)))
                .context("a figure")?,
        };
        let value = value.context("a value")?.trim().parse()?;
        rollups.entry(period.clone()).or_default().insert(label.to_owned(), value);
    }
    Ok(rollups)
}

fn compare_rollup(period: &str, shown: &BTreeMap<String, u64>, ours: &DbdRollup) -> Result<()> {
    let printed = |label: &str| shown.get(label).copied();
    let end = ours.end.and_then(|end| u64::try_from(end).ok());
    // If there was only one roll-up, sacctmgr prints 0 for the last and the longest.
    ensure!(
        (
            printed("Last cycle"),
            printed("Max cycle"),
            printed("Total time"),
            printed("Total cycles"),
            printed("last ran")
        ) == (ours.last.or(Some(0)), ours.max.or(Some(0)), ours.total, Some(ours.count), end),
        "{period}: sacctmgr has {shown:?}, we have {ours:?}"
    );
    Ok(())
}

/// Makes slurmdbd believe that its last roll-up was 40 days ago.
fn age(accounting: &Accounting) -> Result<()> {
    let since = now() - 40.0 * 86_400.0;
    let table = format!("slurm_acct_db.{CLUSTER}_last_ran_table");
    let columns = "(hourly_rollup, daily_rollup, monthly_rollup)";
    let values = format!("({since:.0}, {since:.0}, {since:.0})");
    accounting
        .sql(&format!("delete from {table}; insert into {table} {columns} values {values}"))
        .map(drop)
}

#[test]
fn statistics_are_those_of_sacctmgr_less_our_own_question_and_only_an_administrator_is_told() {
    let folder = Folder::new().unwrap();
    let mut accounting = Accounting::start(&folder).unwrap();
    also_after_one_roll_up_and_after_two(&folder, &mut accounting);
    if is_root() {
        everybody_else_is_told_what_to_do(&folder, &accounting);
    }
    commands_say_what_is_lacking(&folder, &mut accounting);
}

fn also_after_one_roll_up_and_after_two(folder: &Folder, accounting: &mut Accounting) {
    let rolled_up = |accounting: &Accounting| rollups(&shown(accounting)?).map(|found| found.len());
    age(accounting).unwrap();
    accounting.slurmdbd.stop().unwrap();
    accounting.slurmdbd.start().unwrap();
    wait::until("a roll-up", wait::LIMIT, || {
        rolled_up(accounting).is_ok_and(|periods| periods == 3)
    })
    .unwrap();
    compare(folder, accounting).unwrap();
    age(accounting).unwrap();
    accounting.slurm.run("sacctmgr", &["-i", "rollup"]).unwrap();
    let found = compare(folder, accounting).unwrap();
    assert!(
        found.rollups.values().all(|rollup| rollup.count == 1 && rollup.last.is_some()),
        "{found:?}"
    );
}

fn compare(folder: &Folder, accounting: &Accounting) -> Result<DbdStatistics> {
    // slurmctld talks to slurmdbd at any time.
    for _ in 0..50 {
        let (before, ours, after) =
            (shown(accounting)?, statistics(folder, accounting)?, shown(accounting)?);
        let [sdiag, then] = [&before, &after].map(|text| Sdiag::parse(text));
        let others = |sdiag: &Sdiag| {
            let rows = sdiag.by_type.iter().filter(|row| !OURS.contains(&row.name.as_str()));
            rows.map(|row| (row.name.clone(), row.count, row.total)).collect::<Vec<_>>()
        };
        if others(&sdiag) != others(&then) || rollups(&before)? != rollups(&after)? {
            continue;
        }
        ensure!(sdiag.get("", "Data since") == Some(ours.since), "since {}: {before}", ours.since);
        ensure!(sdiag.by_type.len() == ours.types.len(), "{ours:?}\n{before}");
        for row in &sdiag.by_type {
            let counted = ours
                .types
                .iter()
                .find(|counted| u32::from(counted.id) == row.id)
                .context("no such type")?;
            let name = slurm_snapshot::dbd_rpc_name(row.id);
            ensure!(name == Some(&row.name), "{name:?} is {} for sacctmgr", row.name);
            let grown = u64::from(counted.count).checked_sub(row.count).context("it shrank")?;
            let is_same = (grown, counted.time) == (0, row.total);
            // They include sacctmgr's own requests, which ended after it had asked.
            ensure!(
                is_same || (OURS.contains(&row.name.as_str()) && grown <= 2),
                "{counted:?}, sacctmgr has {row:?}"
            );
        }
        let me = ours.users.iter().find(|user| user.id == rustix::process::getuid().as_raw());
        let row = sdiag.by_user.iter().find(|row| Some(row.id) == me.map(|user| user.id));
        let (me, row) = me.zip(row).context("no row of this user")?;
        ensure!(
            me.name.as_deref() == Some(&row.name) && u64::from(me.count) >= row.count,
            "{me:?}, {row:?}"
        );
        let theirs = rollups(&before)?;
        ensure!(theirs.keys().eq(ours.rollups.keys()), "{theirs:?}, {:?}", ours.rollups);
        for (period, rollup) in &ours.rollups {
            compare_rollup(period, &theirs[period], rollup)?;
        }
        return Ok(ours);
    }
    bail!("slurmdbd never stood still")
}

/// Operators are refused too.
fn everybody_else_is_told_what_to_do(folder: &Folder, accounting: &Accounting) {
    let (name, mail) = USERS[1];
    let slurm = &accounting.slurm;
    for level in ["none", "operator"] {
        slurm.call(&format!("sacctmgr -i modify user {name} set adminlevel={level}")).unwrap();
        let answers =
            answers(folder, slurm.reader(Some(mail)).unwrap(), slurm.conf(), REQUEST).unwrap();
        let [Answer::Failure(Failure { call, errno, advice, .. })] = &answers[..] else {
            panic!("{answers:?}")
        };
        let advice = advice.as_deref().unwrap_or_default();
        assert!(advice.contains("adminlevel=admin"), "{level}: {advice}");
        assert_eq!((call.as_str(), *errno), ("slurmdb_get_stats", 2002));
    }
    slurm.call(&format!("sacctmgr -i modify user {name} set adminlevel=admin")).unwrap();
    assert!(reading(folder, slurm, Some(mail), REQUEST).unwrap().reply.is_some());
}

fn commands_say_what_is_lacking(folder: &Folder, accounting: &mut Accounting) {
    let toml = format!(
        "[slurm]\n{}[queue]\ndir = {:?}\n[collectors.slurmdbd]\nenabled = true\nusers = 5\n\
         [collectors.finished]\nenabled = true\n",
        accounting.slurm.toml(),
        folder.path().join("queue")
    );
    let file = folder.write("once.toml", &toml).unwrap();
    let run = |args: &[&str]| run(folder, &[args, &["--config", &file]].concat()).unwrap();
    let printed = run(&["once"]);
    assert!(
        printed.stdout.contains("cluster.slurm_slurmdbd.type.DBD_GET_STATS.gauge-count "),
        "{printed:?}"
    );
    assert!(printed.stdout.contains("cluster.slurm_slurmdbd.others.gauge-members "), "{printed:?}");
    assert!(
        printed.stderr.contains("finished jobs are counted by the daemon alone"),
        "{printed:?}"
    );
    let checked = run(&["check", "--connect"]);
    assert!(checked.stdout.contains("✓ slurmdbd: 0 jobs ended in the last hour"), "{checked:?}");
    assert!(
        checked.stdout.contains("✓ slurmdbd: gives its statistics to this user"),
        "{checked:?}"
    );
    let series = checked.stdout.lines().find(|line| line.starts_with("✓ series: ")).unwrap();
    assert!(series.contains(", 63 slurm_jobs_finished, "), "{checked:?}");
    assert!(series.contains(" slurm_slurmdbd;"), "{checked:?}");

    accounting.slurmdbd.stop().unwrap();
    let printed = run(&["once"]);
    assert!(!printed.stdout.contains("slurm_slurmdbd.type"), "{printed:?}");
    for words in ["no slurmdbd: ", "Is slurmdbd running?"] {
        assert!(printed.stderr.contains(words), "{printed:?}");
    }
    let checked = run(&["check", "--connect"]);
    assert_eq!(checked.stdout.matches("✗ slurmdbd: ").count(), 2, "{checked:?}");
    assert_eq!(checked.stdout.matches("– series: not all are counted: ").count(), 2, "{checked:?}");
}
