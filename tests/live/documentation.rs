//! README.md, docs/ and the other documents: every command that can run here is run, every
//! configuration is valid, every link has a target.
//!
//! A block marked `sh` is a script. It runs in a sandbox with the hosts, files and users of the
//! documentation (stage.rs). Lines that cannot run here are in [`EXCEPTIONS`] with the reason.

mod blocks;
mod comments;
mod english;
mod licences;
mod log_messages;
mod names;
mod promises;
mod releases;
mod stage;
mod token_timer;

use std::collections::BTreeSet;
use std::fs;

use sandbox::{Folder, printed, wait};

use self::blocks::{Block, top};
use self::stage::Stage;

/// Beginnings of lines that do not run here, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "sudo apt-get install ",
        "changes this machine; the packages' own test installs them in a chroot",
    ),
    ("sudo dnf install ", "there is no EL here"),
    ("tar -xf slurm-graphite-", "there is no download here; the test of `make dist` unpacks it"),
    ("sudo sh slurm-graphite-", "the same"),
    ("sudo systemctl ", "there is no systemd to talk to"),
    (
        "slurm-graphite stats --watch",
        "goes on until somebody ends it; tests/live/commands/watch.rs has it",
    ),
    ("slurm-graphite status", "there is no daemon to ask; tests/live/status.rs has them"),
    (
        "sudo supervisorctl ",
        "there is no supervisord to talk to; the packages' own test starts one",
    ),
    (
        "sudo install -m 644 /usr/share/slurm-graphite/",
        "goes into directories of supervisord and Grafana",
    ),
    (
        "sudo sed -i -e 's/datasourceUid: graphite/",
        "its file is in a directory of Grafana; dashboards/rules.rs runs it",
    ),
    ("docker ", "there is no docker daemon here"),
    ("ps -eZ", "there is no SELinux here"),
    ("sudo restorecon ", "there is no SELinux here"),
    ("make build", "compiles for minutes; what `cargo build` built is taken"),
    ("make deb", "compiles for minutes; the packages' own test does it"),
    ("make dist", "compiles for minutes; `make dist-test` does it"),
    ("make rpm", "compiles for minutes; the packages' own test does it"),
    ("make test", "runs this test"),
    ("make demo", "another test of the same things, of half a minute"),
];

/// Languages of blocks that need not be run: the output of programs, and files for other programs.
const PASSIVE: [&str; 5] = ["text", "ini", "dockerfile", "yaml", "json"];

/// Beginnings of lines that show that a block without a language is a script with a forgotten mark.
const COMMANDS: &str =
    "$ |slurm-graphite |sudo |make |systemctl |apt|dnf |docker |curl |cp |whisper-|cargo ";

/// The command that would restart the sandbox's Carbon; it is the last line of its block.
const RESTART_CARBON: &str = "sudo systemctl restart carbon-cache\n";

fn runnable(script: &str, met: &mut BTreeSet<&'static str>) -> String {
    let mut left = String::new();
    for command in script.replace("\\\n", " ").lines() {
        match EXCEPTIONS.iter().find(|(start, _)| command.trim_start().starts_with(start)) {
            Some((start, _)) => drop(met.insert(start)),
            None => left += &format!("{command}\n"),
        }
    }
    left
}

fn has_commands(script: &str) -> bool {
    script.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
}

