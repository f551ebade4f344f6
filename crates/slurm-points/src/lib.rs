//! From readings to points: which figures there are, what they are called, and how they are
//! derived.
//!
//! Pure: no clock, no files, no threads, no log. What happened when comes in, paths and values go
//! out.

#![forbid(unsafe_code)]

#[macro_use]
pub mod levels;
#[macro_use]
pub mod metric;

pub mod collecting;
pub mod collectors;
pub mod configured;
pub mod derive;
pub mod finished;
pub mod named_paths;
mod node_events;
mod node_metrics;
pub mod prefix;
pub mod replies;
mod rpc_metrics;
pub mod settings;
pub mod tagged;
#[cfg(test)]
mod tests;
pub mod user_paths;
