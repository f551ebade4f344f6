//! promises.txt: every promise of README.md, docs/losses.md and docs/operations.md has a guard, and
//! every guard exists.

use std::collections::BTreeSet;
use std::fs;

use super::blocks::top;

const DOCUMENTS: [&str; 3] = ["README.md", "docs/losses.md", "docs/operations.md"];

/// The headings of tables whose rows are promises.
const TABLES: [&str; 2] = ["## What happens when …", "## What can still be lost, and when"];

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The headings of a document, with the text under each up to the next heading. The text before the
/// first is left out.
pub(crate) fn sections(text: &str) -> Vec<(&str, String)> {
    let mut sections: Vec<(&str, String)> = Vec::new();
    let mut code = false;
    for line in text.lines() {
        code ^= line.starts_with("```");
        if line.starts_with('#') && !code {
            sections.push((line, String::new()));
        } else if let Some((_, body)) = sections.last_mut() {
            body.push_str(line);
            body.push('\n');
        }
    }
    sections
}

/// A promise with its guards, or an entry that promises nothing.
#[derive(Debug, Default)]
struct Entry {
    section: String,
    text: String,
    guards: Vec<String>,
}

fn entries() -> Vec<Entry> {
    let index = fs::read_to_string(top().join("tests/live/documentation/promises.txt")).unwrap();
    let mut entries: Vec<Entry> = Vec::new();
    let mut section = String::new();
    for line in index.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            name.clone_into(&mut section);
        } else if let Some(text) = line.strip_prefix("- ") {
            entries.push(Entry { section: section.clone(), text: flat(text), guards: Vec::new() });
        } else if let Some(guard) = line.strip_prefix("  - ") {
            entries.last_mut().expect("a promise above its guard").guards.push(guard.to_owned());
        } else {
            assert!(line.is_empty() || line.starts_with("# "), "promises.txt: neither: {line:?}");
        }
    }
    entries
}

/// The problem with a guard, which is `make TARGET`, or a file and the name of a test in it.
fn problem(guard: &str) -> Option<String> {
    let (file, name) = guard.split_once(' ')?;
    let (file, needles) = match file {
        "make" => ("Makefile", [format!("\n{name}:"), String::new()]),
        _ => (file, [format!("fn {name}("), "test".to_owned()]),
    };
    let text = fs::read_to_string(top().join(file)).unwrap_or_default();
    let declared = text.find(&needles[0]).is_some_and(|at| {
        // Its attributes are on the lines above.
        let above: Vec<&str> =
            text[..at].lines().rev().take_while(|line| !line.is_empty()).collect();
        above.iter().any(|line| line.contains(&needles[1])) || needles[1].is_empty()
    });
    (!declared).then(|| format!("{guard}: there is no such test"))
}

#[test]
fn every_promise_has_a_guard_and_every_guard_exists() {
    let entries = entries();
    let mut problems: Vec<String> =
        entries.iter().flat_map(|entry| &entry.guards).filter_map(|guard| problem(guard)).collect();
    let silent = entries.iter().filter(|entry| entry.section == "What promises nothing");
    let silent: BTreeSet<&str> = silent.map(|entry| entry.text.as_str()).collect();
    let mut used = BTreeSet::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(top().join(document)).unwrap();
        let promises: Vec<&Entry> =
            entries.iter().filter(|entry| entry.section == document).collect();
        assert!(promises.len() > 10, "{document}: only {} promises", promises.len());
        for promise in &promises {
            if promise.guards.is_empty() {
                problems.push(format!("{document}: nothing guards {:?}", promise.text));
            }
            if !flat(&text).contains(&promise.text) {
                problems.push(format!("{document} does not say any more: {:?}", promise.text));
            }
        }
        let mut missing = |what: &str, place: String| {
            let listed = format!("{document} {what}");
            if silent.contains(listed.as_str()) {
                used.insert(listed);
            } else {
                problems.push(format!("{place}: no promise in promises.txt for {what:?}"));
            }
        };
        for (heading, body) in sections(&text) {
            let (name, flat_body) = (heading.trim_start_matches(['#', ' ']), flat(&body));
            if !flat_body.is_empty()
                && !promises.iter().any(|promise| flat_body.contains(&promise.text))
            {
                missing(name, document.to_owned());
            }
            if !TABLES.contains(&heading) {
                continue;
            }
            let rows = body.lines().filter(|line| line.starts_with('|')).skip(2);
            for cell in rows.filter_map(|row| row.split('|').nth(1)).map(flat) {
                if !promises.iter().any(|promise| cell.contains(&promise.text)) {
                    missing(&cell, heading.to_owned());
                }
            }
        }
    }
    problems.extend(silent.iter().filter(|listed| !used.contains(**listed)).map(|listed| {
        format!("{listed}: listed as promising nothing, but it is guarded, or not there any more")
    }));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_guard_that_is_no_test_is_seen() {
    let here = "tests/live/documentation/promises.rs";
    assert_eq!(problem(&format!("{here} a_guard_that_is_no_test_is_seen")), None);
    assert!(problem(&format!("{here} a_guard_that_was_renamed")).is_some());
    assert!(problem(&format!("{here} sections")).is_some(), "a function, and no test");
    assert!(problem("tests/live/gone.rs anything").is_some());
    assert!(problem("make coffee").is_some());
    assert_eq!(problem("make bench"), None);
}
