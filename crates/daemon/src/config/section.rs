//! A table of the configuration file while it is being read: each key is taken once, and a key that
//! is left at the end does not exist.
//!
//! Serde would stop at the first problem; an administrator needs all of them.

use std::fmt::Display;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Problems};

/// The line of `text` that byte `offset` is in, from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// A table that is being read, with its full name and the list to which its problems are added.
pub(super) struct Section<'p, 't> {
    name: String,
    line: usize,
    table: DeTable<'t>,
    text: &'t str,
    known: Vec<&'static str>,
    /// The keys that belong at the top of the file, so that a key of theirs in this table gets a
    /// better message. Empty at the top itself.
    top: Vec<&'static str>,
    problems: &'p mut Problems,
}

impl<'p, 't> Section<'p, 't> {
    pub(super) fn new(
        name: &str,
        table: Spanned<DeTable<'t>>,
        text: &'t str,
        problems: &'p mut Problems,
    ) -> Self {
        let line = line_of(text, table.span().start);
        Self {
            name: name.to_owned(),
            line,
            table: table.into_inner(),
            text,
            known: Vec::new(),
            top: Vec::new(),
            problems,
        }
    }

    /// Reads a text into `target`, or leaves it as it is where the key is absent or wrong.
    pub(super) fn set<T, E: Display>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
        target: &mut T,
    ) {
        let parse = |value: &DeValue<'_>| match value {
            DeValue::String(text) => parse(text).map_err(|error| error.to_string()),
            // What is wrong with it in quotes too is said at once.
            other => Err(match literal(other).map(|text| (parse(text), text)) {
                Some((Ok(_), text)) => expected(&format!("quotes: \"{text}\""), other),
                Some((Err(error), _)) => format!("{}; {error}", expected("a quoted string", other)),
                None => expected("a quoted string", other),
            }),
        };
        self.set_value(key, parse, target);
    }

    /// Reads the text of a key without a default into `target`, or leaves it as it is where the key
    /// is absent or wrong.
    pub(super) fn set_some<T, E: Display>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
        target: &mut Option<T>,
    ) {
        self.set(key, |text| parse(text).map(Some), target);
    }

    /// Reads true or false into `target`, which stays as it is if the key is absent or wrong.
    pub(super) fn set_flag(&mut self, key: &'static str, target: &mut bool) {
        let parse =
            |value: &DeValue<'_>| value.as_bool().ok_or_else(|| expected("true or false", value));
        self.set_value(key, parse, target);
    }

    /// Reads a whole number that `parse` accepts into `target`, which stays as it is if the key is
    /// absent or wrong.
    pub(super) fn set_number<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(i64) -> Result<T, String>,
        target: &mut T,
    ) {
        let parse = |value: &DeValue<'_>| match value {
            DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
                .map_err(|error| error.to_string())
                .and_then(parse),
            other => Err(expected("a whole number", other)),
        };
        self.set_value(key, parse, target);
    }

    fn set_value<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
        target: &mut T,
    ) {
        self.known.push(key);
        let Some(value) = self.table.remove(key) else { return };
        let line = line_of(self.text, value.span().start);
        self.problems.lines.insert(self.full(key), line);
        match parse(value.get_ref()) {
            Ok(value) => *target = value,
            Err(text) => self.problem_at(line, key, text),
        }
    }

    /// Returns the table `key` below this one. `None`: it is absent, or is no table, which is a
    /// problem.
    pub(super) fn section(&mut self, key: &'static str) -> Option<Section<'_, 't>> {
        self.known.push(key);
        let value = self.table.remove(key)?;
        let switch = if self.name == "collectors" { ", with `enabled = true` in it" } else { "" };
        let wrong = format!("expected a table: [{}]{switch}", self.full(key));
        self.table_in(key, value, &wrong)
    }

    /// Calls `visit` with each table of the array of tables `key`, in their order, and with their
    /// number. A callback keeps the borrow of the problems short.
    pub(super) fn each_section(
        &mut self,
        key: &'static str,
        mut visit: impl FnMut(Section<'_, 't>, usize),
    ) {
        self.known.push(key);
        let Some(value) = self.table.remove(key) else { return };
        let line = line_of(self.text, value.span().start);
        let wrong = format!("expected tables: [[{}]], with two brackets", self.full(key));
        let DeValue::Array(array) = value.into_inner() else {
            return self.problem_at(line, key, wrong);
        };
        let count = array.len();
        for item in array {
            if let Some(section) = self.table_in(key, item, &wrong) {
                visit(section, count);
            }
        }
    }

    /// Returns `value` as a table below this one. `None`: it is no table, and `wrong` is the text
    /// of the problem.
    fn table_in(
        &mut self,
        key: &str,
        value: Spanned<DeValue<'t>>,
        wrong: &str,
    ) -> Option<Section<'_, 't>> {
        let span = value.span();
        let DeValue::Table(table) = value.into_inner() else {
            self.problem_at(line_of(self.text, span.start), key, wrong.to_owned());
            return None;
        };
        let top = if self.name.is_empty() { self.known.clone() } else { self.top.clone() };
        let section =
            Section::new(&self.full(key), Spanned::new(span, table), self.text, self.problems);
        Some(Section { top, ..section })
    }

    /// Reports that `key` is missing, unless it was there and wrong.
    pub(super) fn require(&mut self, key: &'static str, what: &str) {
        let full = self.full(key);
        if !self
            .problems
            .list
            .iter()
            .any(|problem| problem.key == full && problem.line >= Some(self.line))
        {
            self.problem(key, format!("is missing: {what}"));
        }
    }

    /// Adds a problem with `key` at the line where the table begins.
    pub(super) fn problem(&mut self, key: &str, text: String) {
        self.problem_at(self.line, key, text);
    }

    /// Reports every key that was not read: it does not exist.
    pub(super) fn report_unread(mut self) {
        for (key, _) in std::mem::take(&mut self.table) {
            let line = line_of(self.text, key.span().start);
            let key = key.get_ref();
            if self.top.iter().any(|top| top == key) {
                self.problem_at(
                    line,
                    key,
                    format!("{key} belongs at the top of the file, above the first [table]"),
                );
                continue;
            }
            let meant = similar(key, &self.known);
            let meant = meant
                .map_or_else(|| "the".to_owned(), |meant| format!("did you mean {meant}? The"));
            let text = format!("no such key; {meant} keys here are {}", self.known.join(", "));
            self.problem_at(line, key, text);
        }
    }

    fn problem_at(&mut self, line: usize, key: &str, text: String) {
        let key = self.full(key);
        self.problems.list.push(Problem { line: Some(line), key, text });
    }

    fn full(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }
}

fn expected(what: &str, instead: &DeValue<'_>) -> String {
    let article = if instead.type_str().starts_with(['a', 'i']) { "an" } else { "a" };
    format!("expected {what}, found {article} {}", instead.type_str())
}

/// Returns the text of a number that would be a string with quotes. `None` for other values.
fn literal<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    match value {
        DeValue::Integer(integer) => Some(integer.as_str()),
        DeValue::Float(float) => Some(float.as_str()),
        _ => None,
    }
}

/// The key that was meant, if one is as similar as clap expects of its flags.
fn similar<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let similarities = known.iter().map(|known| (strsim::jaro(key, known), *known));
    similarities
        .filter(|(how, _)| *how > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}
