//! `stats --jobs` shows what squeue shows, for all jobs or not at all.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use sandbox::accounting::USERS;
use sandbox::{Accounting, Folder, Invocation, Sandbox, is_root, printed, run, wait};
use serde_json::Value;

/// squeue's columns for the values of `--by`.
const COLUMNS: [(&str, &str); 4] =
    [("user", "%u"), ("account", "%a"), ("partition", "%P"), ("qos", "%q")];

/// Running jobs, pending jobs, CPUs of running jobs, CPUs of pending jobs.
type Counts = BTreeMap<String, [u64; 4]>;

#[test]
fn whose_jobs_run_and_wait_is_what_squeue_shows_and_a_part_of_them_is_refused() {
    let folder = Folder::new().unwrap();
    let accounting = Accounting::start(&folder).unwrap();
    let slurm = &accounting.slurm;
    let conf = slurm.conf().display().to_string();
    let sleep = ["--wrap", "exec sleep 600"];
    slurm.submit(&[&["-n2", "-A", "physics"][..], &sleep].concat()).unwrap();
    slurm
        .submit(&[&["-n1", "-A", "chemistry", "-p", "long", "--qos=urgent"][..], &sleep].concat())
        .unwrap();
    slurm
        .submit(&[&["-H", "-n3", "--array=1-7", "-p", "long,debug"][..], &sleep].concat())
        .unwrap();
    if is_root() {
        let args = ["--output=/dev/null", "--begin=now+1hour", "-A", "chemistry", "--wrap", "true"];
        slurm.run_as(USERS[0].1, "sbatch", &args).unwrap();
    }
    wait::until("two jobs that run", wait::LIMIT, || {
        slurm.call("squeue -h -t R").is_ok_and(|jobs| jobs.lines().count() == 2)
    })
    .unwrap();

    let stats = |by| {
        let args = ["stats", "--jobs", "--by", by, "--json", "--slurm-conf", &conf];
        serde_json::from_str::<Value>(&printed(&folder, &args).unwrap()).unwrap()
    };
    for (by, column) in COLUMNS {
        let shown =
            slurm.run("squeue", &["-a", "-r", "-h", "-o", &format!("{column} %T %C")]).unwrap();
        assert_eq!(counts(&stats(by)), squeue(&shown).unwrap(), "by {by}");
    }
    let reasons = counts(&stats("reason"));
    assert_eq!(reasons["JobHeldUser"], [0, 7, 0, 21], "{reasons:?}");
    let by_user = stats("user");
    let waits: Vec<_> =
        by_user["rows"].as_array().unwrap().iter().map(|row| &row["oldest_wait"]).collect();
    assert!(waits.iter().all(|wait| wait.as_u64().is_some_and(|wait| wait < 120)), "{waits:?}");
    let text = printed(&folder, &["stats", "--jobs", "--slurm-conf", &conf]).unwrap();
    assert_eq!(text.lines().count(), 2 + if is_root() { 2 } else { 1 }, "{text}");
    let jobs = text.lines().nth(2).and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(jobs, Some("2/7"), "{text}");

    if is_root() {
        slurm.reconfigure("PrivateData=jobs\n").unwrap();
        let games =
            |args: &[&str]| Invocation::by(USERS[0].1, &folder, args).unwrap().finish().unwrap();
        let refused = games(&["stats", "--jobs", "--slurm-conf", &conf]);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
        assert!(refused.stderr.contains("so nothing is printed"), "{}", refused.stderr);
        slurm
            .run("sacctmgr", &["-i", "modify", "user", USERS[0].0, "set", "adminlevel=operator"])
            .unwrap();
        wait::until("an operator who sees them", wait::LIMIT, || {
            games(&["stats", "--jobs", "--slurm-conf", &conf]).stdout.contains("2/7")
        })
        .unwrap();
    }
    finished(&folder, &accounting).unwrap();
}

/// Jobs by name: all, failed, and cancelled.
type Ended = BTreeMap<String, [u64; 3]>;

