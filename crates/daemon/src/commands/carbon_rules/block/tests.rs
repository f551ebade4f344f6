//! The block in somebody else's file: only the block is changed, and a file that would become wrong
//! stays as it is.

use super::*;

const DEBIAN: &str = "# Debian's comment\n\n[carbon]\npattern = ^carbon\\.\nretentions = 60:90d\n\n\
    [default]\npattern = .*\nretentions = 60s:1d\n";

fn block(rules: &str) -> Block {
    Block::new("cluster", rules)
}

fn ours() -> Block {
    block("# ours\n[slurm_graphite:cluster]\npattern = ^cluster\nretentions = 30s:1d\n")
}

fn put(block: &Block, file: &str) -> String {
    String::from_utf8(block.put_into(file.as_bytes()).unwrap()).unwrap()
}

fn refused(file: &str) -> BlockError {
    ours().put_into(file.as_bytes()).unwrap_err()
}

#[test]
fn it_is_above_the_sites_rules_which_stay_byte_for_byte() {
    let ours = ours();
    for site in [
        DEBIAN,
        "",
        "[a]\npattern = x",
        "\n\n",
        "# only a comment",
        "[a]\r\npattern = x\r\n",
        "; \u{e9}\n[a]\n",
    ] {
        let new = put(&ours, site);
        assert!(new.starts_with("# BEGIN slurm-graphite carbon-rules cluster"), "{new}");
        assert!(new.ends_with(site), "{site:?}: {new:?}");
        assert_eq!(ours.is_outdated_in(site.as_bytes()), Ok(false));
        assert_eq!(ours.is_outdated_in(new.as_bytes()), Ok(false), "{new:?}");
    }
    // Not UTF-8: somebody's name in a comment.
    let latin = b"# f\xfcr uns\n[a]\npattern = x\n";
    assert!(ours.put_into(latin).unwrap().ends_with(latin));
}

#[test]
fn a_second_time_changes_nothing_and_other_rules_replace_it_where_it_is() {
    for site in [DEBIAN, "", "[a]\npattern = x", "[a]\r\npattern = x\r\n"] {
        let first = put(&ours(), site);
        assert_eq!(put(&ours(), &first), first);
        let other = block("[slurm_graphite:cluster]\npattern = ^cluster\nretentions = 10s:1d\n");
        assert_eq!(other.is_outdated_in(first.as_bytes()), Ok(true));
        let second = put(&other, &first);
        assert_eq!(
            second,
            first.replace("# ours\r\n", "").replace("# ours\n", "").replace("30s", "10s")
        );
        assert_eq!(other.is_outdated_in(second.as_bytes()), Ok(false));
    }
}

#[test]
fn a_file_with_crlf_stays_one() {
    let new = put(&ours(), "[a]\r\npattern = x\r\n");
    assert_eq!(new.matches('\n').count(), new.matches("\r\n").count(), "{new:?}");
    assert_eq!(put(&ours(), &put(&ours(), DEBIAN)).matches('\r').count(), 0);
}

#[test]
fn the_last_line_may_have_no_end() {
    assert!(put(&ours(), "[a]\npattern = x").ends_with("carbon-rules cluster\n\n[a]\npattern = x"));
    let whole = put(&ours(), "");
    let other = block("[slurm_graphite:cluster]\npattern = y\n");
    assert_eq!(put(&other, whole.trim_end()), other.text);
}

#[test]
fn rules_that_the_site_has_put_above_it_are_below_it_again() {
    let above = "[mine]\npattern = mine\nretentions = 1s:1d\n\n";
    let moved = put(&ours(), &format!("{above}{}", put(&ours(), DEBIAN)));
    assert!(moved.starts_with(&ours().text), "{moved}");
    assert_eq!(moved.replacen(&ours().text, "", 1).trim_start(), format!("{above}\n{DEBIAN}"));
    assert_eq!(put(&ours(), &moved), moved);
    // A comment matches no path: a configuration manager's first line stays the first.
    let managed = format!("# managed\n{}", put(&ours(), DEBIAN));
    assert_eq!(put(&ours(), &managed), managed);
}

#[test]
fn each_prefix_has_a_block_and_they_do_not_change_places_for_ever() {
    let beta = Block::new("beta", "[slurm_graphite:beta]\npattern = ^beta\n");
    let both = put(&beta, &put(&ours(), DEBIAN));
    assert!(
        both.contains(&ours().text) && both.contains(&beta.text) && both.ends_with(DEBIAN),
        "{both}"
    );
    assert_eq!(put(&beta, &put(&ours(), &both)), both);
    assert_eq!(ours().is_outdated_in(both.as_bytes()), Ok(false));
}

#[test]
fn a_block_that_is_there_twice_is_one_again() {
    let twice = format!("{}\n{}", ours().text, put(&ours(), DEBIAN));
    assert_eq!(ours().is_outdated_in(twice.as_bytes()), Ok(true));
    let once = put(&ours(), &twice);
    assert_eq!(once.matches("[slurm_graphite:cluster]").count(), 1, "{once}");
    assert!(once.starts_with(&ours().text) && once.ends_with(DEBIAN), "{once}");
}

#[test]
fn a_damaged_marker_is_refused_with_its_line() {
    let good = put(&ours(), DEBIAN);
    let begin = "# BEGIN slurm-graphite carbon-rules cluster\n";
    let end = "# END slurm-graphite carbon-rules cluster\n";
    assert_eq!(refused(&good.replace(end, "")), BlockError::NoEnd(1));
    assert_eq!(refused(&good.replace(begin, "")), BlockError::NoBegin(5));
    assert_eq!(refused(&good.replace(begin, &begin.repeat(2))), BlockError::NoEnd(1));
    assert_eq!(refused(&good.replace(end, &end.repeat(2))), BlockError::NoBegin(7));
    assert_eq!(
        refused(&good.replace(end, "# END slurm-graphite carbon-rules beta\n")),
        BlockError::NoBegin(6)
    );
    // Both: the block is no longer one, but its sections are.
    let without = good.replace(begin, "").replace(end, "");
    assert_eq!(refused(&without), BlockError::Twice(2, "[slurm_graphite:cluster]".to_owned()));
    assert!(ours().is_outdated_in(good.replace(end, "").as_bytes()).is_err());
}

/// Python would read the line as a part of the block's last rule.
#[test]
fn a_line_that_would_become_a_part_of_the_block_is_refused() {
    for (site, line) in [
        ("pattern = x\n", 1),
        ("# a comment\n\n  [indented]\npattern = x\n", 3),
        ("\u{feff}[a]\npattern = x\n", 1),
    ] {
        assert_eq!(refused(site), BlockError::NoSection(line), "{site:?}");
    }
    let behind = format!("{}retentions = 1s:1y\n[a]\npattern = x\n", ours().text);
    assert_eq!(refused(&behind), BlockError::NoSection(7));
}
