//! Stands for Carbon and counts ticks.

use std::io::{Read, copy, sink};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use sandbox::wait;

/// A peer that counts ticks by a metric that every tick has exactly once, and discards the rest.
pub(crate) struct Peer {
    pub(crate) address: String,
    ticks: Arc<AtomicU64>,
}

impl Peer {
    pub(crate) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let ticks = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&ticks);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                // A thread, because the collector renews its connection.
                std::thread::spawn(move || count(stream, &counted));
            }
        });
        Ok(Self { address, ticks })
    }

    pub(crate) fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Waits for this many.
    pub(crate) fn until(&self, ticks: u64, limit: Duration) -> Result<()> {
        wait::until(&format!("{ticks} ticks"), limit, || self.ticks() >= ticks).map(drop)
    }
}

/// The first frame of a tick begins with the first figure of the first collector.
fn count(mut stream: TcpStream, ticks: &AtomicU64) {
    const HEAD: usize = 128;
    const FIRST_LEAF: &[u8] = b"gauge-server_thread_count";
    let mut length = [0; 4];
    let mut head = [0; HEAD];
    while stream.read_exact(&mut length).is_ok() {
        let body = u64::from(u32::from_be_bytes(length));
        let taken = usize::try_from(body).unwrap_or(HEAD).min(HEAD);
        let Some(start) = head.get_mut(..taken) else { return };
        if stream.read_exact(start).is_err() {
            return;
        }
        ticks.fetch_add(
            u64::from(start.windows(FIRST_LEAF.len()).any(|window| window == FIRST_LEAF)),
            Ordering::Relaxed,
        );
        if copy(&mut (&mut stream).take(body - taken as u64), &mut sink()).is_err() {
            return;
        }
    }
}
