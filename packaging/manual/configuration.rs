//! slurm-graphite.toml(5): the shipped file, each key before its comment.
//!
//! A comment belongs to the key or table head that follows it. After an empty line it is a
//! paragraph of its own. What precedes the first empty line is about the file. `#key = …`, without
//! a space, is a key without a default.

use crate::page::ManualPage;

/// The page for the file `toml`.
pub(crate) fn page(toml: &str) -> String {
    let (about, keys) = toml.split_once("\n\n").unwrap_or(("", toml));
    let mut page = ManualPage::new("slurm-graphite.toml", 5, "the configuration of slurm-graphite");
    page.section("DESCRIPTION");
    page.text("This file is written in TOML. The following is the file as it is installed.");
    page.text(&format!("\n\n{}", about.replace("# ", "")));
    page.section("TOP-LEVEL KEYS");
    let mut comment = String::new();
    for line in keys.lines() {
        if line.is_empty() || line == "#" || line.starts_with("# ") {
            comment += line.trim_start_matches("# ");
            comment.push('\n');
            continue;
        }
        if line.trim_start_matches('#').starts_with('[') {
            page.section(line);
            page.text(&comment);
        } else {
            page.term(line, &comment);
        }
        comment.clear();
    }
    page.section("SEE ALSO");
    page.text("`slurm-graphite`(1), `slurm.conf`(5)");
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_the_shipped_file_is_left_out() {
        let plain = |text: &str| text.replace("\\fB", "").replace("\\fR", "").replace('`', "");
        let page =
            plain(&page(crate::SHIPPED)).replace("\\-", "-").replace("\\&", "").replace('\n', " ");
        let mut lines = 0;
        for line in crate::SHIPPED.lines().filter(|line| !line.is_empty()) {
            let line = plain(line.trim_start_matches("# "));
            assert!(page.contains(&line), "{line:?} is not in {page}");
            lines += 1;
        }
        assert!(lines > 150, "only {lines}");
    }

    #[test]
    fn a_comment_before_an_empty_line_stays_with_what_comes_next() {
        let page =
            page("# File.\n\n# A.\na = \"1\"\n\n# Of all.\n\n# Of t.\n[t]\n# B.\nb = true\n");
        let (before, t) = page.split_once(".SH \"[t]\"\n").unwrap();
        assert!(
            before.contains("File.\n.SH \"TOP\\-LEVEL KEYS\"") && before.ends_with("\nA.\n"),
            "{before}"
        );
        assert!(t.starts_with("Of all.\n.PP\nOf t.\n.TP\n\\fBb = true\\fR\nB.\n"), "{t}");
    }

    #[test]
    fn a_comment_that_looks_like_a_key_is_a_comment() {
        let page = page("# File.\n\n# key = \"x\"\n#key = \"x\"\n#[collectors.rpc]\n[[carbon]]\n");
        assert!(
            page.contains("\\fB#key = \"x\"\\fR\nkey = \"x\"\n.SH \"#[collectors.rpc]\"\n"),
            "{page}"
        );
        assert!(page.contains(".SH \"[[carbon]]\"\n"), "{page}");
    }
}
