//! munged and slurmctld killed and frozen, a port that swallows or is another user's, a wrong key.

use std::fs;
use std::path::Path;

use sandbox::{
    Daemon, Folder, Invocation, Manner, NOBODY, Process, Sink, Space, find_program, free_port, now,
    slurm_graphite, wait,
};

use super::{Reader, controller, refusals, stats, with_port};
use crate::SOON;
use crate::faults_reader::DOWN;
use crate::unchanged::clock::libfaketime;

/// Seconds for a request.
const LIMIT: u64 = 4;

#[test]
fn munged_or_slurmctld_frozen_or_dead_or_another_program_on_its_port_is_one_answer_each_that_names_it()
 {
    let (_folder, mut slurm) = controller();
    let mut reader = Reader::native(slurm.conf(), LIMIT);
    reader.settle();
    let (lines, before) = (slurm.slurmctld.lines().len(), refusals(&slurm.slurmctld));
    slurm.munged.freeze().unwrap();
    // Beyond the queue of its socket.
    (0..3).for_each(|_| reader.fails(1007, &["munge/sock", "is it stopped"]));
    slurm.munged.thaw().unwrap();
    reader.reading();
    slurm.munged.kill().unwrap();
    reader.fails(1007, &["Is munged running"]);
    slurm.munged.start().unwrap();
    reader.reading();
    // slurmctld hears nothing of it.
    let news: Vec<String> = slurm.slurmctld.lines().split_off(lines);
    assert!(!news.iter().any(|line| line.contains("error")), "{news:#?}");

    slurm.slurmctld.freeze().unwrap();
    (0..2).for_each(|_| reader.fails(5004, &["stopped or overloaded"]));
    slurm.slurmctld.thaw().unwrap();
    reader.reading();
    slurm.slurmctld.kill().unwrap();
    reader.fails(1800, &["Is slurmctld running"]);
    slurm.slurmctld.start().unwrap();
    reader.reading();
    // After a start another release may be there: its next number is tried once, which is three
    // lines of 22.05.
    assert!(refusals(&slurm.slurmctld) <= before + 2, "{:#?}", slurm.slurmctld.lines());

    // A port that swallows and one that talks are not slurmctld.
    let at = |port: u16| Reader::native(&with_port(&slurm, "other.conf", port), LIMIT);
    for (manner, errno) in [(Manner::Discard, 5004), (Manner::Silent, 5004), (Manner::Talk, 5003)] {
        at(Sink::start(manner).unwrap().port).fails(errno, &[]);
    }
    // It is a refusal where the kernel could still say that the other end is root's.
    let closes = Sink::start(Manner::Close).unwrap();
    at(closes.port).fails_with(&[1800, 1007], &[]);
    at(free_port().unwrap()).fails(1800, &[]);
}

#[test]
fn a_wrong_key_costs_no_search_at_each_request_and_the_answer_names_both_causes() {
    let (folder, slurm) = controller();
    let numbers = folder.path().join("numbers");
    let right = |numbers: &Path| Reader::knowing(Some(numbers), slurm.conf(), LIMIT);
    let (mut munged, wrong) = slurm.other_munged(&folder).unwrap();
    munged.start().unwrap();

    // First with no number known, then with one that was accepted.
    for is_known in [false, true] {
        if is_known {
            let mut first = right(&numbers);
            first.reading();
            // The reader does not wait for the disk.
            wait::until("the numbers", wait::LIMIT, || fs::exists(&numbers).unwrap()).unwrap();
        }
        let before = refusals(&slurm.slurmctld);
        for _ in 0..3 {
            let mut reader = Reader::knowing(Some(&numbers), &wrong, LIMIT);
            (0..20).for_each(|_| reader.fails(1007, &["a release that", "munge.key", "clock"]));
        }
        // Six and two for each start, or the known number each time and six of others; of three
        // lines, or four of 23.11.
        let news = refusals(&slurm.slurmctld) - before;
        let most = 4 * if is_known { 3 * 20 + 6 } else { 6 + 3 * 2 };
        assert!((1..=most).contains(&news), "{news} refusals, more than {most}");
        fs::remove_file(&numbers).unwrap();
    }
    assert!(right(&numbers).reading().statistics.is_some());
}

