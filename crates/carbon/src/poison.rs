//! Frames that Carbon dies of, or closes over: found, halved down to the point, and put aside.
//!
//! When connections keep dying right after the same batches, frames go alone. A frame is guilty only if, sent alone,
//! its connection died within [`ALONE`] of it [`STRIKES`] times while other frames before and after were taken. A
//! restarting Carbon kills whatever is sent, takes nothing in between, and so never makes a healthy frame guilty.
//! Pure: moments come as arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::wire::Frame;

/// A connection that dies this soon after a frame may have died of it.
pub(crate) const ALONE: Duration = Duration::from_secs(1);
/// Connections in a row that died so soon after the same batch before frames go alone.
const QUICK_DEATHS: u32 = 3;
const STRIKES: u32 = 3;
/// Most frames that go together while nobody is known to be bad.
const MOST_TOGETHER: usize = 256;

/// What one destination has shown so far.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    /// Batches written on this connection, as long ago as they could have killed it.
    recent: Vec<(u64, Instant)>,
    quick_deaths: u32,
    /// Batches that were written shortly before each of those deaths.
    candidates: BTreeSet<u64>,
    careful: bool,
    /// Frames taken while being careful, ever.
    taken: u64,
    /// How many frames may go together now.
    together: usize,
    batches: BTreeMap<u64, Vec<Slot>>,
}

/// A frame of a batch, or a part of one.
#[derive(Clone, Debug)]
struct Slot {
    frame: Frame,
    taken: bool,
    trying: bool,
    /// A half of one that was guilty: the poison is in it or in the other.
    is_half: bool,
    strikes: u32,
    /// How many frames had been taken at its last strike.
    taken_at_strike: u64,
}

impl Poison {
    /// Whether frames go alone.
    pub(crate) const fn is_careful(&self) -> bool {
        self.careful
    }

    /// Frames of a batch were just written.
    pub(crate) fn written(&mut self, batch: u64, now: Instant) {
        let before = self.recent.len();
        self.recent.retain(|(_, at)| now.duration_since(*at) < ALONE);
        if self.recent.len() < before && !self.careful {
            // The connection has lived long enough after those.
            self.quick_deaths = 0;
        }
        if self.recent.last().is_none_or(|(last, _)| *last != batch) {
            self.recent.push((batch, now));
        }
    }

    /// The connection died.
    pub(crate) fn connection_lost(&mut self, now: Instant) {
        let recent = std::mem::take(&mut self.recent);
        self.batches.values_mut().flatten().for_each(|slot| slot.trying = false);
        if self.careful {
            return;
        }
        let mut blamed: BTreeSet<u64> = recent
            .into_iter()
            .filter(|(_, at)| now.duration_since(*at) < ALONE)
            .map(|(batch, _)| batch)
            .collect();
        if self.quick_deaths > 0 {
            let both: BTreeSet<u64> = blamed.intersection(&self.candidates).copied().collect();
            // Another batch each time: it is not the batches.
            self.quick_deaths = if both.is_empty() { 0 } else { self.quick_deaths };
            blamed = if both.is_empty() { blamed } else { both };
        }
        self.quick_deaths = if blamed.is_empty() { 0 } else { self.quick_deaths.saturating_add(1) };
        self.candidates = blamed;
        if self.quick_deaths >= QUICK_DEATHS {
            (self.careful, self.together) = (true, 1);
        }
    }

    /// The batches to try first: suspects, where they may be tried, then all that are to be cleared.
    pub(crate) fn order(&self) -> Vec<u64> {
        let ready =
            |slots: &Vec<Slot>| slots.iter().any(|slot| slot.is_suspect() && slot.may_be_tried(self.taken));
        let suspects = self.batches.iter().filter(|(_, slots)| ready(slots)).map(|(&batch, _)| batch);
        suspects.chain(self.candidates.iter().copied()).collect()
    }

    /// How many frames may go together now.
    pub(crate) fn together(&self) -> usize {
        let suspects = self.batches.values().flatten().any(Slot::is_suspect);
        if suspects { 1 } else { self.together }
    }

