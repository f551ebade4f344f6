//! GPUs that jobs have whole or in parts. The scheduler is the truth: a job gets as many whole GPUs
//! as are idle, and one for more than that waits. The text that says it differs by release.

use std::fs;

use anyhow::Context;
use sandbox::{Folder, Reader, Slurm, Slurmrestd, Way, wait};
use slurm_snapshot::{Nodes, Reply, ReplyKind, ReplyOptions, Request, Shards, Shares};

use crate::rest::rest_reader;

/// GPUs that shards use were idle, while a job for as many GPUs waited.
#[test]
fn a_job_gets_as_many_whole_gpus_as_are_idle_beside_shards_and_no_more() {
    play("a100");
}

/// Slurm writes something else where a type is missing, and from 26.05 on nothing.
#[test]
fn so_it_is_without_a_type() {
    play("");
}

/// A node with four GPUs of this type, and 16 shards.
fn play(kind: &str) {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    if slurm.release().unwrap().as_str() < "22.05" {
        return;
    }
    configure(&folder, &slurm, kind);
    slurm.start_all().unwrap();
    let mut rest = Slurmrestd::new(&folder, &slurm, Way::Socket).unwrap();
    rest.process.start().unwrap();
    let submit = |gres: &str| {
        slurm.submit(&["-n1", &format!("--gres={gres}"), "--wrap", "exec sleep 600"]).unwrap()
    };
    let is = |job: u32, state: &str| {
        let shown = || slurm.call(&format!("squeue -h -o %T,%r -j {job}")).unwrap_or_default();
        let used = || slurm.call("sinfo -h -O gres:40,gresused:90").unwrap_or_default();
        wait::until(state, wait::LIMIT, || shown().trim() == state)
            .with_context(shown)
            .with_context(used)
            .unwrap();
    };
    let gpus = || {
        let [libslurm, rest] = [Reader::start_for(&slurm).unwrap(), rest_reader(&rest)].map(nodes);
        assert_eq!((libslurm.unparsed, libslurm.gpus[kind]), (0, libslurm.total.gpus));
        assert_eq!(rest.gpus, libslurm.gpus);
        libslurm.total.gpus
    };
    // Of each free GPU jobs get four shards more, and none of one that a job has whole.
    let counts_shards = slurm.release().unwrap().as_str() >= "23.11";
    let shards = || {
        let readers = [Reader::start_for(&slurm).unwrap(), rest_reader(&rest)];
        let [libslurm, rest] = readers.map(nodes);
        let partition = &libslurm.partitions.as_ref().unwrap().partitions[0];
        assert_eq!((&rest.shards, &partition.shards), (&libslurm.shards, &libslurm.shards));
        libslurm.shards[kind]
    };
    let are = |allocated, idle| {
        let known = |number| Some(number).filter(|_| counts_shards);
        assert_eq!(shards(), Shards { allocated: known(allocated), idle: known(idle), total: 16 });
    };
    let of_four = |allocated| Shares { allocated, idle: 4 - allocated, other: 0, total: 4 };
    assert_eq!(gpus(), of_four(0));
    are(0, 16);
    is(submit("gpu:1"), "RUNNING,None");
    assert_eq!(gpus(), of_four(1));
    are(0, 12);
    for _ in 0..3 {
        is(submit("shard:1"), "RUNNING,None");
    }
    let seen = gpus();
    assert!(seen.idle < 3 && seen == of_four(seen.allocated), "{seen:?}");
    are(3, 9);
    if counts_shards {
        // slurmctld agrees that there are as many, and no more.
        let last: Vec<u32> = (0..9).map(|_| submit("shard:1")).collect();
        last.iter().for_each(|job| is(*job, "RUNNING,None"));
        are(12, 0);
        let one_more = submit("shard:1");
        is(one_more, "PENDING,Resources");
        let all = last.into_iter().chain([one_more]).map(|job| format!(" {job}"));
        slurm.call(&format!("scancel{}", all.collect::<String>())).unwrap();
        wait::until("shards that are free again", wait::LIMIT, || shards().idle == Some(9))
            .unwrap();
    }
    let too_many = submit(&format!("gpu:{}", seen.idle + 1));
    is(too_many, "PENDING,Resources");
    slurm.call(&format!("scancel {too_many}")).unwrap();
    if seen.idle > 0 {
        is(submit(&format!("gpu:{}", seen.idle)), "RUNNING,None");
    }
    assert_eq!(gpus(), of_four(4));
    slurm.call("scancel --state=RUNNING").unwrap();
    is(submit("gpu:4"), "RUNNING,None");
    assert_eq!(gpus(), of_four(4));
    are(0, 0);
    slurm.call("scancel --state=RUNNING").unwrap();
    slurm.call("scontrol update nodename=ALL state=drain reason=test").unwrap();
    wait::until("no job", wait::LIMIT, || gpus().allocated == 0).unwrap();
    let off = shards();
    assert_eq!((off.idle, off.total), (Some(0), 16), "{off:?}");
}

fn configure(folder: &Folder, slurm: &Slurm, kind: &str) {
    let (name, of_kind) = if kind.is_empty() {
        (String::new(), String::new())
    } else {
        (format!("{kind}:"), format!("Type={kind}"))
    };
    let gpus = format!(" RealMemory=2000 Gres=gpu:{name}4,shard:16 ");
    let changed = slurm.changed("gpus.conf", " RealMemory=2000 ", &gpus).unwrap();
    fs::rename(changed, slurm.conf()).unwrap();
    // More jobs than CPUs.
    let shared = " Default=YES OverSubscribe=FORCE:4 ";
    let changed = slurm.changed("shared.conf", " Default=YES ", shared).unwrap();
    fs::rename(changed, slurm.conf()).unwrap();
    slurm.configure("GresTypes=gpu,shard\n").unwrap();
    // 22.05 gives a GPU without a type twice, whole and in shards, if it has no cores of its own.
    (0..4).for_each(|gpu| drop(folder.write(&format!("gpu{gpu}"), "").unwrap()));
    let path = folder.path().display();
    let files = format!("Name=gpu {of_kind} File={path}/gpu[0-3] Cores=0-7\nName=shard Count=16\n");
    folder.write("gres.conf", &files).unwrap();
}

fn nodes(mut reader: Reader) -> Nodes {
    let options = ReplyOptions { partitions: true, ..ReplyOptions::default() };
    let request = Request::new(ReplyKind::Nodes, options);
    match reader.reading(&request).unwrap().reply {
        Some(Reply::Nodes(nodes)) => *nodes,
        other => panic!("{other:?}"),
    }
}
