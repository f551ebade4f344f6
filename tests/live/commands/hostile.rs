//! Text from elsewhere that a terminal would obey, or that looks like a line of the program's, in
//! the output of every command.

use sandbox::{Folder, Imitation, Invocation, wait};
use slurm_snapshot::{
    Answer, Failure, JobTally, Jobs, Reading, Reply, RpcTables, RpcUser, Statistics, Visibility,
};

use super::RECORDING;
use crate::status::{daemon_every, runtime};

/// A window's title, a colour, a line of its own, C1's own escape and next line, and text from
/// right to left.
const HOSTILE: &str =
    "phys\u{1b}]0;PWNED\u{7}\u{1b}[31m\n✓ FORGED\r\u{9b}2J\u{85}\u{202e}\u{2066}\u{feff}";

/// Nothing of it may be in any output, whichever way the program escapes it.
fn is_harmless(text: &str) -> bool {
    let is_harmless = |c: char| "\n\t✓✗–µ… ".contains(c) || c.is_ascii_graphic();
    text.chars().all(is_harmless) && !text.lines().any(|line| line.starts_with("✓ FORGED"))
}

fn readers() -> [String; 2] {
    let hostile = || HOSTILE.to_owned();
    let Answer::Reading(recorded) = serde_json::from_str(RECORDING).unwrap() else { panic!() };
    let mut statistics: Statistics = recorded.statistics.unwrap();
    let rpc: &mut RpcTables = statistics.rpc.as_mut().unwrap();
    rpc.users.push(RpcUser { id: 7, name: Some(hostile()), count: 9, time: 9, looking_up: false });
    let reading = Reading { cluster: Some(hostile()), ..Imitation::reading() };
    let visibility = Some(Visibility { private: Vec::new(), privileged: Some(true) });
    let mut jobs = Jobs::default();
    let tally = JobTally { jobs: 1, ..JobTally::default() };
    jobs.accounts
        .names
        .entry(hostile())
        .or_default()
        .states
        .unfinished
        .insert("pending".to_owned(), tally);
    let jobs = Reading { reply: Some(Reply::Jobs(Box::new(jobs))), visibility, ..reading.clone() };
    let statistics = Reading { statistics: Some(statistics), ..reading };
    let [jobs, statistics] = [jobs, statistics].map(|reading| Imitation::answer(reading).unwrap());
    let failure = Failure {
        id: 0,
        call: hostile(),
        errno: 1007,
        text: hostile(),
        advice: Some(HOSTILE.into()),
        stage: None,
        rest: None,
    };
    let failure = Imitation::failure(failure).unwrap();
    [Imitation::serving(&[("jobs", &jobs)], &statistics), Imitation::serving(&[], &failure)]
}

#[test]
fn no_command_prints_what_a_terminal_obeys_or_a_line_that_somebody_else_has_made_up() {
    for (number, body) in readers().iter().enumerate() {
        let folder = Folder::new().unwrap();
        let toml = Imitation::new(&folder, "reader", body).unwrap().toml();
        let toml = format!(
            "prefix = \"x.{{cluster}}\"\n[[carbon]]\naddress = \"127.0.0.1:9\"\n[slurm]\n\
                {toml}[collectors.jobs]\nenabled = true\n"
        );
        let file = folder.write("hostile.toml", &toml).unwrap();
        let _daemon = daemon_every("1s", &folder, &toml, &[]).unwrap();
        let run = |args: &[&str]| {
            let run = runtime(&folder).display().to_string();
            Invocation::new(&folder, args).unwrap().env("RUNTIME_DIRECTORY", &run).finish().unwrap()
        };
        let shows = if number == 0 { "phys" } else { "PWNED" };
        wait::until("the first answer", wait::LIMIT, || run(&["status"]).stdout.contains(shows))
            .unwrap();
        let commands: [&[&str]; 8] = [
            &["status"],
            &["status", "--json"],
            &["stats", "--config", &file],
            &["stats", "--json", "--config", &file],
            &["stats", "--jobs", "--by", "account", "--config", &file],
            &["stats", "--jobs", "--by", "account", "--json", "--config", &file],
            &["check", "--connect", "--config", &file],
            &["check", "--connect", "--json", "--config", &file],
        ];
        for command in commands.into_iter().chain([&["once", "--config", &file][..]]) {
            let said = run(command);
            let text = format!("{}{}", said.stdout, said.stderr);
            assert!(text.contains("phys"), "{command:?} shows the name: {said:?}");
            assert!(is_harmless(&text), "{command:?}: {said:?}");
        }
    }
}
