//! The short replies: licences and reservations.

use slurm_snapshot::{License, Licenses, Reservation, Reservations, moment};
use slurm_sys::{license_info_msg_t, reserve_info_msg_t, slurm_license_info_t};

use crate::unpacked::Unpacked;
use crate::values::{name, number};

/// `RESERVE_FLAG_MAINT`: the reservation is for maintenance.
const MAINT: u64 = 1;

/// `RESERVE_FLAG_TIME_FLOAT`: the reservation's start stays the same time ahead.
const TIME_FLOAT: u64 = 1 << 17;

/// Copies the licences of the reply.
pub(crate) fn licenses(reply: Unpacked<'_, license_info_msg_t>) -> Licenses {
    let mut licenses = Licenses { last_update: reply.last_update, ..Licenses::default() };
    reply.lic_array().for_each(|record| {
        licenses.add(License {
            name: name(record.name()),
            // Of a hierarchical resource's layer.
            #[cfg(slurm_ge_2505)]
            nodes: Some(name(record.nodes())).filter(|nodes| !nodes.is_empty()),
            #[cfg(not(slurm_ge_2505))]
            nodes: None,
            total: number(record.total),
            used: number(record.in_use),
            free: number(record.available),
            reserved: number(record.reserved),
            remote: record.remote != 0,
            last_consumed: of_remote(record).map(|[consumed, _]| consumed),
            last_deficit: of_remote(record).map(|[_, deficit]| deficit),
        });
    });
    licenses
}

/// Returns two numbers of a remote licence: those in use by all, as its server reported them, and
/// those of them that nothing explains. `None` for a local licence.
#[cfg(slurm_ge_2302)]
fn of_remote(record: Unpacked<'_, slurm_license_info_t>) -> Option<[u32; 2]> {
    let known = number(record.last_consumed).zip(number(record.last_deficit));
    known.map(|(consumed, deficit)| [consumed, deficit]).filter(|_| record.remote != 0)
}

#[cfg(not(slurm_ge_2302))]
fn of_remote(_: Unpacked<'_, slurm_license_info_t>) -> Option<[u32; 2]> {
    None
}

/// Copies the reservations of the reply.
pub(crate) fn reservations(reply: Unpacked<'_, reserve_info_msg_t>) -> Reservations {
    let mut reservations =
        Reservations { last_update: reply.last_update, ..Reservations::default() };
    reply.reservation_array().for_each(|record| {
        reservations.add(Reservation {
            name: name(record.name()),
            nodes: number(record.node_cnt),
            cores: number(record.core_cnt),
            start_time: moment(record.start_time),
            end_time: moment(record.end_time),
            maint: record.flags & MAINT != 0,
            floats: record.flags & TIME_FLOAT != 0,
        });
    });
    reservations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpacked::made;

    #[test]
    fn reservations_are_bounded() {
        let mut records =
            vec![slurm_sys::reserve_info_t { end_time: 9, ..Default::default() }; 1500];
        let reply = reserve_info_msg_t {
            last_update: 1,
            record_count: 1500,
            reservation_array: records.as_mut_ptr(),
        };
        let reservations = reservations(made(&reply));
        assert_eq!(reservations.reservations.len(), 1000);
        let first = &reservations.reservations[0];
        assert_eq!((first.start_time, first.end_time, first.nodes), (None, Some(9), Some(0)));
    }

    #[test]
    fn licences_without_end_are_not_none_to_be_had() {
        let record = |total, available| slurm_sys::slurm_license_info_t {
            name: c"a".as_ptr().cast_mut(),
            total,
            in_use: 2,
            available,
            ..Default::default()
        };
        let mut records = [record(u32::MAX, u32::MAX - 2), record(16, 14)];
        let reply =
            license_info_msg_t { last_update: 1, num_lic: 2, lic_array: records.as_mut_ptr() };
        let licenses = licenses(made(&reply)).licenses;
        assert_eq!((licenses[0].total, licenses[0].used, licenses[0].free), (None, Some(2), None));
        assert_eq!(
            (licenses[1].total, licenses[1].used, licenses[1].free),
            (Some(16), Some(2), Some(14))
        );
    }

    #[test]
    #[cfg(slurm_ge_2505)]
    fn layers_of_one_licence_are_told_apart_by_their_nodes() {
        let nodes = c"n[1-2]".as_ptr().cast_mut();
        let mut records =
            [slurm_sys::slurm_license_info_t { nodes, mode: 2, ..Default::default() }];
        let reply =
            license_info_msg_t { last_update: 1, num_lic: 1, lic_array: records.as_mut_ptr() };
        let licenses = licenses(made(&reply)).licenses;
        assert_eq!(licenses[0].nodes.as_deref(), Some("n[1-2]"));
    }

    #[test]
    fn replies_of_nothing_are_empty() {
        let reply = license_info_msg_t { num_lic: u32::MAX, ..Default::default() };
        assert_eq!(licenses(made(&reply)), Licenses::default());
    }
}
