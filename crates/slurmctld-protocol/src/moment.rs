//! A wait of a moment for an answer from within this host, in poll(2) on the caller's thread.
//!
//! munged, slurmctld and a reader process answer within a millisecond or two. To register a socket
//! or pipe with the runtime and to come back through it costs more than that wait, so only what
//! does not come at once is registered. Nothing else on this thread may wait so.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// Longest time of one wait.
const MOMENT: Duration = Duration::from_millis(2);

/// Longest time of all waits of one request together.
const ALL: Duration = Duration::from_millis(6);

/// The steps of a request that are waited for on the caller's thread.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// The credential of munged or sackd.
    Credential,
    /// The reply of slurmctld.
    Reply,
    /// The check of the credential in the reply.
    Check,
    /// The line of a reader process.
    Line,
}

/// The waits of one request: the time that they may still take, and the steps that get none.
#[derive(Debug, Default)]
pub struct Moments {
    left: Duration,
    /// Whether the wait for a step has run out in this request, by step.
    ran_out: [bool; 4],
    /// Whether the wait for a step ran out in the request before, by step. Such a step is left to
    /// the runtime at once.
    is_skipped: [bool; 4],
}

impl Moments {
    /// Begins a request.
    pub fn begin_tick(&mut self) {
        self.left = ALL;
        self.is_skipped = std::mem::take(&mut self.ran_out);
    }

    /// Whether the descriptor is ready within a moment. `false`, also after a signal: the runtime
    /// is to wait for it.
    ///
    /// # Errors
    /// The kernel does not wait for this descriptor.
    pub fn wait(
        &mut self,
        step: Step,
        descriptor: BorrowedFd<'_>,
        events: PollFlags,
    ) -> io::Result<bool> {
        let is_skipped = self.is_skipped.get(step as usize).is_none_or(|skipped| *skipped);
        let most = self.left.min(MOMENT);
        if is_skipped || most.is_zero() {
            return Ok(false);
        }
        let begin = Instant::now();
        let timeout = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
        let found = rustix::event::poll(
            &mut [PollFd::from_borrowed_fd(descriptor, events)],
            Some(&timeout),
        );
        self.left = self.left.saturating_sub(begin.elapsed());
        match found {
            Ok(0) => {
                if let Some(ran_out) = self.ran_out.get_mut(step as usize) {
                    *ran_out = true;
                }
                Ok(false)
            }
            Ok(_) => Ok(true),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A peer that answers a byte now and then, or never, holds the thread for 6 ms of a request.
    #[test]
    fn a_request_is_waited_for_a_moment_and_a_step_that_ran_out_not_at_the_next() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut moments = Moments::default();
        let wait = |moments: &mut Moments, step| {
            let begin = Instant::now();
            (moments.wait(step, near.as_fd(), PollFlags::IN).unwrap(), begin.elapsed())
        };
        assert!(!wait(&mut moments, Step::Reply).0, "no request has begun");
        moments.begin_tick();
        let (found, took) = wait(&mut moments, Step::Reply);
        assert!(!found && took >= MOMENT, "{took:?}");
        let mut turns = 0;
        while wait(&mut moments, Step::Reply).1 >= Duration::from_millis(1) {
            turns += 1;
        }
        assert!(turns <= 2 && moments.left.is_zero(), "{turns}: {moments:?}");
        far.write_all(b"x").unwrap();
        moments.begin_tick();
        assert!(!wait(&mut moments, Step::Reply).0, "it ran out at the last request");
        assert!(wait(&mut moments, Step::Check).0);
        moments.begin_tick();
        assert!(wait(&mut moments, Step::Reply).0);
        assert_eq!(moments.ran_out, [false; 4]);
    }
}
