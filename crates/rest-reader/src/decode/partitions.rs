//! `partitions`, each of which gets what its nodes have.

use std::collections::BTreeMap;
use std::mem;

use serde::de::{Error, MapAccess};
use slurm_snapshot::Partition;

use super::lenient::{Number, Text, Words};
use super::nodes::Member;
use super::object::{Fill, Members, each};
use super::wrong;

/// More partitions than any cluster has.
const MOST_PARTITIONS: usize = 5000;

/// The answer to `partitions`.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    pub(crate) partitions: slurm_snapshot::Partitions,
    is_there: bool,
}

impl Partitions {
    /// Each with what its nodes have.
    pub(crate) fn joined(mut self, mut members: BTreeMap<String, Member>) -> slurm_snapshot::Partitions {
        for partition in &mut self.partitions.partitions {
            let Member { total, states, gpus } = members.remove(&partition.name).unwrap_or_default();
            (partition.total, partition.states, partition.gpus) = (total, states, gpus);
        }
        self.partitions
    }
}

impl Members for Partitions {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "partitions" => {
                if mem::replace(&mut self.is_there, true) {
                    return Err(wrong("partitions are there twice"));
                }
                let list = &mut self.partitions.partitions;
                map.next_value_seed(each(|row: PartitionRow| {
                    if list.len() >= MOST_PARTITIONS {
                        return Err("there are more partitions than any cluster has".to_owned());
                    }
                    list.push(row.partition);
                    Ok(())
                }))?;
            }
            "last_update" => {
                self.partitions.last_update = map.next_value::<Number>()?.moment(name)?.unwrap_or(0);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if self.is_there { Ok(()) } else { Err(wrong("there are no partitions in the answer")) }
    }
}

#[derive(Default)]
struct PartitionRow {
    partition: Partition,
}

impl PartitionRow {
    fn flags(&mut self, flags: &[String]) {
        let has = |flag: &str| flags.iter().any(|word| word.eq_ignore_ascii_case(flag));
        self.partition.default = Some(has("default"));
        self.partition.hidden = Some(has("hidden"));
    }
}

impl Members for PartitionRow {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "name" => self.partition.name = map.next_value::<Text>()?.0.unwrap_or_default(),
            // Up to v0.0.38 here, from v0.0.39 on in `partition`.
            "state" => self.partition.state = state_of(&map.next_value::<Words>()?),
            "partition" => map.next_value_seed(Fill(&mut Inner(self)))?,
            "flags" => {
                let flags = map.next_value::<Words>()?.0;
                self.flags(&flags);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

struct Inner<'a>(&'a mut PartitionRow);

impl Members for Inner<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        if name != "state" {
            return Ok(false);
        }
        self.0.partition.state = state_of(&map.next_value::<Words>()?);
        Ok(true)
    }
}

fn state_of(words: &Words) -> String {
    words.0.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default()
}
