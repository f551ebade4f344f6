//! A reading compared with the one before it, for people: the interval, and the growth of each row
//! of the RPC tables.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use slurm_points::derive::{self, Calls, Interval, Tables};
use slurm_snapshot::{Reading, Release, RpcTables, RpcUser, Statistics, rpc_name};

/// Two readings of the statistics that can be compared, because there was no reset between them.
pub(crate) struct Compared<'a> {
    pub(crate) before: &'a Statistics,
    now: &'a Reading,
    pub(crate) interval: Interval,
    /// Growth of the RPC tables in the interval. `None`: the tables of the two readings cannot be
    /// compared.
    grown: Option<Tables>,
}

/// A row of an RPC table, for one type or one user: the RPCs of the interval, or all of them with
/// only one reading.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RankedRow {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Number of RPCs a minute. It is 0 with only one reading, when it is not known.
    pub(crate) per_minute: f64,
    /// µs
    pub(crate) mean: f64,
    /// µs
    pub(crate) time: u64,
    /// Part of the table's whole time that is the row's, from 0 to 1.
    pub(crate) share: f64,
}

impl<'a> Compared<'a> {
    /// Compares two readings that were made about `every` seconds apart. `None`: they cannot be
    /// compared, such as after a reset.
    pub(crate) fn new(before: &'a Reading, now: &'a Reading, every: u32) -> Option<Self> {
        let (old, seconds) = derive::unbroken(before, now, every)?;
        let new = now.statistics.as_ref()?;
        let interval = Interval::new(old, new, now.release, seconds);
        let tables = old.rpc.as_ref().zip(new.rpc.as_ref());
        let grown = tables.and_then(|(old, new)| tables_of(new).since(&tables_of(old)));
        Some(Self { before: old, now, interval, grown })
    }

    /// The mean time of an RPC in the interval, µs.
    pub(crate) fn mean_rpc(&self) -> Option<f64> {
        let Calls { time, count } = Calls::sum(self.grown.as_ref()?.types.values());
        (count > 0).then(|| derive::exact_f64(time) / derive::exact_f64(count))
    }

    /// The RPCs that were served in the interval.
    pub(crate) fn served(&self) -> Served {
        self.grown
            .as_ref()
            .map_or_else(Served::default, |grown| Served::new(self.now, grown, Some(self.interval)))
    }
}

/// The RPCs that slurmctld has served, by type and by user, with those first that took the most
/// time together.
#[derive(Default)]
pub(crate) struct Served {
    pub(crate) types: Vec<RankedRow>,
    pub(crate) users: Vec<RankedRow>,
}

impl Served {
    /// Returns the whole RPC tables of a reading that has none before it.
    pub(crate) fn all(reading: &Reading) -> Self {
        let rpc = reading.statistics.as_ref().and_then(|statistics| statistics.rpc.as_ref());
        rpc.map_or_else(Self::default, |rpc| Self::new(reading, &tables_of(rpc), None))
    }

    fn new(reading: &Reading, tables: &Tables, interval: Option<Interval>) -> Self {
        let rpc = reading.statistics.as_ref().and_then(|statistics| statistics.rpc.as_ref());
        let users = rpc.into_iter().flat_map(|rpc| &rpc.users);
        let names: BTreeMap<u32, Cow<'_, str>> =
            users.map(|user| (user.id, user_name(user))).collect();
        let type_name = |id: u16| type_name(id.into(), reading.release).into_owned();
        let user_name = |id| names.get(&id).map(|name| name.to_string()).unwrap_or_default();
        Self {
            types: ranked(&tables.types, interval, type_name),
            users: ranked(&tables.users, interval, user_name),
        }
    }
}

fn tables_of(rpc: &RpcTables) -> Tables {
    Tables::from_rows(&rpc.types, &rpc.users)
}

fn ranked<K: Copy + Into<u32>>(
    table: &BTreeMap<K, Calls>,
    interval: Option<Interval>,
    name: impl Fn(K) -> String,
) -> Vec<RankedRow> {
    let all = derive::exact_f64(Calls::sum(table.values()).time.max(1));
    let served = table.iter().filter(|(_, calls)| calls.count > 0);
    let mut rows: Vec<RankedRow> = served
        .map(|(&id, &Calls { time, count })| {
            let micros = derive::exact_f64(time);
            let count = derive::exact_f64(count);
            let per_minute = interval.map_or(0.0, |interval| interval.per_minute(count));
            RankedRow {
                id: id.into(),
                name: name(id),
                per_minute,
                mean: micros / count,
                time,
                share: micros / all,
            }
        })
        .collect();
    rows.sort_by_key(|row| (Reverse(row.time), row.id));
    rows
}

/// Slurm's name of a message type, or its number.
pub(crate) fn type_name(id: u32, release: Release) -> Cow<'static, str> {
    rpc_name(id, release).map_or_else(|| id.to_string().into(), Cow::Borrowed)
}

/// The user's name or number.
pub(crate) fn user_name(user: &RpcUser) -> Cow<'_, str> {
    user.name.as_ref().map_or_else(|| user.id.to_string().into(), |name| name.as_str().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use slurm_snapshot::RpcType;

    fn reading(moment: u32, types: &[(u16, u32, u64)], users: &[(u32, u32, u64)]) -> Reading {
        let types = types
            .iter()
            .map(|&(id, count, time)| RpcType { id, count, time, queue: None })
            .collect();
        let user = |&(id, count, time)| RpcUser { id, name: None, looking_up: false, count, time };
        let rpc =
            RpcTables { types, users: users.iter().map(user).collect(), ..RpcTables::default() };
        let text = format!(r#"{{"id":1,"time":{moment},"elapsed":1,"release":"24.11"}}"#);
        let mut reading: Reading = serde_json::from_str(&text).unwrap();
        reading.statistics = Some(Statistics {
            req_time: moment.into(),
            req_time_start: 100,
            rpc: Some(rpc),
            ..Statistics::default()
        });
        reading
    }

    #[test]
    fn a_table_that_the_collector_would_not_compare_is_not_compared_for_people_either() {
        let before = reading(1000, &[(2003, u32::MAX, 50)], &[(7, 4, 90), (8, 4, 90)]);
        let rows = |users: &[(u32, u32, u64)]| {
            let after = reading(1030, &[(2003, 1, 60), (2010, 3, 40)], users);
            let compared = Compared::new(&before, &after, 30).unwrap();
            let known = |row: RankedRow| (row.id, row.name, row.per_minute, row.time);
            (
                compared.served().types.into_iter().map(known).collect::<Vec<_>>(),
                compared.served().users.into_iter().map(known).collect::<Vec<_>>(),
            )
        };
        let (types, users) = rows(&[(7, 4, 90), (8, 5, 95)]);
        assert_eq!(users, [(8, "8".to_owned(), 2.0, 5)]);
        let types: Vec<_> =
            types.into_iter().map(|(id, _, per_minute, time)| (id, per_minute, time)).collect();
        assert_eq!(
            types,
            [(2010, 6.0, 40), (2003, 4.0, 10)],
            "over the end of a u32, and from nothing"
        );
        assert_eq!(rows(&[(7, 5, 80), (8, 5, 95)]), (vec![], vec![]), "one row has shrunk");
        assert_eq!(rows(&[(8, 5, 95)]), (vec![], vec![]), "one row is gone");
    }
}
