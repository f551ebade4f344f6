//! Text from elsewhere (Slurm, slurmrestd, a name service, another program) as it may be shown: on
//! one line, without anything that a terminal or a reader of the log could take for something else.
//! Pure.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Escapes everything that is not visible: control characters, and those that change the direction
/// or the end of a line. A backslash stays as it is, so that what was escaped once remains
/// readable.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escape(text, is_visible, |c, shown| shown.extend(c.escape_debug()))
}

/// Escapes everything in a text that is not visible, except newlines and tabs.
pub(crate) fn printable_lines(text: &str) -> Cow<'_, str> {
    let is_kept = |c| matches!(c, '\n' | '\t') || is_visible(c);
    escape(text, is_kept, |c, shown| shown.extend(c.escape_debug()))
}

/// JSON with everything escaped that is not visible. It stays the same document.
pub(crate) fn printable_json(json: &str) -> Cow<'_, str> {
    escape(json, is_visible, |c, shown| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    })
}

fn escape(
    text: &str,
    is_kept: impl Fn(char) -> bool,
    escaped: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if text.chars().all(&is_kept) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_kept(c) { shown.push(c) } else { escaped(c, &mut shown) }
    }
    Cow::Owned(shown)
}

fn is_visible(c: char) -> bool {
    matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1
}

/// [`printable`] text for a column of a table: at most `width` characters; what is cut ends in an
/// ellipsis.
pub(crate) fn cell(text: &str, width: usize) -> String {
    let text = printable(text);
    if text.chars().count() <= width {
        return text.into_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(std::iter::once('…').take(width)).collect()
}

/// A text as the value of a field in a log line: in quotes unless it is a plain word, so that it
/// cannot look like other fields.
pub(crate) fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| is_visible(c) && !matches!(c, ' ' | '"' | '=' | '\\');
    if !text.is_empty() && text.chars().all(is_plain) || is_quoted(text) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{text:?}"))
}

/// Whether it is in quotes already, as `Debug` writes a text.
fn is_quoted(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return false;
    };
    let mut is_escaped = false;
    let is_inside = |c: char| {
        let is_inside = is_visible(c) && (is_escaped || c != '"');
        is_escaped = !is_escaped && c == '\\';
        is_inside
    };
    inner.chars().all(is_inside) && !is_escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_could_obey_is_escaped_and_what_people_write_is_not() {
        for plain in ["", "phys", "GPU's \"big\" one", "Üñï 日本", "a\\b", "…✓"] {
            assert_eq!(printable(plain), plain);
        }
        let characters = [
            '\u{1b}',
            '\n',
            '\r',
            '\u{7}',
            '\u{7f}',
            '\u{9b}',
            '\u{85}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{200e}',
            '\u{200f}',
            '\u{61c}',
            '\u{200b}',
            '\u{200d}',
            '\u{feff}',
            '\u{e0001}',
            '\u{e0041}',
            '\t',
        ];
        for c in characters {
            let text = format!("a{c}b");
            let lines = printable_lines(&text.replace(['\n', '\t'], "\\")).into_owned();
            let shown =
                [printable(&text).into_owned(), cell(&text, 30), quoted(&text).into_owned(), lines];
            for shown in shown {
                assert!(!shown.contains(c) && shown.contains('\\'), "{shown:?}");
            }
        }
        assert_eq!((cell("abcdef", 4), cell("abc\n", 4)), ("abc…".to_owned(), "abc…".to_owned()));
    }

    #[test]
    fn json_without_what_a_terminal_could_obey_is_the_same_document() {
        let document =
            serde_json::json!({ "a\u{9b}": "\u{202e}\u{e0041}\u{7f}\u{1b}\n\" Üñï 日本" });
        let shown = printable_json(&document.to_string()).into_owned();
        assert!(shown.chars().all(is_visible) && shown.contains("日本"), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), document);
    }

    #[test]
    fn a_value_in_the_log_cannot_look_like_another_field() {
        for (text, shown) in [
            ("carbon:2004", "carbon:2004"),
            ("x destination=carbon error=none", r#""x destination=carbon error=none""#),
            ("a=b", r#""a=b""#),
            ("", r#""""#),
            // A field that was recorded as a text is in quotes already.
            (r#""two words""#, r#""two words""#),
            (r#""say \"x\"""#, r#""say \"x\"""#),
            (r#""a" error="b""#, r#""\"a\" error=\"b\"""#),
            (r#""open\""#, r#""\"open\\\"""#),
            ("\"a\u{1b}\"", r#""\"a\u{1b}\"""#),
        ] {
            assert_eq!(quoted(text), shown);
        }
    }
}
