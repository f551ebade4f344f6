//! `ping`: whether each controller answers slurmrestd.

use serde::de::MapAccess;
use slurm_snapshot::Controller;

use super::lenient::{Flag, Number, Text};
use super::list::ListAnswer;
use super::object::Members;

/// More than any release allows.
const MOST: usize = 64;

impl ListAnswer for Vec<Controller> {
    const NAME: &'static str = "pings";
    type Item = PingRow;

    fn add(&mut self, row: PingRow) -> Result<(), String> {
        let up = row.up.ok_or("a controller is neither up nor down")?;
        if self.len() < MOST {
            let index = u32::try_from(self.len()).unwrap_or(u32::MAX);
            self.push(Controller { host: row.host, index, up, elapsed: row.latency });
        }
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct PingRow {
    host: String,
    up: Option<bool>,
    /// Absent up to v0.0.38.
    latency: Option<u64>,
}

impl Members for PingRow {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "hostname" => self.host = map.next_value::<Text>()?.0.unwrap_or_default(),
            // "ping" up to v0.0.38, "pinged" up to v0.0.44, then "responding".
            "ping" | "pinged" => {
                let word = map.next_value::<Text>()?.0.unwrap_or_default();
                let is = |known: &str| word.eq_ignore_ascii_case(known);
                self.up = is("UP").then_some(true).or(is("DOWN").then_some(false)).or(self.up);
            }
            "responding" => self.up = map.next_value::<Flag>()?.0.or(self.up),
            "latency" => self.latency = map.next_value::<Number>()?.or_none(),
            _ => return Ok(false),
        }
        Ok(true)
    }
}
