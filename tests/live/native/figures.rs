//! Every figure is sdiag's, and on the release that libslurm's reader is built for also that
//! reader's.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sandbox::{Folder, Imitation, Invocation, Sdiag, Slurm, wait};
use slurm_snapshot::{Answer, LIBRARIES, Reading, RpcTables, Statistics};

use super::{Reader, refusals, stats};
use crate::SOON;
use crate::figures::work;

/// The type of our own requests, each of which changes its own row, its user's, and the moment in
/// them.
const OWN: u16 = 2035;

#[test]
fn every_figure_is_sdiags_and_libslurms_readers() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::start(&folder).unwrap();
    work(&slurm);
    let mut native = Reader::native(slurm.conf(), 10);
    let is_here =
        std::env::var_os("SANDBOX_ROOT").is_none() && std::env::var_os("SANDBOX_PREFIX").is_none();
    let mut libslurm =
        is_here.then(|| Reader::Libslurm(sandbox::Reader::start_for(&slurm).unwrap()));
    native.reading();
    for _ in 0..10 {
        let (sdiag, reading) = wait::until_some("two equal runs of sdiag", SOON, || {
            let (before, reading, after) =
                (slurm.sdiag().ok()?, native.reading(), slurm.sdiag().ok()?);
            (steady(&before) == steady(&after)).then_some((before, reading))
        })
        .unwrap();
        same_as_sdiag(&folder, &sdiag, &reading);
        let Some(libslurm) = &mut libslurm else { continue };
        let (found, expected) = wait::until_some("two equal readings of libslurm's", SOON, || {
            let [before, found, after] = [libslurm.reading(), native.reading(), libslurm.reading()];
            (same(&before) == same(&after)).then_some((same(&found), same(&before)))
        })
        .unwrap();
        assert_eq!(found, expected);
    }
    let (release, reading) = (slurm.release().unwrap(), native.reading());
    let newest = LIBRARIES.iter().find(|(_, of)| release.starts_with(&of.to_string())).unwrap().1;
    assert_eq!(reading.release, newest, "the highest number that slurmctld speaks");
    assert_eq!(reading.cluster.as_deref(), Some("sandbox"));
    assert!(refusals(&slurm.slurmctld) <= 4, "{:#?}", slurm.slurmctld.lines());
}

/// slurmctld is its own sackd: below its chroot is the socket.
#[test]
#[ignore = "needs Slurm from 23.11 on in a chroot: SANDBOX_ROOT"]
fn a_key_of_auth_slurm_is_as_good_as_munge() {
    let socket =
        PathBuf::from(std::env::var_os("SANDBOX_ROOT").unwrap()).join("run/slurmctld/sack.socket");
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    let text = fs::read_to_string(slurm.conf()).unwrap();
    let text = text.replace("auth/munge", "auth/slurm").replace("cred/munge", "cred/slurm");
    fs::write(slurm.conf(), text.replace("AuthInfo=", "#AuthInfo=")).unwrap();
    let key = folder.path().join("slurm.key");
    fs::write(&key, [7; 64]).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    slurm.slurmctld.start().unwrap();
    let ask = |socket: &Path| {
        let socket = socket.display().to_string();
        stats(&folder, slurm.conf()).env("SLURM_SACK_SOCKET", &socket).finish().unwrap()
    };
    let found = ask(&socket);
    let Ok(Answer::Reading(reading)) = Answer::parse(found.stdout.as_bytes()) else {
        panic!("{found:?}")
    };
    assert!(
        slurm.release().unwrap().starts_with(&reading.release.to_string()),
        "{}",
        reading.release
    );
    assert!(refusals(&slurm.slurmctld) <= 3, "{:#?}", slurm.slurmctld.lines());
    let none = ask(&folder.path().join("none"));
    assert!(["sack.socket", "sackd"].iter().all(|word| none.stderr.contains(word)), "{none:?}");
}

#[test]
fn every_port_of_a_range_is_asked_in_its_turn() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    let port = slurm.slurmctld_port;
    let with = |name: &str, from: u16, to: u16| {
        let (line, range) =
            (format!("SlurmctldPort={port}\n"), format!("SlurmctldPort={from}-{to}\n"));
        slurm.changed(name, &line, &range).unwrap()
    };
    let beyond = with("beyond.conf", port + 1, port + 3);
    with("slurm.conf", port, port + 2);
    slurm.start_controller().unwrap();
    let mut reader = Reader::native(slurm.conf(), 10);
    (0..6).for_each(|_| drop(reader.reading()));
    // On the last of these nobody listens.
    let mut reader = Reader::native(&beyond, 10);
    let answers: Vec<bool> = (0..9).map(|_| reader.ask().0.is_ok()).collect();
    assert_eq!(answers.iter().filter(|is_reading| !**is_reading).count(), 3, "{answers:?}");
}

/// Figures that requests themselves change.
const MOVES: [&str; 3] = ["sdiag output at", "Server thread count", "Job states ts"];

fn steady(sdiag: &Sdiag) -> BTreeMap<(String, String), i64> {
    let kept = |(_, label): &&(String, String)| !MOVES.contains(&label.as_str());
    let kept = sdiag.figures.keys().filter(kept);
    kept.map(|key| (key.clone(), sdiag.figures[key])).collect()
}

/// Compares what `slurm-graphite stats` prints for this reading with sdiag's text.
fn same_as_sdiag(folder: &Folder, sdiag: &Sdiag, reading: &Reading) {
    let again =
        Imitation::answer(Reading { id: Imitation::reading().id, ..reading.clone() }).unwrap();
    let imitation =
        Imitation::new(folder, "again", &format!("hello; while ask; do {again}; done")).unwrap();
    let config = folder.write("again.toml", &format!("[slurm]\n{}", imitation.toml())).unwrap();
    let stats = Invocation::new(folder, &["stats", "--config", &config]);
    let found = Sdiag::parse(&stats.unwrap().succeed().unwrap());
    assert_eq!(steady(&found), steady(sdiag));
    let others = |sdiag: &Sdiag| -> Vec<sandbox::RpcRow> {
        sdiag.by_type.iter().filter(|row| row.id != u32::from(OWN)).cloned().collect()
    };
    assert_eq!(others(&found), others(sdiag));
    let count =
        |sdiag: &Sdiag| sdiag.by_type.iter().find(|row| row.id == u32::from(OWN)).unwrap().count;
    assert_eq!(count(&found), count(sdiag) + 1, "its own request");
}

fn same(reading: &Reading) -> (Statistics, Option<String>) {
    let mut statistics = reading.statistics.clone().unwrap();
    (statistics.req_time, statistics.server_thread_count) = (0, 0);
    let RpcTables { types, users, .. } = statistics.rpc.as_mut().unwrap();
    types.retain(|row| row.id != OWN);
    users.iter_mut().for_each(|row| (row.count, row.time) = (0, 0));
    (statistics, reading.cluster.clone())
}
