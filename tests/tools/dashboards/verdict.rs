//! The verdict on top of a dashboard: the conditions of the alert rules that were true within the
//! shown time, from when to when.
//!
//! A rule's condition is its query, its reduction over its window, and its threshold. Here the
//! reduction is a moving one. How long a condition must last before the alert fires is left out.
//!
//! A mean of the last 15 minutes crosses a limit minutes after its figure did, and an age of 15
//! minutes 15 minutes after it began to grow. So a bar begins earlier: where the figure itself
//! crossed the limit, or a tenth of it if it is an age, if the condition became true within the
//! window after that.

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

/// For so many minutes a figure counts as beyond its limit after it was.
const HELD: u32 = 5;

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
            _ => target.clone(),
        };
        let (kind, limit) = self.limit;
        let is_met = met(&reduced, kind, limit);
        let severity = if self.severity == "critical" { 2 } else { 1 };
        if self.reducer == "last" && !self.is_age {
            return format!("maximumAbove(scale({is_met}, {severity}), 0)");
        }
        let minutes = if self.is_age { minutes.max(whole_minutes(limit)) } else { minutes };
        let crossed = match self.reducer {
            // What is added up had its limit crossed by the first event.
            "sum" => 0.0,
            _ if self.is_age => limit / 10.0,
            _ => limit,
        };
        let crossed = met(&target, kind, crossed);
        // A figure that goes up and down about the limit is one bar.
        let crossed = format!("movingMax({crossed}, '{}min')", minutes.min(HELD));
        let soon = format!("timeShift(movingMax({is_met}, '{minutes}min'), '+{minutes}min')");
        // Not minSeries: behind the present there is no point of the second, which it passes over.
        let both = format!("isNonNull(removeBelowValue(sumSeries(group({crossed}, {soon})), 2))");
        format!("maximumAbove(scale(maxSeries(group({is_met}, {both})), {severity}), 0)")
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a limit of some thousand seconds"
)]
fn whole_minutes(seconds: f64) -> u32 {
    (seconds / 60.0) as u32
}

/// 1 where the series is beyond the limit, and 0 elsewhere.
fn met(series: &str, kind: &str, limit: f64) -> String {
    // Both functions keep a value that is equal to the limit.
    match kind {
        "gt" => format!("isNonNull(removeBelowValue({series}, {}))", limit + 0.000_001),
        _ => format!("isNonNull(removeAboveValue({series}, {}))", limit - 0.000_001),
    }
}
