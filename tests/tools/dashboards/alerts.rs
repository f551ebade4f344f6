//! The alert rules, as a provisioning file for Grafana, with their thresholds and the reasons for them.
//!
//! Every rule is a Graphite query, a reduction to one number and a threshold. A rule without data is silent. Only one
//! rule watches for missing data, so it fires once and not eight times.

use std::fmt::Write;

use serde_json::json;

use crate::runbook;

mod cluster;
mod collector;
mod slurmctld;

/// What is compared with what.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Above(f64),
    Below(f64),
}

/// A rule.
struct Rule {
    /// The last word of its uid.
    name: &'static str,
    /// Its title after the cluster's name, and that of its page in docs/runbook.md.
    title: &'static str,
    /// `critical`: somebody should look now. `warning`: today.
    severity: &'static str,
    /// Why this threshold: a comment in the file.
    reason: &'static str,
    /// What is wrong, in a sentence with the value: `.Values.B`, which needs no dollar sign. A dollar Grafana would take for a variable of
    /// its environment.
    summary: &'static str,
    /// What to do first.
    advice: &'static str,
    target: String,
    /// Seconds looked back. Whatever the interval, up to 5 minutes, there have to be points in it.
    window: u32,
    reducer: &'static str,
    limit: Limit,
    /// How long it has to last before anybody is told.
    lasts: &'static str,
    /// Dashboard and panel to look at.
    panel: (&'static str, &'static str),
    /// What no answer from Graphite, or none with a point, means.
    nothing: &'static str,
}

/// The series where each guard is at least what stands with it, 0 elsewhere, and nothing where the series has no point. Not by
/// `multiplySeries`: where a factor has no point, graphite-web has none, and VictoriaMetrics the other factor.
fn where_at_least(series: &str, guards: &[(&str, f64)]) -> String {
    let all: Vec<String> = guards
        .iter()
        .map(|(guard, least)| format!("isNonNull(removeBelowValue({guard}, {least}))"))
        .collect();
    let all = all.join(", ");
    format!("sumSeries(group(scale({series}, 0), divideSeries({series}, minSeries(group({all})))))")
}

/// How much counters grew in each interval. Where a point is missing, the one before it serves.
fn growth(counters: &str) -> String {
    format!("sumSeries(nonNegativeDerivative(keepLastValue({counters})))")
}

const HEAD: &str = "\
# Alert rules for Grafana 10 to 13. Written by `make dashboards`; do not edit here.
#
# Copy it to /etc/grafana/provisioning/alerting/ and set two things:
#   - the uid of the Graphite data source: every `datasourceUid: graphite`, and `uid: graphite` in the models
#   - the prefix, if it is not `cluster`: every `cluster.slurm_`, and the label `prefix`
# `runbook_url` leads to the dashboard *Runbook*, which must be imported too; Grafana fills in its own address (root_url).
# With several clusters, each needs a file of its own, because a wildcard would miss a cluster that has fallen silent. Each
# rule there needs its own uid, title and labels. For a cluster named alpha with the prefix cluster.alpha:
#   sed -e 's/cluster[.]slurm_/cluster.alpha.slurm_/g' -e 's/uid: slurm-graphite-/uid: alpha-slurm-graphite-/' \\
#       -e 's/name: slurm-graphite/name: slurm-graphite alpha/' -e 's/Slurm cluster:/Slurm alpha:/g' \\
#       -e 's/prefix: cluster/prefix: cluster.alpha/' -e 's/cluster: cluster/cluster: alpha/' slurm-graphite.yaml
# `dashboardUid` stays the same: the dashboards serve all clusters.
apiVersion: 1
groups:
  - orgId: 1
    name: slurm-graphite
    folder: Slurm
    interval: 1m
    rules:
";

/// The file. `panel` tells the id of a dashboard's panel by its title.
pub(crate) fn file(panel: impl Fn(&str, &str) -> Option<u64>) -> Option<String> {
    let mut file = HEAD.to_owned();
    for rule in slurmctld::rules().iter().chain(&cluster::rules()).chain(&collector::rules()) {
        let id = panel(rule.panel.0, rule.panel.1)?;
        let page = panel(runbook::NAME, rule.title)?;
        rule.write(&mut file, id, page).ok()?;
    }
    Some(file)
}

impl Rule {
    fn write(&self, file: &mut String, panel: u64, page: u64) -> std::fmt::Result {
        let Self { name, title, severity, summary, advice, nothing, lasts, window, .. } = self;
        writeln!(file)?;
        for line in wrapped(self.reason, 110) {
            writeln!(file, "      # {line}")?;
        }
        let first = [
            format!("- uid: slurm-graphite-{name}"),
            format!("  title: {}", json!(format!("Slurm cluster: {title}"))),
            "  condition: C".to_owned(),
            format!("  for: {lasts}"),
            format!("  noDataState: {nothing}"),
            format!("  execErrState: {nothing}"),
            format!("  dashboardUid: slurm-graphite-{}", self.panel.0),
            format!("  panelId: {panel}"),
            "  labels:".to_owned(),
            format!("    severity: {severity}"),
            "    cluster: cluster".to_owned(),
            "    prefix: cluster".to_owned(),
            "  annotations:".to_owned(),
            format!("    summary: {}", json!(format!("Slurm cluster: {summary}"))),
            format!("    description: {}", json!(advice)),
            // Grafana's own address, with its last slash.
            format!(
                "    runbook_url: \"{{{{ externalURL }}}}d/slurm-graphite-{}?viewPanel={page}\"",
                runbook::NAME
            ),
            "  data:".to_owned(),
        ];
        for line in first {
            writeln!(file, "      {line}")?;
        }
        let (kind, value) = match self.limit {
            Limit::Above(value) => ("gt", value),
            Limit::Below(value) => ("lt", value),
        };
        for (id, uid, model) in [
            (
                "A",
                "graphite",
                json!({ "target": self.target, "textEditor": true, "intervalMs": 1000, "maxDataPoints": 43200 }),
            ),
            (
                "B",
                "__expr__",
                json!({ "type": "reduce", "expression": "A", "reducer": self.reducer, "settings": { "mode": "dropNN" } }),
            ),
            (
                "C",
                "__expr__",
                json!({ "type": "threshold", "expression": "B", "conditions": [{ "evaluator": { "type": kind, "params": [value] } }] }),
            ),
        ] {
            for line in [
                format!("- refId: {id}"),
                format!("  relativeTimeRange: {{ from: {window}, to: 0 }}"),
                format!("  datasourceUid: {uid}"),
                "  model:".to_owned(),
                format!("    refId: {id}"),
                // Grafana's own expressions have a type of that name, Graphite's is the one that stands here as its uid.
                format!("    datasource: {{ type: {uid}, uid: {uid} }}"),
            ] {
                writeln!(file, "          {line}")?;
            }
            for (key, value) in model.as_object().into_iter().flatten() {
                // JSON is YAML.
                writeln!(file, "              {key}: {value}")?;
            }
        }
        Ok(())
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
