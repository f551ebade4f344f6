//! `stats --watch` in a pseudo-terminal, and with output to a pipe.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use sandbox::{Folder, Invocation, Slurm, command, slurm_graphite, wait};

use super::Terminal;
use crate::SOON;

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

struct Watched {
    child: Child,
    /// Our end of the terminal, and the program's.
    ours: OwnedFd,
    theirs: OwnedFd,
    before: Termios,
    drawn: Arc<Mutex<Vec<u8>>>,
}

impl Watched {
    fn start(folder: &Folder, slurm: &Slurm, rows: u16, columns: u16) -> Result<Self> {
        let Terminal { ours, theirs } = Terminal::open()?;
        tcsetwinsize(
            &theirs,
            Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 },
        )?;
        let before = tcgetattr(&theirs)?;
        let mut command = command(folder.path(), &slurm_graphite()?);
        command
            .args(["stats", "--watch", "1", "--slurm-conf"])
            .arg(slurm.conf())
            .env("TERM", "xterm");
        command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(Stdio::null());
        let child = command.spawn()?;
        let drawn = Arc::new(Mutex::new(Vec::new()));
        let (mut from, into) = (File::from(ours.try_clone()?), Arc::clone(&drawn));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                into.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Ok(Self { child, ours, theirs, before, drawn })
    }

    fn drawn(&self) -> String {
        String::from_utf8_lossy(&self.drawn.lock().unwrap()).into_owned()
    }

    /// The lines of the last complete screen, without colours and styles.
    fn screen(&self) -> Vec<String> {
        let drawn = self.drawn();
        let last = drawn.rsplit("\x1b[H").nth(1).unwrap_or_default();
        let looks = ["\x1b[7m", "\x1b[1m", "\x1b[2m", "\x1b[0m", "\x1b[K", "\x1b[J"];
        last.split("\r\n")
            .map(|line| looks.iter().fold(line.to_owned(), |line, look| line.replace(look, "")))
            .map(|line| line.trim_end_matches('\r').to_owned())
            .collect()
    }

    /// Waits until the second line begins so.
    fn says(&self, start: &str) {
        self.until(start, |screen| screen.get(1).is_some_and(|line| line.starts_with(start)));
    }

    fn until(&self, what: &str, seen: impl Fn(&[String]) -> bool) {
        let found = wait::until(what, SOON, || seen(&self.screen()));
        found.with_context(|| self.screen().join("\n")).unwrap();
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The program must end successfully and restore the terminal.
    fn ends(mut self) {
        let status = wait::until_some("its end", SOON, || self.child.try_wait().unwrap()).unwrap();
        assert_eq!(status.code(), Some(0));
        wait::until("the first screen again", SOON, || self.drawn().ends_with(LEAVE)).unwrap();
        let after = tcgetattr(&self.theirs).unwrap();
        assert_eq!(format!("{after:?}"), format!("{:?}", self.before));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_terminal_shows_what_happens_and_is_given_back_however_it_ends_and_a_pipe_gets_blocks() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::start(&folder).unwrap();
    let watched = Watched::start(&folder, &slurm, 24, 80).unwrap();
    watched.until("figures of an interval", |screen| {
        slurm.run("squeue", &[]).unwrap();
        let rates = |line: &String| line.starts_with("REQUEST_JOB_INFO ") && !line.contains(" - ");
        screen.iter().any(rates) && screen.iter().any(|line| line.starts_with("RPCs by user, 1 s"))
    });
    let screen = watched.screen();
    assert!(screen[0].starts_with("slurmctld of sandbox "), "{screen:#?}");
    assert!(
        screen.len() <= 24 && screen.iter().all(|line| line.chars().count() <= 80),
        "{screen:#?}"
    );
    assert!(watched.drawn().starts_with(ENTER));

    let small = Winsize { ws_row: 8, ws_col: 40, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&watched.theirs, small).unwrap();
    watched.signal(Signal::WINCH);
    watched.until("a smaller drawing", |screen| {
        screen.len() == 8 && screen.iter().all(|line| line.chars().count() <= 40)
    });

    // It hangs: the wait is counted while it lasts, and the time without a reading from the last
    // one.
    let hung = std::time::Instant::now();
    slurm.slurmctld.freeze().unwrap();
    let waits = |screen: &[String]| -> Option<u64> {
        screen.get(1)?.strip_prefix("waiting for slurmctld for ")?.strip_suffix(" s")?.parse().ok()
    };
    watched.until("a wait of three seconds", |screen| waits(screen) >= Some(3));
    let waited = waits(&watched.screen()).unwrap();
    // The request may have been under way before.
    assert!(waited <= hung.elapsed().as_secs() + 2, "{waited} s are more than it hung");
    slurm.slurmctld.thaw().unwrap();
    watched.says("server threads ");

    slurm.slurmctld.stop().unwrap();
    watched.says("no reading for ");
    slurm.slurmctld.start().unwrap();
    watched.says("server threads ");
    rustix::io::write(&watched.ours, b"q").unwrap();
    watched.ends();

    for signal in [Signal::TERM, Signal::INT] {
        let watched = Watched::start(&folder, &slurm, 24, 80).unwrap();
        watched.until("a drawing", |screen| screen.len() > 5);
        watched.signal(signal);
        watched.ends();
    }
    into_a_pipe(&folder, &mut slurm);
}

/// Block after block, until nobody reads them.
fn into_a_pipe(folder: &Folder, slurm: &mut Slurm) {
    let (conf, graphite) =
        (slurm.conf().display().to_string(), slurm_graphite().unwrap().display().to_string());
    let piped_into = |sed: &str| {
        let text = format!("'{graphite}' stats --watch 1 --slurm-conf '{conf}' | sed '{sed}'");
        Invocation::of_program(folder, "/bin/sh".as_ref(), &["-c", &text])
            .unwrap()
            .finish()
            .unwrap()
    };
    let run = piped_into("/On the right/,/by user/!d; /by user/q");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stdout.contains("On the right    the last "), "{}", run.stdout);
    let cycles = run.stdout.lines().find(|line| line.starts_with("\tTotal cycles: ")).unwrap();
    assert!(cycles.split_whitespace().count() == 4 && cycles.ends_with(".00"), "{cycles:?}");
    let rpc = run.stdout.lines().find(|line| line.contains("REQUEST_STATS_INFO")).unwrap();
    assert!(rpc.contains(" count:") && rpc.contains(" per_minute:"), "{rpc}");

    slurm.slurmctld.freeze().unwrap();
    let run = piped_into("/for [3-9] s/q");
    let last = run.stdout.lines().last().unwrap_or_default();
    assert!(last.starts_with("waiting for slurmctld for "), "{run:?}");
}
