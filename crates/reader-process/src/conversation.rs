//! The conversation with the daemon: a hello, then an answer line for each request line.

use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write};

use slurm_snapshot::{Answer, Hello, Request};

/// Length of the longest request line, bytes. The daemon's lines have less than 200 bytes, and for
/// the steps of 1000 jobs 24 KB. A longer line is cut, and so malformed.
const MAX_LINE: u64 = 64 * 1024;

/// Writes the hello, and answers requests until `input` ends. `respond` sends one answer to each.
/// An answer is written while it is encoded, because one with every node is long.
///
/// # Errors
/// The input or the output broke, or a line is not a request: its id is unknown, so no answer could
/// name it.
pub fn converse(
    input: impl Read,
    output: impl Write,
    hello: Hello,
    mut respond: impl FnMut(&Request, &mut dyn FnMut(&Answer) -> io::Result<()>) -> io::Result<()>,
) -> io::Result<()> {
    let (mut input, mut output) =
        (BufReader::new(input), BufWriter::with_capacity(16 << 10, output));
    let mut send = |answer: &Answer| {
        serde_json::to_writer(&mut output, answer)?;
        output.write_all(b"\n")?;
        output.flush()
    };
    send(&Answer::Hello(hello))?;
    let mut line = Vec::new();
    loop {
        line.clear();
        // The last line may lack its newline if a person typed it.
        if input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let request = Request::parse(line.trim_ascii_end());
        let request =
            request.map_err(|error| io::Error::other(format!("malformed request: {error}")))?;
        respond(&request, &mut send)?;
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::PROTOCOL;

    use super::*;

    const HELLO: Hello = Hello { protocol: PROTOCOL, release: None };

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
        let mut requests = Vec::new();
        converse(FiveBytesAtATime(input), &mut output, HELLO, |request, send| {
            requests.push(request.id);
            send(&Answer::Hello(HELLO))
        })
        .unwrap();
        assert_eq!(
            (requests, output.iter().filter(|&&byte| byte == b'\n').count()),
            (vec![1, 2, 3], 4)
        );
    }

    #[test]
    fn a_malformed_request_ends_the_conversation_and_one_without_end_is_not_kept() {
        let end = |input: &mut dyn Read| {
            converse(input, io::sink(), HELLO, |_, _| panic!("a request")).unwrap_err().to_string()
        };
        for input in ["\n", "{}\n", "{\"statistics\":{}}\n", "x", "\u{ff}\n"] {
            let end = end(&mut input.as_bytes());
            assert!(end.starts_with("malformed request: "), "{input:?}: {end}");
        }
        assert!(end(&mut io::repeat(b'x')).starts_with("malformed request: "));
    }
}
