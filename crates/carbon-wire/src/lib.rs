//! Points in the form that Carbon reads: legal paths, batches of points, and their bytes. Nothing
//! here waits, reads or writes.

#![forbid(unsafe_code)]

pub mod path;
mod point;
mod wire;

pub use point::{Batch, Point};
pub use wire::{
    Frame, MAX_FRAME_BYTES, MAX_FRAME_POINTS, MetricNames, Protocol, WireError, frames, lines,
    points,
};
