//! The first word of a doc comment: a comment begins with the thing or with a verb in the third
//! person, so that it can be read aloud to somebody who does not see the code.

use std::fs;

use super::blocks::top;
use super::names::add_files;

/// Words that are neither. "Whether …" of a bool is an idiom, and may stay.
const ODD: [&str; 7] = ["What", "How", "When", "Of", "Why", "Such", "To"];

/// Percent of the doc comments that may begin with one of them.
const MOST: usize = 2;

/// Places and first words of the doc comments in `text`. A block of lines is one comment.
fn comments(text: &str) -> Vec<(usize, &str)> {
    let mut comments = Vec::new();
    let mut before = None;
    for (number, line) in (1..).zip(text.lines().map(str::trim_start)) {
        let mark = ["///", "//!"].into_iter().find(|mark| line.starts_with(mark));
        if let Some(mark) = mark.filter(|_| mark != before) {
            let word = line[mark.len()..].split_whitespace().next().unwrap_or("");
            comments.push((number, word.trim_end_matches([',', '.', ':', ';'])));
        }
        before = mark;
    }
    comments
}

#[test]
fn doc_comments_begin_with_the_thing_or_a_verb() {
    let seen =
        comments("//! How it is.\n//! What else.\n/// To it.\n/// Of it.\nfn f() {}\n  /// A\n");
    assert_eq!(seen, [(1, "How"), (3, "To"), (6, "A")]);

    let mut files = Vec::new();
    for folder in ["crates", "tests", "packaging"] {
        add_files(folder, &mut files);
    }
    let mut all = 0;
    let mut odd = Vec::new();
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        let text = fs::read_to_string(top().join(file)).unwrap();
        for (line, word) in comments(&text) {
            all += 1;
            if ODD.contains(&word) {
                odd.push(format!("{file}:{line}: {word}"));
            }
        }
    }
    assert!(all > 3000, "only {all} doc comments were found");
    assert!(
        100 * odd.len() <= MOST * all,
        "{} of {all} doc comments begin with none of the two:\n{}",
        odd.len(),
        odd.join("\n")
    );
}
