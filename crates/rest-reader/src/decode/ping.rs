//! `ping`: whether each controller answers slurmrestd.

use std::mem;

use serde::de::{Error, MapAccess};
use slurm_snapshot::Controller;

use super::lenient::{Flag, Number, Text};
use super::object::{Members, each};
use super::wrong;

/// More than any release allows.
const MOST: usize = 64;

/// The answer to `ping`.
#[derive(Debug, Default)]
pub(crate) struct Ping {
    pub(crate) controllers: Vec<Controller>,
    is_there: bool,
}

impl Members for Ping {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        if name != "pings" {
            return Ok(false);
        }
        if mem::replace(&mut self.is_there, true) {
            return Err(wrong("pings are there twice"));
        }
        let list = &mut self.controllers;
        map.next_value_seed(each(|row: PingRow| {
            let up = row.up.ok_or("a controller is neither up nor down")?;
            if list.len() < MOST {
                let index = u32::try_from(list.len()).unwrap_or(u32::MAX);
                list.push(Controller { host: row.host, index, up, elapsed: row.latency });
            }
            Ok(())
        }))?;
        Ok(true)
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if self.is_there { Ok(()) } else { Err(wrong("there are no pings in the answer")) }
    }
}

#[derive(Default)]
struct PingRow {
    host: String,
    up: Option<bool>,
    /// Not told up to v0.0.38.
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
