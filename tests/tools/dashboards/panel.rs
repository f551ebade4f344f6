//! One panel of a dashboard: what it shows and how, in the same way for the same kind of figure.
//!
//! Grafana 10 to 13 must understand all of it: only built-in panels, and no key that one of these
//! releases does not know.

mod kinds;

use serde_json::{Map, Value, json};

use crate::grafana::{COLUMNS, data_source};
use crate::runbook;

use self::kinds::no_data;
pub(crate) use self::kinds::{alerts, bars, series, stat, table, text, timeline};

/// A curve of a survey, which comes once a minute, is drawn through this many milliseconds without
/// a point.
const ROUNDS_MS: u32 = 180_000;

/// Number of its intervals that a single figure may be old; after that the panel shows "no data".
const FRESH: u32 = 4;

/// Time that a single figure looks back: enough for its small curve, and for a survey that runs
/// every few minutes.
const NOW: &str = "1h";

/// The colour of a panel without one.
const NO_COLOUR: &str = "transparent";

/// One panel. [`series`], [`stat`], [`bars`], [`table`], [`timeline`], [`alerts`] or [`text`] make
/// it with defaults, and methods change these.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    /// The kind of visualization, as Grafana calls it.
    kind: &'static str,
    title: String,
    description: String,
    /// Each target, and a template that names its series; `{}` is the target.
    targets: Vec<(String, String)>,
    /// Its width and height on the grid.
    pub(crate) size: (u32, u32),
    defaults: Map<String, Value>,
    custom: Map<String, Value>,
    options: Map<String, Value>,
    overrides: Vec<Value>,
    transformations: Vec<Value>,
    /// Whether only the newest value is shown, if it is fresh.
    is_now: bool,
    /// The function by which a curve merges the points that it has no room for.
    merged: Option<&'static str>,
}

impl Panel {
    fn new(kind: &'static str, title: &str, description: &str, size: (u32, u32)) -> Self {
        let panel = Self {
            kind,
            title: title.to_owned(),
            description: description.to_owned(),
            targets: Vec::new(),
            size,
            defaults: Map::new(),
            custom: Map::new(),
            options: Map::new(),
            overrides: Vec::new(),
            transformations: Vec::new(),
            is_now: false,
            merged: None,
        };
        panel.steps(&[("green", None)])
    }

    /// Whether it shows figures, and not only text.
    pub(crate) const fn has_data(&self) -> bool {
        !self.targets.is_empty()
    }

    /// Adds a curve with this name.
    pub(crate) fn curve(self, name: &str, target: &str) -> Self {
        let quote = if name.contains('\'') { '"' } else { '\'' };
        self.target(target, format!("alias({{}}, {quote}{name}{quote})"))
    }

    /// Adds a curve with this name in a fixed colour.
    pub(crate) fn line(self, name: &str, colour: &str, target: &str) -> Self {
        self.curve(name, target).colour(name, colour)
    }

    /// Adds a target with one or more curves, named by the path node before the leaf.
    pub(crate) fn each(self, target: &str) -> Self {
        self.nodes(target, -2)
    }

    /// Adds a target with one or more curves, named by this path node, counted from the end.
    pub(crate) fn nodes(self, target: &str, node: i32) -> Self {
        self.target(target, format!("aliasByNode({{}}, {node})"))
    }

    /// Adds a target that names its curves itself.
    pub(crate) fn named(self, target: &str) -> Self {
        self.target(target, "{}".to_owned())
    }

    /// Adds a dashed curve of the same figure a week ago, in a paler shade.
    pub(crate) fn week_ago(self, name: &str, colour: &str, target: &str) -> Self {
        self.line(name, colour, &format!("timeShift({target}, '7d')")).beside(name)
    }

    fn target(mut self, target: &str, named: String) -> Self {
        self.targets.push((target.to_owned(), named));
        self
    }

    /// The unit of its values, by Grafana's id.
    pub(crate) fn unit(self, id: &str) -> Self {
        self.default("unit", json!(id))
    }

    /// Shows its seconds in minutes: an axis of seconds has its marks at 16:40 and 02:46:40.
    pub(crate) fn minutes(self) -> Self {
        self.scaled("0.0166666667", "suffix:min")
    }

    /// Shows its seconds in hours.
    pub(crate) fn hours(self) -> Self {
        self.scaled("0.000277777778", "suffix:h")
    }

    fn scaled(mut self, factor: &str, unit: &str) -> Self {
        for (target, _) in &mut self.targets {
            *target = format!("scale({target}, {factor})");
        }
        self.unit(unit)
    }

