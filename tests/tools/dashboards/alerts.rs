//! The alert rules, as a provisioning file for Grafana, with their thresholds and the reasons for
//! them.
//!
//! Every rule is a Graphite query, a reduction to one number and a threshold. A rule without data
//! is silent. Only one rule watches for missing data, so that it fires once and not each of them.

use std::fmt::Write;

use serde_json::json;

use crate::runbook;

mod cluster;
mod collector;
mod slurmctld;

/// A rule.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The last part of its uid.
    pub(crate) name: &'static str,
    /// Its title after the cluster's name, and that of its page in docs/runbook.md.
    pub(crate) title: &'static str,
    /// `critical`: somebody should look now. `warning`: somebody should look today.
    pub(crate) severity: &'static str,
    /// The reason for this threshold, which becomes a comment in the file.
    reason: &'static str,
    /// The problem, in a sentence with the value as `.Values.B`. There is no dollar sign, because
    /// Grafana would take it for an environment variable.
    summary: &'static str,
    /// Advice on what to do first.
    advice: &'static str,
    pub(crate) target: String,
    /// Seconds to look back. At any interval up to 5 minutes, this range must contain points.
    pub(crate) window: u32,
    pub(crate) reducer: &'static str,
    /// `gt` or `lt`, and the threshold.
    pub(crate) limit: (&'static str, f64),
    /// Whether the figure is an age: the trouble began so long before it crosses the limit.
    pub(crate) is_age: bool,
    /// Time that the condition must last before the alert fires.
    lasts: &'static str,
    /// Dashboard and panel to look at.
    panel: (&'static str, &'static str),
    /// The state of the rule if Graphite does not answer, or returns no point.
    nothing: &'static str,
}

/// The common part of most rules: if the newest value of the last ten minutes is above 0 for five
/// minutes, this is a warning; without a value there is none.
const STATE: Rule = Rule {
    name: "",
    title: "",
    severity: "warning",
    reason: "",
    summary: "",
    advice: "",
    target: String::new(),
    window: 600,
    reducer: "last",
    limit: ("gt", 0.0),
    is_age: false,
    lasts: "5m",
    panel: ("", ""),
    nothing: "OK",
};

/// A rule like [`STATE`], for the mean of so many seconds.
fn mean_of(window: u32) -> Rule {
    Rule { window, reducer: "mean", ..STATE }
}

/// A rule like [`STATE`], for what has been added up in a quarter of an hour. It may not happen at
/// all, so the alert fires at once.
fn added_up() -> Rule {
    Rule { window: 900, reducer: "sum", lasts: "0s", ..STATE }
}

/// The series at the times when every guard has at least its given value; 0 at other times; nothing
/// where the series has no point. It must not be negative. `multiplySeries` is not used: if a
/// factor has no point, graphite-web returns none, but VictoriaMetrics returns the other factor.
fn where_at_least(series: &str, guards: &[(&str, f64)]) -> String {
    where_either(series, &[guards])
}

/// The series at the times when every guard of one of these lists has at least its given value; 0
/// at other times. A division by 0 has no point, on VictoriaMetrics after all other functions,
/// because it is infinity.
fn where_either(series: &str, either: &[&[(&str, f64)]]) -> String {
    let all = |guards: &[(&str, f64)]| {
        let all = guards
            .iter()
            .map(|(guard, least)| format!("isNonNull(removeBelowValue({guard}, {least}))"));
        format!("minSeries(group({}))", all.collect::<Vec<_>>().join(", "))
    };
    let hold = match &either.iter().map(|guards| all(guards)).collect::<Vec<_>>()[..] {
        [one] => one.clone(),
        several => format!("maxSeries(group({}))", several.join(", ")),
    };
    format!(
        "divideSeries(minSeries(group({series}, scale({hold}, 1000000000000))), \
            isNonNull({series}))"
    )
}

/// The growth of counters in each interval, in all series together. If a point is missing, the one
/// before it is used.
fn growth(counters: &str) -> String {
    format!("sumSeries(nonNegativeDerivative(keepLastValue({counters})))")
}

