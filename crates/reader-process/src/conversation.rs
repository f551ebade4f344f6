//! The conversation with the daemon: each input line is a request, each output line an answer.

use std::io::{self, Read, Write};

use slurm_snapshot::{Answer, LineError, Request};

/// The longest request line; the daemon's have less than 200 bytes.
const MAX_LINE: usize = 64 * 1024;

/// Why a conversation ended before its input did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Requests could not be read.
    #[error("reading a request: {0}")]
    Input(#[source] io::Error),
    /// An answer could not be written.
    #[error("writing a response: {0}")]
    Output(#[source] io::Error),
    /// An answer could not be encoded as JSON.
    #[error("encoding a response: {0}")]
    Encoding(#[source] serde_json::Error),
    /// The request's id is unknown, so no answer could name it.
    #[error("malformed request: {0}")]
    Request(#[from] LineError),
    /// A line without an end.
    #[error("malformed request: no end after {MAX_LINE} bytes")]
    TooLong,
}

/// Both directions, and the input that was read but not used yet.
#[derive(Debug)]
pub struct Conversation<R, W: Write> {
    input: R,
    bytes: Vec<u8>,
    output: io::BufWriter<W>,
}

impl<R: Read, W: Write> Conversation<R, W> {
    /// A conversation in which nothing has been said yet.
    pub fn new(input: R, output: W) -> Self {
        let output = io::BufWriter::with_capacity(16 << 10, output);
        Self { input, bytes: Vec::with_capacity(4096), output }
    }

    /// The next request; `None` at the end of the input.
    ///
    /// # Errors
    /// The input cannot be read, or a line is not a request.
    pub fn request(&mut self) -> Result<Option<Request>, ServeError> {
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
                // The last line may lack its newline if a person typed it.
                Ok(0) if self.bytes.is_empty() => return Ok(None),
                Ok(0) => self.bytes.push(b'\n'),
                Ok(count) => self.bytes.extend_from_slice(chunk.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ServeError::Input(error)),
            }
        }
    }

    /// Writes an answer while it is encoded, because one with every node is long.
    ///
    /// # Errors
    /// The output cannot be written to.
    pub fn answer(&mut self, answer: &Answer) -> Result<(), ServeError> {
        serde_json::to_writer(&mut self.output, answer).map_err(|error| {
            if error.is_io() { ServeError::Output(error.into()) } else { ServeError::Encoding(error) }
        })?;
        self.output.write_all(b"\n").and_then(|()| self.output.flush()).map_err(ServeError::Output)
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::{Hello, PROTOCOL};

    use super::*;

    /// A reader that returns five bytes at a time.
    struct FiveBytesAtATime<'a>(&'a [u8]);

    impl Read for FiveBytesAtATime<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let (now, later) = self.0.split_at(self.0.len().min(5));
            self.0 = later;
            buffer[..now.len()].copy_from_slice(now);
            Ok(now.len())
        }
    }

    #[test]
    fn a_request_may_come_in_pieces_and_the_last_without_its_newline() {
        let input = b"{\"statistics\":{\"id\":1}}\n{\"reset\":{\"id\":2}}\n{\"nodes\":{\"id\":3}}";
        let mut output = Vec::new();
        let mut daemon = Conversation::new(FiveBytesAtATime(input), &mut output);
        let hello = Answer::Hello(Hello { protocol: PROTOCOL, release: None, api_version: None });
        let mut requests = 0;
        while daemon.request().unwrap().is_some() {
            daemon.answer(&hello).unwrap();
            requests += 1;
        }
        drop(daemon);
        assert_eq!((requests, output.iter().filter(|&&byte| byte == b'\n').count()), (3, 3));
    }

    #[test]
    fn a_malformed_request_ends_the_conversation_and_one_without_end_is_not_kept() {
        for input in ["\n", "{}\n", "{\"statistics\":{}}\n", "x", "\u{ff}\n"] {
            let end = Conversation::new(input.as_bytes(), io::sink()).request();
            assert!(matches!(end, Err(ServeError::Request(_))), "{input:?}");
        }
        let mut daemon = Conversation::new(io::repeat(b'x'), io::sink());
        assert!(matches!(daemon.request(), Err(ServeError::TooLong)));
        assert!(daemon.bytes.len() < MAX_LINE + 2000);
    }
}
