//! A reading beside the one before it, for people: the interval, and what each row of the RPC tables grew by.

use std::borrow::Cow;

use slurm_snapshot::{Reading, Release, RpcTables, RpcUser, Statistics, rpc_name};

use crate::derive::{self, Interval};

/// Two readings without a reset between them.
pub(in crate::commands) struct Compared<'a> {
    pub(in crate::commands) before: &'a Statistics,
    now: &'a Statistics,
    release: Release,
    pub(in crate::commands) interval: Interval,
}

/// A row of an RPC table, and what it grew by.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::commands) struct Row {
    pub(in crate::commands) id: u32,
    pub(in crate::commands) name: String,
    /// 0 where it is not known.
    pub(in crate::commands) per_minute: f64,
    /// µs
    pub(in crate::commands) mean: f64,
    /// µs
    pub(in crate::commands) time: u64,
    /// Of the table's time.
    pub(in crate::commands) share: f64,
}

impl<'a> Compared<'a> {
    /// `None` where the two do not belong together.
    pub(in crate::commands) fn new(before: &'a Reading, now: &'a Reading, every: u32) -> Option<Self> {
        let span = derive::span(before, now, every).filter(|span| span.reset.is_none())?;
        let (old, new) = before.statistics.as_ref().zip(now.statistics.as_ref())?;
        let interval = Interval::new(old, new, now.release, span.seconds);
        Some(Self { before: old, now: new, release: now.release, interval })
    }

    /// What was served by message type, the most expensive first.
    pub(in crate::commands) fn types(&self) -> Vec<Row> {
        self.rows(|tables| {
            let rows = tables.types.iter();
            rows.map(|row| (row.id.into(), type_name(row.id.into(), self.release), row.count, row.time))
                .collect()
        })
    }

    /// What was served by user, the most expensive first.
    pub(in crate::commands) fn users(&self) -> Vec<Row> {
        self.rows(|tables| {
            tables.users.iter().map(|row| (row.id, user_name(row), row.count, row.time)).collect()
        })
    }

    fn rows<'n>(&'n self, of: impl Fn(&'n RpcTables) -> Vec<(u32, Cow<'n, str>, u32, u64)>) -> Vec<Row> {
        let Some((old, new)) = self.before.rpc.as_ref().zip(self.now.rpc.as_ref()) else { return Vec::new() };
        let old = of(old);
        let grown = of(new).into_iter().filter_map(|(id, name, count, time)| {
            let before = old.iter().find(|row| row.0 == id).map_or((0, 0), |row| (row.2, row.3));
            let (count, time) = (count.wrapping_sub(before.0), time.checked_sub(before.1)?);
            let row = Row::new(id, &name, count, time);
            (1..=u32::MAX / 2)
                .contains(&count)
                .then(|| Row { per_minute: self.interval.per_minute(count), ..row })
        });
        Row::ranked(grown)
    }
}

impl Row {
    /// What was served, at no rate that is known.
    pub(in crate::commands) fn new(id: u32, name: &str, count: u32, time: u64) -> Self {
        let mean = derive::whole(time) / f64::from(count.max(1));
        Self { id, name: name.to_owned(), per_minute: 0.0, mean, time, share: 0.0 }
    }

    /// The most expensive first, each with its share.
    pub(in crate::commands) fn ranked(rows: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut rows: Vec<Self> = rows.collect();
        let all = rows.iter().fold(0_u64, |all, row| all.saturating_add(row.time));
        rows.iter_mut().for_each(|row| row.share = derive::whole(row.time) / derive::whole(all.max(1)));
        rows.sort_by(|a, b| b.time.cmp(&a.time).then(a.id.cmp(&b.id)));
        rows
    }
}

/// Slurm's name of a message type, or its number.
pub(in crate::commands) fn type_name(id: u32, release: Release) -> Cow<'static, str> {
    rpc_name(id, release).map_or_else(|| id.to_string().into(), Cow::Borrowed)
}

/// The user's name, or his number.
pub(in crate::commands) fn user_name(user: &RpcUser) -> Cow<'_, str> {
    user.name.as_ref().map_or_else(|| user.id.to_string().into(), |name| name.as_str().into())
}
