//! systemd's end of `NOTIFY_SOCKET`: a service's messages, with the times at which they came.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{Folder, wait};

/// A listener that keeps every message.
#[derive(Debug)]
pub struct Notify {
    /// For `NOTIFY_SOCKET`.
    pub path: PathBuf,
    socket: UnixDatagram,
    messages: Vec<(Instant, String)>,
}

impl Notify {
    /// Listens in the folder.
    pub fn listen(folder: &Folder) -> Result<Self> {
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).with_context(|| path.display().to_string())?;
        socket.set_nonblocking(true)?;
        Ok(Self { path, socket, messages: Vec::new() })
    }

    /// Everything that has come so far, with the time at which it was read.
    pub fn messages(&mut self) -> &[(Instant, String)] {
        let mut buffer = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
            self.messages.push((Instant::now(), text.trim_end().to_owned()));
        }
        &self.messages
    }

    /// Waits for a message that contains `needle`, leaving out the first `skip`.
    pub fn message_after(&mut self, skip: usize, needle: &str, limit: Duration) -> Result<String> {
        wait::until_some(&format!("{needle:?} as a notification"), limit, || {
            let messages = self.messages().iter().skip(skip);
            messages.map(|(_, text)| text).find(|text| text.contains(needle)).cloned()
        })
        .with_context(|| format!("{:#?}", self.messages))
    }

    /// Waits for a message that contains `needle`.
    pub fn message(&mut self, needle: &str, limit: Duration) -> Result<String> {
        self.message_after(0, needle, limit)
    }
}
