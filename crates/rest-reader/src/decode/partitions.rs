//! `partitions`, each with the totals of its nodes.

use std::collections::BTreeMap;

use serde::de::MapAccess;
use slurm_snapshot::{Partition, Partitions};

use super::lenient::{Text, Words};
use super::list::ListAnswer;
use super::nodes::PartitionNodes;
use super::object::{Fill, Members};

/// More partitions than any cluster has.
const MOST_PARTITIONS: usize = 5000;

/// Each partition with the totals of its nodes.
pub(crate) fn joined(
    mut partitions: Partitions,
    mut members: BTreeMap<String, PartitionNodes>,
) -> Partitions {
    for partition in &mut partitions.partitions {
        let PartitionNodes { total, states, gpus } = members.remove(&partition.name).unwrap_or_default();
        (partition.total, partition.states, partition.gpus) = (total, states, gpus);
    }
    partitions
}

impl ListAnswer for Partitions {
    const NAME: &'static str = "partitions";
    type Item = Partition;

    fn add(&mut self, partition: Partition) -> Result<(), String> {
        if self.partitions.len() >= MOST_PARTITIONS {
            return Err("the response contains too many partitions".to_owned());
        }
        self.partitions.push(partition);
        Ok(())
    }

    fn end(&mut self, last_update: i64) {
        self.last_update = last_update;
    }
}

impl Members for Partition {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "name" => self.name = map.next_value::<Text>()?.0.unwrap_or_default(),
            // Up to v0.0.38 it is here, from v0.0.39 on in `partition`.
            "state" => self.state = state_of(&map.next_value::<Words>()?),
            "partition" => map.next_value_seed(Fill(&mut Inner(self)))?,
            "flags" => {
                let flags = map.next_value::<Words>()?.0;
                let has = |flag: &str| flags.iter().any(|word| word.eq_ignore_ascii_case(flag));
                (self.default, self.hidden) = (Some(has("default")), Some(has("hidden")));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

struct Inner<'a>(&'a mut Partition);

impl Members for Inner<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        if name != "state" {
            return Ok(false);
        }
        self.0.state = state_of(&map.next_value::<Words>()?);
        Ok(true)
    }
}

fn state_of(words: &Words) -> String {
    words.0.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default()
}