const HEAD: &str = "\
# Alert rules about SUBJECT, for Grafana 10 to 13. Written by `make dashboards`; do not edit here.
#
# Copy it to /etc/grafana/provisioning/alerting/. The rules ask the data source with the uid `graphite`, which
# provisioning/datasources.yaml creates. For another uid, which is in the address of the data source's page in Grafana:
#   sed -i -e 's/datasourceUid: graphite/datasourceUid: UID/' -e 's/uid: graphite }/uid: UID }/' FILE.yaml
# If the prefix is not `cluster`, change every `cluster.slurm_`, and the label `prefix`.
# `runbook_url` leads to the dashboard *Runbook*, which must be imported too; Grafana fills in its
# own address (root_url). With several clusters, each needs a file of its own, because a wildcard
# would miss a cluster that has fallen silent. Each rule there needs its own uid, title and labels.
# For a cluster named alpha with the prefix cluster.alpha:
#   sed -e 's/cluster[.]slurm_/cluster.alpha.slurm_/g' -e 's/uid: slurm-graphite-/uid: alpha-slurm-graphite-/' \\
#       -e 's/name: FILE/name: FILE alpha/' -e 's/Slurm cluster:/Slurm alpha:/g' \\
#       -e 's/prefix: cluster/prefix: cluster.alpha/' -e 's/cluster: cluster/cluster: alpha/' FILE.yaml
# `dashboardUid` stays the same: the dashboards serve all clusters.
apiVersion: 1
groups:
  - orgId: 1
    name: FILE
    folder: Slurm
    interval: 1m
    rules:
";

/// Rules about slurmctld and its schedulers.
pub(crate) fn slurmctld() -> Vec<Rule> {
    slurmctld::rules()
}

/// These, and rules about nodes, jobs and accounts.
pub(crate) fn slurm() -> Vec<Rule> {
    slurmctld().into_iter().chain(cluster::rules()).collect()
}

/// Rules about slurm-graphite itself.
pub(crate) fn collector() -> Vec<Rule> {
    collector::rules()
}

/// The file with this name. `panel` returns the id of a dashboard's panel by its title.
pub(crate) fn file(
    name: &str,
    rules: &[Rule],
    panel: impl Fn(&str, &str) -> Option<u64>,
) -> Option<String> {
    let subject = if name == "slurm" { "Slurm" } else { "slurm-graphite itself" };
    let mut file = HEAD.replace("SUBJECT", subject).replace("FILE", name);
    for rule in rules {
        let id = panel(rule.panel.0, rule.panel.1)?;
        let page = panel(runbook::NAME, rule.title)?;
        rule.write(&mut file, id, page).ok()?;
    }
    Some(file)
}

impl Rule {
    fn write(&self, file: &mut String, panel: u64, page: u64) -> std::fmt::Result {
        let Self { name, severity, nothing, lasts, window, .. } = self;
        let (dashboard, runbook) = (self.panel.0, runbook::NAME);
        writeln!(file)?;
        for line in wrapped(self.reason) {
            writeln!(file, "      # {line}")?;
        }
        // JSON is valid YAML.
        let title = json!(format!("Slurm cluster: {}", self.title));
        let summary = json!(format!("Slurm cluster: {}", self.summary));
        let advice = json!(self.advice);
        // Grafana's own address, `externalURL`, includes the last slash.
        write!(
            file,
            "      - uid: slurm-graphite-{name}
        title: {title}
        condition: C
        for: {lasts}
        noDataState: {nothing}
        execErrState: {nothing}
        dashboardUid: slurm-graphite-{dashboard}
        panelId: {panel}
        labels:
          severity: {severity}
          cluster: cluster
          prefix: cluster
        annotations:
          summary: {summary}
          description: {advice}
          runbook_url: \"{{{{ externalURL }}}}d/slurm-graphite-{runbook}?viewPanel={page}\"
        data:
"
        )?;
        let query = json!({
            "target": self.target, "textEditor": true, "intervalMs": 1000, "maxDataPoints": 43200,
        });
        let reduction = json!({
            "type": "reduce", "expression": "A", "reducer": self.reducer,
                "settings": { "mode": "dropNN" },
        });
        let (kind, value) = self.limit;
        let threshold = json!({
            "type": "threshold", "expression": "B", "conditions": [{ "evaluator": { "type": kind,
                "params": [value] } }],
        });
        for (id, uid, model) in
            [("A", "graphite", query), ("B", "__expr__", reduction), ("C", "__expr__", threshold)]
        {
            // Grafana's own expressions have a type of that name; for Graphite, the uid here is its
            // type.
            write!(
                file,
                "          - refId: {id}
            relativeTimeRange: {{ from: {window}, to: 0 }}
            datasourceUid: {uid}
            model:
              refId: {id}
              datasource: {{ type: {uid}, uid: {uid} }}
"
            )?;
            for (key, value) in model.as_object().into_iter().flatten() {
                writeln!(file, "              {key}: {value}")?;
            }
        }
        Ok(())
    }
}

/// The words of a text in lines of at most 110 letters.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < 110 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
