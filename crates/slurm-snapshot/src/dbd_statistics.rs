//! slurmdbd's statistics of itself, as `sacctmgr show stats` has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::statistics::{RpcType, RpcUser};

/// What slurmdbd has counted since its start. RPCs are those of all clusters that it serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DbdStatistics {
    /// Since when it counts: since its start, or since `sacctmgr clear stats`. Unix seconds on slurmdbd's clock.
    pub since: i64,
    /// By message type ([`crate::dbd_rpc_name`]).
    pub types: Vec<RpcType>,
    /// By user, where users were asked for.
    pub users: Vec<RpcUser>,
    /// The roll-ups of the reader's own cluster, by period: `hour`, `day`, `month`.
    pub rollups: BTreeMap<String, DbdRollup>,
}

/// Roll-ups of one period. Of several periods that were due at once slurmdbd makes one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DbdRollup {
    /// How many there were; slurmdbd mostly does not count the first since its start.
    pub count: u64,
    /// How long the last one took, µs; `None` before the second one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// How long the longest one took, µs; `None` before the second one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// How long all took, µs; `None` before the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The end of the last hour, day or month that is rolled up: Unix seconds on slurmdbd's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<i64>,
}
