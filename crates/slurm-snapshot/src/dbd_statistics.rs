//! slurmdbd's own statistics, as `sacctmgr show stats` prints them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::statistics::{RpcType, RpcUser};

/// The counters of slurmdbd since its start or their last reset. RPCs are those of all clusters
/// that it serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DbdStatistics {
    /// Moment at which counting began: slurmdbd's start, or the last `sacctmgr clear stats`. Unix
    /// seconds on slurmdbd's clock.
    pub since: i64,
    /// RPCs by message type ([`crate::dbd_rpc_name`]).
    pub types: Vec<RpcType>,
    /// RPCs by user; empty if not requested.
    pub users: Vec<RpcUser>,
    /// The roll-ups of the reader's own cluster, by period: `hour`, `day`, `month`.
    pub rollups: BTreeMap<String, DbdRollup>,
}

/// The roll-ups of one period. If several periods were due at once, slurmdbd does one roll-up for
/// all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DbdRollup {
    /// Number of roll-ups; slurmdbd usually does not count the first one after its start.
    pub count: u64,
    /// Time that the last roll-up took, µs; `None` before the second one.
    pub last: Option<u64>,
    /// Time that the longest roll-up took, µs; `None` before the second one.
    pub max: Option<u64>,
    /// Time that all roll-ups took, µs; `None` before the first one.
    pub total: Option<u64>,
    /// The end of the last hour, day or month that was rolled up: Unix seconds on slurmdbd's clock.
    pub end: Option<i64>,
}
