//! Grafana's dashboard JSON: rows, the grid, variables and annotations, the same on every
//! dashboard.
//!
//! It knows no metrics except the resets, which every dashboard shows as annotations.

use serde_json::{Value, json};

use crate::panel::Panel;

/// The columns of Grafana's grid.
pub(crate) const COLUMNS: u32 = 24;

/// Panels under a heading, or without one at the top.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    title: Option<&'static str>,
    collapsed: bool,
    /// Whether its panels have a point in each round of a survey, and not at every tick.
    is_survey: bool,
    /// The text of its panels if there is nothing to show.
    without_data: Option<(String, &'static str)>,
    panels: Vec<Panel>,
}

/// The panels at the top.
pub(crate) fn top(panels: impl IntoIterator<Item = Panel>) -> Row {
    Row { title: None, ..row("") }.with(panels)
}

/// A heading, for panels.
pub(crate) fn row(title: &'static str) -> Row {
    Row {
        title: Some(title),
        collapsed: false,
        is_survey: false,
        without_data: None,
        panels: Vec::new(),
    }
}

/// A heading for panels that are hidden until it is clicked: not every site collects their metrics.
pub(crate) fn closed(title: &'static str) -> Row {
    Row { collapsed: true, ..row(title) }
}

impl Row {
    fn has_data(&self) -> bool {
        self.panels.iter().any(Panel::has_data)
    }

    /// The panels added after this call are a survey's.
    pub(crate) fn survey(self) -> Self {
        Self { is_survey: true, ..self }
    }

    /// The panels added after this call say this if there is nothing to show.
    pub(crate) fn without_data(self, words: String, section: &'static str) -> Self {
        Self { without_data: Some((words, section)), ..self }
    }

    /// Adds panels.
    pub(crate) fn with(mut self, panels: impl IntoIterator<Item = Panel>) -> Self {
        for mut panel in panels {
            if self.is_survey {
                panel = panel.survey();
            }
            if let Some((words, section)) = &self.without_data {
                panel = panel.without_data(words, section);
            }
            self.panels.push(panel);
        }
        self
    }
}

/// A dashboard.
#[derive(Debug)]
pub(crate) struct Dashboard {
    /// The last part of its uid, and its file's name.
    pub(crate) name: &'static str,
    /// Its title, after "Slurm".
    pub(crate) title: &'static str,
    /// The question that it answers.
    pub(crate) description: &'static str,
    /// Its variables in addition to the data source and the prefix.
    pub(crate) variables: Vec<Value>,
    /// Its panels.
    pub(crate) rows: Vec<Row>,
}

impl Dashboard {
    /// The JSON that Grafana reads.
    pub(crate) fn json(self) -> Value {
        let mut variables = vec![data_source_variable(), prefix_variable()];
        variables.extend(self.variables);
        let mut annotations = annotations();
        if !self.rows.iter().any(Row::has_data) {
            variables.clear();
            annotations.truncate(1);
        }
        json!({
            "__requires": [
                { "type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0" },
                { "type": "datasource", "id": "graphite", "name": "Graphite", "version": "1.0.0" },
                { "type": "panel", "id": "timeseries", "name": "Time series", "version": "" },
                { "type": "panel", "id": "stat", "name": "Stat", "version": "" },
                { "type": "panel", "id": "bargauge", "name": "Bar gauge", "version": "" },
                { "type": "panel", "id": "state-timeline", "name": "State timeline", "version": "" },
                { "type": "panel", "id": "table", "name": "Table", "version": "" },
                { "type": "panel", "id": "alertlist", "name": "Alert list", "version": "" },
                { "type": "panel", "id": "text", "name": "Text", "version": "" },
            ],
            "uid": format!("slurm-graphite-{}", self.name), "title": format!("Slurm / {}",
                self.title),
            "description": self.description, "tags": ["slurm", "slurm-graphite"], "editable": true,
                "graphTooltip": 1,
            "schemaVersion": 38, "version": 1, "timezone": "browser", "refresh": "1m",
                "weekStart": "", "fiscalYearStartMonth": 0,
            "time": { "from": "now-3h", "to": "now" }, "timepicker": {},
            "templating": { "list": variables }, "annotations": { "list": annotations },
                "panels": grid(self.rows),
            "links": [{
                "type": "dashboards", "title": "Slurm", "tags": ["slurm-graphite"],
                    "asDropdown": false, "icon": "external link",
                "includeVars": true, "keepTime": true, "targetBlank": false, "tooltip": "",
                    "url": "",
            }],
        })
    }
}

/// Places panels from left to right and from top to bottom.
fn grid(rows: Vec<Row>) -> Vec<Value> {
    let (mut placed, mut id, mut y) = (Vec::new(), 0, 0);
    let mut next = || {
        id += 1;
        id
    };
    for row in rows {
        let mut heading = row.title.map(|title| {
            let row = json!({
                "id": next(), "type": "row", "title": title, "collapsed": row.collapsed,
                    "panels": [],
                "gridPos": { "x": 0, "y": y, "w": COLUMNS, "h": 1 },
            });
            y += 1;
            row
        });
        let (mut x, mut line, mut height, mut inside) = (0, y, 0, Vec::new());
        for panel in row.panels {
            let (width, panel_height) = panel.size;
            if x + width > COLUMNS {
                (x, line, height) = (0, line + height, 0);
            }
            inside.push(panel.json(next(), x, line));
            (x, height) = (x + width, height.max(panel_height));
        }
        match heading.as_mut().and_then(|heading| heading.get_mut("panels")) {
            Some(hidden) if row.collapsed => *hidden = Value::Array(std::mem::take(&mut inside)),
            _ => y = line + height,
        }
        placed.extend(heading);
        placed.extend(inside);
    }
    placed
}

