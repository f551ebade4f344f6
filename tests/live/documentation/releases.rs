//! The documents have the same releases as the list in slurm-snapshot, from which the others are
//! made.

use std::fs;

use super::blocks::{documents, top};

/// (release, number of its libslurm, whether it is built), as tests/releases reads the list.
fn listed() -> Vec<(String, String, bool)> {
    let text = fs::read_to_string(top().join("crates/slurm-snapshot/src/release.rs")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let (row, source) = line.strip_prefix("    (")?.split_once(")), ")?;
        let (soname, release) = row.split_once(", Release::new(")?;
        let (year, month) = release.split_once(", ")?;
        Some((format!("{year}.{month:0>2}"), soname.to_owned(), source.trim() == "// branch"))
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
        Some((release.to_owned(), soname.to_owned(), live.contains("built from")))
    });
    let listed = listed();
    assert_eq!(listed.len(), slurm_snapshot::LIBRARIES.len());
    assert_eq!(rows.collect::<Vec<_>>(), listed);
}

/// A new release is soon forgotten in one of them. The changelog's sections are of their time.
#[test]
fn documents_that_name_the_oldest_and_the_newest_release_name_those_of_the_list() {
    let listed = listed();
    let [(oldest, ..), .., (newest, ..)] = &listed[..] else { panic!("{listed:?}") };
    let mut found = 0;
    for (name, text) in documents().unwrap().into_iter().filter(|(name, _)| name != "CHANGELOG.md")
    {
        for rest in text.split(&format!("{oldest} to ")).skip(1) {
            assert!(rest.starts_with(newest.as_str()), "{name}: {oldest} to {rest:.20}");
            found += 1;
        }
    }
    assert!(found > 0);
}

/// "For any host", and on seven of eleven releases there was no reader.
#[test]
fn what_make_dist_has_without_other_headers_is_said_where_it_is_named() {
    let of_debian: Vec<String> = listed()
        .into_iter()
        .filter_map(|(release, _, is_built)| (!is_built).then_some(release))
        .collect();
    let [first @ .., last] = &of_debian[..] else { panic!("{of_debian:?}") };
    for (name, conjunction) in [("README.md", "or"), ("docs/install.md", "and")] {
        let text = fs::read_to_string(top().join(name)).unwrap();
        let named = format!("{} {conjunction} {last}", first.join(", "));
        assert!(text.contains(&named), "{name}: {named}");
    }
}
