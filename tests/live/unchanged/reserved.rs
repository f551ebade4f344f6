//! Nodes whose reservation ends.

use anyhow::{Context, Result};
use sandbox::{Folder, Reader, Slurm, wait};
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

/// slurmctld takes the flag from the nodes and calls them unchanged, until something else about a node changes: here the next ping, after
/// twenty minutes.
#[test]
fn a_node_whose_reservation_has_ended_is_not_reserved_any_more() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    slurm.configure("SlurmdTimeout=3600\n").unwrap();
    slurm.start_all().unwrap();
    let create = "create reservation reservationname=short starttime=now endtime=now+8 users=root nodes=ALL";
    slurm.run("scontrol", &create.split(' ').collect::<Vec<_>>()).unwrap();
    let mut reader = Reader::of(&slurm).unwrap();
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
