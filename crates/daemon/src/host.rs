//! This host.

/// This host's name up to its first dot.
pub(crate) fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.split('.').next().unwrap_or_default().to_owned()
}