    /// The next part of `batch` that may be tried now.
    pub(crate) fn trial(&mut self, batch: u64, frames: &Arc<[Frame]>) -> Option<Frame> {
        let taken = self.taken;
        let slots =
            self.batches.entry(batch).or_insert_with(|| frames.iter().cloned().map(Slot::new).collect());
        let slot = slots.iter_mut().find(|slot| slot.may_be_tried(taken))?;
        slot.trying = true;
        Some(slot.frame.clone())
    }

    /// The connection died within [`ALONE`] of what was tried.
    pub(crate) fn died(&mut self) {
        let taken = self.taken;
        let mut trying: Vec<&mut Slot> =
            self.batches.values_mut().flatten().filter(|slot| slot.trying).collect();
        // Of several nobody knows which it was.
        if let [alone] = trying.as_mut_slice() {
            alone.strikes = alone.strikes.saturating_add(1);
            alone.taken_at_strike = taken;
        }
        trying.into_iter().for_each(|slot| slot.trying = false);
        self.together = 1;
    }

    /// The connection lived. Returns the points that are found guilty by that, each as a frame of one.
    pub(crate) fn lived(&mut self) -> Vec<Frame> {
        for slot in self.batches.values_mut().flatten().filter(|slot| slot.trying) {
            (slot.trying, slot.taken, slot.strikes) = (false, true, 0);
            self.taken = self.taken.saturating_add(1);
        }
        self.together = self.together.saturating_mul(2).min(MOST_TOGETHER);
        self.judge()
    }

    /// Whether every part of `batch` has been taken or put aside; it is cleared then.
    pub(crate) fn is_over(&mut self, batch: u64) -> bool {
        let over = self.batches.get(&batch).is_some_and(|slots| slots.iter().all(|slot| slot.taken));
        if over {
            self.clear(batch);
        }
        over
    }

    /// Nobody needs to look at `batch` any more.
    pub(crate) fn clear(&mut self, batch: u64) {
        self.batches.remove(&batch);
        self.candidates.remove(&batch);
        if self.candidates.is_empty() && !self.batches.values().flatten().any(Slot::is_suspect) {
            *self = Self { taken: self.taken, ..Self::default() };
        }
    }

    /// Halves what has struck often enough, and takes single points out.
    fn judge(&mut self) -> Vec<Frame> {
        let mut guilty = Vec::new();
        for slots in self.batches.values_mut() {
            if !slots.iter().any(|slot| slot.strikes >= STRIKES) {
                continue;
            }
            let judged = std::mem::take(slots).into_iter().flat_map(|slot| {
                if slot.strikes < STRIKES {
                    return vec![slot];
                }
                match slot.frame.halves() {
                    Ok(Some(halves)) => halves.map(|half| Slot { is_half: true, ..Slot::new(half) }).into(),
                    // A frame that cannot be halved is put aside whole.
                    Ok(None) | Err(_) => {
                        guilty.push(slot.frame);
                        Vec::new()
                    }
                }
            });
            *slots = judged.collect();
        }
        guilty
    }
}

impl Slot {
    const fn new(frame: Frame) -> Self {
        Self { frame, taken: false, trying: false, is_half: false, strikes: 0, taken_at_strike: 0 }
    }

    const fn is_suspect(&self) -> bool {
        self.strikes > 0 || (self.is_half && !self.taken)
    }

