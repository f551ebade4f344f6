//! The short answers: `licenses`, `reservations`, `partitions` and `ping`.

use std::collections::BTreeMap;

use slurm_snapshot::{
    Controller, License, Licenses, Partition, Partitions, Reservation, Reservations,
};

use super::Payload;
use super::item::Item;

/// Number of partitions that an answer may have: more than any cluster has. Each has 19 paths.
const MOST_PARTITIONS: usize = 1000;

/// Number of controllers that are read of an answer: more than any release allows.
const MOST_CONTROLLERS: usize = 64;

impl Payload for Licenses {
    const NAME: &'static str = "licenses";
    const READ: &'static [&'static str] =
        words![LicenseName Remote Nodes Total Free Used Reserved LastConsumed LastDeficit];
    const MOST_NAMES: usize = 1 << 20;

    fn item(&mut self, _: &str, item: Item<'_>) -> Result<(), String> {
        let remote = item.flag("Remote").unwrap_or(false);
        let of_remote = |name| item.value(name).map(|number| number.filter(|_| remote));
        self.add(License {
            name: item.name("LicenseName")?,
            remote,
            last_consumed: of_remote("LastConsumed")?,
            last_deficit: of_remote("LastDeficit")?,
            nodes: Some(item.name("Nodes")?).filter(|nodes| !nodes.is_empty()),
            total: item.value("Total")?,
            free: item.value("Free")?,
            used: item.value("Used")?,
            reserved: item.value("Reserved")?,
        });
        Ok(())
    }

    fn end_answer(&mut self, last_update: i64) -> Result<(), String> {
        self.last_update = last_update;
        Ok(())
    }
}

impl Payload for Reservations {
    const NAME: &'static str = "reservations";
    const READ: &'static [&'static str] =
        words![name node_count core_count start_time end_time flags];

    fn item(&mut self, _: &str, item: Item<'_>) -> Result<(), String> {
        let flags = item.words("flags")?;
        let has = |word: &str| flags.iter().any(|flag| flag.eq_ignore_ascii_case(word));
        self.add(Reservation {
            name: item.name("name")?,
            nodes: item.value("node_count")?,
            cores: item.value("core_count")?,
            start_time: item.moment("start_time")?,
            end_time: item.moment("end_time")?,
            maint: has("MAINT"),
            floats: has("TIME_FLOAT"),
        });
        Ok(())
    }

    fn end_answer(&mut self, last_update: i64) -> Result<(), String> {
        self.last_update = last_update;
        Ok(())
    }
}

impl Payload for Partitions {
    const NAME: &'static str = "partitions";
    const READ: &'static [&'static str] = words![name state partition];
    const MOST_NAMES: usize = 64 << 10;

    fn item(&mut self, _: &str, item: Item<'_>) -> Result<(), String> {
        if self.partitions.len() >= MOST_PARTITIONS {
            return Err(format!("there are more than {MOST_PARTITIONS} partitions"));
        }
        // Up to v0.0.38 it is here, from v0.0.39 on in `partition`.
        let holder = if item.has("state") { item } else { item.object("partition")? };
        let state = holder.words("state")?.first().map(|word| word.to_ascii_lowercase());
        self.partitions.push(Partition {
            name: item.name("name")?,
            state: state.unwrap_or_default(),
            ..Partition::default()
        });
        Ok(())
    }

    fn end_answer(&mut self, last_update: i64) -> Result<(), String> {
        self.last_update = last_update;
        Ok(())
    }
}

/// Adds to each partition of `all` the totals of its nodes.
pub(crate) fn joined(mut all: Partitions, mut totals: BTreeMap<String, Partition>) -> Partitions {
    for partition in &mut all.partitions {
        let found = totals.remove(&partition.name).unwrap_or_default();
        let Partition { total, states, gpus, members, .. } = found;
        *partition = Partition { total, states, gpus, members, ..std::mem::take(partition) };
    }
    all
}

/// `ping`: whether each controller answers slurmrestd.
impl Payload for Vec<Controller> {
    const NAME: &'static str = "pings";
    const READ: &'static [&'static str] = words![ping pinged responding latency];

    fn item(&mut self, _: &str, item: Item<'_>) -> Result<(), String> {
        // "ping" up to v0.0.38, "pinged" up to v0.0.44, then "responding".
        let word = item.text("ping").or_else(|| item.text("pinged")).unwrap_or_default();
        let by_word = match word.to_ascii_uppercase().as_str() {
            "UP" => Some(true),
            "DOWN" => Some(false),
            _ => None,
        };
        let up = item.flag("responding").or(by_word);
        let up = up.ok_or("the controller is neither up nor down")?;
        if self.len() < MOST_CONTROLLERS {
            let index = u32::try_from(self.len()).unwrap_or(u32::MAX);
            // No latency up to v0.0.38.
            self.push(Controller { index, up, elapsed: item.or_none("latency") });
        }
        Ok(())
    }
}
