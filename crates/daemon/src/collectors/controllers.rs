//! `slurm_controllers`: whether the primary slurmctld and its backups answer, and how fast.

use slurm_snapshot::Controller;

use super::{Collect, Collector, Paths, Round};
use crate::figure::{Figure, Points, Rollup, count};
use crate::survey::{Findings, Needs};

pub(super) const COLLECTOR: Collector = Collector {
    name: "controllers",
    paths: &[Paths {
        below: "slurm_controllers.<controller>",
        about: "Each SlurmctldHost, asked as `scontrol ping` does: `primary`, `backup1` and so on. \
                `[collectors.controllers]`, off by default. A backup that is down is noticed when it is needed, or here.",
        leaves: &FIGURES,
    }],
    start: |settings| {
        let config = settings.collectors.controllers;
        config.enabled.then(|| Box::new(Controllers { every: config.interval(settings.interval) }) as _)
    },
};

struct Controllers {
    every: u32,
}

#[rustfmt::skip]
const FIGURES: &[Figure<Controller>] = &[
    Figure { leaf: "up", unit: "0 or 1", rollup: Rollup::Average, value: |c| Some(u8::from(c.up).into()),
        meaning: "whether it answered" },
    Figure { leaf: "answer_time", unit: "µs", rollup: Rollup::Average, value: |c| count(c.elapsed).filter(|_| c.up),
        meaning: "how long its answer took; none when there was none" },
];

impl Collect for Controllers {
    fn needs(&self) -> Needs {
        Needs { controllers: true, ..Needs::default() }
    }

    fn every(&self) -> u32 {
        self.every
    }

    fn collect(&mut self, round: &Round<'_>, points: &mut Points<'_>) {
        for controller in round.findings.and_then(Findings::controllers).unwrap_or_default() {
            let name = match controller.index {
                0 => "primary".to_owned(),
                index => format!("backup{index}"),
            };
            points.push(&format!("slurm_controllers.{name}"), FIGURES, controller);
        }
    }
}
