//! The verdict on top of a dashboard: the conditions of the alert rules that were true within the
//! shown time, from when to when.
//!
//! A rule's condition is its query, its reduction over its window, and its threshold. Here the
//! reduction is a moving one. How long a condition must last before the alert fires is left out: a
//! bar begins when the trouble does.

use crate::alerts::Rule;
use crate::panel::{Panel, timeline};
use crate::runbook;

/// The states of a rule, and of slurmctld, whose row is always there.
const STATES: [(u8, &str, &str); 5] = [
    (1, "warning", "yellow"),
    (2, "critical", "red"),
    (10, "no data", "purple"),
    (11, "silent", "red"),
    (12, "answers", "semi-dark-green"),
];

/// Rules that the row of slurmctld shows.
const SHOWN: [&str; 2] = ["no-data", "slurmctld"];

/// The verdict of these rules.
pub(crate) fn verdict(rules: &[Rule]) -> Panel {
    let up = "keepLastValue($prefix.slurm_health.gauge-up, 4)";
    let panel = timeline(
        "What is wrong, and since when",
        "The conditions of the alert rules that were true at some time of those shown. Where only \
         slurmctld's row is there, nothing was wrong. Click a bar for its page of the runbook. A \
         bar may begin minutes before the alert, which waits for the condition to last.",
        "No data: Graphite has no point of this cluster.",
        &STATES,
    )
    .curve("slurmctld", &format!("offset(sumSeries(group(isNonNull({up}), {up})), 10)"))
    .opens("Scheduler", "scheduler");
    let shown = rules.iter().filter(|rule| !SHOWN.contains(&rule.name));
    shown.fold(panel, |panel, rule| {
        panel.curve(rule.title, &rule.state()).links(rule.title, &runbook::link(rule.title))
    })
}

impl Rule {
    /// 1 where the condition is true, or 2 where that is critical, and 0 elsewhere; no series if it
    /// was never true.
    fn state(&self) -> String {
        let target = self.target.replace("cluster.slurm_", "$prefix.slurm_");
        let minutes = self.window / 60;
        let reduced = match self.reducer {
            "mean" => format!("movingAverage({target}, '{minutes}min')"),
            "min" => format!("movingMin({target}, '{minutes}min')"),
            "sum" => format!("movingSum({target}, '{minutes}min')"),
            _ => target,
        };
        // Both functions keep a value that is equal to the limit.
        let (kind, limit) = self.limit;
        let met = match kind {
            "gt" => format!("removeBelowValue({reduced}, {})", limit + 0.000_001),
            _ => format!("removeAboveValue({reduced}, {})", limit - 0.000_001),
        };
        let severity = if self.severity == "critical" { 2 } else { 1 };
        format!("maximumAbove(scale(isNonNull({met}), {severity}), 0)")
    }
}
