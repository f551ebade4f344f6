//! Replaces tls.rs in a build without TLS.

/// An empty type, because this build has no TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {}
