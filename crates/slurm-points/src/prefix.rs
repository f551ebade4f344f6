//! The first part of every path: the configured prefix, with `{cluster}` and `{host}` filled in.

use std::fmt;
use std::str::FromStr;

use carbon_wire::path;

/// The family of the daemon's own metrics, behind the prefix.
pub const OWN_FAMILY: &str = "slurm_graphite";

/// The longest leaf of the daemon's own metrics about a destination.
pub const LONGEST_LEAF: &str = "points_dropped_damaged";

/// A prefix that becomes a legal path whatever the cluster and the host are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(String);

impl Default for Prefix {
    fn default() -> Self {
        Self("cluster".to_owned())
    }
}

impl Prefix {
    /// Returns the prefix with both names filled in; `None` if it needs the cluster's name, and
    /// slurmctld has not reported that yet.
    pub fn expand(&self, cluster: Option<&str>, host: &str) -> Option<String> {
        let filled = self.0.replace("{host}", &path::component(host));
        if !filled.contains("{cluster}") {
            return Some(filled);
        }
        cluster.map(|cluster| filled.replace("{cluster}", &path::component(cluster)))
    }

    /// Whether the prefix needs the cluster's name.
    pub fn has_cluster(&self) -> bool {
        self.0.contains("{cluster}")
    }

    /// Returns the longest path of the daemon's own metrics about this destination, with a
    /// cluster's name of ordinary length.
    pub fn longest_path(&self, host: &str, destination: &str) -> String {
        let prefix = self.expand(Some("a-cluster-of-an-ordinary-name"), host).unwrap_or_default();
        let host = path::component(host);
        let destination = path::component(destination);
        format!("{prefix}.{OWN_FAMILY}.{host}.carbon.{destination}.gauge-{LONGEST_LEAF}")
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let filled = text.replace("{cluster}", "c").replace("{host}", "h");
        if filled.contains(['{', '}']) {
            return Err(format!("{text:?} has braces other than {{cluster}} and {{host}}"));
        }
        path::check(&filled)
            .map_err(|error| format!("{text:?} is not a legal metric path: {error}"))?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_with_legal_components() {
        let prefix: Prefix = "hpc.{cluster}.{host}".parse().unwrap();
        assert_eq!(prefix.expand(None, "node1"), None);
        assert_eq!(prefix.expand(Some("sandbox"), "node1").unwrap(), "hpc.sandbox.node1");
        let odd = prefix.expand(Some("a.b"), "").unwrap();
        assert_eq!(path::check(&odd), Ok(()));
        assert_eq!(Prefix::default().expand(None, "node1").unwrap(), "cluster");
    }
}
