//! Nodes that slurmctld powers down and up.

use std::time::{Duration, Instant};

use sandbox::{Folder, Slurm, wait};
use slurm_snapshot::{Reply, ReplyKind};

use super::{LastReply, Reader};

/// Up to 22.05, slurmctld calls nodes unchanged that it has powered down.
#[test]
fn a_node_that_is_powered_down_is_a_change() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    // Otherwise nodes that are powered down are not shown.
    let lines = "PrivateData=cloud\nSuspendProgram=/bin/true\nResumeProgram=/bin/true\n\
        SuspendTime=5\nSuspendTimeout=5\nResumeTimeout=60\nNodeName=saved NodeAddr=127.0.0.1 \
        CPUs=1 State=CLOUD\nPartitionName=saving Nodes=saved Default=YES\n";
    slurm.replace(&["NodeName=", "PartitionName="], lines).unwrap();
    slurm.start_controller().unwrap();
    let mut reader = Reader::start_for(&slurm).unwrap();
    let mut kept = LastReply { kind: ReplyKind::Nodes, reply: None, compared: 0, changed: 0 };
    slurm.call("scontrol update nodename=saved state=power_up").unwrap();
    let start = Instant::now();
    let has_flag = |kept: &LastReply, flag: &str| {
        matches!(&kept.reply,
        Some(Reply::Nodes(nodes)) if nodes.flags.contains_key(flag))
    };
    for flag in ["powering_up", "powering_down", "powered_down"] {
        if flag == "powering_down" {
            slurm.call("scontrol update nodename=saved state=power_down_force").unwrap();
        }
        while !has_flag(&kept, flag) {
            kept.compare(&mut reader).unwrap();
            assert!(start.elapsed() < wait::LIMIT, "never {flag}: {:?}", kept.reply);
            wait::pause(Duration::from_millis(200));
        }
    }
}
