//! The short answers: `licenses` and `reservations`.

use serde::de::{Error, MapAccess};
use slurm_snapshot::{License, Licenses, Reservation, Reservations};

use super::lenient::{Flag, Number, Text, Words};
use super::list::ListAnswer;
use super::object::Members;

/// The same limit as in the reader of libslurm.
const MAX_RESERVATIONS: usize = 1000;
const MAX_LICENSES: usize = 10_000;

impl ListAnswer for Licenses {
    const NAME: &'static str = "licenses";
    type Item = License;

    fn add(&mut self, license: License) -> Result<(), String> {
        if self.licenses.len() < MAX_LICENSES {
            self.licenses.push(license);
        }
        Ok(())
    }

    fn end(&mut self, last_update: i64) {
        self.last_update = last_update;
    }
}

impl Members for License {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "LicenseName" => self.name = map.next_value::<Text>()?.0.unwrap_or_default(),
            "Remote" => self.remote = map.next_value::<Flag>()?.0.unwrap_or(false),
            "Nodes" => self.nodes = map.next_value::<Text>()?.0.filter(|nodes| !nodes.is_empty()),
            "Total" => self.total = map.next_value::<Number>()?.value32(name)?,
            "Free" => self.free = map.next_value::<Number>()?.value32(name)?,
            "Used" => self.used = map.next_value::<Number>()?.value32(name)?.unwrap_or(0),
            "Reserved" => self.reserved = map.next_value::<Number>()?.value32(name)?.unwrap_or(0),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        self.free = self.total.and(self.free);
        Ok(())
    }
}

impl ListAnswer for Reservations {
    const NAME: &'static str = "reservations";
    type Item = Reservation;

    fn add(&mut self, reservation: Reservation) -> Result<(), String> {
        self.count = self.count.saturating_add(1);
        if self.reservations.len() < MAX_RESERVATIONS {
            self.reservations.push(reservation);
        }
        Ok(())
    }

    fn end(&mut self, last_update: i64) {
        self.last_update = last_update;
    }
}

impl Members for Reservation {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "name" => self.name = map.next_value::<Text>()?.0.unwrap_or_default(),
            "node_count" => self.nodes = map.next_value::<Number>()?.value32(name)?.unwrap_or(0),
            "core_count" => self.cores = map.next_value::<Number>()?.value32(name)?.unwrap_or(0),
            "start_time" => self.start_time = map.next_value::<Number>()?.moment(name)?,
            "end_time" => self.end_time = map.next_value::<Number>()?.moment(name)?,
            "flags" => {
                let flags = map.next_value::<Words>()?.0;
                let has = |word: &str| flags.iter().any(|flag| flag.eq_ignore_ascii_case(word));
                (self.maint, self.floats) = (has("MAINT"), has("TIME_FLOAT"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
