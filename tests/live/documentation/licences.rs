//! Everything that is linked into a program may be distributed under the program's licence, and its
//! notices go with it.

use std::fs;

use sandbox::{Folder, Invocation, find_program};

use super::blocks::top;

/// Licences that require nothing that version 2 of the GPL does not allow.
const WITH_GPL_2: &str =
    "0BSD BSD-2-Clause BSD-3-Clause BSL-1.0 GPL-2.0-or-later ISC MIT Unicode-3.0 Unlicense Zlib";
/// Licences that are compatible only with version 3.
const WITH_GPL_3: &str = "Apache-2.0 CDLA-Permissive-2.0";

/// Whether an SPDX expression is satisfied by these licences.
fn fits(expression: &str, allowed: &str) -> bool {
    let expression = expression.trim();
    let (any, all) =
        (outside_of_brackets(expression, " OR "), outside_of_brackets(expression, " AND "));
    if any.len() > 1 {
        any.iter().any(|part| fits(part, allowed))
    } else if all.len() > 1 {
        all.iter().all(|part| fits(part, allowed))
    } else if let Some(inner) = expression.strip_prefix('(') {
        inner.strip_suffix(')').is_some_and(|inner| fits(inner, allowed))
    } else {
        allowed.split(' ').any(|licence| licence == expression)
    }
}

fn outside_of_brackets<'e>(expression: &'e str, operator: &str) -> Vec<&'e str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    for (at, _) in expression.match_indices(operator) {
        let before = &expression[..at];
        if before.matches('(').count() == before.matches(')').count() {
            parts.push(&expression[begin..at]);
            begin = at + operator.len();
        }
    }
    parts.push(&expression[begin..]);
    parts
}

/// Name and version, and the licence, of everything that is linked into a program.
fn parts(package: &str) -> Vec<(String, String)> {
    let folder = Folder::new().unwrap();
    let manifest = top().join("Cargo.toml").display().to_string();
    let args = [
        "tree",
        "--locked",
        "--manifest-path",
        &manifest,
        "--package",
        package,
        "--edges",
        "normal",
    ];
    let form = ["--prefix", "none", "--format", "{p}\t{l}", "--no-dedupe"];
    let cargo = Invocation::of_program(
        &folder,
        &find_program("cargo").unwrap(),
        &[&args[..], &form].concat(),
    );
    let home = std::env::var("HOME").unwrap();
    let run = cargo.unwrap().env("HOME", &home).finish().unwrap();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let parts = run.stdout.lines().filter_map(|line| line.split_once('\t'));
    let parts: Vec<_> =
        parts.map(|(name, licence)| (name.to_owned(), licence.to_owned())).collect();
    assert!(parts.len() > 10, "{package}: {parts:?}");
    parts
}

/// Nearly every licence requires that its text goes with the program.
#[test]
fn every_part_of_a_program_may_be_given_away_with_it_and_has_its_notice() {
    // An unknown licence or one without an alternative is refused.
    for licence in ["Apache-2.0 OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert!(fits(licence, WITH_GPL_2), "{licence}");
    }
    for licence in
        ["", "Apache-2.0", "Apache-2.0 AND ISC", "SSPL-1.0", "(MIT OR Apache-2.0) AND SSPL-1.0"]
    {
        assert!(!fits(licence, WITH_GPL_2), "{licence}");
    }
    let notices = fs::read_to_string(top().join("THIRD-PARTY-NOTICES")).unwrap();
    let sections: Vec<&str> = notices.split(&format!("\n{}\n", "=".repeat(100))).skip(1).collect();
    let later = format!("{WITH_GPL_2} {WITH_GPL_3}");
    for (package, allowed) in
        [("slurm-graphite", later.as_str()), ("slurm-reader", WITH_GPL_2), ("rest-reader", &later)]
    {
        for (part, licence) in parts(package) {
            // The form used before SPDX.
            assert!(
                fits(&licence.replace('/', " OR "), allowed),
                "{package}: {part} is under {licence:?}"
            );
            // Our own crates have a path.
            if part.contains("(/") {
                continue;
            }
            let mut words = part.split(' ');
            let (name, version) =
                (words.next().unwrap(), words.next().unwrap().trim_start_matches('v'));
            let title = format!("{name} {version} (");
            let of_it = sections
                .iter()
                .find(|section| section.lines().any(|line| line.starts_with(&title)));
            let text = of_it
                .and_then(|section| section.split_once(&"-".repeat(100)))
                .map(|(_, text)| text);
            let text = text.unwrap_or_else(|| panic!("{title}: no notice; run `make golden`"));
            assert!(text.len() > 400, "{title}: {text}");
        }
    }
}