#[test]
fn a_clock_beyond_munges_limit_is_a_refusal_and_the_advice_names_the_clock() {
    let (folder, slurm) = controller();
    let (munged, late) = slurm.other_munged(&folder).unwrap();
    let key = |of: &str| folder.path().join(of).join("key");
    fs::remove_file(key("other-munge")).unwrap();
    fs::copy(key("munge"), key("other-munge")).unwrap();
    // Its credentials are an hour old; munge's limit is 5 minutes.
    let mut munged = munged.env("LD_PRELOAD", libfaketime().unwrap()).env("FAKETIME", "-1h");
    munged.start().unwrap();
    let mut reader = Reader::native(&late, LIMIT);
    (0..20).for_each(|_| reader.fails(1007, &["or the clock differs"]));
    let lines = slurm.slurmctld.lines();
    assert!(lines.iter().any(|line| line.contains("Expired credential")), "{lines:#?}");
    assert!(refusals(&slurm.slurmctld) <= 6 * 4, "as for a wrong key: {lines:#?}");
    Reader::native(slurm.conf(), LIMIT).reading();
}

/// Passes connections to the first port on to the second, and counts the bytes of requests.
const IMPOSTER: &str = "\
import os, socket, sys, threading
heard = open(sys.argv[3], 'ab', buffering=0)
def pipe(a, b, heard):
    while data := a.recv(65536):
        heard.write(data)
        b.sendall(data)
    b.shutdown(socket.SHUT_WR)
server = socket.create_server(('::', int(sys.argv[1])), family=socket.AF_INET6,
                              dualstack_ipv6=True)
print('listening', flush=True)
while True:
    a = server.accept()[0]
    b = socket.create_connection(('127.0.0.1', int(sys.argv[2])))
    threading.Thread(target=pipe, args=(a, b, heard), daemon=True).start()
    threading.Thread(target=pipe, args=(b, a, open(os.devnull, 'wb')), daemon=True).start()
";

/// A program of user nobody on this port, and the file with what it has heard.
pub(crate) fn imposter(folder: &Folder, port: u16, slurmctld: u16) -> (Process, String) {
    let imposter = Process::new(folder, "imposter", find_program("setpriv").unwrap());
    impersonate(imposter, folder, port, slurmctld)
}

/// As [`imposter`], by this setpriv(1).
fn impersonate(imposter: Process, folder: &Folder, port: u16, slurmctld: u16) -> (Process, String) {
    let heard = folder.write("heard", "").unwrap();
    std::os::unix::fs::chown(&heard, Some(NOBODY), Some(NOBODY)).unwrap();
    let ids =
        [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()];
    let mut imposter = imposter.args(ids).args([
        "python3",
        "-c",
        IMPOSTER,
        &port.to_string(),
        &slurmctld.to_string(),
        &heard,
    ]);
    imposter.start().unwrap();
    imposter.line("listening", wait::LIMIT).unwrap();
    (imposter, heard)
}

/// The units hide all of /proc but processes, and with it the table in /proc/net.
#[test]
fn another_users_program_on_slurmctlds_port_hears_nothing_and_is_refused_also_under_the_unit() {
    let (folder, slurm) = controller();
    let refused = format!("belongs to user {NOBODY}, neither root nor SlurmUser");
    let port = free_port().unwrap();
    let (_imposter, heard) = imposter(&folder, port, slurm.slurmctld_port);
    let other = with_port(&slurm, "other.conf", port);
    let hides = "mount -t proc -o subset=pid proc /proc && test ! -e /proc/net && exec \"$@\"";
    for conf in [slurm.conf(), other.as_path()] {
        let toml = format!("[slurm]\nconf = {conf:?}\nreader = \"native\"\n");
        let config = folder.write("hidden.toml", &toml).unwrap();
        let program = slurm_graphite().unwrap().display().to_string();
        let args = [
            "--mount", "--pid", "--fork", "sh", "-c", hides, "sh", &program, "stats", "--json",
            "--config", &config,
        ];
        let unshare = find_program("unshare").unwrap();
        let hidden = Invocation::of_program(&folder, &unshare, &args).unwrap().finish().unwrap();
        let seen = stats(&folder, conf).finish().unwrap();
        for found in [hidden, seen] {
            match conf == slurm.conf() {
                true => assert!(found.stdout.starts_with("{\"reading\""), "{found:?}"),
                false => assert!(found.stderr.contains(&refused), "{found:?}"),
            }
        }
    }
    assert_eq!(fs::read(heard).unwrap(), b"");
}

