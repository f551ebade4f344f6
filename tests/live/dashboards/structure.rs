//! What is wrong with a dashboard, as far as it can be told without Grafana and without data.
//!
//! Grafana throws nothing out: a key it does not know, a unit that is not there or two panels with one id are accepted in silence and
//! look wrong. The types of @grafana/schema (`make grafana`) do not see them all either.

use std::collections::{BTreeMap, BTreeSet};

use sandbox::Dashboard;
use sandbox::grafana::{Variables, replaced};
use serde_json::{Map, Value};

/// Grafana's ids of the units used here; `make grafana` looks them up in @grafana/data.
pub(crate) const UNITS: [&str; 7] = ["bytes", "percentunit", "reqpm", "s", "short", "suffix: /s", "µs"];

const DASHBOARD: &[&str] = &[
    "__inputs",
    "__requires",
    "annotations",
    "description",
    "editable",
    "fiscalYearStartMonth",
    "graphTooltip",
    "links",
    "panels",
    "refresh",
    "schemaVersion",
    "tags",
    "templating",
    "time",
    "timepicker",
    "timezone",
    "title",
    "uid",
    "version",
    "weekStart",
];
const ROW: &[&str] = &["collapsed", "gridPos", "id", "panels", "title", "type"];
const PANEL: &[&str] = &[
    "datasource",
    "description",
    "fieldConfig",
    "gridPos",
    "id",
    "options",
    "targets",
    "title",
    "transparent",
    "type",
];
const TARGET: &[&str] = &["datasource", "refId", "target", "textEditor"];
const DEFAULTS: &[&str] = &["color", "custom", "decimals", "mappings", "max", "min", "thresholds", "unit"];
const CUSTOM: &[&str] = &[
    "axisLabel",
    "axisPlacement",
    "drawStyle",
    "fillOpacity",
    "gradientMode",
    "lineInterpolation",
    "lineStyle",
    "lineWidth",
    "pointSize",
    "scaleDistribution",
    "showPoints",
    "spanNulls",
    "stacking",
    "thresholdsStyle",
];
const REDUCE: &[&str] = &["calcs", "fields", "values"];
/// The options of each type of panel, all built in.
const OPTIONS: [(&str, &[&str]); 4] = [
    ("timeseries", &["legend", "tooltip"]),
    ("stat", &["colorMode", "graphMode", "justifyMode", "orientation", "reduceOptions", "textMode"]),
    ("bargauge", &["displayMode", "orientation", "reduceOptions", "showUnfilled", "valueMode"]),
    ("text", &["content", "mode"]),
];
const COLOURS: [&str; 9] =
    ["blue", "green", "light-blue", "orange", "purple", "red", "super-light-blue", "text", "yellow"];