/// `--finished` shows what sacct shows.
fn finished(folder: &Folder, accounting: &Accounting) -> Result<()> {
    let slurm = &accounting.slurm;
    slurm.submit(&["-A", "physics", "--output=/dev/null", "--wrap", "exit 3"])?;
    let ids = slurm.call("squeue -a -h -o %A")?;
    // The first two are running and waiting, so they have not ended.
    let ids: Vec<&str> = ids.lines().skip(2).collect();
    slurm.run("scancel", &ids)?;
    for (by, _) in COLUMNS {
        let shown = || -> Result<Ended> {
            let when = "-S now-1hour -E now+1hour";
            sacct(&slurm.call(&format!("sacct -anPX --state=CD,CA,F {when} -o {by},state,jobid"))?)
        };
        let ended = || -> Result<Ended> {
            let conf = slurm.conf().display().to_string();
            let args =
                ["stats", "--jobs", "--finished", "--by", by, "--json", "--slurm-conf", &conf];
            Ok(ended(&serde_json::from_str(&run(folder, &args)?.stdout)?))
        };
        wait::until("what sacct shows", wait::LIMIT, || {
            shown().is_ok_and(|shown| {
                shown.values().any(|jobs| jobs[1] == 1) && ended().is_ok_and(|ended| ended == shown)
            })
        })
        .with_context(|| format!("by {by}: {:?}, sacct has {:?}", ended(), shown()))?;
    }
    let refused = run(folder, &["stats", "--jobs", "--finished", "--by", "reason"])?;
    assert!(refused.stderr.contains("jobs that have ended have none"), "{}", refused.stderr);
    Ok(())
}

/// These figures of each row of a table, by the row's name.
fn rows<const N: usize>(
    table: &Value,
    figures: impl Fn(&Value) -> [u64; N],
) -> BTreeMap<String, [u64; N]> {
    let rows = table["rows"].as_array().unwrap().iter();
    rows.map(|row| (row["name"].as_str().unwrap().to_owned(), figures(row))).collect()
}

fn ended(table: &Value) -> Ended {
    rows(table, |row| {
        let states = row["states"].as_object().unwrap();
        let count = |state: &str| states.get(state).and_then(Value::as_u64).unwrap_or(0);
        [states.values().filter_map(Value::as_u64).sum(), count("failed"), count("cancelled")]
    })
}

fn sacct(text: &str) -> Result<Ended> {
    let mut ended = Ended::new();
    for line in text.lines() {
        let [name, state, id] =
            line.split('|').collect::<Vec<_>>().try_into().ok().context("a row")?;
        // Only the first of several partitions counts; the tasks of an array have one row.
        let name = name.split(',').next().unwrap_or_default();
        let tasks = if id.contains('[') { 7 } else { 1 };
        let row = ended.entry(name.to_owned()).or_default();
        row[0] += tasks;
        row[1] += if state == "FAILED" { tasks } else { 0 };
        row[2] += if state.starts_with("CANCELLED") { tasks } else { 0 };
    }
    Ok(ended)
}

fn counts(table: &Value) -> Counts {
    let columns =
        [("running", "jobs"), ("pending", "jobs"), ("running", "cpus"), ("pending", "cpus")];
    rows(table, |row| columns.map(|(state, what)| row[state][what].as_u64().unwrap()))
}

fn squeue(text: &str) -> Result<Counts> {
    let mut counts = Counts::new();
    for line in text.lines() {
        let [names, state, cpus] =
            line.split_whitespace().collect::<Vec<_>>().try_into().ok().context("a row")?;
        let place = usize::from(state == "PENDING");
        for name in names.split(',') {
            let row = counts.entry(name.to_owned()).or_default();
            row[place] += 1;
            row[2 + place] += cpus.parse::<u64>()?;
        }
    }
    Ok(counts)
}

/// Where slurm.conf does not enforce associations, any user may name any account: its bytes went to
/// the administrator's terminal.
#[test]
fn an_account_that_a_user_invents_is_shown_without_commands_for_the_terminal_and_without_rows_of_its_own()
 {
    let sandbox = Sandbox::start().unwrap();
    let conf = sandbox.slurm.conf().display().to_string();
    let account = "phys\u{1b}]0;PWNED\u{7}\u{1b}[31m\nadmin      9/9 \u{202e}\u{9b}2J";
    sandbox.slurm.submit(&["-H", "-A", account, "--wrap", "true"]).unwrap();
    let held = sandbox.slurm.run("squeue", &["-h", "-o", "%a"]).unwrap();
    assert!(held.contains("\u{1b}]0;pwned"), "Slurm has it as it was written: {held:?}");
    let args = ["stats", "--jobs", "--by", "account", "--slurm-conf", &conf];
    let text = printed(&sandbox.folder, &args).unwrap();
    let harmless = |c: char| "\n …".contains(c) || c.is_alphanumeric() || c.is_ascii_punctuation();
    assert!(text.chars().all(harmless), "{text:?}");
    assert_eq!(text.lines().count(), 3, "two lines of headings and one account: {text}");
    assert!(text.lines().any(|line| line.starts_with(r"phys\u{1b}]0;")), "{text}");
    // A script gets the name itself.
    let json = printed(&sandbox.folder, &[&args[..], &["--json"]].concat()).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["rows"][0]["name"].as_str(), held.strip_suffix('\n'), "{json}");
}