/// The address of this end is the host's first one of the network, and was compared with the other
/// end's: anyone was believed on a virtual address.
#[test]
fn another_users_program_is_refused_on_every_address_of_this_host() {
    let (folder, slurm) = controller();
    let host = Space::network(&folder, "host").unwrap();
    host.run(
        &folder,
        "ip link add d0 type veth peer name d1; ip link set d0 up; ip route add local 10.8.0.0/16 dev lo
        for address in 10.9.0.1/24 10.9.0.100/24 fd09::1/64 fd09::2/64; do
        ip addr add $address dev d0 nodad; done",
    )
    .unwrap();
    let setpriv = find_program("setpriv").unwrap();
    let imposter = host.process(&folder, "imposter", &setpriv, true).unwrap();
    let port = free_port().unwrap();
    let (_imposter, heard) = impersonate(imposter, &folder, port, port);
    let other = fs::read_to_string(with_port(&slurm, "other.conf", port)).unwrap();
    let name = "SlurmctldHost=localhost(127.0.0.1)";
    assert!(other.contains(name), "{other}");
    let program = slurm_graphite().unwrap();
    for address in ["127.0.0.1", "10.9.0.1", "10.9.0.100", "10.8.7.6", "fd09::1", "fd09::2"] {
        let vip = format!("SlurmctldHost=vip({address})");
        let conf = other.replace(name, &vip).replace("=NoInAddrAny,", "=EnableIPv6,NoInAddrAny,");
        let conf = folder.write("vip.conf", &conf).unwrap();
        let config = format!("[slurm]\nconf = {conf:?}\nreader = \"native\"\n");
        let config = folder.write("vip.toml", &config).unwrap();
        let command = format!("{} stats --json --config {config}", program.display());
        let words = host.words(&command);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let nsenter = find_program("nsenter").unwrap();
        let said = Invocation::of_program(&folder, &nsenter, &words).unwrap().finish().unwrap();
        let refused = format!("port {port} of this host belongs to user {NOBODY}");
        assert!(said.stderr.contains(&refused), "{address}: {said:?}");
    }
    assert_eq!(fs::read(heard).unwrap(), b"");
}

/// The port must be free first, so the log had another cause of the outage already.
#[test]
fn another_users_program_is_named_in_the_log_although_slurmctld_was_away_before() {
    let (folder, mut slurm) = controller();
    let toml = format!("conf = {:?}\nreader = \"native\"\n", slurm.conf());
    let mut daemon = Daemon::start(&folder, &toml).unwrap();
    daemon.tick_with(true, 0.0, SOON).unwrap();
    let killed = now();
    slurm.slurmctld.kill().unwrap();
    let said = daemon.said(killed, DOWN, SOON).unwrap();
    assert!(said.line.contains("refused"), "{}", said.line);
    let silent = Sink::start(Manner::Discard).unwrap();
    let (mut imposter, heard) = imposter(&folder, slurm.slurmctld_port, silent.port);
    let named = daemon.said(killed, &format!("belongs to user {NOBODY}"), SOON).unwrap();
    assert!(named.line.contains("WARN"), "{}", named.line);
    assert_eq!(fs::read(heard).unwrap(), b"");
    imposter.kill().unwrap();
    slurm.slurmctld.start().unwrap();
    daemon.tick_with(true, now(), SOON).unwrap();
}

/// It was believed for a minute after slurmctld.
#[test]
fn another_users_program_that_takes_slurmctlds_port_between_two_requests_is_refused_at_once() {
    let (folder, mut slurm) = controller();
    let mut reader = Reader::native(slurm.conf(), LIMIT);
    reader.settle();
    slurm.slurmctld.kill().unwrap();
    // If nobody listened there, it would end at the first connection, and then nobody has the port.
    let silent = Sink::start(Manner::Discard).unwrap();
    let (mut imposter, heard) = imposter(&folder, slurm.slurmctld_port, silent.port);
    (0..3).for_each(|_| reader.fails(1007, &[&format!("belongs to user {NOBODY}")]));
    assert_eq!(fs::read(heard).unwrap(), b"");
    imposter.kill().unwrap();
    slurm.slurmctld.start().unwrap();
    reader.reading();
}
