//! The sandbox keeps its promises: it stays on the loopback address, and leaves nothing.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::proc;
use sandbox::{
    Accounting, Carbon, Folder, Sandbox, Series, Slurm, Space, carbon, find_program, is_root,
    slurm_graphite, wait,
};

use super::SOON;

#[test]
fn all_is_on_the_loopback_address() {
    let (sandbox, folder) = (Sandbox::start().unwrap(), Folder::new().unwrap());
    let _accounting = Accounting::start(&folder).unwrap();
    sandbox.slurm.submit(&["--wrap", "sleep 100"]).unwrap();
    job_runs(&sandbox.folder, "sleep").unwrap();
    for (folder, least) in [(&sandbox.folder, 5), (&folder, 4)] {
        let sockets: Vec<_> = folder.processes().into_iter().flat_map(bound_sockets).collect();
        assert!(
            sockets.len() >= least,
            "three of carbon, those of Slurm and its database: {sockets:?}"
        );
        for (pid, address) in sockets {
            // 127.0.0.1 in the format of the kernel's tables.
            assert!(address.starts_with("0100007F:"), "process {pid} has a socket on {address}");
        }
    }
}

#[test]
fn a_space_whose_script_fails_is_a_failure_and_no_skip() {
    for make in [Space::new, Space::of_root] {
        if make(&Folder::new().unwrap(), "true").unwrap().is_some() {
            let error = make(&Folder::new().unwrap(), "mkfs.nonsense").unwrap_err();
            assert!(format!("{error:?}").contains("mkfs.nonsense"), "{error:?}");
        }
    }
}

/// slurmctld ends over it with 27 lines, none of which says so.
#[test]
fn a_host_name_that_does_not_resolve_is_one_line_with_the_remedy() {
    let folder = Folder::new().unwrap();
    let demo = slurm_graphite().unwrap().with_file_name("demo").display().to_string();
    let apart: &[&str] = if is_root() { &["--uts"] } else { &["--map-root-user", "--uts"] };
    let mut command = sandbox::command(folder.path(), &find_program("unshare").unwrap());
    let output = command
        .args(apart)
        .args(["sh", "-c", "hostname nowhere.invalid; exec \"$0\"", &demo])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("echo '127.0.1.1 nowhere.invalid' >> /etc/hosts"), "{said}");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
}

/// As a failed test does.
#[test]
fn nothing_is_left_after_a_panic() {
    let (send, receive) = std::sync::mpsc::channel();
    let failed = std::thread::spawn(move || {
        let sandbox = Sandbox::start().unwrap();
        sandbox.slurm.submit(&["--wrap", "trap '' TERM; sleep 100"]).unwrap();
        let job = job_runs(&sandbox.folder, "sleep").unwrap();
        let step = job_runs(&sandbox.folder, "slurmstepd").unwrap();
        let processes = sandbox.folder.processes();
        assert!(
            processes.contains(&job) && processes.contains(&step),
            "{job} and {step}: {processes:?}"
        );
        send.send((sandbox.folder.path().to_owned(), processes)).unwrap();
        panic!("and drops the sandbox");
    });
    assert!(failed.join().is_err());
    let (folder, processes) = receive.recv().unwrap();
    nothing_is_left(&folder, &processes).unwrap();
}

/// The owner is this same test in another process, which gets no chance to clean up.
#[test]
fn nothing_is_left_after_sigkill() {
    let note = std::env::temp_dir().join(format!("slurm-graphite-note-{}", std::process::id()));
    #[expect(clippy::disallowed_methods, reason = "sandbox::command would put it into a sandbox")]
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "sandbox_itself::an_owner_that_is_killed"])
        .env("SANDBOX_NOTE", &note)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let text = wait::until_some("the other test's note", SOON * 3, || {
        fs::read_to_string(&note).ok().filter(|text| text.ends_with('\n'))
    });
    owner.kill().unwrap();
    owner.wait().unwrap();
    let text = text.unwrap();
    fs::remove_file(&note).unwrap();
    let mut words = text.split_whitespace();
    let folder = Path::new(words.next().unwrap());
    let processes: Vec<u32> = words.map(|word| word.parse().unwrap()).collect();
    assert!(processes.len() >= 7, "{processes:?}");
    wait::until("the guard's work", SOON, || !folder.exists()).unwrap();
    nothing_is_left(folder, &processes).unwrap();
}

#[test]
#[ignore = "started by nothing_is_left_after_sigkill"]
fn an_owner_that_is_killed() {
    let note = std::env::var_os("SANDBOX_NOTE").expect("started by the other test");
    let sandbox = Sandbox::start().unwrap();
    sandbox.slurm.submit(&["--wrap", "sleep 100"]).unwrap();
    job_runs(&sandbox.folder, "sleep").unwrap();
    let processes: Vec<String> = sandbox.folder.processes().iter().map(u32::to_string).collect();
    fs::write(note, format!("{} {}\n", sandbox.folder.path().display(), processes.join(" ")))
        .unwrap();
    wait::pause(Duration::from_secs(60));
}

