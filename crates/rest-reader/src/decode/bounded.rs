//! What no answer of slurmrestd has, refused before it is parsed: long texts, which the parser holds whole, and depth,
//! of which it holds each level even of a member that nobody needs.

use std::io::{Error, Read, Result};

/// Longer than any name or comment in Slurm.
const LONGEST_TEXT: usize = 256 << 10;

/// Deeper than any answer.
const MOST_DEPTH: usize = 64;

/// JSON on its way to the parser.
pub(super) struct Bounded<R> {
    inner: R,
    depth: usize,
    /// The bytes since the text began in which the last one was.
    text: Option<usize>,
    is_escaped: bool,
}

impl<R> Bounded<R> {
    pub(super) const fn new(inner: R) -> Self {
        Self { inner, depth: 0, text: None, is_escaped: false }
    }

    fn check(&mut self, bytes: &[u8]) -> Result<()> {
        for &byte in bytes {
            match (&mut self.text, byte) {
                (Some(_), _) if self.is_escaped => self.is_escaped = false,
                (Some(_), b'\\') => self.is_escaped = true,
                (Some(_), b'"') => self.text = None,
                (Some(length), _) => {
                    *length += 1;
                    if *length > LONGEST_TEXT {
                        return Err(Error::other(
                            "the response contains a longer string than slurmrestd ever sends",
                        ));
                    }
                }
                (None, b'"') => self.text = Some(0),
                (None, b'[' | b'{') => {
                    self.depth += 1;
                    if self.depth > MOST_DEPTH {
                        return Err(Error::other(format!(
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

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let length = self.inner.read(buffer)?;
        self.check(buffer.get(..length).unwrap_or_default())?;
        Ok(length)
    }
}
