//! Controllers of two releases: one in the place of the other, and a pair. The reader speaks to
//! each with its own highest number.

use std::path::PathBuf;

use sandbox::{Folder, Forwarder, Process, Slurm, free_port, wait};

use super::{Reader, refusals};

/// Seconds for a request.
const LIMIT: u64 = 10;

/// Refusals in an hour, each of three lines at most.
const MOST: usize = 6 * 3;

/// Slurm of the newer release, not started yet but for munged.
fn newer() -> (Folder, Slurm) {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    slurm.munged.start().unwrap();
    (folder, slurm)
}

/// slurmctld of the older release, not started yet.
fn older(folder: &Folder, newer: &Slurm, port: u16) -> Process {
    let root = PathBuf::from(std::env::var_os("SANDBOX_OLDER_ROOT").unwrap());
    newer.controller_of(folder, &root, port).unwrap()
}

/// Waits until readings are of this release. For a moment after its start slurmctld does not say
/// since when it counts, and an older one in its place refuses the newer one's number as it does a
/// wrong key: so that number is tried again after a minute.
fn expect(reader: &mut Reader, release: &str) {
    wait::until(release, wait::LIMIT, || {
        reader.ask().0.is_ok_and(|reading| reading.release.to_string() == release)
    })
    .unwrap();
}

#[test]
#[ignore = "needs two releases in chroots: SANDBOX_ROOT, and SANDBOX_OLDER_ROOT of Slurm 24.11"]
fn a_controller_of_24_11_and_that_of_26_05_replace_each_other_under_a_running_reader() {
    let (folder, mut newer) = newer();
    let mut older = older(&folder, &newer, newer.slurmctld_port);
    let mut reader = Reader::native(newer.conf(), LIMIT);
    for _ in 0..2 {
        for (slurmctld, release) in [(&mut older, "24.11"), (&mut newer.slurmctld, "26.05")] {
            slurmctld.start().unwrap();
            expect(&mut reader, release);
            slurmctld.kill().unwrap();
            reader.fails(1800, &[]);
        }
    }
    for slurmctld in [&older, &newer.slurmctld] {
        assert!(refusals(slurmctld) <= MOST, "{:#?}", slurmctld.lines());
    }
}

#[test]
#[ignore = "needs two releases in chroots: SANDBOX_ROOT, and SANDBOX_OLDER_ROOT of Slurm 24.11"]
fn of_a_pair_of_24_11_and_26_05_each_is_spoken_to_with_its_own_number() {
    let (folder, mut newer) = newer();
    let port = free_port().unwrap();
    let mut older = older(&folder, &newer, port);
    let _backup = Forwarder::at([127, 0, 0, 2].into(), newer.slurmctld_port, port).unwrap();
    let primary = "SlurmctldHost=localhost(127.0.0.1)\n";
    let pair = format!("{primary}SlurmctldHost=backup(127.0.0.2)\n");
    let conf = newer.changed("pair.conf", primary, &pair).unwrap();
    older.start().unwrap();
    newer.slurmctld.start().unwrap();
    let mut reader = Reader::native(&conf, LIMIT);
    expect(&mut reader, "26.05");
    let mut known = None;
    for turn in 0..4 {
        newer.slurmctld.kill().unwrap();
        expect(&mut reader, "24.11");
        newer.slurmctld.start().unwrap();
        expect(&mut reader, "26.05");
        // Its number was found in the first turn.
        let refused = refusals(&older);
        assert_eq!(*known.get_or_insert(refused), refused, "{turn}: {:#?}", older.lines());
    }
    for slurmctld in [&older, &newer.slurmctld] {
        assert!(refusals(slurmctld) <= MOST, "{:#?}", slurmctld.lines());
    }
}
