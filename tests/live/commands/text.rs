//! Commands that only print.

use std::fs;

use sandbox::{Folder, Invocation, printed, run};

#[test]
fn metrics_prints_the_shipped_document() {
    let folder = Folder::new().unwrap();
    let metrics = printed(&folder, &["metrics"]).unwrap();
    let shipped =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
    assert!(metrics == shipped, "docs/metrics.md is old; run `make golden`");
    for figure in sandbox::metrics::FIGURES {
        assert!(metrics.contains(&format!("\n| `{}` | ", figure.leaf)), "{}", figure.leaf);
    }
}

#[test]
fn metrics_are_found_by_a_word_and_printed_for_programs() {
    let folder = Folder::new().unwrap();
    let found = printed(&folder, &["metrics", "bf_last_cycle", "--format", "tsv"]).unwrap();
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines[0], "path\tunit\troll-up\tmeaning");
    let row = "cluster.slurm_sched_stats.gauge-bf_last_cycle\tµs\taverage\t";
    assert!(lines.iter().any(|line| line.starts_with(row)), "{lines:?}");
    assert!(lines[1..].iter().all(|line| line.contains("bf_last_cycle")), "{lines:?}");
    let none = run(&folder, &["metrics", "nonsense"]).unwrap();
    assert!(none.code == Some(1) && none.stderr.contains("no metric has \"nonsense\""), "{none:?}");
}

#[test]
fn output_that_nobody_reads_is_no_failure() {
    let folder = Folder::new().unwrap();
    for args in [&["metrics"][..], &["carbon-rules"], &["check"], &["--help"]] {
        let run = Invocation::new(&folder, args).unwrap().finish_into_closed_pipe().unwrap();
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}
