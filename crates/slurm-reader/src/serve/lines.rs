//! Lines of the input, as requests.

use std::io::{self, Read};

use slurm_snapshot::Request;

use super::ServeError;

/// The longest request line; the daemon's have less than 100 bytes.
pub(super) const MAX_LINE: usize = 64 * 1024;

/// The input, and what of it was read and not yet used.
pub(super) struct Requests<R> {
    input: R,
    bytes: Vec<u8>,
}

impl<R: Read> Requests<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, bytes: Vec::with_capacity(4096) }
    }

    pub(super) fn next(&mut self) -> Result<Option<Request>, ServeError> {
        loop {
            if let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
                let request = Request::parse(self.bytes.get(..end).unwrap_or_default())?;
                self.bytes.drain(..=end);
                return Ok(Some(request));
            }
            if self.bytes.len() > MAX_LINE {
                return Err(ServeError::TooLong);
            }
            let mut chunk = [0; 1024];
            match self.input.read(&mut chunk) {
                // By hand, the last line may lack its newline.
                Ok(0) if self.bytes.is_empty() => return Ok(None),
                Ok(0) => self.bytes.push(b'\n'),
                Ok(count) => self.bytes.extend_from_slice(chunk.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ServeError::Input(error)),
            }
        }
    }
}
