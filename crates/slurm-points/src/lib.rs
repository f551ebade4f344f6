//! From readings to points: which figures there are, what they are called, and how they are derived.
//!
//! Pure: no clock, no files, no threads, no log. What happened when comes in, paths and values go out.

#![forbid(unsafe_code)]

#[macro_use]
pub mod levels;
#[macro_use]
pub mod metric;

pub mod collecting;
pub mod collectors;
pub mod configured;
#[cfg(test)]
#[path = "../tests/inside/counter_model.rs"]
mod counter_model;
pub mod derive;
pub mod finished;
#[cfg(test)]
#[path = "../tests/inside/finished_model.rs"]
mod finished_model;
#[cfg(test)]
#[path = "../tests/inside/finished_rules.rs"]
mod finished_rules;
pub mod named_paths;
mod node_events;
mod node_metrics;
pub mod prefix;
pub mod replies;
mod rpc_metrics;
pub mod settings;
pub mod tagged;
pub mod user_paths;