    /// One that has struck waits until another frame has been taken.
    const fn may_be_tried(&self, taken: u64) -> bool {
        !self.taken && !self.trying && (self.strikes == 0 || taken > self.taken_at_strike)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Batch;
    use crate::wire::{Protocol, frames};

    const BAD: u64 = 7;

    fn batch(paths: &[&str]) -> Arc<[Frame]> {
        let mut batch = Batch::new(60);
        paths.iter().for_each(|path| batch.push((*path).to_owned(), 1.0));
        frames(&batch).unwrap().into()
    }

    fn text(frame: &Frame) -> String {
        String::from_utf8(frame.bytes(Protocol::Plaintext).unwrap().into_owned()).unwrap()
    }

    /// Three connections that died right after the same batches.
    fn careful(batches: &[u64]) -> Poison {
        let (mut poison, now) = (Poison::default(), Instant::now());
        for _ in 0..QUICK_DEATHS {
            assert!(!poison.is_careful());
            batches.iter().for_each(|&batch| poison.written(batch, now));
            poison.connection_lost(now);
        }
        assert!(poison.is_careful());
        poison
    }

    #[test]
    fn the_one_bad_point_is_found_and_the_rest_goes_on() {
        let mut poison = careful(&[1, BAD, 9]);
        let (mut aside, mut sent) = (Vec::new(), String::new());
        let mut rounds = 0;
        while poison.is_careful() {
            rounds += 1;
            assert!(rounds < 100, "{poison:?}");
            // Suspects where they may be tried, else a live tick.
            let id = *poison.order().first().unwrap_or(&1000);
            let bad = batch(&["a", "b", "c", "poison", "d", "e"]);
            let live = batch(&["live"]);
            let (id, frame) = match poison.trial(id, if id == BAD { &bad } else { &live }) {
                Some(frame) => (id, frame),
                None => (1000 + rounds, poison.trial(1000 + rounds, &live).unwrap()),
            };
            if text(&frame).contains("poison") {
                poison.died();
                poison.connection_lost(Instant::now());
                continue;
            }
            if id == BAD {
                sent += &text(&frame);
            }
            aside.extend(poison.lived());
            poison.is_over(id);
            poison.is_over(BAD);
        }
        assert_eq!(aside.iter().map(text).collect::<Vec<_>>(), ["poison 1 60\n"]);
        for path in ["a", "b", "c", "d", "e"] {
            assert_eq!(sent.matches(&format!("{path} 1 60")).count(), 1, "{sent}");
        }
    }

    #[test]
    fn a_carbon_that_takes_nothing_makes_nobody_guilty() {
        let mut poison = careful(&[0, 1, 2, 3, 4]);
        for round in 0..50 {
            if poison.trial(round % 5, &batch(&["a"])).is_some() {
                poison.died();
            }
        }
        // It is back: everything is taken, and nothing is put aside.
        for round in 0..20 {
            if poison.trial(100 + round, &batch(&["live"])).is_some() {
                assert!(poison.lived().is_empty());
            }
            poison.is_over(100 + round);
            if poison.trial(round % 5, &batch(&["a"])).is_some() {
                assert!(poison.lived().is_empty());
            }
            poison.is_over(round % 5);
        }
        assert!(!poison.is_careful(), "{poison:?}");
    }

    #[test]
    fn a_flapping_carbon_after_which_other_batches_are_sent_each_time_is_no_reason_for_care() {
        let (mut poison, now) = (Poison::default(), Instant::now());
        for batch in 0..20 {
            poison.written(batch, now);
            poison.connection_lost(now);
        }
        assert!(!poison.is_careful());
    }

    #[test]
    fn connections_that_live_a_second_after_a_write_are_no_reason_for_care() {
        let (mut poison, mut now) = (Poison::default(), Instant::now());
        for _ in 0..20 {
            poison.written(1, now);
            now += ALONE;
            poison.connection_lost(now);
        }
        assert!(!poison.is_careful());
    }

    #[test]
    fn many_candidates_are_cleared_in_groups_that_double() {
        let all: Vec<u64> = (0..600).collect();
        let mut poison = careful(&all);
        let mut rounds = 0;
        while poison.is_careful() {
            rounds += 1;
            let ids = poison.order();
            let group: Vec<u64> = ids.into_iter().take(poison.together()).collect();
            for &id in &group {
                poison.trial(id, &batch(&["a"])).unwrap();
            }
            assert!(poison.lived().is_empty());
            for id in group {
                assert!(poison.is_over(id));
            }
        }
        assert!(rounds <= 11, "{rounds} seconds");
    }
}
