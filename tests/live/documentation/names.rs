//! Names in CONTRIBUTING.md and docs/development must exist: files, and names of the code.

use std::collections::BTreeSet;
use std::fs;

use super::blocks::{documents, top};

/// Every file below `folder`, by its path from the top.
pub(super) fn add_files(folder: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(top().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            add_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// The pieces of `text` that consist of letters, digits and `others`.
fn pieces<'a>(text: &'a str, others: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(move |c: char| !c.is_alphanumeric() && !others.contains(c))
        .filter(|piece| !piece.is_empty())
}

/// Files that `text` names, whose folders need not all be named; `NAME` stands for any.
fn missing_files(text: &str, files: &[String]) -> Vec<String> {
    let named = pieces(text, "_-./").map(|piece| piece.trim_matches('.'));
    let named = named.filter(|file| [".rs", ".sh", ".txt"].iter().any(|end| file.ends_with(end)));
    let is_there = |file: &str| {
        let end = format!("/{file}");
        let is_at = |path: &str| format!("/{path}").ends_with(&end);
        files.iter().any(|path| is_at(path) || is_at(&path.replace("/src/", "/")))
    };
    named.filter(|file| !file.contains("NAME") && !is_there(file)).map(str::to_owned).collect()
}

/// Names between backquotes that are of code: `Queue::push`, `from_reply`.
fn missing_names(text: &str, words: &BTreeSet<&str>) -> Vec<String> {
    let is_name = |name: &&str| {
        let is_one = name.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
        is_one && (name.contains('_') || name.starts_with(char::is_uppercase))
    };
    let quoted = text.split('`').skip(1).step_by(2).filter(is_name);
    let names = quoted.flat_map(|name| name.split("::"));
    names.filter(|name| !words.contains(name)).map(str::to_owned).collect()
}

#[test]
fn what_developers_documents_name_is_there_under_that_name() {
    let mut files = vec!["./Makefile".to_owned()];
    for folder in ["crates", "tests", "packaging", "config"] {
        add_files(folder, &mut files);
    }
    let is_code = |file: &&String| {
        let is_here = file.ends_with("documentation/names.rs");
        !is_here && [".rs", ".sh", ".py", "Makefile"].iter().any(|end| file.ends_with(end))
    };
    let code: Vec<String> = files
        .iter()
        .filter(is_code)
        .map(|file| fs::read_to_string(top().join(file)).unwrap())
        .collect();
    let words: BTreeSet<&str> = code.iter().flat_map(|text| pieces(text, "_")).collect();
    // A file or name that was renamed is seen.
    assert_eq!(missing_files("queue/state.rs, stat.rs", &files), ["stat.rs"]);
    assert_eq!(
        missing_names("`Queue::push`, `Que::push`, `que`, `gone_by`", &words),
        ["Que", "gone_by"]
    );

    let mut problems = Vec::new();
    for (document, text) in documents().unwrap() {
        if document == "CONTRIBUTING.md" || document.starts_with("docs/development/") {
            let missing =
                missing_files(&text, &files).into_iter().chain(missing_names(&text, &words));
            problems.extend(missing.map(|name| format!("{document}: there is no {name}")));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
