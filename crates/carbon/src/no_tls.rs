//! In the place of tls.rs, in a build without it.

/// This build speaks no TLS: there is no value of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {}
