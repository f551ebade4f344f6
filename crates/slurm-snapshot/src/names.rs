//! Names as every reader reports them: the same bytes are the same name, whichever reader it is and
//! whichever reply has them.

use std::borrow::Cow;

/// Length of the longest name that is reported, bytes.
pub const LONGEST_NAME: usize = 200;

/// Returns a name as text, shortened by [`short_name`]. A byte that is not UTF-8 becomes `\x` and
/// two digits, so that two different names stay different.
pub fn name(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return short_name(text);
    }
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    short_name(&text).into_owned().into()
}

/// Returns a name of at most [`LONGEST_NAME`] bytes. A longer name becomes its beginning, `-` and a
/// hash of the whole name.
pub fn short_name(name: &str) -> Cow<'_, str> {
    if name.len() <= LONGEST_NAME {
        return name.into();
    }
    // FNV-1a: paths are made of it, so it must not change with a library's version.
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let fits = |(at, c): &(usize, char)| at + c.len_utf8() <= LONGEST_NAME - 17;
    let kept: String = name.char_indices().take_while(fits).map(|(_, c)| c).collect();
    format!("{kept}-{hash:016x}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read as Latin-1, one partition had three names, and the join by name found nothing.
    #[test]
    fn the_same_bytes_are_the_same_name_and_others_are_another() {
        let names: [&[u8]; 5] =
            [b"gr\xfcn", b"gr\xfdn", "gr\u{fffd}n".as_bytes(), b"gr\xc3\xbcn", b"gr_n"];
        let texts = names.map(name);
        assert_eq!(texts, ["gr\\xfcn", "gr\\xfdn", "gr\u{fffd}n", "gr\u{fc}n", "gr_n"]);
    }

    #[test]
    fn a_long_name_is_short_and_another_one_is_another() {
        let long = |last: char| format!("{}{last}", "\u{fc}".repeat(120));
        let names = [long('a'), long('b')].map(|text| name(text.as_bytes()).into_owned());
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| (190..=LONGEST_NAME).contains(&name.len())), "{names:?}");
        let fits = "x".repeat(LONGEST_NAME);
        assert_eq!(short_name(&fits), fits);
        assert_eq!(name(&[0xff; 990]).len(), LONGEST_NAME);
    }

    #[test]
    fn hashes_never_change() {
        assert!(short_name(&"x".repeat(201)).ends_with("x-3631500d06f3bba7"));
    }
}
