//! Plain Rust for the values of C that mean none, and for texts. Knows no reply.

/// `NO_VAL`; `INFINITE` is one more.
pub(crate) const NO_VAL: u32 = 0xffff_fffe;

/// `NO_VAL16`; `INFINITE16` is one more.
pub(crate) const NO_VAL16: u16 = 0xfffe;

/// `NO_VAL64`; `INFINITE64` is one more.
const NO_VAL64: u64 = 0xffff_ffff_ffff_fffe;

/// A number; `None` for the two values that mean none in C, `NO_VAL` and `INFINITE`.
pub(crate) const fn number(number: u32) -> Option<u32> {
    if number >= NO_VAL { None } else { Some(number) }
}

/// A 64-bit number; `None` for the two values that mean none in C, `NO_VAL64` and `INFINITE64`.
pub(crate) const fn number64(number: u64) -> Option<u64> {
    if number >= NO_VAL64 { None } else { Some(number) }
}

/// Widens a number that has fewer than 32 bits in some releases.
pub(crate) fn wide(number: impl Into<u32>) -> u32 {
    number.into()
}

/// A name, as all readers report it.
pub(crate) fn name(bytes: &[u8]) -> String {
    slurm_snapshot::name(bytes).into_owned()
}

/// A text, with U+FFFD for bytes that are not UTF-8; `None` if it is empty.
pub(crate) fn text(bytes: &[u8]) -> Option<String> {
    Some(lossy(bytes)).filter(|text| !text.is_empty())
}

/// A text, with U+FFFD for bytes that are not UTF-8; it may be empty.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_may_be_empty_or_not_utf8() {
        assert_eq!(text(b""), None);
        assert_eq!(text(b"node[1-4]").unwrap(), "node[1-4]");
        assert_eq!(text(b"n\xff").unwrap(), "n\u{fffd}");
    }
}
