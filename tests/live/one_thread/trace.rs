//! The proof that the loop's thread never waits for a file system, a name service or the start of a
//! program: the system calls of that thread alone, from READY on, while everything happens that has
//! ever made it wait.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;

use anyhow::Result;
use sandbox::{
    Ahead, Folder, Manner, Notify, Process, Sink, Slurm, TlsProxy, destination, find_program,
    free_port, proc, wait,
};

use super::super::SOON;
use super::super::status::{configured, runtime, start, status};

/// Longer than jiff's five minutes, after which it would read /etc/localtime again.
const LONG: u64 = 330;

/// Calls that no file system, name service or program can hold up, if their descriptor is no file.
const HARMLESS: &str = "
    brk mmap munmap mprotect madvise mremap futex membarrier sched_yield sched_getaffinity getrandom
    rt_sigprocmask rt_sigreturn rt_sigaction sigaltstack kill tgkill getpid gettid restart_syscall
    clock_gettime gettimeofday timerfd_create timerfd_settime eventfd2 epoll_wait epoll_ctl close fcntl ioctl
    read readv write writev recvfrom recvmsg sendto sendmsg socket bind connect accept4 shutdown
    setsockopt getsockopt getsockname getpeername";

/// The reason why this call is harmful, if it is.
fn harm(call: &str) -> Option<&'static str> {
    let name = call.split('(').next().unwrap_or_default();
    // The kernel makes what is there when it is read.
    if call.contains("\"/proc/") || call.contains("</proc/") {
        return None;
    }
    if call.contains("sun_path=") {
        // systemd's socket, in /run. It may be another after systemd has started again, so each
        // message names it.
        return (name != "sendto" || !call.contains("/notify\"")).then_some("names a file");
    }
    // Both are about the descriptor alone.
    let is_of_descriptor = name == "close" || call.contains("F_GETFD");
    if call.contains("</") && !call.contains("</dev/null>") && !is_of_descriptor {
        return Some("is about a file");
    }
    match name {
        "clone" | "clone3" => (!call.contains("CLONE_THREAD")).then_some("starts a program"),
        // The kind of a descriptor that was inherited, and whether it is ready now.
        "newfstatat" if call.contains("AT_EMPTY_PATH") => None,
        "poll" | "ppoll" if is_short(call) => None,
        _ => (!HARMLESS.split_whitespace().any(|harmless| harmless == name))
            .then_some("is not known to be harmless"),
    }
}

/// Whether this poll(2) or ppoll(2) waits for 2 ms at most.
fn is_short(call: &str) -> bool {
    let arguments = call.rsplit_once(") = ").map_or(call, |(arguments, _)| arguments);
    let after = |word: &str| arguments.rsplit_once(word).map(|(_, rest)| rest);
    let number = |text: &str| -> Option<u64> {
        text.split(|one: char| !one.is_ascii_digit()).next()?.parse().ok()
    };
    let milliseconds = || number(after("], ")?.split(", ").nth(1)?);
    let nanoseconds = || number(after("{tv_sec=0, tv_nsec=")?);
    nanoseconds().is_some_and(|most| most <= 2_000_000)
        || (!arguments.contains("tv_sec") && milliseconds().is_some_and(|most| most <= 2))
}

#[test]
fn a_poll_is_harmless_by_its_timeout() {
    for (call, expected) in [
        ("poll([{fd=9<UNIX:[1]>, events=POLLIN}], 1, 2) = 1 ([{fd=9, revents=POLLIN}])", true),
        ("poll([{fd=9, events=POLLIN}], 1, 3) = 0 (Timeout)", false),
        ("poll([{fd=9, events=POLLIN}], 1, -1) = 1", false),
        ("ppoll([{fd=9, events=POLLIN}], 1, {tv_sec=0, tv_nsec=0}, NULL, 8) = 0 (Timeout)", true),
        (
            "ppoll([{fd=9, events=POLLIN}], 1, {tv_sec=0, tv_nsec=2000000}, NULL, 8) = 1 \
             ([{fd=9, revents=POLLIN}], left {tv_sec=0, tv_nsec=1})",
            true,
        ),
        ("ppoll([{fd=9, events=POLLIN}], 1, {tv_sec=1, tv_nsec=0}, NULL, 8) = 0", false),
        ("ppoll([{fd=9, events=POLLIN}], 1, {tv_sec=0, tv_nsec=5000000}, NULL, 8) = 0", false),
        ("ppoll([{fd=9, events=POLLIN}], 1, NULL, NULL, 8) = 1", false),
    ] {
        assert_eq!(is_short(call), expected, "{call}");
    }
}

