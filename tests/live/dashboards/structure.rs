//! Problems of a dashboard that can be found without Grafana and without data.
//!
//! Grafana rejects nothing: it silently accepts an unknown key, an unknown unit or two panels with
//! the same id, and the result looks wrong. The types of @grafana/schema (`make grafana`) do not
//! find all such problems either.

use std::collections::{BTreeMap, BTreeSet};

use sandbox::Dashboard;
use sandbox::grafana::{Variables, list, replaced};
use serde_json::{Map, Value};

use super::states::{JOBS, NODES, REASONS};

/// Grafana's ids of the units that are used here; `make grafana` checks that @grafana/data has
/// them.
pub(crate) const UNITS: [&str; 13] = [
    "bytes",
    "locale",
    "percent",
    "percentunit",
    "reqpm",
    "s",
    "short",
    "suffix:/s",
    "suffix:CPU-h",
    "suffix:h",
    "suffix:min",
    "suffix:threads",
    "µs",
];

/// The keys that Grafana knows, by where they are.
const DASHBOARD: &str = "\
    __requires annotations description editable fiscalYearStartMonth graphTooltip links panels \
    refresh schemaVersion tags templating time timepicker timezone title uid version weekStart";
const ROW: &str = "collapsed gridPos id panels title type";
const PANEL: &str = "\
    datasource description fieldConfig gridPos hideTimeOverride id options targets timeFrom title \
    transformations transparent type";
const TARGET: &str = "datasource refId target textEditor";
const DEFAULTS: &str = "color custom decimals links mappings max min noValue thresholds unit";
const CUSTOM: &str = "align axisLabel axisPlacement cellOptions drawStyle fillOpacity gradientMode \
    inspect lineInterpolation lineStyle lineWidth pointSize scaleDistribution showPoints spanNulls \
    stacking thresholdsStyle width";
const REDUCE: &str = "calcs fields values";
/// The options of each panel type; all types are built in.
const OPTIONS: [(&str, &str); 7] = [
    ("timeseries", "legend tooltip"),
    ("state-timeline", "alignValue legend mergeValues rowHeight showValue tooltip"),
    ("stat", "colorMode graphMode justifyMode orientation reduceOptions textMode"),
    ("bargauge", "displayMode orientation reduceOptions showUnfilled valueMode"),
    ("table", "cellHeight showHeader sortBy"),
    (
        "alertlist",
        "alertInstanceLabelFilter alertName dashboardAlerts groupBy groupMode maxItems sortOrder \
            stateFilter viewMode",
    ),
    ("text", "content mode"),
];
/// Grafana's hues, each of which has shades, and the colour of text.
const HUES: [&str; 6] = ["blue", "green", "orange", "purple", "red", "yellow"];
const SHADES: [&str; 5] = ["", "dark-", "semi-dark-", "light-", "super-light-"];
/// The columns of a table after the first, as the transformation names the reducers.
const COLUMNS: [&str; 3] = ["Now", "Largest", "Trend"];