#[test]
fn every_command_runs_or_is_an_exception() {
    let mut stage = Stage::start().unwrap();
    stage.history().unwrap();
    let (mut met, mut document) = (BTreeSet::new(), String::new());
    let (mut ran, mut promises) = (0, 0);
    for Block { place, text, .. } in
        blocks::all().unwrap().into_iter().filter(|block| block.language == "sh")
    {
        let (name, _) = place.split_once(':').unwrap();
        if name != document {
            name.clone_into(&mut document);
            stage.install(name).unwrap();
        }
        let script = stage.adapted(&runnable(&text, &mut met));
        if has_commands(&script) {
            let said = stage.sh(&script, &place).unwrap();
            if script.contains("/render?") {
                let stored = || stage.has_point(&script, &place).unwrap();
                wait::until("the point of check in graphite-web", wait::LIMIT, stored).unwrap();
                promises += 1;
            }
            if script.contains("check --connect") && script.contains("--storage-schemas") {
                stage.is_as_documented(&said).unwrap();
                promises += 1;
            }
            if script.contains("whisper-info ") {
                // If the document is followed exactly, Carbon has the rules before the first point.
                assert!(said.contains("\nsecondsPerPoint: 30\n"), "{place}: {said}");
                promises += 1;
            }
            ran += 1;
        }
        if text.contains(RESTART_CARBON) {
            assert!(
                text.ends_with(RESTART_CARBON),
                "{place}: what follows would not see the restart"
            );
            stage.sandbox.carbon.process.stop().unwrap();
            stage.sandbox.carbon.process.start().unwrap();
        }
    }
    stage.history_is_mended().unwrap();
    assert!(ran > 5, "only {ran} blocks ran");
    assert_eq!(
        promises, 3,
        "of what check says, of its point in graphite-web, and of whisper's step"
    );
    for (start, reason) in EXCEPTIONS {
        assert!(met.contains(start), "no line begins with {start:?} any more ({reason})");
    }
}

#[test]
fn every_configuration_is_one_carbons_files_are_written_by_carbons_user_and_no_language_is_unknown()
{
    let folder = Folder::new().unwrap();
    let others = [
        "cd ",
        "for ",
        "done",
        "until ",
        "file=",
        "slurm-graphite ",
        "whisper-info ",
        "whisper-fetch ",
    ];
    let (mut checked, mut writers) = (0, 0);
    for Block { place, language, text } in blocks::all().unwrap() {
        match language.as_str() {
            "sh" => {}
            "toml" => {
                // `check` reads a token file.
                let token = folder.write("token", "opaque").unwrap();
                let text = text.replace("/etc/slurm-graphite/token", &token);
                let file = folder.write("documented.toml", &text).unwrap();
                // Some configurations do not mention Carbon.
                printed(&folder, &["check", "--config", &file, "--carbon", "127.0.0.1:2004"])
                    .expect(&place);
                checked += 1;
            }
            "" => {
                let is_command =
                    |line: &&str| COMMANDS.split('|').any(|start| line.starts_with(start));
                assert_eq!(
                    text.lines().find(is_command),
                    None,
                    "{place}: a block of commands wants ```sh"
                );
            }
            other => assert!(
                PASSIVE.contains(&other),
                "{place}: nobody knows what to do with ```{other}"
            ),
        }
        // Carbon cannot write to a file that root created.
        let script = text.replace("\\\n", " ");
        for line in
            script.lines().map(str::trim).filter(|_| text.contains("/var/lib/graphite/whisper"))
        {
            if !others.iter().any(|start| line.starts_with(start)) {
                assert!(line.starts_with("sudo -u _graphite "), "{place}: {line}");
                writers += 1;
            }
        }
    }
    assert!(checked > 2 && writers > 4, "only {checked} configurations and {writers} commands");
}

/// The names that GitHub gives to a document's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (heading, _) in promises::sections(text) {
        let Some((_, heading)) = heading.split_once("# ") else { continue };
        let kept = heading.to_lowercase().replace(' ', "-");
        let kept: String =
            kept.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect();
        let next = (1..).map(|n| format!("{kept}-{n}"));
        let mut names = std::iter::once(kept.clone()).chain(next);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

#[test]
fn every_link_leads_to_a_file_and_to_a_heading_of_it() {
    let (mut links, mut headings) = (0, 0);
    for (name, text) in blocks::documents().unwrap() {
        let here = top().join(&name);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            if target.contains("://") {
                continue;
            }
            let file =
                if file.is_empty() { here.clone() } else { here.with_file_name("").join(file) };
            assert!(file.exists(), "{name}: {target} leads nowhere");
            links += 1;
            if !heading.is_empty() {
                let text = fs::read_to_string(&file).unwrap();
                assert!(
                    anchors(&text).contains(heading),
                    "{name}: {target}: there is no such heading"
                );
                headings += 1;
            }
        }
    }
    assert!(links > 50 && headings > 30, "only {links} links, of which {headings} to headings");
}

