//! One HTTP request to a server on 127.0.0.1, and its answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// An answer may be a picture of many series on a busy machine.
const PATIENCE: Duration = crate::wait::LIMIT;

/// The content of an answer with status 200 or 204. `body` is that of a form, or empty.
pub fn ask(port: u16, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: \
         application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no answer")?;
    let (head, content) = answer.split_at(end + 4);
    let head = String::from_utf8_lossy(head);
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    ensure!(["200", "204"].contains(&status), "{status}: {}", String::from_utf8_lossy(content));
    Ok(content.to_vec())
}

/// The JSON in an answer with status 200. `body` is that of a form, or empty.
pub fn json(port: u16, method: &str, path: &str, body: &str) -> Result<Value> {
    let answer = ask(port, method, path, body)?;
    serde_json::from_slice(&answer).with_context(|| String::from_utf8_lossy(&answer).into_owned())
}

/// Encodes text as a part of a form or of a query.
pub fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
