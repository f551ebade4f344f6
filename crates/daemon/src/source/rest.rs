//! slurmrestd's token, as its reader reports it: when it expires.

use slurm_snapshot::Token;
use tracing::{info, warn};

use super::{Outcome, SourceError};

/// Seconds before the token's end at which the log warns of it: an hour, ten minutes, and at the
/// end.
const SOON: [i64; 3] = [3600, 600, 0];

/// slurmrestd's token, as the last reading or failure that showed it has it.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    token: Option<Token>,
    /// Number of the warnings in [`SOON`] that were logged about this token.
    warned: usize,
}

impl Expiry {
    /// Takes what an outcome shows of the token, and logs if it was renewed, is open to other
    /// users, or ends soon. `now` is Unix seconds.
    pub(crate) fn note(&mut self, outcome: &Outcome, now: i64) {
        let rest = match outcome {
            Ok(reading) => reading.rest.as_ref(),
            Err(error) => match error.root() {
                SourceError::Refused(failure, _) => failure.rest.as_deref(),
                _ => return,
            },
        };
        let Some(token) = rest.and_then(|rest| rest.token.as_ref()) else { return };
        if self.token.as_ref() != Some(token) {
            if self.warned > 0 {
                info!(user = token.user.as_deref(), "the token for slurmrestd has been renewed");
            }
            let old = self.token.take().unwrap_or_default();
            if token.exposed && !old.exposed {
                warn!(
                    "every user of this host can read token_file; use chmod 600, or 640 with the \
                        daemon's group"
                );
            }
            if token.writable && !old.writable {
                warn!(
                    "others than its owner may replace token_file; use chmod go-w for it and for \
                        its directory"
                );
            }
            *self = Self { token: Some(token.clone()), warned: 0 };
        }
        let Some(left) = self.left(now) else { return };
        let due = SOON.iter().filter(|&&soon| left <= soon).count();
        if due > self.warned {
            self.warned = due;
            let user = token.user.as_deref();
            if left > 0 {
                warn!(
                    user,
                    "the token for slurmrestd expires in {} min; without a new one there will be \
                        no readings",
                    left / 60
                );
            } else {
                warn!(
                    user,
                    "the token for slurmrestd has expired; there are no readings until token_file \
                        has a new one"
                );
            }
        }
    }

    /// Seconds from `now` until the token ends, less than 0 afterwards; `None` if no end is known.
    pub(crate) fn left(&self, now: i64) -> Option<i64> {
        self.token.as_ref()?.expires?.checked_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::{Failure, Rest, Stage};

    use super::super::stderr::LastLines;
    use super::*;

    fn outcome(expires: i64) -> Outcome {
        let token = Some(Token { expires: Some(expires), ..Token::default() });
        let rest = Some(Box::new(Rest { version: None, token }));
        let failure = Failure { stage: Some(Stage::Token), rest, ..Failure::default() };
        Err(SourceError::Refused(failure, LastLines::default()))
    }

    #[test]
    fn a_token_that_ends_is_said_an_hour_and_ten_minutes_before_and_once_each() {
        let mut expiry = Expiry::default();
        let mut warnings = Vec::new();
        for now in (0..7200).step_by(30) {
            let before = expiry.warned;
            expiry.note(&outcome(7200), now);
            if expiry.warned != before {
                warnings.push(now);
            }
        }
        assert_eq!(warnings, [3600, 6600]);
        assert_eq!(expiry.left(7300), Some(-100), "and goes on below 0");
        expiry.note(&outcome(90_000), 7300);
        assert_eq!((expiry.warned, expiry.left(7300)), (0, Some(82_700)));
    }
}
