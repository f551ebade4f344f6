//! Associations and QOS compared with sshare, sacctmgr and scontrol; also a cluster without
//! slurmdbd, which has none.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use sandbox::accounting::{QOS, USERS};
use sandbox::{Accounting, Folder, NOBODY, Slurm, is_root, wait};
use slurm_snapshot::{Answer, Association, Associations, Reading, Reply, TresUse, UseAndLimits};

use super::{answers, between, private, reading, remote_licenses};

const REQUEST: &str = r#"{"associations":{"id":1,"options":{"users":true}}}"#;

/// The columns of sshare about the shares of each association.
const SHARES: &str =
    "Account,User,Partition,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS";

/// The columns of sacctmgr about their limits, and about those of a QOS.
const LIMITS: &str =
    "GrpJobs,GrpSubmit,GrpWall,GrpTRES,GrpTRESMins,GrpTRESRunMins,MaxWall,MaxTRES,MaxTRESMins";

type Row = BTreeMap<String, String>;

/// A column of limits by TRES, and where they are in ours.
type TresColumn = (&'static str, fn(&TresUse) -> Option<u64>);

/// The rows of a command's output, which has `|` between its columns.
fn rows(text: &str, columns: &str) -> Vec<Row> {
    let row = |line: &str| {
        let cells = line.split('|').map(|cell| cell.trim().to_owned());
        columns.split(',').map(str::to_owned).zip(cells).collect::<Row>()
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(row).collect()
}

fn shares(slurm: &Slurm) -> Result<Vec<Row>> {
    Ok(rows(&slurm.call(&format!("sshare -anmPo {SHARES}"))?, SHARES))
}

fn limits(slurm: &Slurm, entity: &str, own: &str) -> Result<Vec<Row>> {
    let columns = format!("{own},{LIMITS}");
    Ok(rows(&slurm.call(&format!("sacctmgr -nP show {entity} format={columns}"))?, &columns))
}

fn associations_in(reading: &Reading) -> Result<&Associations> {
    match &reading.reply {
        Some(Reply::Associations(associations)) => Ok(associations),
        other => bail!("{other:?}"),
    }
}

#[test]
fn shares_limits_and_remote_licences_are_those_of_sshare_sacctmgr_and_scontrol() {
    let folder = Folder::new().unwrap();
    // Usage is counted once per calculation, which is at most once a minute.
    let accounting = Accounting::start_with(&folder, "PriorityCalcPeriod=1", "").unwrap();
    let slurm = &accounting.slurm;
    let manage = |line: &str| slurm.call(&format!("sacctmgr -i {line}")).unwrap();
    let set = "grpjobs=5 grpsubmit=9 grpwall=100 grptres=cpu=3,mem=1500,gres/gpu=2 \
               grptresmins=cpu=5000 grptresrunmins=cpu=90000 maxjobs=4 maxsubmit=8 maxwall=50 \
               maxtres=cpu=2 maxtresmins=cpu=700";
    manage(&format!("modify account physics set fairshare=3 {set}"));
    let set =
        "grpjobs=6 maxjobspu=2 maxsubmitjobspa=0 maxtrespu=gres/gpu=1 maxtrespa=cpu=3 maxwall=60";
    manage(&format!("modify qos {QOS} set {set}"));
    // slurmctld learns which limits an account inherits from its parent only when the account is
    // added.
    manage("add account optics parent=physics fairshare=7");
    manage("add account lent fairshare=parent");
    let me = slurm.call("id -un").unwrap();
    manage(&format!("add user {me} account=optics partition=long"));
    for args in
        [&["-n1", "-A", "physics", "--gres=gpu:1", "--mem=100"][..], &["-n1", "-A", "chemistry"]]
    {
        slurm.submit(&[args, &["-t", "10", "--wrap", "exec sleep 600"]].concat()).unwrap();
    }
    slurm.submit(&["-A", "physics", "-H", "-t", "5", "--wrap", "true"]).unwrap();
    remote_licenses::compare(&folder, slurm);
    wait::until("usage of two accounts", wait::LIMIT.saturating_mul(3), || {
        let is_used =
            |row: &&Row| row["User"].is_empty() && !["", "0"].contains(&row["RawUsage"].as_str());
        shares(slurm).unwrap_or_default().iter().filter(is_used).count() >= 3
    })
    .with_context(|| slurm.run("sshare", &["-al"]).unwrap_or_default())
    .unwrap();

    let look = || Ok((shares(slurm)?, slurm.call("scontrol -o show assoc_mgr")?));
    let ask = |user, request| reading(&folder, slurm, user, request);
    let ((shown, state), answer) = between(|| ask(None, REQUEST), look).unwrap();
    let all = associations_in(&answer).unwrap();
    compare_shares(&shown, all);
    compare_limits(slurm, all).unwrap();
    compare_use(&state, all).unwrap();

    let without = ask(None, r#"{"associations":{"id":1}}"#).unwrap();
    let accounts = associations_in(&without).unwrap();
    assert!(accounts.associations.iter().all(|of| of.user.is_none()), "no user is asked for");
    assert_eq!((accounts.records, accounts.associations.len()), (all.records, 5));

    // Then slurmctld counts none of it; what is running stays as it is.
    slurm.reconfigure("AccountingStorageEnforce=associations,qos\n").unwrap();
    let uncounted = ask(None, REQUEST).unwrap();
    for association in &associations_in(&uncounted).unwrap().associations {
        let limits = &association.use_and_limits;
        assert_eq!((limits.jobs_running, limits.jobs_submitted), (None, None));
        assert!(limits.tres.values().all(|tres| (tres.used, tres.run_secs) == (None, None)));
    }

    if is_root() {
        slurm.reconfigure("PrivateData=usage\n").unwrap();
        // The first user has associations. The second is unknown to slurmdbd, so slurmctld sends
        // nothing at all.
        for user in [USERS[0].1, NOBODY] {
            let seen = ask(Some(user), REQUEST).unwrap();
            assert!(seen.reply.is_none(), "a part is not asked for");
            assert!(seen.visibility.unwrap().may_hide("usage"));
        }
        assert_eq!(associations_in(&ask(None, REQUEST).unwrap()).unwrap().records, all.records);
    }
}

fn compare_shares(shown: &[Row], all: &Associations) {
    assert_eq!(shown.len(), all.associations.len());
    assert_eq!(u64::try_from(shown.len()).unwrap(), all.records);
    let (mut factors, mut levels) = (0, 0);
    for (row, seen) in shown.iter().zip(&all.associations) {
        let name = seen.user.as_ref().map_or("", |user| &user.name);
        assert_eq!(
            (row["Account"].as_str(), row["User"].as_str(), row["Partition"].as_str()),
            (seen.account.as_str(), name, seen.partition.as_deref().unwrap_or_default())
        );
        // sshare prints nothing for the root, and "parent" for one that uses its parent's.
        let raw = Some(&row["RawShares"]).filter(|raw| !["", "parent"].contains(&raw.as_str()));
        assert_eq!(seen.shares_raw.map(|shares| shares.to_string()).as_ref(), raw, "{row:?}");
        // sshare truncates it.
        assert_eq!(row["RawUsage"], format!("{}", seen.usage_raw.unwrap().trunc()), "{row:?}");
        let is_root = seen.account == "root" && seen.user.is_none();
        for (column, figure) in [
            ("NormShares", seen.shares_norm),
            ("NormUsage", seen.usage_norm),
            ("EffectvUsage", seen.usage_efctv),
            ("FairShare", seen.fairshare),
            ("LevelFS", seen.level_fs),
        ] {
            let printed = Some(row[column].as_str()).filter(|text| !["", "inf"].contains(text));
            // The root association has none, and sshare prints 0.
            let printed = printed.filter(|_| !(is_root && column == "NormShares"));
            let figure = figure.map(|figure| format!("{figure:.6}"));
            assert_eq!(figure.as_deref(), printed, "{column} of {row:?}");
        }
        factors += usize::from(seen.fairshare.is_some());
        levels += usize::from(seen.level_fs.is_some());
    }
    assert!(factors >= 4 && levels >= 2, "{shown:#?}");
}

fn compare_limits(slurm: &Slurm, all: &Associations) -> Result<()> {
    let own = "Account,User,Partition,MaxJobs,MaxSubmitJobs";
    let shown = limits(slurm, "assoc cluster=sandbox", own)?;
    ensure!(shown.len() == all.associations.len());
    let mut set = 0;
    for row in &shown {
        let is = |of: &&Association| {
            let user = of.user.as_ref().map_or("", |user| &user.name);
            (row["Account"].as_str(), row["User"].as_str(), row["Partition"].as_str())
                == (&of.account, user, of.partition.as_deref().unwrap_or_default())
        };
        let seen = all.associations.iter().find(is).with_context(|| format!("{row:?}"))?;
        set += compare_common(row, &seen.use_and_limits);
        let limits = &seen.use_and_limits;
        assert_eq!(row["MaxJobs"].parse().ok(), limits.max_jobs, "{row:?}");
        assert_eq!(row["MaxSubmitJobs"].parse().ok(), limits.max_submit_jobs, "{row:?}");
    }
    ensure!(set >= 9, "{set} limits");
    let own = "Name,MaxJobsPU,MaxJobsPA,MaxSubmitPU,MaxSubmitPA,MaxTRESPU,MaxTRESPA";
    let shown = limits(slurm, "qos", own)?;
    ensure!(shown.len() == all.qos.len() && shown.len() == 2);
    for row in &shown {
        let seen = all
            .qos
            .iter()
            .find(|qos| qos.name == row["Name"])
            .with_context(|| format!("{row:?}"))?;
        let limits = &seen.use_and_limits;
        compare_common(row, limits);
        for (column, limit) in [
            ("MaxJobsPU", limits.max_jobs_per_user),
            ("MaxJobsPA", limits.max_jobs_per_account),
            ("MaxSubmitPU", limits.max_submit_jobs_per_user),
            ("MaxSubmitPA", limits.max_submit_jobs_per_account),
        ] {
            assert_eq!(row[column].parse().ok(), limit, "{column} of {row:?}");
        }
        compare_tres(
            row,
            limits,
            &[("MaxTRESPU", |tres| tres.max_per_user), ("MaxTRESPA", |tres| tres.max_per_account)],
        );
    }
    Ok(())
}

/// Compares the common limits, and returns how many are set.
fn compare_common(row: &Row, limits: &UseAndLimits) -> usize {
    assert_eq!(row["GrpJobs"].parse().ok(), limits.grp_jobs, "{row:?}");
    assert_eq!(row["GrpSubmit"].parse().ok(), limits.grp_submit_jobs, "{row:?}");
    assert_eq!(minutes(&row["GrpWall"]), limits.grp_wall, "{row:?}");
    assert_eq!(minutes(&row["MaxWall"]), limits.max_wall_per_job, "{row:?}");
    let of_tres: [TresColumn; 5] = [
        ("GrpTRES", |tres| tres.grp),
        ("GrpTRESMins", |tres| tres.grp_mins),
        ("GrpTRESRunMins", |tres| tres.grp_run_mins),
        ("MaxTRES", |tres| tres.max_per_job),
        ("MaxTRESMins", |tres| tres.max_mins_per_job),
    ];
    compare_tres(row, limits, &of_tres);
    LIMITS.split(',').filter(|column| !row[*column].is_empty()).count()
}

fn compare_tres(row: &Row, limits: &UseAndLimits, columns: &[TresColumn]) {
    for (column, which) in columns {
        let expected =
            limits.tres.iter().filter_map(|(name, tres)| Some((name.clone(), which(tres)?)));
        assert_eq!(tres(&row[*column]), expected.collect(), "{column} of {row:?}");
    }
}

/// The minutes in `1-02:03:00`.
fn minutes(text: &str) -> Option<u32> {
    let (days, time) = text.split_once('-').unwrap_or(("0", text));
    let mut parts = time.split(':').map(|part| part.parse::<u32>().ok());
    let (hours, minutes) = (parts.next()??, parts.next()??);
    Some(days.parse::<u32>().ok()? * 1440 + hours * 60 + minutes)
}

/// The counts in `cpu=3,mem=1500M,gres/gpu=2`.
fn tres(text: &str) -> BTreeMap<String, u64> {
    let part = |part: &str| {
        let (name, amount) = part.rsplit_once('=')?;
        let amount = amount.trim_end_matches('M').parse().ok()?;
        Some((name.to_owned(), amount))
    };
    text.split(',').filter_map(part).collect()
}

/// Compares the use that `scontrol show assoc_mgr` prints in parentheses after each limit.
fn compare_use(state: &str, all: &Associations) -> Result<()> {
    let value = |line: &str, key: &str| super::oracle::value(line, key).map(str::to_owned);
    let used =
        |text: &str| -> Option<u64> { text.split_once('(')?.1.trim_end_matches(')').parse().ok() };
    let by_tres = |text: &str| -> BTreeMap<String, u64> {
        let part = |part: &str| Some((part.split_once('=')?.0.to_owned(), used(part)?));
        text.split(',').filter_map(part).filter(|(_, used)| *used > 0).collect()
    };
    let of_associations = all.associations.iter().map(|of| &of.use_and_limits);
    let mut seen = of_associations.chain(all.qos.iter().map(|of| &of.use_and_limits));
    let mut with_tres = 0;
    for line in
        state.lines().filter(|line| line.starts_with("ClusterName=") || line.starts_with("QOS="))
    {
        let seen = seen.next().context("more records there")?;
        let jobs = value(line, "GrpJobs").as_deref().and_then(used);
        let submitted = value(line, "GrpSubmitJobs").as_deref().and_then(used);
        let counts = [seen.jobs_running, seen.jobs_submitted].map(|jobs| jobs.map(u64::from));
        assert_eq!([jobs, submitted], counts, "{line}");
        for (key, figure) in [
            ("GrpTRES", (|tres| tres.used.unwrap()) as fn(&TresUse) -> u64),
            ("GrpTRESMins", |tres| tres.used_secs.unwrap() / 60),
            ("GrpTRESRunMins", |tres| tres.run_secs.unwrap() / 60),
        ] {
            let shown = by_tres(&value(line, key).with_context(|| format!("no {key} in {line}"))?);
            let figures = seen.tres.iter().map(|(name, tres)| (name.clone(), figure(tres)));
            let figures: BTreeMap<_, _> = figures.filter(|(_, figure)| *figure > 0).collect();
            assert_eq!(figures, shown, "{key} of {line}");
            with_tres += usize::from(shown.contains_key("gres/gpu"));
        }
    }
    ensure!(seen.next().is_none() && with_tres >= 4, "{state}");
    Ok(())
}

/// It may have no list of associations at all, and slurmctld 24.05 crashed when it was asked for
/// one.
#[test]
fn a_slurmctld_without_slurmdbd_lives_and_private_data_set_under_a_reader_is_known_at_its_next_survey()
 {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::controller(&folder).unwrap();
    let two = format!("{REQUEST}\n{REQUEST}\n");
    let answers = answers(&folder, slurm.reader(None).unwrap(), slurm.conf(), &two).unwrap();
    for answer in &answers {
        let Answer::Reading(reading) = answer else { panic!("{answer:?}") };
        assert_eq!(associations_in(reading).unwrap().associations, []);
    }
    assert_eq!(answers.len(), 2);
    slurm.sdiag().unwrap();
    private::private_data_that_is_set_while_a_reader_runs_is_known_at_its_next_survey(&slurm);
}
