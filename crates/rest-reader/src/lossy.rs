//! An answer on its way to the parser. Bytes that are not UTF-8 become question marks: a reason or
//! a comment may have been typed in another encoding, and slurmrestd passes it on unchanged; the
//! rest of the answer is still good. What no answer of slurmrestd has is refused before it is
//! parsed: long texts, which the parser holds whole, and depth, of which it holds each level even
//! of a member that nobody needs.

use std::io::{self, Read};

/// The most bytes of an incomplete character at the end of what was read so far.
const MOST_HELD: usize = 3;

/// Bytes that a text may have: more than any name or comment in Slurm has.
const LONGEST_TEXT: usize = 256 << 10;

/// Number of arrays and objects that may be nested: more than in any answer.
const MOST_DEPTH: usize = 64;

/// A reader that replaces bytes that are not UTF-8, one by one, and refuses what is too long or too
/// deep.
pub(crate) struct Lossy<R> {
    inner: R,
    held: Vec<u8>,
    depth: usize,
    /// Number of bytes so far of the text that is being read; `None` outside of a text.
    text: Option<usize>,
    is_escaped: bool,
}

impl<R> Lossy<R> {
    pub(crate) fn new(inner: R) -> Self {
        let held = Vec::with_capacity(MOST_HELD);
        Self { inner, held, depth: 0, text: None, is_escaped: false }
    }

    fn check(&mut self, bytes: &[u8]) -> io::Result<()> {
        for &byte in bytes {
            match (&mut self.text, byte) {
                (Some(_), _) if self.is_escaped => self.is_escaped = false,
                (Some(_), b'\\') => self.is_escaped = true,
                (Some(_), b'"') => self.text = None,
                (Some(length), _) => {
                    *length += 1;
                    if *length > LONGEST_TEXT {
                        return Err(io::Error::other(
                            "the response contains a longer string than slurmrestd ever sends",
                        ));
                    }
                }
                (None, b'"') => self.text = Some(0),
                (None, b'[' | b'{') => {
                    self.depth += 1;
                    if self.depth > MOST_DEPTH {
                        return Err(io::Error::other(format!(
                            "the response is nested deeper than {MOST_DEPTH} levels"
                        )));
                    }
                }
                (None, b']' | b'}') => self.depth = self.depth.saturating_sub(1),
                (None, _) => {}
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for Lossy<R> {
    /// Reads bytes that are whole characters. `buffer` must have room for a character of 4 bytes.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let before = self.held.len();
            let Some((start, free)) =
                buffer.split_at_mut_checked(before).filter(|(_, free)| !free.is_empty())
            else {
                return Err(io::Error::other("no room for a character"));
            };
            start.copy_from_slice(&self.held);
            let read = self.inner.read(free)?;
            self.held.clear();
            let text = buffer.get_mut(..before.saturating_add(read)).unwrap_or_default();
            let good = replace(text);
            let (_, rest) = text.split_at_mut(good);
            if read == 0 {
                rest.fill(b'?');
                self.check(text)?;
                return Ok(text.len());
            }
            self.held.extend_from_slice(rest);
            if good > 0 {
                self.check(text.get(..good).unwrap_or_default())?;
                return Ok(good);
            }
        }
    }
}

/// Replaces bytes that cannot be UTF-8, and returns how many bytes are valid. At most [`MOST_HELD`]
/// bytes after them may still become a character.
fn replace(bytes: &mut [u8]) -> usize {
    let mut good = 0;
    loop {
        let rest = bytes.get_mut(good..).unwrap_or_default();
        let Err(error) = std::str::from_utf8(rest) else { return bytes.len() };
        let valid = error.valid_up_to();
        good = good.saturating_add(valid);
        let Some(length) = error.error_len() else { return good };
        if let Some(wrong) = rest.get_mut(valid..valid.saturating_add(length)) {
            wrong.fill(b'?');
        }
        good = good.saturating_add(length);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reader that returns these pieces one by one.
    struct InPieces(Vec<Vec<u8>>);

    impl Read for InPieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(first) = self.0.first_mut() else { return Ok(0) };
            let length = first.len().min(buffer.len());
            buffer[..length].copy_from_slice(&first[..length]);
            first.drain(..length);
            if first.is_empty() {
                self.0.remove(0);
            }
            Ok(length)
        }
    }

    fn through(pieces: Vec<Vec<u8>>, room: usize) -> Vec<u8> {
        let pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let (mut lossy, mut found, mut buffer) =
            (Lossy::new(InPieces(pieces)), Vec::new(), vec![0; room]);
        loop {
            let read = lossy.read(&mut buffer).unwrap();
            if read == 0 {
                return found;
            }
            found.extend_from_slice(&buffer[..read]);
        }
    }

    #[test]
    fn a_reason_in_latin_1_costs_its_own_letter_alone() {
        for (pieces, expected) in [
            (vec![b"caf\xe9 \"x\"".to_vec()], "caf? \"x\""),
            (vec![b"caf\xc3".to_vec(), b"\xa9".to_vec()], "café"),
            (vec![b"caf\xc3".to_vec()], "caf?"),
            (vec![b"\xf0\x9f".to_vec(), b"\x98".to_vec(), b"x".to_vec()], "???x"),
            (vec![b"\xff\xfe".to_vec()], "??"),
        ] {
            assert_eq!(String::from_utf8(through(pieces, 8)).unwrap(), expected);
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_as_long_and_utf8(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
            room in 4_usize..12,
        ) {
            let length = pieces.iter().map(Vec::len).sum::<usize>();
            let found = through(pieces, room);
            prop_assert_eq!(found.len(), length);
            prop_assert!(std::str::from_utf8(&found).is_ok());
        }

        #[test]
        fn good_text_is_not_touched(text in "\\PC{0,40}", cut in 1_usize..5, room in 4_usize..12) {
            let pieces = text.as_bytes().chunks(cut).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(through(pieces, room), text.as_bytes());
        }
    }
}
