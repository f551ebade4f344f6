//! `slurm_licenses`: licences and other consumable resources that are not part of nodes.

use std::collections::BTreeMap;

use slurm_snapshot::{License, Reply, ReplyKind};

use super::{Collect, Collector, Start};
use crate::levels::Names::Configured;
use crate::levels::{Name, Table};
use crate::named_paths::Points;
use crate::replies::SurveyReplies;
use crate::settings::MOST_NAMES;

pub(super) const COLLECTOR: Collector = Collector {
    name: "licenses",
    comment: "Each licence: slurm_licenses.",
    settings: &[],
    levels: &[LEVELS],
    replies: &[ReplyKind::Licenses],
    start: Start::Survey(|_| Box::new(LicensesCollector)),
};

levels! {
    LEVELS:
    LICENSE: Level<Table<License>, 1> = ("slurm_licenses.<license>", [Configured(MOST_NAMES)],
        METRICS,
        "Each licence, as `scontrol show licenses` has it: `[collectors.licenses]`, off by default.");
    LAYER: Level<Table<License>, 2> = ("slurm_licenses.<license>.layer.<nodes>",
        [Configured(MOST_NAMES), Configured(MOST_NAMES)], METRICS,
        "Each layer of a hierarchical resource (from 25.05 on), by its nodes. Layers may be \
         nested: do not add them. With an older libslurm, such a resource has no points.");
}

struct LicensesCollector;

metrics! {
    METRICS: License =
        average(total, "count", "all licences; no point if there is no limit"),
        average(used, "count", "licences in use by jobs"),
        average(free, "count", "free licences; no point if there is no limit"),
        average(reserved, "count", "licences in reservations"),
        average(last_consumed, "count",
            "licences of a remote resource in use at its last report (sacctmgr's `lastconsumed`), \
             0 without one; from 23.02 on"),
        average(last_deficit, "count",
            "those of `last_consumed` that neither this cluster's jobs nor other clusters' shares \
             explain");
}

impl Collect<SurveyReplies> for LicensesCollector {
    fn collect(&mut self, _: i64, replies: &SurveyReplies, points: &mut Points<'_>) {
        let Some(Reply::Licenses(licenses)) = replies.get(ReplyKind::Licenses) else { return };
        for ((name, nodes), license) in by_level(&licenses.licenses) {
            match (license, nodes) {
                (Some(license), Some(nodes)) => points.push(&LAYER, [name, nodes], license),
                (Some(license), None) => points.push(&LICENSE, [name], license),
                (None, _) => {}
            }
        }
        points.end_round();
    }
}

/// Each licence, and each layer of a hierarchical resource, by its level. `None` if several have
/// the same level: they cannot be told apart, and nested layers have no sum.
fn by_level(licenses: &[License]) -> BTreeMap<(Name<'_>, Option<Name<'_>>), Option<&License>> {
    let mut levels = BTreeMap::new();
    for license in licenses {
        let level = (Name::new(&license.name), license.nodes.as_deref().map(Name::new));
        levels.entry(level).and_modify(|one| *one = None).or_insert(Some(license));
    }
    levels
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::Reply;

    use super::super::tests::{started, surveyed};
    use super::*;

    #[test]
    fn every_number_of_a_license_is_under_its_own_name() {
        let matlab = License {
            name: "matlab@site".to_owned(),
            nodes: None,
            total: Some(20),
            used: Some(7),
            free: Some(10),
            reserved: Some(3),
            remote: true,
            last_consumed: Some(15),
            last_deficit: Some(2),
        };
        let points = points(vec![matlab]);
        let below = format!("c.slurm_licenses.{}", carbon_wire::path::component("matlab@site"));
        let expected =
            ["total 20", "used 7", "free 10", "reserved 3", "last_consumed 15", "last_deficit 2"];
        assert_eq!(points, expected.map(|point| format!("{below}.gauge-{point}")));
    }

    fn points(licenses: Vec<License>) -> Vec<String> {
        let all = slurm_snapshot::Licenses { last_update: 1, licenses };
        let mut collector = started(&COLLECTOR, &[]);
        surveyed(
            &mut collector,
            60,
            &SurveyReplies::with_only(ReplyKind::Licenses, Reply::Licenses(all)),
        )
    }

    fn layer(nodes: Option<&str>, total: Option<u32>, used: u32) -> License {
        let free = total.map(|total| total - used);
        License {
            name: "flat".to_owned(),
            nodes: nodes.map(str::to_owned),
            total,
            used: Some(used),
            free,
            reserved: Some(0),
            ..License::default()
        }
    }

    /// The layers of one resource are records with the same name. If they had the same path, Carbon
    /// would keep only the last, so each has a path with its nodes.
    #[test]
    fn layers_of_a_resource_have_paths_of_their_own() {
        let points = points(vec![
            layer(Some("n[1-4]"), Some(24), 2),
            layer(Some("n[1-2]"), Some(16), 2),
            layer(Some("n[3-4]"), None, 0),
        ]);
        let figures = |nodes, figures: &[&str]| {
            let below =
                format!("c.slurm_licenses.flat.layer.{}", carbon_wire::path::component(nodes));
            figures.iter().map(|figure| format!("{below}.gauge-{figure}")).collect::<Vec<_>>()
        };
        let expected = [
            figures("n[1-2]", &["total 16", "used 2", "free 14", "reserved 0"]),
            figures("n[1-4]", &["total 24", "used 2", "free 22", "reserved 0"]),
            // Without end: no number is that.
            figures("n[3-4]", &["used 0", "reserved 0"]),
        ];
        assert_eq!(points, expected.concat());
    }

    /// A reader older than 25.05 does not see which layer is which, and the sum of nested layers is
    /// not a number of anything.
    #[test]
    fn layers_that_cannot_be_told_apart_have_no_points() {
        let mut licenses = vec![layer(None, Some(24), 2), layer(None, Some(16), 2)];
        assert_eq!(points(licenses.clone()), [""; 0]);
        licenses.truncate(1);
        assert_eq!(points(licenses).len(), 4);
    }
}
