//! The reader as a process without a cluster: its arguments, its exit codes, what reaches stdout,
//! and that it dies with its parent. What it says about a real slurmctld is tested in the
//! workspace's `tests`.

use std::borrow::Cow;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{ChildStdout, Command, Output, Stdio};

use slurm_snapshot::{Answer, PROTOCOL};

const READER: &str = env!("CARGO_BIN_EXE_slurm-graphite-reader");

#[expect(clippy::disallowed_methods, reason = "the reader itself is what is tested")]
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_remove("SLURM_CONF")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs the reader with `arguments` on `input`.
fn run(arguments: &[&str], input: &str) -> io::Result<Output> {
    let mut reader = command(READER).args(arguments).spawn()?;
    // A reader that has rejected its arguments reads nothing.
    let _ = reader.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    reader.wait_with_output()
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A minimal slurm.conf for libslurm, plus `more`. Nothing listens there.
fn slurm_conf(name: &str, more: &str) -> io::Result<String> {
    let file = format!("{}/{name}.conf", env!("CARGO_TARGET_TMPDIR"));
    let least =
        "ClusterName=nobody\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nNodeName=n1\n";
    fs::write(&file, format!("{least}{more}"))?;
    Ok(file)
}

/// Reads the first line, and no byte more.
fn hello(stdout: &mut ChildStdout) -> io::Result<Answer> {
    let mut line = String::new();
    BufReader::with_capacity(1, stdout).read_line(&mut line)?;
    Answer::parse(line.as_bytes()).map_err(io::Error::other)
}

#[test]
fn bad_usage_is_64_and_says_what_was_wrong() {
    let output = run(&["--config", "x"], "").unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert_eq!(text(&output.stderr), "invalid option '--config': see --help\n");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn version_names_the_slurm_release() {
    let output = run(&["--version"], "").unwrap();
    assert_eq!(output.status.code(), Some(0));
    let release = slurm_reader::version::built_for();
    let expected =
        format!("slurm-graphite-reader {} for Slurm {release}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn a_configuration_that_libslurm_refuses_is_1_with_nothing_on_stdout() {
    let conf = slurm_conf("refused", "NoSuchKey=1\n").unwrap();
    let output = run(&["--conf", &conf], "{}\n").unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("NoSuchKey"), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn says_hello_and_ends_when_stdin_closes() {
    let conf = slurm_conf("closes", "").unwrap();
    let mut reader = command(READER).arg("--conf").arg(&conf).spawn().unwrap();
    let Answer::Hello(hello) = hello(reader.stdout.as_mut().unwrap()).unwrap() else {
        panic!("no hello")
    };
    assert_eq!(hello.protocol, PROTOCOL);
    assert_eq!(hello.release, Some(slurm_reader::version::built_for()));
    drop(reader.stdin.take());
    let output = reader.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn a_malformed_request_is_1() {
    let conf = slurm_conf("malformed", "").unwrap();
    let output = run(&["--conf", &conf], "what?\n").unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("malformed request: ") && stderr.contains("what?"), "{stderr}");
}

#[test]
fn a_reader_whose_stdin_was_closed_before_it_began_does_nothing() {
    let mut reader = command(READER);
    let (stdin, writer) = std::io::pipe().unwrap();
    drop(writer);
    let output = reader.stdin(stdin).args(["--conf", "/nonexistent/slurm.conf"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout) + text(&output.stderr), "");
}

/// The reader's stdin stays open while it waits for a request, so only the death signal can end it.
#[test]
fn dies_with_its_parent() {
    let conf = slurm_conf("parent", "").unwrap();
    let script = "exec 3<&0; \"$0\" --conf \"$1\" <&3 & wait";
    let mut parent = command("/bin/sh").args(["-c", script, READER]).arg(&conf).spawn().unwrap();
    let stdin = parent.stdin.take();
    let mut stdout = parent.stdout.take().unwrap();
    assert!(matches!(hello(&mut stdout), Ok(Answer::Hello(_))));
    parent.kill().unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "the reader has let go of stdout");
    parent.wait().unwrap();
    drop(stdin);
}
