//! Whose folders are believed: what root and others start, read and write because of where it is.
//! The trees are made with real owners, and whether a program was started is seen by a file that it
//! leaves, and by strace(1).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sandbox::{Finished, Folder, Invocation, NOBODY, find_program, slurm_graphite};

/// A user of no name, who has installed the program or runs the daemon.
const SW: u32 = 31_234;

const ROOT: u32 = 0;

/// Makes the programs and files of a tree, below $T.
const TOOLS: &str = "
program() { install -D -m 755 \"$PROGRAM\" \"$1/slurm-graphite\"; }
mark() { mkdir -p \"$(dirname \"$1\")\"; printf '#!/bin/sh\\n: > %s/$(id -u)-$$\\nexit 1\\n' \"$MARKS\" > \"$1\"
  chmod 755 \"$1\"; }
reader() { mark \"$1/libexec/slurm-graphite/slurm-graphite-reader\"; }
config() { mkdir -p \"$1/etc/slurm-graphite\"
  printf '[slurm]\\nreader = \"%s\"\\n' \"$2\" > \"$1/etc/slurm-graphite/slurm-graphite.toml\"; }
umask 022; mkdir \"$T\"; cd \"$T\"
";

struct Tree {
    name: &'static str,
    script: &'static str,
    /// The folder of the program.
    program: &'static str,
    /// Who runs it, with which group.
    users: &'static [(u32, u32)],
}

const fn tree(
    name: &'static str,
    program: &'static str,
    users: &'static [(u32, u32)],
    script: &'static str,
) -> Tree {
    Tree { name, script, program, users }
}

const ANYBODY: &[(u32, u32)] = &[(ROOT, ROOT), (NOBODY, NOBODY)];

/// Those whose reader or configuration is used.
const BELIEVED: [Tree; 11] = [
    tree(
        "below /tmp",
        "tmp/x/bin",
        ANYBODY,
        "
        mkdir -m 1777 tmp; program tmp/x/bin; reader tmp/x",
    ),
    tree(
        "/opt",
        "opt/sg/bin",
        ANYBODY,
        "
        program opt/sg/bin; reader opt/sg",
    ),
    tree(
        "another user's installation",
        "sw/bin",
        ANYBODY,
        "
        program sw/bin; reader sw; chown -R 31234:31234 sw",
    ),
    tree(
        "its configuration",
        "sw/bin",
        ANYBODY,
        "
        program sw/bin; mark own; config sw $T/own; chown -R 31234:31234 sw",
    ),
    tree(
        "/nix/store",
        "store/a/bin",
        ANYBODY,
        "
        mkdir store; chgrp 30000 store; chmod 1775 store
        program store/a/bin; reader store/b; ln -s ../b/libexec store/a/libexec",
    ),
    tree(
        "a build with umask 002",
        "debug",
        &[(ROOT, ROOT), (SW, SW), (NOBODY, NOBODY)],
        "
        umask 002; program debug; mark debug/slurm-graphite-reader; chmod -R g+w .
        chown -R 31234:31234 debug",
    ),
    tree(
        "/usr/local",
        "local/bin",
        ANYBODY,
        "
        program local/bin; reader local
        find local -type d -exec chgrp 50 {} + -exec chmod 2775 {} +",
    ),
    tree(
        "an image for any user of group 0",
        "app/bin",
        &[(100_700, ROOT)],
        "
        program app/bin; reader app; chmod -R g=u app",
    ),
    tree(
        "its configuration alone",
        "app/bin",
        &[(100_700, ROOT)],
        "
        program app/bin; mark own; config app $T/own; chmod -R g=u app/etc",
    ),
    tree(
        "the service's user",
        "pkg/bin",
        &[(SW, SW)],
        "
        program pkg/bin; mark own; config pkg $T/own; chown -R 31234 pkg/etc",
    ),
    tree(
        "one's own reader in /tmp",
        "tmp",
        &[(NOBODY, NOBODY)],
        "
        mkdir -m 1777 tmp; program tmp; mark tmp/slurm-graphite-reader-99
        chown 65534 tmp/slurm-graphite-reader-99",
    ),
];

/// Those in which somebody else could have put it there.
const PLANTED: [Tree; 9] = [
    tree(
        "a reader in /tmp",
        "tmp",
        &[(ROOT, ROOT), (SW, SW)],
        "
        mkdir -m 1777 tmp; program tmp; mark tmp/slurm-graphite-reader-99
        chown 65534 tmp/slurm-graphite-reader-99",
    ),
    tree(
        "libexec in /tmp",
        "tmp/bin",
        &[(ROOT, ROOT), (SW, SW)],
        "
        mkdir -m 1777 tmp; program tmp/bin; reader tmp; chown -R 65534 tmp/libexec",
    ),
    tree(
        "libexec in /tmp with root's file",
        "tmp/bin",
        ANYBODY,
        "
        mkdir -m 1777 tmp; program tmp/bin; reader tmp; chown 31234 tmp/libexec",
    ),
    tree(
        "etc in /tmp",
        "tmp/bin",
        &[(ROOT, ROOT), (SW, SW)],
        "
        mkdir -m 1777 tmp; program tmp/bin; mark own; config tmp $T/own; chown -R 65534 tmp/etc",
    ),
    tree(
        "a folder for everybody",
        "opt/bin",
        ANYBODY,
        "
        program opt/bin; reader opt; chmod 777 opt/libexec/slurm-graphite",
    ),
    tree(
        "a folder of another group",
        "opt/bin",
        ANYBODY,
        "
        program opt/bin; reader opt; chgrp 50 opt/libexec; chmod 775 opt/libexec",
    ),
    tree(
        "a link to another's folder",
        "opt/bin",
        ANYBODY,
        "
        program opt/bin; reader theirs; mkdir opt/libexec
        ln -s $T/theirs/libexec/slurm-graphite opt/libexec/; chown 31234 theirs/libexec",
    ),
    tree(
        "another's link",
        "opt/bin",
        ANYBODY,
        "
        program opt/bin; reader other; ln -s ../other/libexec opt/libexec
        chown -h 31234 opt/libexec",
    ),
    tree(
        "the service's user, for root",
        "pkg/bin",
        &[(ROOT, ROOT)],
        "
        program pkg/bin; mark own; config pkg $T/own; chown -R 31234 pkg/etc",
    ),
];

/// Every command that looks for a configuration or a reader, and says what it passes over.
const LOOKING: [&[&str]; 5] =
    [&["--version"], &["stats"], &["once"], &["check"], &["check", "--connect"]];
const OTHERS: [&[&str]; 6] =
    [&["-V"], &["status"], &["metrics"], &["carbon-rules"], &["stats", "--jobs"], &["run"]];

/// Makes the tree; returns the folder of the marks.
fn make(folder: &Folder, tree: &Tree, index: usize) -> (String, String) {
    let root = folder.path().join(format!("tree{index}")).display().to_string();
    let marks = folder.path().join(format!("marks{index}"));
    fs::create_dir(&marks).unwrap();
    fs::set_permissions(&marks, fs::Permissions::from_mode(0o777)).unwrap();
    let marks = marks.display().to_string();
    let script = format!("set -e{TOOLS}{}", tree.script);
    let shell = find_program("sh").unwrap();
    let program = slurm_graphite().unwrap().display().to_string();
    Invocation::of_program(folder, &shell, &["-c", &script])
        .unwrap()
        .env("T", &root)
        .env("MARKS", &marks)
        .env("PROGRAM", &program)
        .succeed()
        .unwrap_or_else(|error| panic!("{}: {error:#}", tree.name));
    (format!("{root}/{}/slurm-graphite", tree.program), marks)
}

/// Runs the program as this user, without the sandbox's default configuration.
fn run_as(folder: &Folder, (user, group): (u32, u32), program: &str, args: &[&str]) -> Finished {
    let ids = [format!("--reuid={user}"), format!("--regid={group}")];
    let env = ["env", "-u", "SLURM_GRAPHITE_CONFIG", "timeout", "20", program];
    let words = [&[&*ids[0], &*ids[1], "--clear-groups"][..], &env, args].concat();
    let setpriv = find_program("setpriv").unwrap();
    Invocation::of_program(folder, &setpriv, &words).unwrap().finish().unwrap()
}

fn marks(folder: &str) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn what_only_trusted_users_can_have_put_there_is_started() {
    let folder = Folder::new().unwrap();
    for (index, tree) in BELIEVED.iter().enumerate() {
        let (program, started) = make(&folder, tree, index);
        for &user in tree.users {
            for command in ["--version", "stats"] {
                let before = marks(&started);
                let said = run_as(&folder, user, &program, &[command]);
                assert!(marks(&started) > before, "{}, {user:?}: {said:?}", tree.name);
                let all = format!("{}{}", said.stdout, said.stderr);
                assert!(!all.contains("passed over"), "{}: {all}", tree.name);
            }
        }
    }
}

/// Root of a user namespace sees the host's root as nobody.
#[test]
fn a_user_namespace_starts_the_hosts_reader() {
    let folder = Folder::new().unwrap();
    let (program, started) = make(&folder, &BELIEVED[1], 0);
    let words = ["--reuid=31234", "--regid=31234", "--clear-groups", "unshare", "-r"];
    let command = ["env", "-u", "SLURM_GRAPHITE_CONFIG", &program, "--version"];
    let setpriv = find_program("setpriv").unwrap();
    let words = [&words[..], &command].concat();
    let said = Invocation::of_program(&folder, &setpriv, &words).unwrap().finish().unwrap();
    assert!(marks(&started) > 0, "{said:?}");
}

#[test]
fn what_another_could_have_put_there_is_passed_over_in_words_by_every_command() {
    let folder = Folder::new().unwrap();
    for (index, tree) in PLANTED.iter().enumerate() {
        let (program, started) = make(&folder, tree, index);
        for &user in tree.users {
            for args in LOOKING {
                let said = run_as(&folder, user, &program, args);
                let what = format!("{}, {user:?}, {args:?}: {said:?}", tree.name);
                assert_eq!(marks(&started), 0, "{what}");
                let all = format!("{}{}", said.stdout, said.stderr);
                // Without --connect, no reader is looked for.
                let is_silent = args == ["check"] && !tree.script.contains("config");
                assert!(all.contains("passed over") || is_silent, "{what}");
            }
        }
    }
    // The others, for a reader and for a configuration.
    for index in [1, 3] {
        let (program, started) = make(&folder, &PLANTED[index], index + PLANTED.len());
        for args in OTHERS {
            let said = run_as(&folder, (ROOT, ROOT), &program, args);
            assert_eq!(marks(&started), 0, "{args:?}: {said:?}");
        }
    }
}

/// Traps that another user may have prepared in folders of theirs for root's commands: pipes that
/// hang, links that lead to root's files, and names that will be used.
const PREPARED: &str = "
mkdir -m 1777 tmp; program tmp/bin; reader tmp; mark own; config tmp $T/own
mark tmp/bin/slurm-graphite-reader-99; mkdir tmp/queue tmp/run root
for name in queue.lock queue.reserve reader queue-00000000000000000001.log; do
  mkfifo tmp/queue/$name; done
mkfifo tmp/run/status.lock tmp/run/status.new tmp/run/protocol-numbers.json
ln -s $T/root tmp/led
mkdir tmp/carbon; mkfifo tmp/carbon/storage-schemas.conf
chown -hR 31234 tmp/libexec tmp/etc tmp/queue tmp/run tmp/led tmp/carbon tmp/bin/*99
";

/// The commands, as root, that name those folders. `run` is refused.
const ROOTS: [&[&str]; 14] = [
    &["--version"],
    &["stats"],
    &["stats", "--jobs"],
    &["stats", "--finished"],
    &["once", "--queue-dir", "$T/tmp/queue"],
    &["check", "--queue-dir", "$T/tmp/queue"],
    &["check", "--connect", "--queue-dir", "$T/tmp/queue"],
    &["check", "--connect", "--queue-dir", "$T/tmp/led"],
    &["check", "--connect", "--storage-schemas", "$T/tmp/carbon/storage-schemas.conf"],
    &["status"],
    &["carbon-rules"],
    &["carbon-rules", "--write", "$T/tmp/carbon"],
    &["run", "--carbon", "127.0.0.1:1", "--queue-dir", "$T/tmp/queue"],
    &["run", "--carbon", "127.0.0.1:1"],
];

/// The reason why root must not make this call, which names a file below another user's folder;
/// `None` if it may.
fn harm(call: &str) -> Option<&'static str> {
    let name = call.split('(').next().unwrap_or_default().rsplit(' ').next().unwrap_or_default();
    match name {
        "open" | "openat" if call.contains("O_PATH") => None,
        "open" | "openat" if call.contains("O_CREAT") => Some("creates a file"),
        "open" | "openat" if call.contains("O_WRONLY") || call.contains("O_RDWR") => {
            Some("opens a file for writing")
        }
        // A folder is listed.
        "open" | "openat" if call.contains("O_DIRECTORY") => None,
        "open" | "openat" if !call.contains("O_NONBLOCK") => Some("would wait for a pipe"),
        "open" | "openat" | "access" | "faccessat" | "faccessat2" | "statx" | "readlink"
        | "readlinkat" | "newfstatat" | "statfs" | "fstatfs" | "stat" | "lstat" | "connect" => None,
        _ => Some("is not known to be harmless"),
    }
}

#[test]
fn root_creates_writes_starts_and_believes_nothing_in_another_users_folders() {
    let folder = Folder::new().unwrap();
    let tree = tree("prepared", "tmp/bin", ANYBODY, PREPARED);
    let (program, started) = make(&folder, &tree, 0);
    let root = folder.path().join("tree0");
    let text = root.display().to_string();
    let theirs =
        ["libexec", "etc", "queue", "run", "led", "carbon", "bin/slurm-graphite-reader-99"]
            .map(|name| format!("{text}/tmp/{name}"));
    let before = files(&folder, &root);
    let mut looked = 0;
    for (index, args) in ROOTS.iter().enumerate() {
        let args: Vec<String> = args.iter().map(|arg| arg.replace("$T", &text)).collect();
        let trace = folder.path().join(format!("trace{index}")).display().to_string();
        let run = format!("RUNTIME_DIRECTORY={text}/tmp/run");
        let mut words = vec!["-u", "SLURM_GRAPHITE_CONFIG", &run, "timeout", "8", "strace", "-f"];
        words.extend([
            "-qq",
            "-y",
            "-s",
            "300",
            "-e",
            "trace=%file,connect",
            "-o",
            &trace,
            &program,
        ]);
        words.extend(args.iter().map(String::as_str));
        let env = find_program("env").unwrap();
        let said = Invocation::of_program(&folder, &env, &words).unwrap().finish().unwrap();
        // A daemon runs on, from memory.
        assert!(said.code != Some(124) || args.len() == 3, "{args:?} hangs: {said:?}");
        assert_eq!(marks(&started), 0, "{args:?}: {said:?}");
        let calls = fs::read_to_string(trace).unwrap();
        let named: Vec<_> =
            calls.lines().filter(|call| theirs.iter().any(|path| call.contains(path))).collect();
        // The program is told their names.
        let named = named.into_iter().filter(|call| !call.contains(&format!("execve(\"{program}")));
        for call in named {
            looked += 1;
            assert_eq!(harm(call), None, "{args:?}: {call}");
        }
    }
    assert!(looked > 50, "only {looked} calls");
    assert_eq!(files(&folder, &root), before, "nothing is there that was not");
}

/// Every name below a folder with its kind, size and owner.
fn files(folder: &Folder, root: &Path) -> String {
    let find = find_program("find").unwrap();
    let args = [&*root.display().to_string(), "-printf", "%p %y %s %u\n"];
    let mut lines: Vec<_> = Invocation::of_program(folder, &find, &args)
        .unwrap()
        .succeed()
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines.join("\n")
}
