//! Everything that is linked into a program may be distributed under the program's licence.

use sandbox::{Folder, Invocation, find_program};

use super::blocks::top;

/// Licences that require nothing that version 2 of the GPL does not allow.
const WITH_GPL_2: [&str; 10] = [
    "0BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "GPL-2.0-or-later",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
/// Licences that are compatible only with version 3.
const WITH_GPL_3: [&str; 2] = ["Apache-2.0", "CDLA-Permissive-2.0"];

/// Whether an SPDX expression is satisfied by these licences.
fn fits(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.trim();
    let (any, all) = (outside_of_brackets(expression, " OR "), outside_of_brackets(expression, " AND "));
    if any.len() > 1 {
        any.iter().any(|part| fits(part, allowed))
    } else if all.len() > 1 {
        all.iter().all(|part| fits(part, allowed))
    } else if let Some(inner) = expression.strip_prefix('(') {
        inner.strip_suffix(')').is_some_and(|inner| fits(inner, allowed))
    } else {
        allowed.contains(&expression)
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

#[test]
fn every_part_of_a_program_may_be_given_away_with_it() {
    let folder = Folder::new().unwrap();
    let manifest = top().join("Cargo.toml").display().to_string();
    let parts = |package: &str| {
        let args =
            ["tree", "--locked", "--manifest-path", &manifest, "--package", package, "--edges", "normal"];
        let form = ["--prefix", "none", "--format", "{p}\t{l}", "--no-dedupe"];
        let cargo = Invocation::of(&folder, &find_program("cargo").unwrap(), &[&args[..], &form].concat());
        let home = std::env::var("HOME").unwrap();
        let run = cargo.unwrap().env("HOME", &home).finish().unwrap();
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stdout
    };
    let later = [&WITH_GPL_2[..], &WITH_GPL_3].concat();
    for (package, allowed) in [
        ("slurm-graphite", &later[..]),
        ("slurm-reader", &WITH_GPL_2),
        ("native-reader", &WITH_GPL_2),
        ("rest-reader", &later),
    ] {
        let parts = parts(package);
        assert!(parts.lines().count() > 10, "{package}: {parts}");
        for part in parts.lines() {
            let (name, licence) = part.split_once('\t').unwrap();
            // The form used before SPDX.
            assert!(fits(&licence.replace('/', " OR "), allowed), "{package}: {name} is under {licence:?}");
        }
    }
}

#[test]
fn an_unknown_licence_or_one_without_an_alternative_is_refused() {
    assert!(
        fits("Apache-2.0 OR MIT", &WITH_GPL_2) && fits("(MIT OR Apache-2.0) AND Unicode-3.0", &WITH_GPL_2)
    );
    for licence in ["", "Apache-2.0", "Apache-2.0 AND ISC", "SSPL-1.0", "(MIT OR Apache-2.0) AND SSPL-1.0"] {
        assert!(!fits(licence, &WITH_GPL_2), "{licence}");
    }
}
