//! slurm-graphite.toml(5), from the shipped file: what its comments say of a key is said there and nowhere else.
//!
//! A comment belongs to the key or the table's head that comes next, in a paragraph of its own where an empty line is
//! between; before all keys it is about the file. `#key = …`, without a space, is a key that has no default.

use super::roff::ManualPage;

/// The page for the file `toml`.
pub(super) fn page(toml: &str) -> String {
    let mut page = ManualPage::new("slurm-graphite.toml", 5, "the configuration of slurm-graphite");
    page.section("DESCRIPTION");
    page.text("A file in TOML. What follows is the file that is installed.");
    let mut comment = String::new();
    let mut in_keys = false;
    for line in toml.lines() {
        match parse_line(line) {
            ConfigurationLine::Comment(text) => {
                comment += text;
                comment.push('\n');
            }
            ConfigurationLine::End if in_keys => comment.push('\n'),
            ConfigurationLine::End => {
                page.text(&format!("\n\n{comment}"));
                comment.clear();
            }
            ConfigurationLine::Head(head) => {
                page.section(head);
                page.text(&comment);
                comment.clear();
                in_keys = true;
            }
            ConfigurationLine::Key(line) => {
                if !in_keys {
                    page.section("TOP-LEVEL KEYS");
                    in_keys = true;
                }
                page.term(line, &comment);
                comment.clear();
            }
        }
    }
    page.section("SEE ALSO");
    page.text("`slurm-graphite`(1), `slurm.conf`(5)");
    page.finish()
}

/// What a line of the file is.
#[derive(Debug, PartialEq, Eq)]
enum ConfigurationLine<'t> {
    Comment(&'t str),
    Key(&'t str),
    Head(&'t str),
    End,
}

fn parse_line(line: &str) -> ConfigurationLine<'_> {
    let line = line.trim();
    match line.strip_prefix('#') {
        Some(text) if text.is_empty() || text.starts_with(' ') => ConfigurationLine::Comment(text.trim()),
        _ if line.is_empty() => ConfigurationLine::End,
        bare if bare.unwrap_or(line).starts_with('[') => ConfigurationLine::Head(line),
        _ => ConfigurationLine::Key(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigFile, Flags};

    const SHIPPED: &str = include_str!("../../../../../config/slurm-graphite.toml");

    #[test]
    fn every_key_that_the_program_takes_is_in_the_page() {
        let page = page(SHIPPED).replace("\\-", "-");
        let mut keys = Vec::new();
        collect("", &mut keys);
        assert!(keys.len() > 15 && keys.contains(&"carbon.address".to_owned()), "{keys:?}");
        for key in keys {
            let (table, key) = key.rsplit_once('.').unwrap_or(("", &key));
            let body = section(&page, table);
            let found = body.lines().any(|line| {
                line.strip_prefix("\\fB")
                    .is_some_and(|line| line.trim_start_matches('#').starts_with(&format!("{key} = ")))
            });
            assert!(found, "{table} {key} is not in the page:\n{body}");
        }
    }

    /// The program names the keys that there are when it meets one that is not; a table has more of them inside.
    fn collect(table: &str, keys: &mut Vec<String>) {
        for key in known(table) {
            let full = if table.is_empty() { key } else { format!("{table}.{key}") };
            if known(&full).is_empty() { keys.push(full) } else { collect(&full, keys) }
        }
    }

    fn known(table: &str) -> Vec<String> {
        let (single, several) = (format!("[{table}]\n"), format!("[[{table}]]\n"));
        let heads = if table.is_empty() { vec![String::new()] } else { vec![single, several] };
        let known = heads.iter().find_map(|head| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), format!("{head}no_such_key = \"\"\n")).unwrap();
            let problems = Config::load(ConfigFile::read(Some(file.path())).unwrap(), &Flags::default())
                .unwrap_err()
                .to_string();
            let place = if table.is_empty() { String::new() } else { format!("{table}.") };
            let (_, text) = problems.split_once(&format!("{place}no_such_key: no such key; "))?;
            let (_, known) = text.split_once(" keys here are ")?;
            Some(known.lines().next().unwrap().split(", ").map(str::to_owned).collect())
        });
        known.unwrap_or_default()
    }

    /// The part of the page about a table.
    fn section<'p>(page: &'p str, table: &str) -> &'p str {
        let heading = |line: &str| {
            let name = line.trim_start_matches(".SH ").trim_matches(['"', '#', '[', ']']);
            line.starts_with(".SH ") && name == if table.is_empty() { "TOP-LEVEL KEYS" } else { table }
        };
        let start = page.lines().find(|line| heading(line)).unwrap_or_else(|| panic!("no {table} in {page}"));
        let body = page.split_once(&format!("{start}\n")).unwrap().1;
        body.split("\n.SH ").next().unwrap()
    }

    #[test]
    fn a_comment_before_an_empty_line_stays_with_what_comes_next() {
        let page = page("# File.\n\n# A.\na = \"1\"\n\n# Of all.\n\n# Of t.\n[t]\n# B.\nb = true\n");
        let (before, t) = page.split_once(".SH \"[t]\"\n").unwrap();
        assert!(before.contains("File.\n.SH \"TOP\\-LEVEL KEYS\"") && before.ends_with("\nA.\n"), "{before}");
        assert!(t.starts_with("Of all.\n.PP\nOf t.\n.TP\n\\fBb = true\\fR\nB.\n"), "{t}");
    }

    #[test]
    fn a_comment_that_looks_like_a_key_is_a_comment() {
        assert_eq!(parse_line("# key = \"x\""), ConfigurationLine::Comment("key = \"x\""));
        assert_eq!(parse_line("#key = \"x\""), ConfigurationLine::Key("#key = \"x\""));
        assert_eq!(parse_line("#[collectors.rpc]"), ConfigurationLine::Head("#[collectors.rpc]"));
        assert_eq!(parse_line("[[carbon]]"), ConfigurationLine::Head("[[carbon]]"));
        assert_eq!(parse_line("#"), ConfigurationLine::Comment(""));
    }
}
