//! The wall clock, and an alarm that wakes at a given time.
//!
//! The alarm is timerfd_create(2) on `CLOCK_REALTIME`. The kernel also wakes it when the clock is
//! set, so that a step is noticed at once, and after a suspend. tokio's own timers use only the
//! monotonic clock, and wake twice for one long wait, which costs more than a tick's arithmetic.
//!
//! With the feature `fast-clock`, which no release has, time runs `SLURM_GRAPHITE_CLOCK_RATE` times
//! as fast, so that a benchmark can see what 100,000 ticks do to memory.

#[cfg(not(feature = "fast-clock"))]
use std::convert::{identity as from_real, identity as to_real};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::tz::TimeZone;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[cfg(feature = "fast-clock")]
use self::fast::{from_real, to_real};

/// Unix time. A clock before 1970 is read as 1970.
pub(crate) fn now() -> Duration {
    from_real(real_now())
}

/// Unix time in whole seconds.
pub(crate) fn unix_now() -> i64 {
    i64::try_from(now().as_secs()).unwrap_or(i64::MAX)
}

/// The host's time zone, read once: jiff would read it again every five minutes, and /etc may hang.
static ZONE: LazyLock<TimeZone> = LazyLock::new(TimeZone::system);

/// Reads the host's time zone, for the life of the process.
pub(crate) fn read_zone() {
    LazyLock::force(&ZONE);
}

/// Time since the host's boot, nanoseconds (CLOCK_BOOTTIME). Nobody sets that clock, so it measures
/// since when something is so.
pub(crate) fn boot_now() -> i64 {
    nanoseconds(Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default())
}

/// Converts a moment of [`boot_now`], nanoseconds, to Unix seconds, however the wall clock was set
/// meanwhile.
pub(crate) fn unix_of(boot: i64) -> i64 {
    let ago = boot_now().saturating_sub(boot);
    nanoseconds(now()).saturating_sub(ago).div_euclid(1_000_000_000)
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// A moment in local time, as strftime(3) writes it, or the number itself if it is no date.
pub(crate) fn local(unix: i64, format: &str) -> String {
    jiff::Timestamp::from_second(unix)
        .map(|at| at.to_zoned(ZONE.clone()).strftime(format).to_string())
        .unwrap_or_else(|_| unix.to_string())
}

fn real_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A clock that runs faster than the real one from the first look at it on.
#[cfg(feature = "fast-clock")]
mod fast {
    use std::sync::LazyLock;
    use std::time::Duration;

    static START: LazyLock<Duration> = LazyLock::new(super::real_now);
    static RATE: LazyLock<u32> = LazyLock::new(|| {
        std::env::var("SLURM_GRAPHITE_CLOCK_RATE")
            .ok()
            .and_then(|rate| rate.parse().ok())
            .unwrap_or(1)
            .max(1)
    });

    pub(super) fn from_real(moment: Duration) -> Duration {
        *START + moment.saturating_sub(*START) * *RATE
    }

    pub(super) fn to_real(moment: Duration) -> Duration {
        *START + moment.saturating_sub(*START) / *RATE
    }
}

/// A timer that is set for one moment at a time.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: AsyncFd<OwnedFd>,
    set_for: Option<Duration>,
}

impl Alarm {
    /// Makes an alarm that is not set.
    pub(crate) fn new() -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Realtime,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        #[expect(
            deprecated,
            reason = "unsound only for a type whose descriptor changes; its successor is unsafe"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self { timer, set_for: None })
    }

    /// Waits until `moment`, Unix time, or until the clock is set. After a wait that was cancelled
    /// when the alarm had rung, it may return earlier, so the caller looks at the clock. Safe to
    /// cancel.
    pub(crate) async fn at(&mut self, moment: Duration) -> io::Result<()> {
        if self.set_for != Some(moment) {
            let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
            if !is_set(timerfd_settime(&self.timer, flags, &once_at(to_real(moment))))? {
                return Ok(());
            }
            self.set_for = Some(moment);
        }
        // It is not read: setting it again clears it, and says if the clock was set.
        self.timer.readable().await?.clear_ready();
        self.set_for = None;
        Ok(())
    }
}

/// Whether the timer was set. `false`, and no error: the clock was set since the last look, so the
/// wait is over (timerfd_create(2), NOTES).
fn is_set(result: rustix::io::Result<Itimerspec>) -> io::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::CANCELED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn once_at(moment: Duration) -> Itimerspec {
    let tv_sec = i64::try_from(moment.as_secs()).unwrap_or(i64::MAX);
    // A value of zero would switch the timer off.
    let tv_nsec = i64::from(moment.subsec_nanos().max(1));
    let never_again = Timespec { tv_sec: 0, tv_nsec: 0 };
    Itimerspec { it_interval: never_again, it_value: Timespec { tv_sec, tv_nsec } }
}

/// Waits for the output of `future`; without a future it never returns.
pub(crate) async fn or_never<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test]
    async fn it_wakes_at_its_moment_and_never_before() {
        let mut alarm = Alarm::new().unwrap();
        for _ in 0..5 {
            let moment = now() + Duration::from_millis(30);
            alarm.at(moment).await.unwrap();
            assert!(now() >= moment);
        }
    }

    #[tokio::test]
    async fn a_moment_that_has_passed_wakes_at_once() {
        let mut alarm = Alarm::new().unwrap();
        let start = Instant::now();
        alarm.at(Duration::ZERO).await.unwrap();
        alarm.at(now() - Duration::from_secs(60)).await.unwrap();
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[tokio::test]
    async fn a_wait_that_was_cancelled_goes_on() {
        let mut alarm = Alarm::new().unwrap();
        let moment = now() + Duration::from_millis(100);
        let cancelled = tokio::time::timeout(Duration::from_millis(10), alarm.at(moment)).await;
        assert!(cancelled.is_err());
        alarm.at(moment).await.unwrap();
        assert!(now() >= moment);
    }

    /// The kernel reports this error if the clock was set by a nanosecond; a test cannot do that to
    /// the host.
    #[test]
    fn a_clock_that_was_set_before_the_timer_is_no_error() {
        assert!(!is_set(Err(rustix::io::Errno::CANCELED)).unwrap());
        assert!(is_set(Err(rustix::io::Errno::INVAL)).is_err());
        assert!(is_set(Ok(once_at(Duration::ZERO))).unwrap());
    }
}