/// A variable whose values are found by a query. At first all are selected, as `*`, which stays
/// short however many there are.
pub(crate) fn query_variable(name: &str, label: &str, query: &str) -> Value {
    json!({
        "name": name, "label": label, "type": "query", "datasource": data_source(), "query": query,
        "regex": "", "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": "*",
            "hide": 0, "skipUrlSync": false,
        "current": { "selected": true, "text": ["All"], "value": ["$__all"] }, "options": [],
    })
}

/// A variable with one of these values; the first is the default.
pub(crate) fn choice(name: &str, label: &str, values: &[&str]) -> Value {
    let first = values.first().copied().unwrap_or_default();
    let options: Vec<Value> = values
        .iter()
        .map(|value| json!({ "selected": *value == first, "text": value, "value": value }))
        .collect();
    json!({
        "name": name, "label": label, "type": "custom", "query": values.join(","), "multi": false,
            "includeAll": false, "hide": 0,
        "skipUrlSync": false, "current": { "selected": true, "text": first, "value": first },
            "options": options,
    })
}

/// Without a value: Grafana takes the default data source if it is a Graphite, or else the first
/// Graphite.
fn data_source_variable() -> Value {
    json!({
        "name": "datasource", "label": "Graphite", "type": "datasource", "query": "graphite",
            "regex": "", "refresh": 1,
        "multi": false, "includeAll": false, "hide": 0, "skipUrlSync": false, "options": [],
        "current": {},
    })
}

/// The prefixes of all clusters, with one node or two, as names of series, because /metrics/find
/// cannot search for both at once. A prefix of three nodes can be typed in.
fn prefix_variable() -> Value {
    let query = json!({
        "refId": "Clusters", "queryType": "Metric Name Query", "datasource": data_source(),
        "target": "group(*.slurm_health.gauge-up, *.*.slurm_health.gauge-up)",
    });
    json!({
        "name": "prefix", "label": "Cluster", "type": "query", "datasource": data_source(),
            "query": query,
        "regex": "/^(.+)\\.slurm_health\\.gauge-up$/", "refresh": 1, "sort": 1, "multi": false,
            "includeAll": false, "hide": 0,
        "skipUrlSync": false, "current": { "selected": true, "text": "cluster",
            "value": "cluster" }, "options": [],
        "description": "The prefix in slurm-graphite.toml; it can be typed in as well",
    })
}

/// The events that every dashboard marks: each point of such a series that is not 0.
fn annotations() -> Vec<Value> {
    let begins =
        |path: &str, words: &str| format!("alias(nonNegativeDerivative({path}), '{words}')");
    let ends = |path: &str, words: &str| begins(&format!("scale({path}, -1)"), words);
    let reset = |kind: &str, words: &str| {
        begins(&format!("$prefix.slurm_sched_interval.gauge-resets_{kind}"), words)
    };
    let resets = [
        reset("midnight", "Counters reset: midnight UTC"),
        reset("command", "Counters reset: sdiag --reset"),
        reset("restart", "slurmctld restarted"),
    ];
    let up = "$prefix.slurm_health.gauge-up";
    let failed = "sumSeries($prefix.slurm_nodes.events.class.{down,fail}.gauge-reached)";
    let slurm = [
        ends(up, "slurmctld is silent"),
        begins(up, "slurmctld answers again"),
        format!("alias({failed}, 'Nodes failed')"),
    ];
    let connected = "minSeries($prefix.slurm_graphite.*.carbon.*.gauge-connected)";
    let restarts = "sumSeries($prefix.slurm_graphite.*.gauge-reader_restarts)";
    let collector = [
        ends(connected, "Carbon is away"),
        begins(connected, "Carbon is back"),
        begins(restarts, "Reader started again: slurm.conf changed, or it failed"),
    ];
    let alerts = json!({
        "name": "Annotations & Alerts", "type": "dashboard", "builtIn": 1, "enable": true,
            "hide": true,
        "datasource": { "type": "grafana", "uid": "-- Grafana --" }, "iconColor": "rgba(0, 211, \
            255, 1)",
    });
    let marks = |name: &str, colour: &str, targets: &[String]| {
        let target = format!("group({})", targets.join(", "));
        json!({
            "name": name, "enable": true, "hide": false, "datasource": data_source(),
                "iconColor": colour,
            "target": { "refId": name, "fromAnnotations": true, "target": target,
                "textEditor": true },
        })
    };
    vec![
        alerts,
        marks("Resets", "purple", &resets),
        marks("Slurm", "red", &slurm),
        marks("Collector", "orange", &collector),
    ]
}

pub(crate) fn data_source() -> Value {
    json!({ "type": "graphite", "uid": "${datasource}" })
}
