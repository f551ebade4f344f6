//! The log's messages in docs/operations.md are those that the programs write.

use std::fs;
use std::path::Path;

use super::blocks::top;
use super::promises::sections;

/// All code of the programs without their tests, in which a text that was broken into lines is one
/// line.
fn code(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() {
            code(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

/// The parts of each row's messages that do not vary.
fn listed(operations: &str) -> Vec<String> {
    let list = sections(operations)
        .into_iter()
        .find(|(heading, _)| heading.starts_with("## Log messages"));
    let (_, list) = list.unwrap();
    let messages = list.lines().filter(|line| line.starts_with("| ")).skip(1);
    let messages = messages.filter_map(|row| row.split('|').nth(1));
    messages.flat_map(|cell| cell.split('…')).map(|part| part.trim().to_owned()).collect()
}

#[test]
fn every_message_that_is_listed_is_one_of_the_programs() {
    let mut text = String::new();
    for program in fs::read_dir(top().join("crates")).unwrap() {
        code(&program.unwrap().path().join("src"), &mut text);
    }
    let text: String = text.split("\\\n").map(str::trim_start).collect();
    let parts = listed(&fs::read_to_string(top().join("docs/operations.md")).unwrap());
    assert!(parts.len() > 30 && parts.iter().all(|part| part.len() > 6), "{parts:#?}");
    let gone: Vec<&String> = parts.iter().filter(|part| !text.contains(part.as_str())).collect();
    assert!(gone.is_empty(), "no program says {gone:#?}");
}
