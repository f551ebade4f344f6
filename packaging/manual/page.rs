//! A manual page in roff, from plain text in which `backticks` are bold.

use clap_mangen::roff::{Roff, bold, roman};

/// A page that is being written from top to bottom.
pub(crate) struct ManualPage(String);

impl ManualPage {
    /// Its title line and its NAME.
    pub(crate) fn new(name: &str, section: u8, about: &str) -> Self {
        let source = concat!("slurm-graphite ", env!("CARGO_PKG_VERSION"));
        let mut page = Self(String::new());
        // An undated page: the same sources always give the same file.
        page.control("TH", &[name, &section.to_string(), "", source]);
        page.section("NAME");
        page.line(&format!("{name} - {about}"));
        page
    }

    pub(crate) fn section(&mut self, heading: &str) {
        self.control("SH", &[heading]);
    }

    pub(crate) fn subsection(&mut self, heading: &str) {
        self.control("SS", &[heading]);
    }

    /// Paragraphs, with empty lines between them; with one before the first too it is a further
    /// one.
    pub(crate) fn text(&mut self, text: &str) {
        for (index, paragraph) in text.split("\n\n").enumerate() {
            // In one line: what stands in backticks may have been wrapped.
            let paragraph = paragraph.trim().replace('\n', " ");
            if !paragraph.is_empty() {
                if index > 0 {
                    self.control("PP", &[]);
                }
                self.line(&paragraph);
            }
        }
    }

    /// A term with what it means.
    pub(crate) fn term(&mut self, term: &str, meaning: &str) {
        self.control("TP", &[]);
        self.term_line(term, "");
        self.text(meaning);
    }

    /// A bold term, followed by plain text.
    pub(crate) fn term_line(&mut self, term: &str, rest: &str) {
        let mut roff = Roff::new();
        roff.text([bold(term), roman(rest)]);
        self.0 += &roff.to_roff();
    }

    /// Text from clap_mangen, without its preamble, which defines the apostrophe.
    pub(crate) fn rendered(&mut self, roff: &str) {
        roff.lines().for_each(|line| {
            self.0 += &emphasise(&line.replace(r"\*(Aq", r"\(aq"));
            self.0.push('\n');
        });
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, line: &str) {
        let mut roff = Roff::new();
        roff.text([roman(line)]);
        self.0 += &emphasise(&roff.to_roff());
    }

    /// The arguments are ours: none has a quote or a backslash.
    fn control(&mut self, name: &str, args: &[&str]) {
        self.0 += &format!(".{name}");
        args.iter().for_each(|arg| self.0 += &format!(" \"{}\"", arg.replace('-', r"\-")));
        self.0.push('\n');
    }
}

/// Every second backtick closes; a lone one stays.
fn emphasise(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return line.to_owned();
    }
    let emphasised = parts.iter().enumerate().map(|(index, part)| match index % 2 {
        0 => (*part).to_owned(),
        _ => format!("\\fB{part}\\fR"),
    });
    emphasised.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_backticks_are_bold_and_a_lone_one_is_itself() {
        assert_eq!(emphasise("run `sdiag` and `x`."), "run \\fBsdiag\\fR and \\fBx\\fR.");
        assert_eq!(emphasise("a ` b"), "a ` b");
    }

    #[test]
    fn a_line_that_looks_like_a_macro_is_text() {
        let mut page = ManualPage::new("x", 1, "y");
        page.text(".SH is no heading\n'nor this");
        let page = page.finish();
        assert!(
            !page.lines().any(|line| line.starts_with(".SH is") || line.starts_with('\'')),
            "{page}"
        );
    }
}
