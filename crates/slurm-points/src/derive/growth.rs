//! The growth of RPC tables between two readings: exact, or nothing at all.
//!
//! Neither slurmctld nor slurmdbd ever removes a row from a table or lets it shrink, except when it
//! empties all tables. So if rows are gone or smaller, the two tables do not belong together,
//! whatever else the readings say. A count, which is a `u32` there, may wrap.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use slurm_snapshot::{RpcType, RpcUser, add_members};

/// RPCs, and the time spent on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Calls {
    /// Time spent on the RPCs, µs. It is the first member, because rows are ranked by it.
    pub time: u64,
    /// Number of RPCs.
    pub count: u64,
}

impl AddAssign for Calls {
    fn add_assign(&mut self, more: Self) {
        add_members!(self, more; time count);
    }
}

impl Calls {
    /// Returns the sum of all these calls.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        all.into_iter().for_each(|calls| sum += *calls);
        sum
    }

    fn since(self, before: Self) -> Option<Self> {
        let time = self.time.checked_sub(before.time)?;
        let around = self.count.saturating_add(1 << 32).checked_sub(before.count);
        let around = around.filter(|&grown| grown <= u64::from(u32::MAX / 2));
        Some(Self { time, count: self.count.checked_sub(before.count).or(around)? })
    }
}

/// The rows of one RPC table, by message type or user id. Two rows with one number, which slurmctld
/// never makes, are added.
type CallsTable<K> = BTreeMap<K, Calls>;

/// The RPC tables of one reading, or their growth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// The RPCs by message type.
    pub types: CallsTable<u16>,
    /// The RPCs by user id.
    pub users: CallsTable<u32>,
}

impl Tables {
    /// Makes the tables from the rows of a reply.
    pub fn from_rows(types: &[RpcType], users: &[RpcUser]) -> Self {
        let types = types.iter().map(|row| (row.id, row.count, row.time));
        let users = users.iter().map(|row| (row.id, row.count, row.time));
        Self { types: table(types), users: table(users) }
    }

    /// Returns the growth since `before`, row by row; a row that was not there yet has grown from
    /// 0. `None` if the two tables do not belong together.
    pub fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            types: grown(&before.types, &self.types)?,
            users: grown(&before.users, &self.users)?,
        })
    }
}

fn table<K: Ord>(rows: impl Iterator<Item = (K, u32, u64)>) -> CallsTable<K> {
    let mut table = CallsTable::new();
    for (id, count, time) in rows {
        *table.entry(id).or_default() += Calls { time, count: count.into() };
    }
    table
}

fn grown<K: Ord + Copy>(before: &CallsTable<K>, now: &CallsTable<K>) -> Option<CallsTable<K>> {
    if before.keys().any(|id| !now.contains_key(id)) {
        return None;
    }
    let since = |(&id, calls): (&K, &Calls)| {
        Some((id, calls.since(before.get(&id).copied().unwrap_or_default())?))
    };
    now.iter().map(since).collect()
}
