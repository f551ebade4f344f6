//! Waiting for a condition with a time limit: the only code that sleeps.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Time that a test waits for what must happen. It is no promise: only a test that fails waits so
/// long. On an idle machine nothing takes a tenth of it.
pub const LIMIT: Duration = Duration::from_secs(150);

const POLL: Duration = Duration::from_millis(20);
/// The longest time between two looks.
const POLL_MOST: Duration = Duration::from_millis(500);

/// Waits until `condition` is true and returns how long that took.
pub fn until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Result<Duration> {
    let start = Instant::now();
    until_some(what, limit, || condition().then_some(()))?;
    Ok(start.elapsed())
}

/// Waits until `probe` returns something.
pub fn until_some<T>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Option<T>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        let looked = Instant::now();
        if let Some(found) = probe() {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!("waited {:.1} s for {what}", limit.as_secs_f64());
        }
        // What reads all that a daemon has sent takes a core otherwise.
        pause((looked.elapsed() * 4).clamp(POLL, POLL_MOST));
    }
}

/// Sleeps. Only for tests about the passing of time; everything else waits for a condition.
#[expect(clippy::disallowed_methods, reason = "no tick loop runs in this process")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
