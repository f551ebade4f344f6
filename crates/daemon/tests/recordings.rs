//! The output of `slurm-graphite stats --json` on real clusters of several Slurm releases, and the
//! points that are made of it.
//!
//! `make golden` writes the points again, `RECORD=1 make releases` the recordings.

#![expect(clippy::disallowed_methods, reason = "tests may wait")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use slurm_snapshot::Answer;

/// Slurm's releases on the Debians that `make releases` runs.
const RELEASES: [&str; 4] = ["20.11", "22.05", "24.11", "26.05"];

fn recording(release: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(format!("{release}.jsonl"))
}

#[expect(clippy::disallowed_methods, reason = "the program itself is what is tested")]
fn replayed(file: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slurm-graphite"));
    let output = command
        .env_remove("SLURM_CONF")
        .env("SLURM_GRAPHITE_CONFIG", "")
        .args(["once", "--replay"])
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_points_of_a_recording_of_each_release_are_the_golden_ones() {
    for release in RELEASES {
        let file = recording(release);
        let golden = recording(release).with_extension("lines");
        let points = replayed(&file);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &points).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap();
        for (line, (ours, theirs)) in (1..).zip(points.lines().zip(expected.lines())) {
            assert_eq!(ours, theirs, "{release}: line {line}; `make golden` if that is meant");
        }
        assert_eq!(
            points.lines().count(),
            expected.lines().count(),
            "{release}: `make golden` if that is meant"
        );
    }
}

/// Every member of `old` is in `new` with its value, and what `new` has in addition says nothing.
fn assert_kept(old: &Value, new: &Value, place: &str) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let lost: Vec<_> = old.keys().filter(|name| !new.contains_key(*name)).collect();
            assert!(lost.is_empty(), "{place}: {lost:?}");
            for (name, new) in new {
                match old.get(name) {
                    Some(old) => assert_kept(old, new, &format!("{place}/{name}")),
                    None => assert!(
                        [json!(null), json!(false), json!([]), json!({})].contains(new),
                        "{place}/{name}"
                    ),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            old.iter().zip(new).for_each(|(old, new)| assert_kept(old, new, place));
        }
        _ => assert_eq!(old, new, "{place}"),
    }
}

/// A newer program that adds to the format must leave old recordings as they are.
#[test]
fn a_recording_of_each_release_is_read_and_written_again_with_every_figure() {
    for release in RELEASES {
        let text = fs::read_to_string(recording(release)).unwrap();
        assert!(text.lines().count() >= 2, "{release}: two readings, for what is derived of two");
        for line in text.lines() {
            let answer = Answer::parse(line.as_bytes()).unwrap();
            assert!(matches!(&answer,
                    Answer::Reading(reading) if reading.release.to_string() == release));
            assert_kept(&line.parse().unwrap(), &serde_json::to_value(&answer).unwrap(), release);
        }
    }
}
