//! Resources that reservations set aside: licences while they last, and nodes until their end.

use std::time::Duration;

use anyhow::{Context, Result};
use sandbox::daemon::surveys;
use sandbox::{Daemon, Folder, Reader, Slurm, wait};
use slurm_snapshot::{Nodes, Reply, ReplyKind};

use super::ask;

/// The reply to the next request, or what was known before it.
fn next(reader: &mut Reader, known: Option<Nodes>) -> Result<Nodes> {
    match ask(reader, ReplyKind::Nodes, known.as_ref().map(|nodes| nodes.last_update))? {
        Reply::Nodes(nodes) => Ok(*nodes),
        Reply::Unchanged => known.context("unchanged, and nothing was known"),
        other => anyhow::bail!("{other:?}"),
    }
}

/// The time that slurmctld compares with is that of jobs. A reservation's begin, end and deletion
/// were not seen until a job took or returned a licence.
#[test]
fn what_a_reservation_sets_aside_is_seen_without_any_job_and_not_after_its_end() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::start_with(&folder, "Licenses=foo:10\nSlurmdTimeout=3600\n").unwrap();
    let mut daemon =
        Daemon::start_surveying(&folder, &slurm.toml(), &surveys(&["licenses"])).unwrap();
    let reserved = "cluster.slurm_licenses.foo.gauge-reserved";
    daemon.until_is(reserved, 0.0).unwrap();
    // So that a reply from before would be called unchanged.
    wait::pause(Duration::from_secs(3));
    let what = "starttime=now+3 duration=10 users=root licenses=foo:3 flags=any_nodes nodecnt=0";
    slurm.call(&format!("scontrol create reservation reservationname=lic {what}")).unwrap();
    daemon.until_is(reserved, 3.0).unwrap();
    slurm.call("scontrol delete reservationname=lic").unwrap();
    daemon.until_is(reserved, 0.0).unwrap();
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
    a_node_whose_reservation_has_ended_is_not_reserved_any_more(&slurm);
}

/// slurmctld takes the flag from the nodes and calls them unchanged, until something else about a
/// node changes: here the next ping, after twenty minutes.
fn a_node_whose_reservation_has_ended_is_not_reserved_any_more(slurm: &Slurm) {
    let short = "reservationname=short starttime=now endtime=now+8 users=root nodes=ALL";
    slurm.call(&format!("scontrol create reservation {short}")).unwrap();
    let mut reader = Reader::start_for(slurm).unwrap();
    let mut known = None;
    for reserved in [1, 0] {
        wait::until("nodes that are reserved, and then are not", wait::LIMIT, || {
            let nodes = next(&mut reader, known.take()).unwrap();
            let is_it = nodes.reserved.nodes.total == reserved;
            known = Some(nodes);
            is_it
        })
        .unwrap();
    }
}
