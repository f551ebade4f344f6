//! Which metric paths a target names, and whether `slurm-graphite metrics` has them.

use std::collections::BTreeSet;

/// The paths of `slurm-graphite metrics`, split into nodes, without the prefix, and their units.
/// `<host>` and the like match any node.
pub(crate) struct Documented(Vec<(Vec<String>, String)>);

impl Documented {
    /// Parses the output of `slurm-graphite metrics --format tsv`.
    pub(crate) fn parse(text: &str) -> Self {
        let row = |line: &str| {
            let (path, rest) = line.strip_prefix("cluster.")?.split_once('\t')?;
            Some((
                path.split('.').map(str::to_owned).collect(),
                rest.split('\t').next()?.to_owned(),
            ))
        };
        Self(text.lines().filter_map(row).collect())
    }

    /// Whether it has a path that this pattern, without a prefix, can match.
    pub(crate) fn has(&self, pattern: &str) -> bool {
        !self.units(pattern).is_empty()
    }

    /// The units of the paths that this pattern can match.
    pub(crate) fn units(&self, pattern: &str) -> BTreeSet<&str> {
        let nodes: Vec<&str> = pattern.split('.').collect();
        let fits = |known: &str, node: &str| {
            known.starts_with('<') || node == "*" || node.starts_with('$') || known == node
        };
        let matching = self.0.iter().filter(|(path, _)| {
            path.len() == nodes.len()
                && path.iter().zip(&nodes).all(|(known, node)| fits(known, node))
        });
        matching.map(|(_, unit)| unit.as_str()).collect()
    }
}

/// Every path of a panel's target, without its prefix: the selected prefix, or those of all
/// clusters.
pub(crate) fn paths(target: &str) -> BTreeSet<String> {
    let chosen = paths_behind(target, "$prefix.");
    if chosen.is_empty() { paths_behind(target, "*.*.") } else { chosen }
}

/// Every path of a target after `prefix`, with `{a,b}` expanded.
pub(crate) fn paths_behind(target: &str, prefix: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (start, _) in target.match_indices(prefix) {
        let (mut end, mut inside) = (start + prefix.len(), false);
        for letter in target[end..].chars() {
            inside = (inside || letter == '{') && letter != '}';
            if !(letter.is_ascii_alphanumeric() || "._-*${}".contains(letter) || inside) {
                break;
            }
            end += letter.len_utf8();
        }
        found.extend(expanded(&target[start + prefix.len()..end]));
    }
    found
}

fn expanded(pattern: &str) -> Vec<String> {
    let Some((before, (inside, after))) =
        pattern.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return vec![pattern.to_owned()];
    };
    inside.split(',').flat_map(|one| expanded(&format!("{before}{one}{after}"))).collect()
}

#[test]
fn paths_are_found_in_functions_and_braces() {
    let found = paths("sum(a($prefix.x.$host.gauge-{a,b_c}), b($prefix.y.*.gauge-z, 'w'))");
    assert_eq!(Vec::from_iter(found), ["x.$host.gauge-a", "x.$host.gauge-b_c", "y.*.gauge-z"]);
}