/// Who wants to know what this is reads for two minutes.
#[test]
fn what_is_read_first_is_short() {
    for (name, most_lines, most_words) in
        [("README.md", 110, 900), ("docs/performance.md", 80, 1100)]
    {
        let text = fs::read_to_string(top().join(name)).unwrap();
        let (lines, words) = (text.lines().count(), text.split_whitespace().count());
        assert!(lines <= most_lines && words <= most_words, "{name}: {lines} lines, {words} words");
    }
}

/// The number of this constant in a source.
fn constant(source: &str, name: &str) -> f64 {
    let start = source.find(&format!("const {name}: ")).expect(name);
    let (_, value) = source[start..].split_once(" = ").expect(name);
    let value = value.split(';').next().expect(name).replace('_', "");
    value.parse().unwrap_or_else(|error| panic!("{name}: {value:?}: {error}"))
}

/// README.md said 20,000 jobs and 13 MB, and its pictures 18,768 and 16.6.
#[test]
fn the_simulated_pictures_have_the_figures_of_the_text() {
    let (cluster, figures) = (
        include_str!("../tools/screenshots/cluster.rs"),
        include_str!("../tools/screenshots/figures.rs"),
    );
    let text = |name: &str| fs::read_to_string(top().join(name)).unwrap();
    let flood = constant(cluster, "FLOOD");
    let jobs = format!("submits {},{:03} jobs", (flood / 1000.0).floor(), flood % 1000.0);
    for name in ["README.md", "docs/incident.md"] {
        assert!(text(name).contains(&jobs), "{name}: {jobs}");
    }
    let both = constant(figures, "DAEMON_MEMORY") + constant(figures, "READER_MEMORY");
    let measured = format!(" | {:.1} MB |", both / 1e6);
    let performance = text("docs/performance.md");
    let row = performance.lines().find(|line| line.starts_with("| both, with the queue on disk |"));
    assert!(row.expect("no such row").ends_with(&measured), "{row:?} has not{measured}");
    let short = format!("processes take {:.0} MB", both / 1e6);
    let readme = text("README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(readme.contains(&short), "README.md: {short}");
}

#[test]
fn every_name_of_ours_that_others_are_led_to_is_published() {
    let documents = blocks::documents().unwrap();
    let text = |name: &str| {
        documents.iter().find(|(other, _)| other == name).map(|(_, text)| text.clone()).unwrap()
    };
    let (migrating, metrics) = (text("docs/migrating.md"), text("docs/metrics.md"));
    // The list that keeps its names, and the last column of every table.
    let list = migrating
        .split("`cluster.slurm_sched_stats.gauge-` and")
        .nth(1)
        .unwrap()
        .split('.')
        .next()
        .unwrap();
    let kept: Vec<&str> = list.split(',').map(str::trim).collect();
    assert_eq!(kept.len(), 26, "{kept:?}");
    let cells = migrating
        .lines()
        .filter(|line| line.starts_with('|'))
        .filter_map(|line| line.rsplit('|').nth(1));
    let ours = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    // This page does not describe families of another release.
    let known = |name: &&str| {
        name.split_once('.').is_none_or(|(family, _)| metrics.contains(&format!(".{family}")))
    };
    let leaves: Vec<&str> = ours
        .filter(known)
        .filter_map(|name| {
            if name.contains('.') {
                name.split_once("gauge-").map(|(_, leaf)| leaf)
            } else {
                Some(name)
            }
        })
        .filter(|leaf| {
            leaf.contains('_') && leaf.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        })
        .collect();
    assert!(leaves.len() > 25, "{leaves:?}");
    for leaf in kept.iter().chain(&leaves) {
        assert!(metrics.contains(&format!("\n| `{leaf}` |")), "{leaf} is not in docs/metrics.md");
    }
}