    /// Digits after the point.
    pub(crate) fn decimals(self, digits: u8) -> Self {
        self.default("decimals", json!(digits))
    }

    /// Its values are numbers of things, of which there is never a half. Over a long time range a
    /// curve shows the largest number of those that are merged, and a stack the last, so that its
    /// sum stays what it was at one time. Graphite's coarser archives have means, which are
    /// rounded.
    pub(crate) fn whole(mut self) -> Self {
        let is_stack = self.custom.get("stacking").and_then(|stacking| stacking.get("mode"))
            == Some(&json!("normal"));
        self.merged = (self.kind == "timeseries").then_some(if is_stack { "last" } else { "max" });
        // "short" would make 3 K of 2,500.
        self.unit("locale").decimals(0)
    }

    /// The axis begins at this value.
    pub(crate) fn min(self, value: f64) -> Self {
        self.default("min", number(value))
    }

    /// The axis begins where the curves do.
    pub(crate) fn without_min(mut self) -> Self {
        self.defaults.remove("min");
        self
    }

    /// The axis ends at this value.
    pub(crate) fn max(self, value: f64) -> Self {
        self.default("max", number(value))
    }

    fn default(mut self, key: &str, value: Value) -> Self {
        self.defaults.insert(key.to_owned(), value);
        self
    }

    /// Width in 24ths of the page, height in lines of 30 pixels.
    pub(crate) fn sized(mut self, width: u32, height: u32) -> Self {
        self.size = (width, height);
        self
    }

    /// Makes the axis logarithmic: cycles of 100 µs and of 100 s in one graph.
    pub(crate) fn log(mut self) -> Self {
        self.custom.insert("scaleDistribution".to_owned(), json!({ "type": "log", "log": 10 }));
        self.custom.insert("fillOpacity".to_owned(), json!(0));
        self.without_min()
    }

    /// Stacks its curves.
    pub(crate) fn stacked(mut self) -> Self {
        self.custom.insert("stacking".to_owned(), json!({ "mode": "normal", "group": "A" }));
        self.custom.insert("fillOpacity".to_owned(), json!(45));
        self
    }

    /// Yellow and red from these values on, with dashed lines in graphs; a tile has this colour as
    /// its background, and none below.
    pub(crate) fn worry(mut self, yellow: f64, red: f64) -> Self {
        if self.kind == "timeseries" {
            self.custom.insert("thresholdsStyle".to_owned(), json!({ "mode": "dashed" }));
        }
        self.alarming(&[("yellow", Some(yellow)), ("red", Some(red))])
    }

    /// Red from this value on.
    pub(crate) fn never(self, red: f64) -> Self {
        self.alarming(&[("red", Some(red))])
    }

    fn alarming(mut self, steps: &[(&str, Option<f64>)]) -> Self {
        let mut good = "green";
        if self.kind == "stat" {
            self.options.insert("colorMode".to_owned(), json!("background"));
            self = self.default("mappings", json!([no_data(0, NO_COLOUR)]));
            good = NO_COLOUR;
        }
        self.steps(&[&[(good, None)], steps].concat())
    }

    /// No colour that judges the value.
    pub(crate) fn neutral(self) -> Self {
        self.steps(&[("blue", None)])
    }

    /// The colours of its values, each with the value from which on it is shown.
    fn steps(self, steps: &[(&str, Option<f64>)]) -> Self {
        let step = |(colour, value): &(&str, Option<f64>)| {
            json!({ "color": colour,
            "value": value.map(number) })
        };
        let steps: Vec<Value> = steps.iter().map(step).collect();
        self.default("thresholds", json!({ "mode": "absolute", "steps": steps }))
    }

    /// The value alone, without the curve of the last hour.
    pub(crate) fn without_curve(mut self) -> Self {
        self.options.insert("graphMode".to_owned(), json!("none"));
        self
    }

    /// Shows 1 and 0 as words, green and red.
    pub(crate) fn switch(self, one: &str, zero: &str) -> Self {
        let mut panel = self.without_curve();
        panel.options.insert("colorMode".to_owned(), json!("background"));
        panel.steps(&[("red", None), ("green", Some(1.0))]).default(
            "mappings",
            json!([{ "type": "value", "options": {
                "1": { "text": one, "color": "green", "index": 0 },
                "0": { "text": zero, "color": "red", "index": 1 },
            } }, no_data(2, NO_COLOUR)]),
        )
    }

