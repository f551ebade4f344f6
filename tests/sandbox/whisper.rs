//! Reads whisper's files: one archive, usually the finest, which has the newest points.
//!
//! A file is, big-endian: aggregation type u32, longest retention u32, xFilesFactor f32, number of
//! archives u32; for each archive offset u32, seconds a point u32, points u32; then the archives,
//! rings of points (timestamp u32, value f64) in which an unused or outdated slot still has
//! timestamp 0 or that of an earlier round.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The points of one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Seconds per slot.
    pub step: u64,
    /// Value by timestamp.
    pub points: BTreeMap<u64, f64>,
}

impl Series {
    /// Reads the finest archive of a file.
    pub fn read(file: &Path) -> Result<Self> {
        Self::read_archive(file, 0)
    }

    /// Reads an archive of a file; the finest is 0.
    pub fn read_archive(file: &Path, archive: usize) -> Result<Self> {
        let bytes = fs::read(file).with_context(|| file.display().to_string())?;
        Self::parse(&bytes, archive)
            .with_context(|| format!("{} is not a whisper file", file.display()))
    }

    fn parse(bytes: &[u8], archive: usize) -> Option<Self> {
        let mut header = bytes.get(16 + 12 * archive..)?;
        let offset = usize::try_from(number(&mut header)?).ok()?;
        let step = number(&mut header)?;
        let slots = number(&mut header)?;
        let mut archive = bytes.get(offset..offset + usize::try_from(slots).ok()? * 12)?;
        let mut points = BTreeMap::new();
        while let Some(timestamp) = number(&mut archive) {
            let (value, rest) = archive.split_first_chunk()?;
            archive = rest;
            if timestamp > 0 {
                points.insert(timestamp, f64::from_be_bytes(*value));
            }
        }
        let newest = points.last_key_value().map_or(0, |(&timestamp, _)| timestamp);
        points.retain(|&timestamp, _| timestamp + step * slots > newest);
        Some(Self { step, points })
    }

    /// The value at a timestamp.
    pub fn at(&self, timestamp: u64) -> Option<f64> {
        self.points.get(&timestamp).copied()
    }

    /// The newest point.
    pub fn last(&self) -> Option<(u64, f64)> {
        self.points.last_key_value().map(|(&timestamp, &value)| (timestamp, value))
    }

    /// The oldest point.
    pub fn first(&self) -> Option<(u64, f64)> {
        self.points.first_key_value().map(|(&timestamp, &value)| (timestamp, value))
    }

    /// Every slot from `from` to `until` inclusive, filled or not.
    pub fn slots(&self, from: u64, until: u64) -> Vec<(u64, Option<f64>)> {
        let mut slot = from.next_multiple_of(self.step);
        let mut slots = Vec::new();
        while slot <= until {
            slots.push((slot, self.at(slot)));
            slot += self.step;
        }
        slots
    }

    /// The number of empty slots between the oldest and the newest point.
    pub fn holes(&self) -> usize {
        let (Some((first, _)), Some((last, _))) = (self.first(), self.last()) else { return 0 };
        self.slots(first, last).iter().filter(|(_, value)| value.is_none()).count()
    }
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from(u32::from_be_bytes(*number)))
}
