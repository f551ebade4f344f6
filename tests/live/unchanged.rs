//! Replies that slurmctld calls unchanged are believed only where its rule covers every figure, and
//! only against its own clock.

pub(crate) mod clock;
mod licences;
mod power;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::{Folder, Reader, Slurm, wait};
use serde_json::Value;
use slurm_snapshot::{REPLIES, Reply, ReplyKind, ReplyOptions, Request, Role};

/// Number of "unchanged" answers of each kind that must have been compared.
const COMPARED: u32 = 10;

/// A reply with everything that any collector needs of it.
pub(crate) fn ask(reader: &mut Reader, kind: ReplyKind, since: Option<i64>) -> Result<Reply> {
    let all = ReplyOptions {
        users: true,
        accounts: true,
        qos: true,
        partitions: true,
        ..ReplyOptions::default()
    };
    let options = ReplyOptions { rows: true, ..all };
    reader.reading(&Request { since, ..Request::new(kind, options) })?.reply.context("a reply")
}

/// A reply without what belongs to one moment: when it was written, and what depends on the time
/// that has passed.
fn lasting(reply: &Reply) -> Result<Value> {
    let mut value = serde_json::to_value(reply)?;
    strip(&mut value, &["last_update", "started", "eligible"]);
    Ok(value)
}

/// Takes away the members with these names, at any depth.
pub(crate) fn strip(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !names.contains(&name.as_str()));
            members.values_mut().for_each(|value| strip(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| strip(value, names)),
        _ => {}
    }
}

/// One kind of reply: the last one that was not "unchanged".
struct LastReply {
    kind: ReplyKind,
    reply: Option<Reply>,
    compared: u32,
    changed: u32,
}

impl LastReply {
    /// Asks whole, with `since`, and whole again. Where both wholes agree and the answer was
    /// "unchanged", what is kept must equal them.
    fn compare(&mut self, reader: &mut Reader) -> Result<()> {
        let before = ask(reader, self.kind, None)?;
        let since = self.reply.as_ref().and_then(Reply::last_update);
        let answer = ask(reader, self.kind, since)?;
        let after = ask(reader, self.kind, None)?;
        let kept = match (answer, &self.reply) {
            (Reply::Unchanged, Some(kept)) => kept,
            (answer, _) => {
                self.reply = Some(answer);
                self.changed += 1;
                return Ok(());
            }
        };
        let (before, after) = (lasting(&before)?, lasting(&after)?);
        if before == after {
            let kept = lasting(kept)?;
            ensure!(kept == before, "{} unchanged:\nkept {kept}\ntrue {before}", self.kind.name());
            self.compared += 1;
        }
        Ok(())
    }
}

/// Changes of a busy cluster in one step: jobs of every kind, drained nodes, partitions that close,
/// reservations of nodes and of licences that begin, end and are deleted.
fn step(slurm: &Slurm, step: u32) -> Result<()> {
    let control = |words: &str| slurm.call(&format!("scontrol {words}")).map(drop);
    let reserve = |words: &str| control(&format!("create reservation users=root {words}"));
    let submit = |words: &str, script: &str| {
        slurm.submit(&[&words.split(' ').collect::<Vec<_>>()[..], &["--wrap", script]].concat())
    };
    match step % 12 {
        0 => submit("-n1 --time=1 -L foo:2", "sleep 2").map(drop),
        1 => submit("-n1 --array=1-4%2 --time=1", "sleep 1").map(drop),
        2 => {
            let first = submit("-H", "true")?;
            submit(&format!("-d afterany:{first}"), "true")?;
            control(&format!("release {first}"))
        }
        3 => reserve(&format!(
            "reservationname=lic{step} starttime=now+2 endtime=now+9 licenses=foo:3 \
                flags=any_nodes nodecnt=0"
        )),
        4 => submit("-n1 --begin=now+5", "true").map(drop),
        5 => control("update nodename=localhost state=drain reason=test"),
        6 => control("update nodename=localhost state=resume"),
        7 => control("update partitionname=debug state=down"),
        8 => control("update partitionname=debug state=up"),
        9 => reserve(&format!(
            "reservationname=nodes{step} starttime=now endtime=now+5 nodes=ALL \
                flags=maint,ignore_jobs"
        )),
        10 => {
            let held = submit("-H -A nobodys", "true")?;
            slurm.call(&format!("scancel {held}")).map(drop)
        }
        // At its end flags of nodes are taken away.
        _ => {
            let name = format!("reservationname=plain{step}");
            reserve(&format!(
                "{name} starttime=now duration=1 nodes=ALL flags=overlap,ignore_jobs"
            ))?;
            control(&format!("update {name} endtime=now+3"))
        }
    }
}

#[test]
fn what_slurmctld_calls_unchanged_is_what_it_would_send() {
    let folder = Folder::new().unwrap();
    let more =
        "Licenses=foo:10,bar:4\nPartitionName=other Nodes=localhost MaxTime=INFINITE State=UP\n";
    let slurm = Slurm::start_with(&folder, more).unwrap();
    let mut reader = Reader::start_for(&slurm).unwrap();
    let rows = REPLIES.iter().filter(|row| row.unchanged && row.role == Role::Surveys);
    let mut all: Vec<LastReply> = rows
        .map(|row| LastReply { kind: row.kind, reply: None, compared: 0, changed: 0 })
        .collect();
    assert!(all.iter().any(|kept| kept.kind == ReplyKind::Jobs), "it is the largest");
    let mut compare = |all: &mut [LastReply]| {
        all.iter_mut().for_each(|kept| kept.compare(&mut reader).unwrap());
        wait::pause(Duration::from_millis(100));
    };
    for number in 0..26 {
        step(&slurm, number).unwrap();
        // What time alone changes must be seen too.
        let next = Instant::now() + Duration::from_millis(1200);
        while Instant::now() < next {
            compare(&mut all);
        }
    }
    // While a job waits, jobs are read whole, and on a busy host one waits nearly always: until the
    // last ones have run.
    let latest = Instant::now() + Duration::from_secs(60);
    while all.iter().any(|kept| kept.compared < COMPARED) && Instant::now() < latest {
        compare(&mut all);
    }
    for LastReply { kind, compared, changed, .. } in all {
        assert!(
            compared >= COMPARED && changed >= 5,
            "{kind:?}: {compared} compared, {changed} changes"
        );
    }
}
