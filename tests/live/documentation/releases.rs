//! README's table and `make dist` have the same releases as the list in tests/releases/suites.

use std::fs;

use super::blocks::top;

/// (release, number of its libslurm, whether it is built from its branch)
fn listed() -> Vec<(String, String, bool)> {
    let text = fs::read_to_string(top().join("tests/releases/suites")).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[1].to_owned(), words[2].to_owned(), words[0].starts_with("slurm-"))
    });
    rows.collect()
}

#[test]
fn the_table_of_supported_releases_is_the_list_that_is_built_and_tested() {
    let readme = fs::read_to_string(top().join("README.md")).unwrap();
    let (_, section) = readme.split_once("## Supported releases").unwrap();
    let rows = section.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.split('|').map(str::trim).collect();
        let [release, soname, live, ..] = cells[..] else { return None };
        soname.parse::<u32>().ok()?;
        Some((release.to_owned(), soname.to_owned(), live.contains("from its branch")))
    });
    assert_eq!(rows.collect::<Vec<_>>(), listed());
}
