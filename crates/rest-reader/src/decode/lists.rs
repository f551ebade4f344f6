//! The short answers: `licenses` and `reservations`.

use std::mem;

use serde::de::{Error, MapAccess};
use slurm_snapshot::{License, Reservation};

use super::lenient::{Flag, Number, Text, Words};
use super::object::{Members, each};
use super::wrong;

/// As many as the reader of libslurm lists.
const MAX_RESERVATIONS: usize = 1000;
const MAX_LICENSES: usize = 10_000;

/// The answer to `licenses`.
#[derive(Debug, Default)]
pub(crate) struct Licenses {
    pub(crate) licenses: slurm_snapshot::Licenses,
    is_there: bool,
}

impl Members for Licenses {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "licenses" => {
                if mem::replace(&mut self.is_there, true) {
                    return Err(wrong("licenses are there twice"));
                }
                let list = &mut self.licenses.licenses;
                map.next_value_seed(each(|row: LicenseRow| {
                    if list.len() < MAX_LICENSES {
                        list.push(row.0);
                    }
                    Ok(())
                }))?;
            }
            "last_update" => {
                self.licenses.last_update = map.next_value::<Number>()?.moment(name)?.unwrap_or(0);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if self.is_there { Ok(()) } else { Err(wrong("there are no licenses in the answer")) }
    }
}

#[derive(Default)]
struct LicenseRow(License);

impl Members for LicenseRow {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        let number = match name {
            "LicenseName" => {
                self.0.name = map.next_value::<Text>()?.0.unwrap_or_default();
                return Ok(true);
            }
            "Remote" => {
                self.0.remote = map.next_value::<Flag>()?.0.unwrap_or(false);
                return Ok(true);
            }
            "Nodes" => {
                self.0.nodes = map.next_value::<Text>()?.0.filter(|nodes| !nodes.is_empty());
                return Ok(true);
            }
            "Total" => {
                self.0.total = map.next_value::<Number>()?.value32(name)?;
                return Ok(true);
            }
            "Free" => {
                self.0.free = map.next_value::<Number>()?.value32(name)?;
                return Ok(true);
            }
            "Used" => &mut self.0.used,
            "Reserved" => &mut self.0.reserved,
            _ => return Ok(false),
        };
        *number = map.next_value::<Number>()?.value32(name)?.unwrap_or(0);
        Ok(true)
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        self.0.free = self.0.total.and(self.0.free);
        Ok(())
    }
}

/// The answer to `reservations`.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    pub(crate) reservations: slurm_snapshot::Reservations,
    is_there: bool,
}

impl Members for Reservations {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "reservations" => {
                if mem::replace(&mut self.is_there, true) {
                    return Err(wrong("reservations are there twice"));
                }
                let all = &mut self.reservations;
                map.next_value_seed(each(|row: ReservationRow| {
                    all.count = all.count.saturating_add(1);
                    if all.reservations.len() < MAX_RESERVATIONS {
                        all.reservations.push(row.0);
                    }
                    Ok(())
                }))?;
            }
            "last_update" => {
                self.reservations.last_update = map.next_value::<Number>()?.moment(name)?.unwrap_or(0);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if self.is_there { Ok(()) } else { Err(wrong("there are no reservations in the answer")) }
    }
}

#[derive(Default)]
struct ReservationRow(Reservation);

impl Members for ReservationRow {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "name" => self.0.name = map.next_value::<Text>()?.0.unwrap_or_default(),
            "node_count" => self.0.nodes = map.next_value::<Number>()?.value32(name)?.unwrap_or(0),
            "core_count" => self.0.cores = map.next_value::<Number>()?.value32(name)?.unwrap_or(0),
            "start_time" => self.0.start_time = map.next_value::<Number>()?.moment(name)?,
            "end_time" => self.0.end_time = map.next_value::<Number>()?.moment(name)?,
            "flags" => {
                let flags = map.next_value::<Words>()?.0;
                self.0.maint = flags.iter().any(|flag| flag.eq_ignore_ascii_case("MAINT"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
