//! The alert rules, evaluated as Grafana does, over invented points.
//!
//! A rule is a query, a reduction that ignores missing points, and a threshold. Without a number,
//! its state for no data decides.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::io::Write as _;
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};
use sandbox::{Carbon, Folder, GraphiteWeb, Rendered, now, output, wait};
use serde_json::Value;

use super::structure::has_word;

/// A rule in the file.
pub(crate) struct Rule {
    pub(crate) uid: String,
    pub(crate) title: String,
    pub(crate) target: String,
    /// Dashboard and panel.
    pub(crate) panel: (String, u64),
    window: u64,
    reducer: String,
    limit: (String, f64),
    nothing: String,
    /// Seconds that its condition must last.
    lasts: u64,
    pub(crate) summary: String,
    /// `severity`, `cluster`, `prefix`.
    pub(crate) labels: BTreeMap<String, String>,
    /// Its panel on the dashboard *Runbook*.
    pub(crate) page: u64,
}

/// A YAML file as JSON, read by a parser that knows all of YAML.
pub(crate) fn json(folder: &Folder, yaml: &str) -> Result<Value> {
    let file = folder.write("rules.yaml", yaml)?;
    let code = "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)";
    let python = sandbox::command(folder.path(), "/usr/bin/python3".as_ref());
    Ok(serde_json::from_str(&output(python, ["-c", code, &file])?)?)
}

/// The rules of a file, which must have the shape that Grafana's provisioning expects.
pub(crate) fn rules(file: &Value) -> Result<Vec<Rule>> {
    keys(file, "apiVersion groups")?;
    ensure!(file.get("apiVersion") == Some(&Value::from(1)), "apiVersion is not 1");
    let mut rules = Vec::new();
    for group in file.get("groups").and_then(Value::as_array).context("no groups")? {
        keys(group, "orgId name folder interval rules")?;
        for rule in group.get("rules").and_then(Value::as_array).context("no rules")? {
            rules.push(Rule::parse(rule).with_context(|| rule.to_string())?);
        }
    }
    Ok(rules)
}

fn keys(value: &Value, known: &str) -> Result<()> {
    let map = value.as_object().context("no table")?;
    match map.keys().find(|key| !has_word(known, key)) {
        Some(unknown) => bail!("unknown key {unknown}"),
        None => Ok(()),
    }
}

impl Rule {
    fn parse(rule: &Value) -> Result<Self> {
        let known = "uid title condition for noDataState execErrState dashboardUid panelId labels \
            annotations data";
        keys(rule, known)?;
        let text = |pointer: &str| -> Result<String> {
            Ok(rule
                .pointer(pointer)
                .and_then(Value::as_str)
                .with_context(|| pointer.to_owned())?
                .to_owned())
        };
        let uid = text("/uid")?;
        ensure!(uid.len() <= 40, "a uid has at most 40 letters");
        ensure!(text("/condition")? == "C", "the condition is not the threshold");
        for step in 0..3 {
            let at = |key: &str| text(&format!("/data/{step}/{key}"));
            ensure!(at("refId")? == at("model/refId")?, "two refIds in one step");
            ensure!(
                at("datasourceUid")? == at("model/datasource/uid")?,
                "two data sources in one step"
            );
        }
        // Grafana would take a dollar sign that is not escaped for an environment variable.
        ensure!(!rule.to_string().contains('$'), "a dollar sign");
        let nothing = text("/noDataState")?;
        ensure!(["OK", "Alerting"].contains(&nothing.as_str()), "an unknown state");
        ensure!(nothing == text("/execErrState")?, "no response means another thing than no data");
        let summary = text("/annotations/summary")?;
        // A rule that fires because data is missing has no value.
        ensure!(
            summary.contains("{{") == (nothing == "OK") && summary.matches("{{").count() < 2,
            "a summary without its value: {summary}"
        );
        if let Some((_, template)) = summary.split_once("{{ ") {
            let template = template.split(" }}").next().unwrap_or_default();
            let known = [
                ".Values.B",
                "humanizeDuration .Values.B.Value",
                "humanizePercentage .Values.B.Value",
            ];
            ensure!(known.contains(&template), "a template that nobody looked up: {template}");
        }
        let url = text("/annotations/runbook_url")?;
        let page = url.strip_prefix("{{ externalURL }}d/slurm-graphite-runbook?viewPanel=");
        let page = page.with_context(|| url.clone())?.parse()?;
        let labels: BTreeMap<String, String> =
            serde_json::from_value(rule.get("labels").context("no labels")?.clone())?;
        ensure!(labels.keys().eq(["cluster", "prefix", "severity"]), "{labels:?}");
        ensure!(
            text("/data/1/model/settings/mode")? == "dropNN",
            "one missing point would silence the rule"
        );
        let whole = |pointer: &str| {
            rule.pointer(pointer).and_then(Value::as_u64).with_context(|| pointer.to_owned())
        };
        let limit =
            rule.pointer("/data/2/model/conditions/0/evaluator/params/0").and_then(Value::as_f64);
        Ok(Self {
            title: text("/title")?,
            target: text("/data/0/model/target")?,
            panel: (text("/dashboardUid")?, whole("/panelId")?),
            window: whole("/data/0/relativeTimeRange/from")?,
            reducer: text("/data/1/model/reducer")?,
            limit: (text("/data/2/model/conditions/0/evaluator/type")?, limit.context("no limit")?),
            nothing,
            lasts: seconds(&text("/for")?)?,
            summary,
            labels,
            page,
            uid,
        })
    }

