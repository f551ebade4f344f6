//! `slurm_licenses`: what slurmctld hands out besides nodes.

use carbon::path;
use slurm_snapshot::License;

use super::{Collect, Collector, Paths, Round};
use crate::figure::{Figure, Points, Rollup};
use crate::survey::{Findings, Needs};

pub(super) const COLLECTOR: Collector = Collector {
    name: "licenses",
    paths: &[Paths {
        below: "slurm_licenses.<license>",
        about: "Each licence, as `scontrol show licenses` has it: `[collectors.licenses]`, off by default.",
        leaves: &FIGURES,
    }],
    start: |settings| {
        let config = settings.collectors.licenses;
        config.enabled.then(|| Box::new(Licenses { every: config.interval(settings.interval) }) as _)
    },
};

struct Licenses {
    every: u32,
}

#[rustfmt::skip]
const FIGURES: &[Figure<License>] = &[
    Figure { leaf: "total", unit: "count", rollup: Rollup::Average, value: |l| Some(l.total.into()),
        meaning: "all there are" },
    Figure { leaf: "used", unit: "count", rollup: Rollup::Average, value: |l| Some(l.used.into()),
        meaning: "held by jobs" },
    Figure { leaf: "free", unit: "count", rollup: Rollup::Average, value: |l| Some(l.free.into()),
        meaning: "to be had" },
    Figure { leaf: "reserved", unit: "count", rollup: Rollup::Average, value: |l| Some(l.reserved.into()),
        meaning: "set aside by reservations" },
];

impl Collect for Licenses {
    fn needs(&self) -> Needs {
        Needs { licenses: true, ..Needs::default() }
    }

    fn every(&self) -> u32 {
        self.every
    }

    fn collect(&mut self, round: &Round<'_>, points: &mut Points<'_>) {
        let Some(licenses) = round.findings.and_then(Findings::licenses) else { return };
        for license in &licenses.licenses {
            points.push(&format!("slurm_licenses.{}", path::component(&license.name)), FIGURES, license);
        }
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::Reply;

    use super::super::{started, surveyed};
    use super::*;

    #[test]
    fn every_number_of_a_license_is_under_its_own_name() {
        let matlab = License {
            name: "matlab@site".to_owned(),
            total: 20,
            used: 7,
            free: 10,
            reserved: 3,
            remote: true,
        };
        let all = slurm_snapshot::Licenses { last_update: 1, licenses: vec![matlab] };
        let mut collector = started(&COLLECTOR, "[collectors.licenses]\nenabled = true").unwrap();
        let points = surveyed(&mut *collector, 60, &Findings::of(Reply::Licenses(all)));
        let below = format!("c.slurm_licenses.{}", path::component("matlab@site"));
        let expected = ["total 20", "used 7", "free 10", "reserved 3"];
        assert_eq!(points, expected.map(|point| format!("{below}.gauge-{point}")));
    }
}
