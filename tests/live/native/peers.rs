//! Who answers in slurmctld's place for a while, or before: the first reading comes at once when it
//! answers again. number/peers.rs has all pairs of both, with a clock of its own.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sandbox::{Folder, Forwarder, NOBODY, Process, find_program, wait};

use super::wires::{self, Harm, wire};
use super::{Reader, controller, refusals, with_port};

/// Seconds for a request.
const LIMIT: u64 = 4;

/// A program that closes each connection as soon as it has accepted it.
const CLOSES: &str = "\
import socket, sys
server = socket.create_server(('127.0.0.1', int(sys.argv[1])), backlog=100)
print('listening', flush=True)
while True:
    server.accept()[0].close()
";

/// Asks once a second for so long. There is no reading.
fn ask_in_vain(reader: &mut Reader, seconds: usize) {
    for _ in 0..seconds {
        let (answer, _) = reader.ask();
        assert!(answer.is_err(), "{answer:?}");
        wait::pause(Duration::from_secs(1));
    }
}

/// Asks once a second, from when the cause has gone. The first reading comes within an interval and
/// 5 s.
fn answers_again(reader: &mut Reader, cause: &str) {
    let begin = Instant::now();
    loop {
        let (answer, took) = reader.ask();
        match answer {
            Ok(reading) => return assert!(reading.statistics.is_some()),
            Err(failure) => {
                let passed = begin.elapsed().saturating_sub(took);
                assert!(passed < Duration::from_secs(6), "{cause}: {passed:?}: {failure:?}");
            }
        }
        wait::pause(Duration::from_secs(1));
    }
}

/// Has the reader use this slurm.conf for the same slurmctld.
fn with_conf(reader: &mut Reader, other: &std::path::Path) -> PathBuf {
    match reader {
        Reader::Native { conf, .. } => std::mem::replace(conf, other.to_owned()),
        Reader::Libslurm(_) => unreachable!("the native reader"),
    }
}

/// 8 s of it cost 55 s, and 106 s an hour.
#[test]
fn a_munge_key_that_was_wrong_for_a_moment_costs_that_moment_and_a_start_meanwhile_nothing() {
    let (folder, slurm) = controller();
    let numbers = folder.path().join("numbers");
    let mut reader = Reader::knowing(Some(&numbers), slurm.conf(), LIMIT);
    reader.settle();
    let (mut munged, wrong) = slurm.other_munged(&folder).unwrap();
    munged.start().unwrap();
    let before = refusals(&slurm.slurmctld);
    let right = with_conf(&mut reader, &wrong);
    ask_in_vain(&mut reader, 8);
    // As `check`, `once` and a restart of the daemon do.
    let mut another = Reader::knowing(Some(&numbers), &wrong, LIMIT);
    ask_in_vain(&mut another, 1);
    // The proved number nine times, others six times and by the start, with four lines of 23.11 each.
    let news = refusals(&slurm.slurmctld) - before;
    assert!(news <= 4 * (9 + 6 + 2), "{news}: {:#?}", slurm.slurmctld.lines());
    for reader in [&mut reader, &mut another] {
        with_conf(reader, &right);
        answers_again(reader, "another key");
    }
}

/// Each reset was a refused request with three lines, and after five of them one connection that was
/// closed cost an hour.
#[test]
fn a_closed_connection_after_five_resets_costs_one_reading_and_resets_cost_no_refusal() {
    let (folder, slurm) = controller();
    let mut first = Reader::knowing(Some(&folder.path().join("numbers")), slurm.conf(), LIMIT);
    // Then each reading is one request.
    first.settle();
    let (port, harms, _lengths) = wire(Ipv4Addr::LOCALHOST.into(), slurm.slurmctld_port);
    let mut reader = wires::reader(&folder, &slurm, port);
    let mut ask = |harm| {
        harms.send(harm).unwrap();
        reader.ask().0.map(|reading| reading.statistics.unwrap().req_time_start)
    };
    let (before, mut since) = (refusals(&slurm.slurmctld), ask(Harm::None).unwrap());
    for _ in 0..5 {
        // Whole seconds tell them apart.
        wait::pause(Duration::from_secs(1));
        slurm.run("sdiag", &["--reset"]).unwrap();
        let reset = ask(Harm::None).unwrap();
        assert!(reset > since, "it was not reset");
        since = reset;
    }
    ask(Harm::Cut(0)).unwrap_err();
    ask(Harm::None).unwrap();
    assert_eq!(refusals(&slurm.slurmctld), before, "{:#?}", slurm.slurmctld.lines());
}

/// haproxy or `ssh -L`: it accepts, and closes while slurmctld refuses.
#[test]
fn a_plain_proxy_that_outlives_a_restart_of_slurmctld_costs_that_restart() {
    let (_folder, mut slurm) = controller();
    let proxy = Forwarder::start(slurm.slurmctld_port).unwrap();
    let conf = with_port(&slurm, "proxy.conf", proxy.port);
    let mut reader = Reader::native(&conf, LIMIT);
    reader.settle();
    slurm.slurmctld.kill().unwrap();
    ask_in_vain(&mut reader, 8);
    slurm.slurmctld.start().unwrap();
    answers_again(&mut reader, "a proxy");
}

/// A program of user nobody that closes connections on slurmctld's port.
fn closer(folder: &Folder, port: u16) -> Process {
    let ids =
        [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()];
    let mut closer = Process::new(folder, "closer", find_program("setpriv").unwrap())
        .args(ids)
        .args(["python3", "-c", CLOSES, &port.to_string()]);
    closer.start().unwrap();
    closer.line("listening", wait::LIMIT).unwrap();
    closer
}

#[test]
fn a_local_user_who_closes_connections_while_slurmctld_is_away_costs_nothing_afterwards() {
    let (folder, mut slurm) = controller();
    let mut known = Reader::native(slurm.conf(), LIMIT);
    known.settle();
    let mut first = Reader::native(slurm.conf(), LIMIT);
    slurm.slurmctld.kill().unwrap();
    let mut closer = closer(&folder, slurm.slurmctld_port);
    for _ in 0..20 {
        for reader in [&mut known, &mut first] {
            assert!(reader.ask().0.is_err());
        }
    }
    closer.kill().unwrap();
    slurm.slurmctld.start().unwrap();
    answers_again(&mut known, "a local user");
    answers_again(&mut first, "a local user, at a first start");
}
