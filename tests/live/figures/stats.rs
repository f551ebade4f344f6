//! `slurm-graphite stats` prints what sdiag prints, line by line.

use std::collections::BTreeSet;

use sandbox::{Sandbox, is_root, printed, wait};

use super::{OWN_TYPE, SOON};

/// A user without a name, who may request everything, has a number. Only root can act as another
/// user.
pub(crate) fn a_nameless_user_has_a_number(sandbox: &Sandbox) {
    if is_root() {
        sandbox.slurm.run_as(54321, "sinfo", &[]).unwrap();
        let text = stats(sandbox);
        assert!(text.contains("\n\t54321           (   54321) count:"), "{text}");
    }
}

/// Compares `slurm-graphite stats` with sdiag at a time when only their own requests change
/// anything.
pub(crate) fn compare(sandbox: &Sandbox) {
    // The first reader adds a row for its requests to the table.
    stats(sandbox);
    let compared = wait::until_some("a moment in which nothing changes", SOON, || {
        let before = sandbox.slurm.run("sdiag", &[]).unwrap();
        let ours = stats(sandbox);
        let after = sandbox.slurm.run("sdiag", &[]).unwrap();
        (normal(&before) == normal(&after)).then_some((after, ours))
    });
    let (theirs, ours) = compared.unwrap();
    assert_eq!(normal(&ours), normal(&theirs));
    let set = |text: &str| rows(text).iter().map(|row| shape(row)).collect::<BTreeSet<_>>();
    assert_eq!(set(&ours), set(&theirs));
    assert!(rows(&ours).len() >= 5, "{ours}");
}

fn stats(sandbox: &Sandbox) -> String {
    let conf = sandbox.slurm.conf().display().to_string();
    printed(&sandbox.folder, &["stats", "--slurm-conf", &conf]).unwrap()
}

/// Every line, with the parts masked that must differ: the time of the request, and a latency. Rows
/// of the tables come last, sorted, because those with the same count have no fixed order.
fn normal(text: &str) -> Vec<String> {
    let masked = |line: &str| {
        let differs = ["sdiag output at ", "Latency "].iter().any(|start| line.starts_with(start));
        if differs { shape(line) } else { line.to_owned() }
    };
    let rows = rows(text);
    // Every request is counted in the row of its type and in this user's, `(       0) `.
    let own_user = format!("({:>8}) ", rustix::process::getuid().as_raw());
    let own = |line: &str| line.contains(OWN_TYPE) || line.contains(&own_user);
    let (rest, mut sorted): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| !rows.contains(line));
    sorted.retain(|line| !own(line));
    sorted.sort_unstable();
    rest.into_iter().map(masked).chain(sorted.into_iter().map(str::to_owned)).collect()
}

fn rows(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("ave_time:")).collect()
}

/// A line in which each run of digits, with the blanks that fill its column, is one `#`.
fn shape(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (words, digits) = rest.split_at(start);
        out.push_str(words);
        out.push('#');
        rest = digits.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(' ');
    }
    out + rest
}