#[test]
fn after_ready_no_call_of_the_loop_can_wait_for_a_file_a_name_or_a_program() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::start(&folder).unwrap();
    let (plain, behind) =
        (Sink::start(Manner::Record).unwrap(), Sink::start(Manner::Record).unwrap());
    let proxy = TlsProxy::start(&folder, behind.port).unwrap();
    // A quarter of the window is the time from one renewal to the next.
    let window = "resend_window = \"8s\"\n";
    let tls = format!("tls = true\nca_file = {:?}\nreconnect_every = \"5s\"\n", proxy.authority.ca);
    let toml = |more: &str| {
        format!(
            "{more}[slurm]\ntimeout = \"3s\"\n{}[queue]\n{window}dir = {:?}\n[log]\nlevel = \
             \"debug\"\n{}reconnect_every = \"5s\"\n{}{tls}{}[collectors.nodes]\nenabled = true\ninterval = \"2s\"\n\
             [collectors.jobs]\nenabled = true\ninterval = \"2s\"\n",
            slurm.toml(),
            folder.path().join("queue"),
            destination("plain", &format!("localhost:{}", plain.port)),
            destination("tls", &format!("localhost:{}", proxy.port)),
            destination("gone", &format!("localhost:{}", free_port().unwrap())),
        )
    };
    let mut notify = Notify::listen(&folder).unwrap();
    let daemon = configured("1s", &folder, &toml("")).unwrap();
    let clock = Ahead::new(&folder).unwrap();
    let mut daemon = clock.over(daemon.env("NOTIFY_SOCKET", notify.path.as_os_str()));
    start(&folder, &mut daemon).unwrap();
    notify.message("READY=1", SOON).unwrap();
    let mut strace = trace(&folder, daemon.pid().unwrap()).unwrap();

    let said = |daemon: &Process, what: &str, times: usize| {
        let happened = || daemon.lines().iter().filter(|line| line.contains(what)).count() >= times;
        wait::until(&format!("{what:?}, {times} times"), SOON, happened).map(drop).unwrap();
    };
    said(&daemon, "reader started for Slurm", 2);
    // A reader that dies, and one that hangs.
    for signal in [proc::Signal::KILL, proc::Signal::STOP] {
        let daemon = daemon.pid().unwrap();
        let reader = proc::children(daemon)[0];
        proc::signal(reader, signal).unwrap();
        let replaced = || {
            let readers = proc::children(daemon);
            readers.len() == 2 && !readers.contains(&reader)
        };
        wait::until("another reader", SOON, replaced).unwrap();
    }
    slurm.configure("# another\n").unwrap();
    said(&daemon, "slurm.conf has changed", 1);
    // Reloads: the same, a wrong one, another interval, another Slurm.
    for (more, becomes) in [("", "in use"), ("wrong\n", "refused"), ("prefix = \"p\"\n", "in use")]
    {
        let skip = daemon.lines().len();
        fs::write(folder.path().join("daemon.toml"), format!("interval = \"1s\"\n{}", toml(more)))
            .unwrap();
        daemon.signal(proc::Signal::HUP).unwrap();
        daemon.line_after(skip, &format!("configuration is {becomes}"), SOON).unwrap();
    }
    let changed = toml("").replace("timeout = \"3s\"", "timeout = \"4s\"");
    fs::write(folder.path().join("daemon.toml"), format!("interval = \"2s\"\n{changed}")).unwrap();
    daemon.signal(proc::Signal::HUP).unwrap();
    said(&daemon, "configuration is in use", 3);
    // Connections that end, and certificates that change.
    plain.hang_up();
    fs::write(&proxy.authority.ca, fs::read(&proxy.authority.ca).unwrap()).unwrap();
    let renewed = [&plain, &behind].map(|sink| sink.accepted() + 3);
    wait::until("renewals", SOON, || {
        plain.accepted() >= renewed[0] && behind.accepted() >= renewed[1]
    })
    .unwrap();
    // A flood of the log, from clients that do not wait for the status.
    let floods = daemon.lines().len() + 2000;
    while daemon.lines().len() < floods {
        (0..100).for_each(|_| drop(UnixStream::connect(runtime(&folder).join("status.sock"))));
    }
    // Each line of the log and each status has a local time, and so has what systemd is told.
    clock.expire(LONG).unwrap();
    for _ in 0..3 {
        let skip = notify.messages().len();
        status(&folder, &[]).unwrap();
        notify.message_after(skip, "gone not connected since ", SOON).unwrap();
    }

    is_harmless(&mut strace, &["epoll_wait(", "CLONE_THREAD", "accept4(", "sendto(", "SIGKILL"]);
    assert!(daemon.stop().unwrap().status.success());
}

/// Ends the trace, which has these signs and no harmful call.
pub(crate) fn is_harmless(strace: &mut Process, signs: &[&str]) {
    strace.signal(proc::Signal::INT).unwrap();
    strace.wait(SOON).unwrap();
    let lines = strace.lines();
    let calls: Vec<_> =
        lines.iter().filter(|line| line.contains('(') && !line.starts_with("strace: ")).collect();
    for sign in signs {
        assert!(
            calls.iter().any(|call| call.contains(sign)),
            "{sign}: this is no trace of the loop"
        );
    }
    let mut harmful: BTreeMap<String, usize> = BTreeMap::new();
    for call in calls {
        if let Some(harm) = harm(call) {
            *harmful.entry(format!("{harm}: {call}")).or_default() += 1;
        }
    }
    assert!(harmful.is_empty(), "{harmful:#?}");
}

/// The system calls of the thread with this id, and of no other.
pub(crate) fn trace(folder: &Folder, thread: u32) -> Result<Process> {
    let strace = Process::new(folder, "trace", find_program("strace")?);
    // The contents of buffers would be taken for names.
    let mut strace = strace.args(["-y", "-s", "0", "-p", &thread.to_string()]);
    strace.spawn()?;
    strace.line("attached", SOON)?;
    Ok(strace)
}