/// Everything that is wrong, as text.
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
    // An import replaces such a name. A provisioned file would keep it.
    if json.to_string().contains("${DS_") {
        found.say("a data source that only an import knows".to_owned());
    }
    found.variables(dashboard);
    let mut outside = Vec::new();
    for panel in list(json, "panels") {
        outside.push(panel);
        if text(panel, "type") == "row" {
            found.keys("a row", panel, ROW);
            found.id(panel);
            let inside: Vec<&Value> = list(panel, "panels").collect();
            let title = text(panel, "title");
            if inside.is_empty() == (panel["collapsed"] == true) {
                found.say(format!("the row {title:?} is closed and empty, or open and full"));
            }
            // What is empty because a collector is off says how to turn it on.
            for inner in inside.iter().filter(|_| title.contains("collectors.")) {
                let words = text(&inner["fieldConfig"]["defaults"], "noValue");
                let is_tile = ["stat", "bargauge"].contains(&text(inner, "type").as_str());
                if !words.contains("collectors.") || !is_tile && !words.contains("Needs: ") {
                    found.say(format!("{:?} does not say what it needs", text(inner, "title")));
                }
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

    fn keys(&mut self, whose: &str, value: &Value, known: &str) {
        for key in
            value.as_object().into_iter().flat_map(Map::keys).filter(|key| !has_word(known, key))
        {
            self.say(format!("{whose}: Grafana knows no key {key:?} there"));
        }
    }

    fn id(&mut self, panel: &Value) {
        let id = panel["id"].as_u64().unwrap_or(0);
        if id == 0 || !self.ids.insert(id) {
            self.say(format!(
                "{:?} has the id {id}, which is another's or none",
                text(panel, "title")
            ));
        }
    }

    fn panel(&mut self, panel: &Value) {
        let (title, kind) = (text(panel, "title"), text(panel, "type"));
        self.id(panel);
        self.keys(&title, panel, PANEL);
        let Some((_, options)) = OPTIONS.iter().find(|(name, _)| *name == kind) else {
            return self.say(format!("{title:?}: there is no built-in panel {kind:?} here"));
        };
        self.keys(&format!("options of {title}"), &panel["options"], options);
        self.keys(&format!("reduceOptions of {title}"), &panel["options"]["reduceOptions"], REDUCE);
        if kind == "text" {
            return;
        }
        if title.is_empty() || text(panel, "description").is_empty() {
            self.say(format!("{title:?} has no title or no description"));
        }
        if kind == "alertlist" {
            return;
        }
        self.targets(&title, panel);
        let config = &panel["fieldConfig"];
        self.field(&title, config);
        let columns: Vec<&Value> = list(panel, "transformations")
            .filter_map(|one| one["options"]["renameByName"].as_object())
            .flat_map(Map::values)
            .collect();
        let targets: Vec<String> =
            list(panel, "targets").map(|target| text(target, "target")).collect();
        for one in list(config, "overrides") {
            let curve = text(&one["matcher"], "options");
            let is_state = targets.iter().any(|target| target.starts_with("aliasByNode("))
                && [JOBS, NODES, REASONS].iter().any(|states| has_word(states, &curve));
            let is_alias = ['\'', '"'].iter().any(|quote| {
                let end = format!(", {quote}{curve}{quote})");
                targets.iter().any(|target| target.ends_with(&end))
            });
            if !is_alias && !is_state && !columns.iter().any(|column| **column == curve) {
                self.say(format!("{title:?}: no curve {curve:?} to override"));
            }
        }
        if kind == "table"
            && !COLUMNS.iter().all(|name| columns.iter().any(|column| *column == name))
        {
            self.say(format!("{title:?}: a table without its columns"));
        }
        self.curves(&title, &kind, panel);
        self.freshness(&title, &kind, panel);
        self.links(&title, config);
    }

    /// An outage must be a gap: a line is continued for three ticks, or three rounds of a survey.
    /// And a threshold must be drawn.
    fn curves(&mut self, title: &str, kind: &str, panel: &Value) {
        if kind != "timeseries" {
            return;
        }
        let config = &panel["fieldConfig"];
        let spanned = config["defaults"]["custom"]["spanNulls"].as_u64();
        if spanned.is_none_or(|spanned| spanned > 180_000) {
            self.say(format!("{title:?} draws a line through outages of {spanned:?} ms"));
        }
        self.legend(title, panel);
        let steps = list(&config["defaults"]["thresholds"], "steps").count();
        if (steps > 1) != (config["defaults"]["custom"]["thresholdsStyle"]["mode"] == "dashed") {
            self.say(format!("{title:?} has thresholds that are not drawn"));
        }
    }

    /// A table below a graph shows two curves, and the others only after scrolling.
    fn legend(&mut self, title: &str, panel: &Value) {
        let legend = &panel["options"]["legend"];
        let targets: Vec<String> =
            list(panel, "targets").map(|target| text(target, "target")).collect();
        let is_one = |target: &String| target.starts_with("alias(");
        let has_few = targets.len() < 3 && targets.iter().all(is_one);
        let is_beside = legend["placement"] == "right" && panel["gridPos"]["w"] != 8;
        if !has_few && !is_beside && legend["displayMode"] != "list" {
            self.say(format!("{title:?}: its legend hides curves"));
        }
    }

    /// A single figure must show nothing old: its last point within a few intervals, or "no data"
    /// in a special colour.
    fn freshness(&mut self, title: &str, kind: &str, panel: &Value) {
        let calcs = &panel["options"]["reduceOptions"]["calcs"][0];
        if !["stat", "bargauge", "table"].contains(&kind) || calcs == "sum" {
            return;
        }
        if kind != "table" && calcs != "last" {
            self.say(format!("{title:?} shows an old value: {calcs:?}"));
        }
        if list(panel, "targets").any(|target| !text(target, "target").contains("(keepLastValue("))
        {
            self.say(format!("{title:?} has nothing while the newest slot is empty"));
        }
        if kind == "stat" && list(&panel["fieldConfig"]["defaults"], "links").count() == 0 {
            self.say(format!("{title:?}: a tile that leads nowhere"));
        }
        if kind == "stat" {
            let mut mappings = list(&panel["fieldConfig"]["defaults"], "mappings");
            let null = mappings.find(|one| one["options"]["match"] == "null+nan");
            // A whole tile in that colour would be taken for an alarm.
            let is_tile = panel["options"]["colorMode"] == "background";
            let expected = if is_tile { "transparent" } else { "purple" };
            let is_told = null.is_some_and(|one| one["options"]["result"]["color"] == expected);
            if !is_told || panel.get("timeFrom").is_none() {
                self.say(format!("{title:?} does not tell no data from a value"));
            }
        }
    }

    /// A link must keep cluster, data source and time range, and its dashboard must have the
    /// variable that it sets.
    fn links(&mut self, title: &str, config: &Value) {
        let own = list(&config["defaults"], "links");
        let columns = list(config, "overrides")
            .flat_map(|one| list(one, "properties"))
            .filter(|one| text(one, "id") == "links")
            .flat_map(|one| list(one, "value"));
        for link in own.chain(columns) {
            let url = text(link, "url");
            let kept =
                ["var-datasource=${datasource}&", "var-prefix=${prefix}&", "&${__url_time_range}"];
            // The runbook has text alone.
            let is_page = url.starts_with("/d/slurm-graphite-runbook?viewPanel=");
            let kept = if is_page { &kept[2..] } else { &kept[..] };
            if !url.starts_with("/d/slurm-graphite-") || kept.iter().any(|part| !url.contains(part))
            {
                self.say(format!("{title:?}: the link {url} forgets something"));
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
            if written.contains('#') || written.matches('(').count() != written.matches(')').count()
            {
                self.say(format!("{title:?}: {written} is no target"));
            }
        }
        for one in targets.iter().copied().chain([panel]) {
            if one["datasource"]["uid"] != "${datasource}" {
                self.say(format!("{title:?}: a data source that is not the dashboard's"));
            }
        }
        if targets.is_empty() {
            self.say(format!("{title:?}: no target"));
        }
    }

    fn field(&mut self, title: &str, config: &Value) {
        self.keys(&format!("fieldConfig of {title}"), config, "defaults overrides");
        let defaults = &config["defaults"];
        self.keys(&format!("defaults of {title}"), defaults, DEFAULTS);
        self.keys(&format!("custom of {title}"), &defaults["custom"], CUSTOM);
        self.unit(title, defaults.get("unit"));
        let steps: Vec<&Value> = list(&defaults["thresholds"], "steps").collect();
        let values: Vec<f64> = steps.iter().filter_map(|step| step["value"].as_f64()).collect();
        if steps.len() != values.len() + 1 || !values.is_sorted() {
            self.say(format!("{title:?}: thresholds that do not rise from nothing"));
        }
        steps.iter().for_each(|step| self.colour(title, &text(step, "color")));
        for property in list(config, "overrides").flat_map(|one| list(one, "properties")) {
            let id = text(property, "id");
            match id.as_str() {
                "unit" => self.unit(title, property.get("value")),
                "decimals" | "links" => {}
                "color" => self.colour(title, &text(&property["value"], "fixedColor")),
                _ if id.strip_prefix("custom.").is_some_and(|key| has_word(CUSTOM, key)) => {}
                _ => self.say(format!("{title:?}: no property {id:?} can be overridden")),
            }
        }
    }

    fn unit(&mut self, title: &str, unit: Option<&Value>) {
        if let Some(unit) = unit.filter(|unit| !UNITS.iter().any(|known| *unit == known)) {
            self.say(format!("{title:?}: Grafana knows no unit {unit}"));
        }
    }

    fn colour(&mut self, title: &str, colour: &str) {
        let is_hue =
            |shade: &str| colour.strip_prefix(shade).is_some_and(|hue| HUES.contains(&hue));
        if !["text", "transparent"].contains(&colour) && !SHADES.into_iter().any(is_hue) {
            self.say(format!("{title:?}: no colour {colour:?}"));
        }
    }

    /// Every cell of the grid belongs to at most one panel, and no panel exceeds the 24 columns.
    fn grid(&mut self, panels: &[&Value]) {
        let mut cells: BTreeMap<(u64, u64), String> = BTreeMap::new();
        for panel in panels {
            let title = text(panel, "title");
            let place = |key: &str| panel["gridPos"][key].as_u64();
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

    /// Each variable that is used exists, and each that exists is used.
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
            used.extend(
                known
                    .keys()
                    .filter(|name| target.contains(&format!("${name}")))
                    .map(String::as_str),
            );
        }
        for name in known.keys().filter(|name| !used.contains(name.as_str())) {
            self.say(format!("nothing uses ${name}"));
        }
    }
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Whether it is one of these words, which have a space between them.
pub(crate) fn has_word(words: &str, word: &str) -> bool {
    words.split(' ').any(|known| known == word)
}
