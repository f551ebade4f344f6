//! Models that know the truth, and rules that need more than one module.

mod counter_model;
mod finished_model;
mod finished_rules;
