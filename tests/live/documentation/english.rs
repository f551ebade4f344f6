//! Texts for users contain no phrases that a tired reader would have to read twice.

use std::fs;

use sandbox::{Folder, run};

use super::blocks::{documents, top};

/// A phrase, and what is usually meant.
const BANNED: &[(&str, &str)] = &[
    ("anew", "again"),
    ("beside", "next to, compared with"),
    ("in vain", "without success"),
    ("whoever", "anyone who"),
    ("for long", "for a long time, sustained"),
    ("of all time", "of the wall-clock time"),
    ("wants", "needs"),
    ("is wanted", "is expected"),
    ("are wanted", "are expected"),
    ("not well", "not OK, wrong, failed"),
    ("is well", "is OK"),
];

/// The phrases that occur in `text` as whole words, with their lines.
fn found(place: &str, text: &str) -> Vec<String> {
    let lines = (1..).zip(text.lines()).flat_map(|(number, line)| {
        let words: Vec<&str> = line
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .collect();
        let line = format!(" {} ", words.join(" ").to_lowercase());
        let of_it = BANNED.iter().filter(move |(turn, _)| line.contains(&format!(" {turn} ")));
        of_it.map(move |(turn, better)| format!("{place}:{number}: {turn:?}; write {better:?}"))
    });
    lines.collect()
}

#[test]
fn what_a_user_reads_has_no_turn_that_has_to_be_read_twice() {
    // A word that contains one is none.
    assert_eq!(found("a", "begins\nto count anew.").len(), 1);
    assert_eq!(found("a", "Newspapers, swants and forlong.").len(), 0);
    let folder = Folder::new().unwrap();
    let mut texts = documents().unwrap();
    for name in ["config/slurm-graphite.toml", "config/first.toml"] {
        texts.push((name.to_owned(), fs::read_to_string(top().join(name)).unwrap()));
    }
    for command in ["run", "once", "check", "stats", "status", "metrics", "carbon-rules"] {
        let help = run(&folder, &[command, "--help"]).unwrap();
        texts.push((format!("{command} --help"), help.stdout));
    }
    // A tool of ours had left its marks where three configurations had been.
    for (place, text) in &texts {
        let is_mark = |word: &str| word.len() > 2 && word.starts_with('@') && word.ends_with('@');
        assert!(!text.split_whitespace().any(is_mark), "{place}: a mark of a tool");
    }
    let problems: Vec<String> = texts.iter().flat_map(|(place, text)| found(place, text)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