    /// Words instead of "no data" if there is no series at all; a tile has room for `section` alone.
    pub(crate) fn without_data(self, words: &str, section: &str) -> Self {
        match self.kind {
            // A legend would have these words for a series without a point.
            "timeseries" => self
                .default("mappings", json!([no_data(0, "text")]))
                .default("noValue", json!(words)),
            "table" => self.default("noValue", json!(words)),
            // It says itself what it means that there is none.
            "state-timeline" => self,
            _ => self.default("noValue", json!(format!("no data: {section}"))),
        }
    }

    /// A click on the tile opens this dashboard.
    pub(crate) fn opens(self, title: &str, dashboard: &str) -> Self {
        let url = format!(
            "/d/slurm-graphite-{dashboard}?var-datasource=${{datasource}}&var-prefix=${{prefix}}\
                &${{__url_time_range}}"
        );
        self.default("links", json!([{ "title": title, "targetBlank": false, "url": url }]))
    }

    /// A click on one of its curves opens this.
    pub(crate) fn links(self, curve: &str, link: &Value) -> Self {
        self.property(curve, "links", &json!([link]))
    }

    /// A click on the tile opens this page of the runbook.
    pub(crate) fn explained_by(self, page: &str) -> Self {
        self.default("links", json!([runbook::link(page)]))
    }

    /// The panel shows a survey, which runs once a minute and not at every tick. Only lines are
    /// drawn from one point to the next.
    pub(crate) fn survey(mut self) -> Self {
        if self.custom.get("drawStyle").is_some_and(|style| style == "line") {
            self.custom.insert("spanNulls".to_owned(), json!(ROUNDS_MS));
        }
        self
    }

    /// A click on one of its series opens a dashboard that shows only that series. `variable` is
    /// the variable for it there.
    pub(crate) fn leads_to(self, title: &str, dashboard: &str, variable: &str) -> Self {
        let named = if self.kind == "table" { "${__value.text}" } else { "${__field.name}" };
        let link = json!({
            "title": title, "targetBlank": false,
            "url": format!("/d/slurm-graphite-{dashboard}?var-datasource=${{datasource}}\
                &var-prefix=${{prefix}}&var-{variable}={named}&${{__url_time_range}}"),
        });
        // In a table, the column of names.
        let column =
            self.transformations.iter().find_map(|one| one.pointer("/options/renameByName/Field"));
        match column.and_then(Value::as_str).map(str::to_owned) {
            Some(column) => self.property(&column, "links", &json!([link])),
            None => self.default("links", json!([link])),
        }
    }

    /// Draws one bar for each point: for sums over an hour or a day.
    pub(crate) fn columns(mut self) -> Self {
        self.custom.insert("drawStyle".to_owned(), json!("bars"));
        self.custom.insert("fillOpacity".to_owned(), json!(60));
        self.stacked()
    }

    /// The colour of every series that has no fixed colour.
    pub(crate) fn colour_of_others(self, colour: &str) -> Self {
        self.default("color", json!({ "mode": "fixed", "fixedColor": colour }))
    }

    /// Fixed colours for series with these names; the others use the palette.
    pub(crate) fn coloured(self, colours: &[(&str, &str)]) -> Self {
        colours.iter().fold(self, |panel, (name, colour)| panel.colour(name, colour))
    }

    /// Shows each series' sum over the time range instead of its newest value.
    pub(crate) fn total(mut self) -> Self {
        let sum = json!({ "calcs": ["sum"], "fields": "", "values": false });
        self.options.insert("reduceOptions".to_owned(), sum);
        self.is_now = false;
        self.without_curve()
    }

    /// A fixed colour for one of its curves.
    pub(crate) fn colour(self, curve: &str, colour: &str) -> Self {
        self.property(curve, "color", &json!({ "mode": "fixed", "fixedColor": colour }))
    }

    /// A thin dashed line for one of its curves, which is only for comparison.
    pub(crate) fn beside(self, curve: &str) -> Self {
        self.property(curve, "custom.lineStyle", &json!({ "fill": "dash", "dash": [8, 6] }))
            .property(curve, "custom.fillOpacity", &json!(0))
    }

    /// A dashed line across a stack, which is not part of it.
    pub(crate) fn apart(self, curve: &str) -> Self {
        let none = json!({ "mode": "none", "group": "A" });
        self.beside(curve).property(curve, "custom.stacking", &none)
    }

    /// The lines of a table in the order of this column.
    pub(crate) fn sorted_by(mut self, column: &str, descending: bool) -> Self {
        let order = json!([{ "displayName": column, "desc": descending }]);
        self.options.insert("sortBy".to_owned(), order);
        self
    }

