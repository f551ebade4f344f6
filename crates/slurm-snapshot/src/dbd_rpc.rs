//! Numbers of slurmdbd's messages, and their names as `sacctmgr show stats` prints them.
//!
//! No library exports them. Each number means the same message from 20.11 to 26.11.

use crate::rpc::name_of;

/// Returns the name of slurmdbd's message type `id`; `None` if it is unknown in every release.
pub fn dbd_rpc_name(id: u32) -> Option<&'static str> {
    name_of(NAMES, id)
}

/// (number, name), sorted. Replies are not among them, because slurmdbd counts only requests.
const NAMES: &[(u32, &str)] = &[
    (1401, "DBD_FINI"),
    (1402, "DBD_ADD_ACCOUNTS"),
    (1403, "DBD_ADD_ACCOUNT_COORDS"),
    (1404, "DBD_ADD_ASSOCS"),
    (1405, "DBD_ADD_CLUSTERS"),
    (1406, "DBD_ADD_USERS"),
    (1407, "DBD_CLUSTER_TRES"),
    (1408, "DBD_FLUSH_JOBS"),
    (1409, "DBD_GET_ACCOUNTS"),
    (1410, "DBD_GET_ASSOCS"),
    (1411, "DBD_GET_ASSOC_USAGE"),
    (1412, "DBD_GET_CLUSTERS"),
    (1413, "DBD_GET_CLUSTER_USAGE"),
    (1414, "DBD_RECONFIG"),
    (1415, "DBD_GET_USERS"),
    (1424, "DBD_JOB_COMPLETE"),
    (1425, "DBD_JOB_START"),
    (1426, "DBD_ID_RC"),
    (1427, "DBD_JOB_SUSPEND"),
    (1428, "DBD_MODIFY_ACCOUNTS"),
    (1429, "DBD_MODIFY_ASSOCS"),
    (1430, "DBD_MODIFY_CLUSTERS"),
    (1431, "DBD_MODIFY_USERS"),
    (1432, "DBD_NODE_STATE"),
    (1434, "DBD_REGISTER_CTLD"),
    (1435, "DBD_REMOVE_ACCOUNTS"),
    (1436, "DBD_REMOVE_ACCOUNT_COORDS"),
    (1437, "DBD_REMOVE_ASSOCS"),
    (1438, "DBD_REMOVE_CLUSTERS"),
    (1439, "DBD_REMOVE_USERS"),
    (1440, "DBD_ROLL_USAGE"),
    (1441, "DBD_STEP_COMPLETE"),
    (1442, "DBD_STEP_START"),
    (1444, "DBD_GET_JOBS_COND"),
    (1445, "DBD_GET_TXN"),
    (1447, "DBD_ADD_QOS"),
    (1448, "DBD_GET_QOS"),
    (1450, "DBD_REMOVE_QOS"),
    (1451, "DBD_MODIFY_QOS"),
    (1452, "DBD_ADD_WCKEYS"),
    (1453, "DBD_GET_WCKEYS"),
    (1455, "DBD_REMOVE_WCKEYS"),
    (1456, "DBD_MODIFY_WCKEYS"),
    (1457, "DBD_GET_WCKEY_USAGE"),
    (1459, "DBD_ARCHIVE_DUMP"),
    (1460, "DBD_ARCHIVE_LOAD"),
    (1461, "DBD_ADD_RESV"),
    (1462, "DBD_REMOVE_RESV"),
    (1463, "DBD_MODIFY_RESV"),
    (1464, "DBD_GET_RESVS"),
    (1466, "DBD_GET_CONFIG"),
    (1468, "DBD_GET_PROBS"),
    (1470, "DBD_GET_EVENTS"),
    (1472, "DBD_SEND_MULT_JOB_START"),
    (1474, "DBD_SEND_MULT_MSG"),
    (1476, "DBD_MODIFY_JOB"),
    (1477, "DBD_ADD_RES"),
    (1478, "DBD_GET_RES"),
    (1480, "DBD_REMOVE_RES"),
    (1481, "DBD_MODIFY_RES"),
    (1482, "DBD_ADD_CLUS_RES"),
    (1483, "DBD_REMOVE_CLUS_RES"),
    (1484, "DBD_MODIFY_CLUS_RES"),
    (1485, "DBD_ADD_TRES"),
    (1486, "DBD_GET_TRES"),
    (1488, "DBD_FIX_RUNAWAY_JOB"),
    (1489, "DBD_GET_STATS"),
    (1491, "DBD_CLEAR_STATS"),
    (1492, "DBD_SHUTDOWN"),
    (1493, "DBD_ADD_FEDERATIONS"),
    (1494, "DBD_GET_FEDERATIONS"),
    (1496, "DBD_MODIFY_FEDERATIONS"),
    (1497, "DBD_REMOVE_FEDERATIONS"),
    (1498, "DBD_JOB_HEAVY"),
    (1501, "DBD_ADD_ACCOUNTS_COND"),
    (1502, "DBD_ADD_USERS_COND"),
    (1503, "DBD_GET_INSTANCES"),
    (1505, "DBD_GET_QOS_USAGE"),
    (1507, "DBD_GET_ASSOC_NG_USAGE"),
    (6500, "SLURM_PERSIST_INIT"),
    (6501, "SLURM_PERSIST_INIT_TLS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_every_name_can_be_found() {
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(dbd_rpc_name(1489), Some("DBD_GET_STATS"));
        assert_eq!([0, 1421, u32::MAX].map(dbd_rpc_name), [None; 3]);
    }
}
