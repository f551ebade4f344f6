//! Colours are for a terminal, unless NO_COLOR is set.

use sandbox::{Folder, Invocation, run};

use super::Terminal;

/// The output of `slurm-graphite` on a terminal, with this value of NO_COLOR.
fn on_a_terminal(folder: &Folder, args: &[&str], no_color: &str) -> String {
    let program = Invocation::new(folder, args).unwrap().env("NO_COLOR", no_color);
    Terminal::open().unwrap().output(program).unwrap()
}

const ESCAPE: char = '\x1b';

#[test]
fn marks_and_log_levels_have_colours_on_a_terminal_and_none_in_a_pipe_with_no_color_or_in_json() {
    let folder = Folder::new().unwrap();
    folder.write("default.toml", "").unwrap();
    let nowhere = ["--connect", "--slurm-conf", "/nowhere/slurm.conf", "--carbon", "127.0.0.1:9"];
    let check = [&["check"][..], &nowhere].concat();
    let shown = on_a_terminal(&folder, &check, "");
    for (mark, colour) in [("✓", 32), ("✗", 31), ("–", 33)] {
        let lines: Vec<_> = shown.lines().filter(|line| line.contains(mark)).collect();
        assert!(!lines.is_empty(), "no {mark}: {shown}");
        let painted = format!("{ESCAPE}[{colour}m{mark}{ESCAPE}[m ");
        assert!(lines.iter().all(|line| line.starts_with(&painted)), "{mark}: {shown:?}");
    }
    let log = ["once", "--slurm-conf", "/nowhere/slurm.conf", "--log-level", "debug"];
    let logged = on_a_terminal(&folder, &log, "");
    assert!(logged.contains(&format!("{ESCAPE}[34mDEBUG{ESCAPE}[0m")), "{logged:?}");

    let json = [&check[..], &["--json"]].concat();
    let json_log = [&log[..], &["--log-format", "json"]].concat();
    for (args, no_color) in [(&check, "1"), (&json, ""), (&log.to_vec(), "1"), (&json_log, "")] {
        let shown = on_a_terminal(&folder, args, no_color);
        assert!(
            shown.len() > 100 && !shown.contains(ESCAPE),
            "{args:?} with NO_COLOR={no_color}: {shown:?}"
        );
    }
    for args in [&check[..], &json, &log] {
        let piped = run(&folder, args).unwrap();
        let text = piped.stdout + &piped.stderr;
        assert!(text.len() > 100 && !text.contains(ESCAPE), "{args:?}: {text:?}");
    }
}