    /// A number of things, without a colour that judges it, next to the share that has one.
    pub(crate) fn number(self, curve: &str, target: &str) -> Self {
        self.curve(curve, target)
            .colour(curve, NO_COLOUR)
            .property(curve, "unit", &json!("locale"))
            .property(curve, "decimals", &json!(0))
    }

    /// A separate unit, on the right axis, for one of its curves.
    pub(crate) fn right(self, curve: &str, unit: &str) -> Self {
        self.property(curve, "unit", &json!(unit))
            .property(curve, "custom.axisPlacement", &json!("right"))
            .property(curve, "custom.fillOpacity", &json!(0))
    }

    fn property(mut self, curve: &str, id: &str, value: &Value) -> Self {
        let property = json!({ "id": id, "value": value });
        let matcher = json!({ "id": "byName", "options": curve });
        let known = self.overrides.iter_mut().find(|known| known.get("matcher") == Some(&matcher));
        match known.and_then(|known| known.get_mut("properties")).and_then(Value::as_array_mut) {
            Some(properties) => properties.push(property),
            None => self.overrides.push(json!({ "matcher": matcher, "properties": [property] })),
        }
        self
    }

    /// The JSON that Grafana reads.
    pub(crate) fn json(mut self, id: u32, x: u32, y: u32) -> Value {
        self.place_legend();
        let mut panel = object(json!({
            "id": id, "type": self.kind, "title": self.title, "options": self.options,
                "transparent": self.kind == "text",
            "gridPos": { "x": x, "y": y, "w": self.size.0, "h": self.size.1 },
        }));
        if self.kind == "text" {
            return Value::Object(panel);
        }
        panel.insert("description".to_owned(), json!(self.description));
        if self.kind == "alertlist" {
            return Value::Object(panel);
        }
        let targets = self.targets.iter().enumerate().map(|(index, (target, named))| {
            let fresh = match self.merged {
                _ if self.is_now => format!("keepLastValue({target}, {FRESH})"),
                Some(function) => format!("consolidateBy({target}, '{function}')"),
                None => target.clone(),
            };
            let target = named.replace("{}", &fresh);
            json!({ "refId": ref_id(index), "datasource": data_source(), "target": target,
                "textEditor": true })
        });
        let targets = targets.collect();
        if self.is_now && self.kind != "table" {
            panel.insert("timeFrom".to_owned(), json!(NOW));
            panel.insert("hideTimeOverride".to_owned(), json!(true));
        }
        if !self.transformations.is_empty() {
            panel.insert("transformations".to_owned(), json!(self.transformations));
        }
        let mut defaults = self.defaults;
        if ["timeseries", "table", "state-timeline"].contains(&self.kind) {
            defaults.insert("custom".to_owned(), Value::Object(self.custom));
        }
        panel.insert("datasource".to_owned(), data_source());
        panel.insert("targets".to_owned(), targets);
        panel.insert(
            "fieldConfig".to_owned(),
            json!({ "defaults": defaults, "overrides": self.overrides }),
        );
        Value::Object(panel)
    }

    /// A legend below a graph has room for two curves. That of more is on the right of a wide
    /// graph, and a list of names below a narrow one.
    fn place_legend(&mut self) {
        let has_many = self.targets.len() > 2
            || self.targets.iter().any(|(_, named)| !named.starts_with("alias("));
        let wide = json!({ "showLegend": true, "displayMode": "table", "placement": "right",
            "calcs": ["lastNotNull", "max"] });
        let narrow = json!({ "showLegend": true, "displayMode": "list", "placement": "bottom",
            "calcs": [] });
        if self.kind == "timeseries" && (has_many || self.size.0 == COLUMNS) {
            self.options.insert("legend".to_owned(), if self.size.0 < 12 { narrow } else { wide });
        }
    }
}

/// Grafana's name of a target: A to Z, then A1 to Z1.
fn ref_id(index: usize) -> String {
    let letter = ('A'..='Z').cycle().nth(index).unwrap_or('A');
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{round}"),
    }
}

/// Whole numbers without a decimal point, as Grafana writes them.
fn number(value: f64) -> Value {
    value.to_string().parse().unwrap_or_default()
}

/// The growth of each counter, per interval. Over a long time range Grafana asks for fewer points
/// than there are, and Graphite then has to add up those that it merges. If points are missing, the
/// last one before them is used.
pub(crate) fn growth(counters: &str) -> String {
    format!("consolidateBy(nonNegativeDerivative(keepLastValue({counters})), 'sum')")
}

fn object(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).unwrap_or_default()
}
