//! Replaces tls.rs in a build without TLS.

/// The TLS settings of a destination in a build without TLS: there is no value of this type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {}