#[test]
fn a_program_that_cannot_start_says_why() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    fs::write(slurm.conf(), "ClusterName=broken\nNoSuchKey=1\n").unwrap();
    let error = slurm.slurmctld.start().unwrap_err().to_string();
    assert!(error.contains("slurmctld ended") && error.contains("NoSuchKey"), "{error}");
    let error = find_program("sturmctld").unwrap_err().to_string();
    assert!(error.contains("not installed") && error.contains("make packages"), "{error}");
}

#[test]
fn whisper_is_read_as_python_reads_it() {
    let folder = Folder::new().unwrap();
    let options = carbon::Options::keeping("2s:20s,10s:1h");
    let mut carbon = Carbon::start(&folder, "carbon", &options).unwrap();
    let now = sandbox::unix_seconds() / 2 * 2;
    let mut stream = TcpStream::connect(("127.0.0.1", carbon.line_port)).unwrap();
    // With holes, with two points in one slot, and with points that are only in the coarse archive.
    for (age, value) in
        [(60, 1.5), (13, 9.0), (12, -2.25), (8, 1e18), (7, 1e-18), (4, 7.0), (3, 8.0)]
    {
        writeln!(stream, "a.b.c {value} {}", now - age).unwrap();
    }
    drop(stream);
    wait::until("the last point", SOON, || {
        carbon.series("a.b.c").is_ok_and(|series| series.at(now - 4) == Some(8.0))
    })
    .unwrap();
    carbon.process.stop().unwrap();
    assert_eq!(carbon.paths().keys().collect::<Vec<_>>(), ["a.b.c"]);

    let ours = carbon.series("a.b.c").unwrap();
    let text = python(&folder, &carbon.file("a.b.c"), now).unwrap();
    let mut words = text.split_whitespace();
    let (from, step): (u64, u64) =
        (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap());
    let theirs: Vec<Option<f64>> = words.map(|word| word.parse().ok()).collect();
    assert_eq!(ours.step, step);
    let slots = ours.slots(from, from + step * (theirs.len() as u64 - 1));
    assert_eq!(slots.iter().map(|slot| slot.1).collect::<Vec<_>>(), theirs);
    assert!(theirs.iter().flatten().count() == 4, "{theirs:?}");
    assert_eq!(ours.holes(), 2);
    assert_eq!(ours.last().unwrap().1, 8.0);
    assert!(Series::read(Path::new("/dev/null")).is_err());
}

/// `from step value…` of the finest archive, as read by Debian's whisper.
fn python(folder: &Folder, file: &Path, now: u64) -> Result<String> {
    let script = format!(
        "import whisper\n(f, u, s), v = whisper.fetch('{}', {now} - 19, {now} + 1, {now})\n\
            print(f, s, *v)",
        file.display()
    );
    let python = Path::new("/usr/bin/python3");
    sandbox::output(sandbox::command(folder.path(), python), ["-c", &script])
}

/// Waits until a process whose command line begins with `name` runs in the sandbox.
fn job_runs(folder: &Folder, name: &str) -> Result<u32> {
    let named = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(name))
    };
    wait::until_some(&format!("a job's {name}"), SOON, || {
        folder.processes().into_iter().find(named)
    })
}

fn nothing_is_left(folder: &Path, processes: &[u32]) -> Result<()> {
    ensure!(!folder.exists(), "{} is left", folder.display());
    for &pid in processes {
        wait::until(&format!("the end of process {pid}"), SOON, || !proc::alive(pid))?;
    }
    let name = folder.as_os_str().as_encoded_bytes();
    for entry in fs::read_dir("/proc")?.flatten() {
        for file in ["cmdline", "environ", "mountinfo"] {
            let text = fs::read(entry.path().join(file)).unwrap_or_default();
            ensure!(
                !text.windows(name.len()).any(|part| part == name),
                "{} is left",
                entry.path().display()
            );
        }
    }
    Ok(())
}

/// The local addresses of a process's listening TCP and bound UDP sockets, in the kernel's
/// hexadecimal form.
fn bound_sockets(pid: u32) -> Vec<(u32, String)> {
    let sockets = proc::links(pid);
    let mut found = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        for line in
            fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default().lines().skip(1)
        {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, state, _, _, _, _, _, inode, ..] = fields.as_slice() else {
                continue;
            };
            let bound = table.starts_with("udp") || *state == "0A";
            if bound && sockets.contains(&format!("socket:[{inode}]")) {
                found.push((pid, (*local).to_owned()));
            }
        }
    }
    found
}
