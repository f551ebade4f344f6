//! `slurm_reservations`: active reservations and the next one.

use slurm_snapshot::{KnownSum, Reply, ReplyKind, Reservation};

use super::{Collect, Collector, Start};
use crate::levels::Table;
use crate::named_paths::Points;
use crate::replies::SurveyReplies;

pub(super) const COLLECTOR: Collector = Collector {
    name: "reservations",
    comment: "Reservations, and when the next maintenance begins: slurm_reservations.",
    settings: &[],
    levels: &[LEVELS],
    replies: &[ReplyKind::Reservations],
    start: Start::Survey(|_| Box::new(ReservationsCollector)),
};

levels! {
    LEVELS:
    ALL: Level<Table<ReservationsNow>, 0> = ("slurm_reservations.all", [], METRICS,
        "All reservations together: `[collectors.reservations]`.");
    MAINT: Level<Table<ReservationsNow>, 0> = ("slurm_reservations.maint", [], METRICS,
        "When the next reservation with the MAINT flag begins.");
}

struct ReservationsCollector;

struct ReservationsNow {
    reservations: Vec<Reservation>,
    now: i64,
}

metrics! {
    METRICS: ReservationsNow =
        average("count", "count", |s| s.reservations.len(), "reservations, at most 1,000"),
        average("active", "count", |s| s.active().count(), "reservations that have begun and not \
            ended"),
        average("nodes", "count", |s| s.sum_of_active(|r| r.nodes),
            "nodes in active reservations; a node in two of them counts twice"),
        average("cores", "count", |s| s.sum_of_active(|r| r.cores), "cores in active \
            reservations"),
        average("seconds_to_start", "s", |s| s.to_soonest(s.planned().filter_map(|r| r.start_time)),
            "time until the next reservation begins; no point if none is planned, or only with \
             TIME_FLOAT"),
        average("seconds_to_end", "s", |s| s.to_soonest(s.active().filter_map(|r| r.end_time)),
            "time until the next active reservation ends; no point if none is active");
}

impl Collect<SurveyReplies> for ReservationsCollector {
    fn collect(&mut self, timestamp: i64, replies: &SurveyReplies, points: &mut Points<'_>) {
        let Some(Reply::Reservations(all)) = replies.get(ReplyKind::Reservations) else { return };
        let (all, now) =
            (all.reservations.clone(), replies.there(ReplyKind::Reservations, timestamp));
        let maint = all.iter().filter(|reservation| reservation.maint).cloned().collect();
        points.push(&ALL, [], &ReservationsNow { reservations: all, now });
        points.push(&MAINT, [], &ReservationsNow { reservations: maint, now });
    }
}

impl ReservationsNow {
    fn active(&self) -> impl Iterator<Item = &Reservation> {
        self.reservations.iter().filter(|reservation| {
            let begun = reservation.start_time.is_some_and(|start| start <= self.now);
            begun && reservation.end_time.is_none_or(|end| end > self.now)
        })
    }

    /// Returns the sum of a number over the active reservations of which the number is known.
    fn sum_of_active(&self, of: fn(&Reservation) -> Option<u32>) -> Option<u64> {
        let mut sum = KnownSum::default();
        sum.extend(self.active().map(|reservation| of(reservation).map(u64::from)));
        sum.value()
    }

    fn planned(&self) -> impl Iterator<Item = &Reservation> {
        self.reservations.iter().filter(|reservation| !reservation.floats)
    }

    /// Returns the seconds until the first of these moments that is in the future; `None` if there
    /// is none.
    fn to_soonest(&self, moments: impl Iterator<Item = i64>) -> Option<i64> {
        Some(moments.filter(|&moment| moment > self.now).min()?.saturating_sub(self.now))
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::Reply;

    use super::super::tests::{has_all, started, surveyed};
    use super::*;

    /// The start of such a reservation is always the same time ahead.
    #[test]
    fn a_reservation_that_floats_is_not_the_next_to_begin() {
        let reservation = |start, floats| Reservation {
            start_time: Some(start),
            floats,
            ..Reservation::default()
        };
        let points = |reservations: Vec<Reservation>| {
            let all = slurm_snapshot::Reservations {
                reservations,
                ..slurm_snapshot::Reservations::default()
            };
            let replies =
                SurveyReplies::with_only(ReplyKind::Reservations, Reply::Reservations(all));
            surveyed(&mut started(&COLLECTOR, &[]), 1000, &replies)
        };
        let leaf = "c.slurm_reservations.all.gauge-seconds_to_start";
        let both = points(vec![reservation(1120, true), reservation(5000, false)]);
        has_all(&both, &[&format!("{leaf} 4000"), "c.slurm_reservations.all.gauge-count 2"]);
        assert!(!points(vec![reservation(1120, true)]).iter().any(|point| point.starts_with(leaf)));
    }

    #[test]
    fn the_next_maintenance_is_told_apart() {
        let reservation = |start, end, maint| Reservation {
            nodes: Some(2),
            start_time: Some(start),
            end_time: Some(end),
            maint,
            ..Reservation::default()
        };
        let all = slurm_snapshot::Reservations {
            reservations: vec![
                reservation(100, 5000, false),
                reservation(4000, 9000, true),
                reservation(100, 900, false),
            ],
            ..slurm_snapshot::Reservations::default()
        };
        let mut collector = started(&COLLECTOR, &[]);
        let points = surveyed(
            &mut collector,
            1000,
            &SurveyReplies::with_only(ReplyKind::Reservations, Reply::Reservations(all)),
        );
        let expected = [
            "c.slurm_reservations.all.gauge-count 3",
            "c.slurm_reservations.all.gauge-active 1",
            "c.slurm_reservations.all.gauge-nodes 2",
            "c.slurm_reservations.all.gauge-seconds_to_end 4000",
            "c.slurm_reservations.maint.gauge-seconds_to_start 3000",
        ];
        has_all(&points, &expected);
        assert!(
            !points
                .iter()
                .any(|point| point.starts_with("c.slurm_reservations.maint.gauge-seconds_to_end"))
        );
    }
}
