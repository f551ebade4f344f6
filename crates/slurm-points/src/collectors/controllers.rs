//! `slurm_controllers`: whether the primary slurmctld and its backups answer, and how fast.

use slurm_snapshot::{Controller, Reply, ReplyKind};

use super::{Collect, Collector, Start};
use crate::levels::Names::Closed;
use crate::levels::{Name, Table};
use crate::named_paths::Points;
use crate::replies::SurveyReplies;

pub(super) const COLLECTOR: Collector = Collector {
    name: "controllers",
    comment: "Whether the primary slurmctld and its backups answer: slurm_controllers.",
    settings: &[],
    levels: &[LEVELS],
    replies: &[ReplyKind::Controllers],
    start: Start::Survey(|_| Box::new(ControllersCollector)),
};

levels! {
    LEVELS:
    CONTROLLER: Level<Table<Controller>, 1> = ("slurm_controllers.<controller>", [Closed], METRICS,
        "Each SlurmctldHost, asked as by `scontrol ping`: `primary`, `backup1` and so on: \
         `[collectors.controllers]`.");
}

struct ControllersCollector;

metrics! {
    METRICS: Controller =
        average(up, "0 or 1", "whether it answered"),
        average("answer_time", "µs", |c| c.elapsed.filter(|_| c.up),
            "time until it answered; no point without an answer");
}

impl Collect<SurveyReplies> for ControllersCollector {
    fn collect(&mut self, _: i64, replies: &SurveyReplies, points: &mut Points<'_>) {
        let Some(Reply::Controllers(controllers)) = replies.get(ReplyKind::Controllers) else {
            return;
        };
        for controller in controllers {
            let name = match controller.index {
                0 => "primary".to_owned(),
                index => format!("backup{index}"),
            };
            points.push(&CONTROLLER, [Name::new(&name)], controller);
        }
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::Reply;

    use super::super::tests::{started, surveyed};
    use super::*;

    #[test]
    fn a_controller_that_is_down_has_no_answer_time() {
        let controller = |index, up, elapsed| Controller { index, up, elapsed: Some(elapsed) };
        let all = vec![controller(0, true, 340), controller(2, false, 10_000_000)];
        let mut collector = started(&COLLECTOR, &[]);
        let points = surveyed(
            &mut collector,
            60,
            &SurveyReplies::with_only(ReplyKind::Controllers, Reply::Controllers(all)),
        );
        let expected =
            ["primary.gauge-up 1", "primary.gauge-answer_time 340", "backup2.gauge-up 0"];
        assert_eq!(points, expected.map(|point| format!("c.slurm_controllers.{point}")));
    }
}
