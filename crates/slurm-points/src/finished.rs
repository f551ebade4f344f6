//! Finished jobs: which of them count, what they add up to, and what must be on disk before
//! anything is sent.
//!
//! Pure: no clock, no disk, no metric path. docs/development/decisions.md says why it is made so.

mod ledger;
mod round;
mod seen;
mod tally;

pub use self::ledger::{Counts, FinishedLedger, Found, Next, RememberedSpan};
pub use self::round::{FinishedRound, Levels, StartedJob};
pub use self::seen::ID_BYTES;
pub use self::tally::{Figures, Spread, Tally};

/// Seconds of end times whose ids are in one record. One request reads at most as many.
pub const HOUR: i64 = 3600;