/// Everything that is wrong, in words.
pub(crate) fn problems(dashboard: &Dashboard) -> Vec<String> {
    let mut found = Found::default();
    let json = &dashboard.json;
    found.keys("the dashboard", json, DASHBOARD);
    let uid = text(json, "uid");
    if uid.is_empty()
        || uid.len() > 40
        || uid.contains(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
    {
        found.say(format!("the uid {uid:?} is none"));
    }
    if !json.get("__inputs").is_some_and(|inputs| inputs.to_string().contains("DS_GRAPHITE")) {
        found.say("no input for the data source".to_owned());
    }
    found.variables(dashboard);
    let mut outside = Vec::new();
    for panel in list(json, "panels") {
        outside.push(panel);
        if text(panel, "type") == "row" {
            found.keys("a row", panel, ROW);
            found.id(panel);
            let inside: Vec<&Value> = list(panel, "panels").collect();
            if inside.is_empty() == (panel.get("collapsed") == Some(&Value::Bool(true))) {
                found
                    .say(format!("the row {:?} is closed and empty, or open and full", text(panel, "title")));
            }
            inside.iter().for_each(|panel| found.panel(panel));
            found.grid(&inside);
        } else {
            found.panel(panel);
        }
    }
    found.grid(&outside);
    found.problems
}

#[derive(Default)]
struct Found {
    problems: Vec<String>,
    ids: BTreeSet<u64>,
}

impl Found {
    fn say(&mut self, problem: String) {
        self.problems.push(problem);
    }

    fn keys(&mut self, whose: &str, value: &Value, known: &[&str]) {
        for key in
            value.as_object().into_iter().flat_map(Map::keys).filter(|key| !known.contains(&key.as_str()))
        {
            self.say(format!("{whose}: Grafana knows no key {key:?} there"));
        }
    }

    fn id(&mut self, panel: &Value) {
        let id = panel.get("id").and_then(Value::as_u64).unwrap_or(0);
        if id == 0 || !self.ids.insert(id) {
            self.say(format!("{:?} has the id {id}, which is another's or none", text(panel, "title")));
        }
    }

    fn panel(&mut self, panel: &Value) {
        let (title, kind) = (text(panel, "title"), text(panel, "type"));
        self.id(panel);
        self.keys(&title, panel, PANEL);
        let Some((_, options)) = OPTIONS.iter().find(|(name, _)| *name == kind) else {
            return self.say(format!("{title:?}: there is no built-in panel {kind:?} here"));
        };
        let given = panel.get("options").unwrap_or(&Value::Null);
        self.keys(&format!("options of {title}"), given, options);
        self.keys(
            &format!("reduceOptions of {title}"),
            given.get("reduceOptions").unwrap_or(&Value::Null),
            REDUCE,
        );
        if kind == "text" {
            return;
        }
        if title.is_empty() || text(panel, "description").is_empty() {
            self.say(format!("{title:?} has no title or no description"));
        }
        self.targets(&title, panel);
        let config = panel.get("fieldConfig").unwrap_or(&Value::Null);
        self.field(&title, config);
        for one in list(config, "overrides") {
            let curve = one.pointer("/matcher/options").and_then(Value::as_str).unwrap_or_default();
            if !list(panel, "targets")
                .any(|target| text(target, "target").ends_with(&format!(", '{curve}')")))
            {
                self.say(format!("{title:?}: no curve {curve:?} to override"));
            }
        }
    }

    fn targets(&mut self, title: &str, panel: &Value) {
        let mut ids = BTreeSet::new();
        let targets: Vec<&Value> = list(panel, "targets").collect();
        for target in &targets {
            self.keys(&format!("a target of {title}"), target, TARGET);
            let written = text(target, "target");
            if !ids.insert(text(target, "refId")) {
                self.say(format!("{title:?}: two targets with one refId"));
            }
            if written.contains('#') || written.matches('(').count() != written.matches(')').count() {
                self.say(format!("{title:?}: {written} is no target"));
            }
        }
        for one in targets.iter().copied().chain([panel]) {
            if one.pointer("/datasource/uid").and_then(Value::as_str) != Some("${datasource}") {
                self.say(format!("{title:?}: a data source that is not the dashboard's"));
            }
        }
        if targets.is_empty() {
            self.say(format!("{title:?}: no target"));
        }
    }

    fn field(&mut self, title: &str, config: &Value) {
        self.keys(&format!("fieldConfig of {title}"), config, &["defaults", "overrides"]);
        let defaults = config.get("defaults").unwrap_or(&Value::Null);
        self.keys(&format!("defaults of {title}"), defaults, DEFAULTS);
        self.keys(&format!("custom of {title}"), defaults.get("custom").unwrap_or(&Value::Null), CUSTOM);
        self.unit(title, defaults.get("unit"));
        let steps: Vec<&Value> = defaults
            .get("thresholds")
            .map(|thresholds| list(thresholds, "steps").collect())
            .unwrap_or_default();
        let values: Vec<f64> = steps.iter().filter_map(|step| step.get("value")?.as_f64()).collect();
        if steps.len() != values.len() + 1 || !values.is_sorted() {
            self.say(format!("{title:?}: thresholds that do not rise from nothing"));
        }
        steps.iter().for_each(|step| self.colour(title, &text(step, "color")));
        for property in list(config, "overrides").flat_map(|one| list(one, "properties")) {
            let (id, value) = (text(property, "id"), property.get("value"));
            match id.as_str() {
                "unit" => self.unit(title, value),
                "color" => {
                    self.colour(title, &value.map(|value| text(value, "fixedColor")).unwrap_or_default())
                }
                _ if id.strip_prefix("custom.").is_some_and(|key| CUSTOM.contains(&key)) => {}
                _ => self.say(format!("{title:?}: no property {id:?} can be overridden")),
            }
        }
    }

    fn unit(&mut self, title: &str, unit: Option<&Value>) {
        match unit.map(|unit| unit.as_str().unwrap_or_default()) {
            Some(unit) if !UNITS.contains(&unit) => {
                self.say(format!("{title:?}: Grafana knows no unit {unit:?}"))
            }
            _ => {}
        }
    }

    fn colour(&mut self, title: &str, colour: &str) {
        if !COLOURS.contains(&colour) {
            self.say(format!("{title:?}: no colour {colour:?}"));
        }
    }

    /// Every cell of the grid belongs to one panel at most, and none lies beyond its 24 columns.
    fn grid(&mut self, panels: &[&Value]) {
        let mut cells: BTreeMap<(u64, u64), String> = BTreeMap::new();
        for panel in panels {
            let title = text(panel, "title");
            let place = |key| panel.pointer(&format!("/gridPos/{key}")).and_then(Value::as_u64);
            let (Some(x), Some(y), Some(w @ 1..), Some(h @ 1..)) =
                (place("x"), place("y"), place("w"), place("h"))
            else {
                self.say(format!("{title:?} has no place"));
                continue;
            };
            if x + w > 24 {
                self.say(format!("{title:?} is wider than the page"));
            }
            let other = (x..x + w)
                .flat_map(|column| (y..y + h).map(move |line| (column, line)))
                .filter_map(|cell| cells.insert(cell, title.clone()))
                .next();
            if let Some(other) = other {
                self.say(format!("{title:?} lies on {other:?}"));
            }
        }
    }

    /// Each variable that is named exists, and each that exists is named.
    fn variables(&mut self, dashboard: &Dashboard) {
        let nothing = Variables::new();
        let known = match dashboard.variables(&nothing, |_| Ok(vec!["x".to_owned()])) {
            Ok(known) => known,
            Err(error) => return self.say(format!("{error:#}")),
        };
        let panels = dashboard.panels();
        let annotations = dashboard.annotations();
        let targets = panels
            .iter()
            .flat_map(|panel| &panel.targets)
            .chain(annotations.iter().map(|(_, target)| target));
        let mut used = BTreeSet::from(["prefix"]);
        for target in targets {
            if let Err(error) = replaced(target, &known) {
                self.say(format!("{error:#}"));
            }
            used.extend(known.keys().filter(|name| target.contains(&format!("${name}"))).map(String::as_str));
        }
        for name in known.keys().filter(|name| !used.contains(name.as_str())) {
            self.say(format!("nothing uses ${name}"));
        }
    }
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}
