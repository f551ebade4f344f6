//! Nodes by their active features, which administrators name.

use crate::names::name;
use crate::nodes::{Features, Memory, NodeTally};

/// Number of features that are counted by name. All that come later in a reply are counted in one
/// sum.
const MOST: usize = 4096;

/// Counts nodes by feature, a node after the other.
#[derive(Debug, Default)]
pub struct FeatureCounter {
    features: Features,
    /// The features that the last nodes had, with commas between them. Neighbours in a reply often
    /// have the same, so that the tallies of these nodes are added up in `sum` first.
    text: Vec<u8>,
    sum: NodeTally,
}

impl FeatureCounter {
    /// Adds a node with these features, which have commas between them.
    pub fn add(&mut self, text: &[u8], tally: &NodeTally) {
        if text != self.text {
            self.flush();
            text.clone_into(&mut self.text);
        }
        self.sum.add(&NodeTally { memory: Memory::default(), ..*tally });
    }

    fn flush(&mut self) {
        let mut names: Vec<&[u8]> = self.text.split(|&byte| byte == b',').collect();
        // Slurm keeps a feature twice if a person has written it twice.
        names.sort_unstable();
        names.dedup();
        for text in names.into_iter().filter(|text| !text.is_empty()) {
            let name = name(text);
            let Features { names, others } = &mut self.features;
            if let Some(tally) = names.get_mut(&*name) {
                tally.add(&self.sum);
            } else if names.len() < MOST {
                names.insert(name.into_owned(), self.sum);
            } else {
                others.add(&self.sum);
            }
        }
        self.sum = NodeTally::default();
    }

    /// Returns the nodes by feature that were added since the start.
    pub fn finish(&mut self) -> Features {
        self.flush();
        std::mem::take(self).features
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::Shares;

    fn counted(nodes: &[(&str, u64)]) -> Vec<(String, u64, u64)> {
        let mut counter = FeatureCounter::default();
        for &(text, cpus) in nodes {
            let nodes = Shares::new(0, 1, true);
            let tally = NodeTally { nodes, cpus: Shares::new(1, cpus, true), ..Default::default() };
            counter.add(text.as_bytes(), &tally);
        }
        let names = counter.finish().names.into_iter();
        names.map(|(name, of)| (name, of.nodes.total, of.cpus.total)).collect()
    }

    #[test]
    fn a_node_counts_once_in_each_of_its_features() {
        let nodes = [("ib,gpu", 8), ("ib,gpu", 4), ("", 2), ("ib", 1), ("gpu,ib,gpu,,", 16)];
        let expected = [("gpu", 3, 28), ("ib", 4, 29)].map(|(name, n, c)| (name.to_owned(), n, c));
        assert_eq!(counted(&nodes), expected);
        assert_eq!(counted(&[]), []);
        assert_eq!(counted(&[("", 2)]), []);
    }

    /// Names are of any length, and there may be any number of them.
    #[test]
    fn invented_features_have_a_bound() {
        let mut counter = FeatureCounter::default();
        let one = NodeTally { nodes: Shares::new(0, 1, true), ..NodeTally::default() };
        for node in 0..200 {
            let names = (0..50).map(|number| format!("{}-{node}-{number}", "x".repeat(300)));
            counter.add(names.collect::<Vec<_>>().join(",").as_bytes(), &one);
        }
        let Features { names, others } = counter.finish();
        assert_eq!((names.len(), others.nodes.total), (4096, 200 * 50 - 4096));
        assert!(names.keys().all(|name| name.len() <= 200));
    }
}