    /// The last part of its uid.
    pub(crate) fn name(&self) -> String {
        self.uid.replace("slurm-graphite-", "")
    }

    /// Its query for the cluster with this prefix, which here has a Carbon of its own.
    fn target(&self, prefix: &str) -> String {
        let target = self.target.replace("cluster.", &format!("{prefix}."));
        target.replace("carbon.agents.", &format!("{prefix}.agents."))
    }

    /// Whether its condition is true for the cluster with this prefix, once a minute between these
    /// two moments.
    fn conditions(
        &self,
        web: &GraphiteWeb,
        prefix: &str,
        (from, until): (u64, u64),
    ) -> Result<Vec<(u64, bool)>> {
        let target = self.target(prefix);
        let series = web
            .render_between(&target, (from - self.window, until), 43_200)
            .with_context(|| target)?;
        let is_true = |moment: u64| -> Result<(u64, bool)> {
            let window = moment - self.window..=moment;
            let in_window = |one: &Rendered| -> Vec<f64> {
                let points = one.points.iter().filter(|(at, _)| window.contains(at));
                points.filter_map(|(_, value)| *value).collect()
            };
            Ok((moment, self.is_true(series.iter().map(in_window))?))
        };
        (from..=until).step_by(60).map(is_true).collect()
    }

    /// Whether its condition is true at this moment.
    pub(crate) fn fires(&self, web: &GraphiteWeb, prefix: &str, moment: u64) -> Result<bool> {
        Ok(self.conditions(web, prefix, (moment, moment))?.iter().any(|(_, is_true)| *is_true))
    }

    /// The moments between these two at which it fires, as Grafana evaluates it: once a minute, and
    /// only after the condition has been true for as long as the rule says.
    pub(crate) fn fires_between(
        &self,
        web: &GraphiteWeb,
        prefix: &str,
        moments: (u64, u64),
    ) -> Result<Vec<u64>> {
        let (mut since, mut firing) = (None, Vec::new());
        for (moment, is_true) in self.conditions(web, prefix, moments)? {
            since = is_true.then(|| since.unwrap_or(moment));
            if since.is_some_and(|since| moment - since >= self.lasts) {
                firing.push(moment);
            }
        }
        Ok(firing)
    }

    /// Whether the condition is true for these values of the window.
    fn is_true(&self, series: impl Iterator<Item = Vec<f64>>) -> Result<bool> {
        let numbers = series.filter_map(|values| self.reduced(&values).transpose());
        let numbers: Vec<f64> = numbers.collect::<Result<_>>()?;
        if numbers.is_empty() {
            return Ok(self.nothing == "Alerting");
        }
        let (kind, limit) = (self.limit.0.as_str(), self.limit.1);
        ensure!(["gt", "lt"].contains(&kind), "no evaluator {kind}");
        Ok(numbers
            .iter()
            .any(|number| if kind == "gt" { *number > limit } else { *number < limit }))
    }

    fn reduced(&self, values: &[f64]) -> Result<Option<f64>> {
        let sum: f64 = values.iter().sum();
        Ok(match self.reducer.as_str() {
            "last" => values.last().copied(),
            "sum" => Some(sum),
            "max" => values.iter().copied().reduce(f64::max),
            "min" => values.iter().copied().reduce(f64::min),
            "mean" => (!values.is_empty()).then(|| sum / values.len() as f64),
            other => bail!("no reducer {other}"),
        })
    }
}

/// The value of a leaf this many seconds ago, if it had one.
pub(crate) type Curve = Box<dyn Fn(f64) -> Option<f64>>;

pub(crate) fn curve(value: impl Fn(f64) -> f64 + 'static) -> Curve {
    Box::new(move |ago| Some(value(ago)))
}

pub(crate) fn always(value: f64) -> Curve {
    curve(move |_| value)
}

/// `before` until so many seconds ago, then `after`. The moment should be between two points.
pub(crate) fn since(moment: f64, before: f64, after: f64) -> Curve {
    curve(move |ago| if ago > moment { before } else { after })
}

/// Grafana's time spans.
fn seconds(span: &str) -> Result<u64> {
    let (number, unit) = span.split_at(span.len() - 1);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => bail!("no time: {span}"),
    };
    Ok(number.parse::<u64>()? * unit)
}

/// The newest moment at which points are invented.
pub(crate) fn recent() -> f64 {
    now().floor() - 2.0
}

/// Stores this many points for one cluster, `step` seconds apart, the newest at this moment.
pub(crate) fn invent<L: Display>(
    carbon: &Carbon,
    prefix: &str,
    newest: f64,
    (step, number): (u32, u32),
    leaves: impl IntoIterator<Item = (L, Curve)>,
) -> Result<()> {
    let (mut lines, mut counts) = (String::new(), Vec::new());
    for (leaf, value) in leaves {
        let mut count = 0;
        for ago in (0..number).rev().map(|number| f64::from(number * step)) {
            if let Some(value) = value(ago) {
                count += 1;
                writeln!(lines, "{prefix}.{leaf} {value} {}", newest - ago)?;
            }
        }
        ensure!(count > 0, "nothing invented for {leaf}");
        counts.push((format!("{prefix}.{leaf}"), count));
    }
    TcpStream::connect(("127.0.0.1", carbon.line_port))?.write_all(lines.as_bytes())?;
    for (path, count) in counts {
        wait::until(&path, wait::LIMIT, || {
            carbon.series(&path).is_ok_and(|series| series.points.len() >= count)
        })?;
    }
    Ok(())
}
