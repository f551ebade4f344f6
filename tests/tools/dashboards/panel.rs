//! One panel of a dashboard: what it shows and how, alike wherever the same kind of figure is shown.
//!
//! What is written here has to be understood by Grafana 10 to 13: only panels that are built in, and no key that one of them does not
//! know.

use serde_json::{Map, Value, json};

use crate::grafana::data_source;

/// Curves go on over so many milliseconds without a point: figures of an interval are absent where nothing happened in it.
const NO_CYCLE_MS: u32 = 300_000;

/// What draws a panel's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    TimeSeries,
    Stat,
    BarGauge,
    Text,
}

/// One panel. Made by [`series`], [`stat`], [`bars`] or [`text`], then told what differs from the usual.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    kind: Kind,
    title: String,
    description: String,
    targets: Vec<String>,
    size: (u32, u32),
    defaults: Map<String, Value>,
    custom: Map<String, Value>,
    options: Map<String, Value>,
    steps: Vec<(&'static str, Option<f64>)>,
    overrides: Vec<Value>,
}

/// Curves over time.
pub(crate) fn series(title: &str, description: &str) -> Panel {
    let mut panel = Panel::new(Kind::TimeSeries, title, description, (12, 8));
    panel.custom = object(json!({
        "drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1, "fillOpacity": 8, "gradientMode": "none",
        "showPoints": "auto", "pointSize": 5, "spanNulls": NO_CYCLE_MS, "axisPlacement": "auto", "axisLabel": "",
        "scaleDistribution": { "type": "linear" }, "stacking": { "mode": "none", "group": "A" },
        "thresholdsStyle": { "mode": "off" },
    }));
    panel.options = object(json!({
        "legend": { "showLegend": true, "displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "mean", "max"] },
        "tooltip": { "mode": "multi", "sort": "desc" },
    }));
    panel.defaults = object(json!({ "color": { "mode": "palette-classic" } }));
    panel
}

/// The newest value, large.
pub(crate) fn stat(title: &str, description: &str) -> Panel {
    let mut panel = Panel::new(Kind::Stat, title, description, (4, 4));
    panel.options = object(json!({
        "colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
        "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
    }));
    panel.defaults = object(json!({ "color": { "mode": "thresholds" } }));
    panel
}

/// The newest value of each series as a bar.
pub(crate) fn bars(title: &str, description: &str) -> Panel {
    let mut panel = Panel::new(Kind::BarGauge, title, description, (12, 9));
    panel.options = object(json!({
        "displayMode": "gradient", "orientation": "horizontal", "showUnfilled": true, "valueMode": "color",
        "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
    }));
    panel.defaults = object(json!({ "color": { "mode": "continuous-GrYlRd" }, "min": 0 }));
    panel
}

/// Words.
pub(crate) fn text(title: &str, content: &str) -> Panel {
    let mut panel = Panel::new(Kind::Text, title, "", (24, 3));
    panel.options = object(json!({ "mode": "markdown", "content": content }));
    panel
}

impl Panel {
    fn new(kind: Kind, title: &str, description: &str, size: (u32, u32)) -> Self {
        Self {
            kind,
            title: title.to_owned(),
            description: description.to_owned(),
            targets: Vec::new(),
            size,
            defaults: Map::new(),
            custom: Map::new(),
            options: Map::new(),
            steps: vec![("green", None)],
            overrides: Vec::new(),
        }
    }

    /// Adds a curve with a name of its own.
    pub(crate) fn curve(self, name: &str, target: &str) -> Self {
        self.target(format!("alias({target}, '{name}')"))
    }

    /// Adds what may be several curves, named by their node before the leaf.
    pub(crate) fn each(self, target: &str) -> Self {
        self.target(format!("aliasByNode({target}, -2)"))
    }

    /// Adds what may be several curves, named by this node, counted from the end.
    pub(crate) fn nodes(self, target: &str, node: i32) -> Self {
        self.target(format!("aliasByNode({target}, {node})"))
    }

    fn target(mut self, target: String) -> Self {
        self.targets.push(target);
        self
    }

    /// The unit of its values, by Grafana's id.
    pub(crate) fn unit(self, id: &str) -> Self {
        self.default("unit", json!(id))
    }

    /// Digits after the point.
    pub(crate) fn decimals(self, digits: u8) -> Self {
        self.default("decimals", json!(digits))
    }

    /// The axis begins at this value.
    pub(crate) fn min(self, value: f64) -> Self {
        self.default("min", number(value))
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

    /// A logarithmic axis: cycles of 100 µs and of 100 s on one picture.
    pub(crate) fn log(mut self) -> Self {
        self.custom.insert("scaleDistribution".to_owned(), json!({ "type": "log", "log": 10 }));
        self.custom.insert("fillOpacity".to_owned(), json!(0));
        self
    }

    /// Its curves lie on each other.
    pub(crate) fn stacked(mut self) -> Self {
        self.custom.insert("stacking".to_owned(), json!({ "mode": "normal", "group": "A" }));
        self.custom.insert("fillOpacity".to_owned(), json!(45));
        self.min(0.0)
    }

    /// Yellow and red from these values on; dashed lines where there are curves.
    pub(crate) fn worry(mut self, yellow: f64, red: f64) -> Self {
        self.steps = vec![("green", None), ("yellow", Some(yellow)), ("red", Some(red))];
        if self.kind == Kind::TimeSeries {
            self.custom.insert("thresholdsStyle".to_owned(), json!({ "mode": "dashed" }));
        }
        self
    }

    /// Red from this value on.
    pub(crate) fn never(mut self, red: f64) -> Self {
        self.steps = vec![("green", None), ("red", Some(red))];
        self
    }

    /// No judgement about the value.
    pub(crate) fn neutral(mut self) -> Self {
        self.steps = vec![("blue", None)];
        self
    }

    /// 1 and 0 as words, green and red.
    pub(crate) fn switch(mut self, one: &str, zero: &str) -> Self {
        self.steps = vec![("red", None), ("green", Some(1.0))];
        self.options.insert("graphMode".to_owned(), json!("none"));
        self.default(
            "mappings",
            json!([{ "type": "value", "options": {
                "1": { "text": one, "color": "green", "index": 0 },
                "0": { "text": zero, "color": "red", "index": 1 },
            } }]),
        )
    }

    /// Every series' sum over the time shown, not its newest value.
    pub(crate) fn total(mut self) -> Self {
        if let Some(reduce) = self.options.get_mut("reduceOptions") {
            *reduce = json!({ "calcs": ["sum"], "fields": "", "values": false });
        }
        self.options.insert("graphMode".to_owned(), json!("none"));
        self
    }

    /// A fixed colour for one of its curves.
    pub(crate) fn colour(self, curve: &str, colour: &str) -> Self {
        self.property(curve, "color", &json!({ "mode": "fixed", "fixedColor": colour }))
    }

    /// A dashed thin line for one of its curves: what only stands beside the others.
    pub(crate) fn beside(self, curve: &str) -> Self {
        self.property(curve, "custom.lineStyle", &json!({ "fill": "dash", "dash": [8, 6] })).property(
            curve,
            "custom.fillOpacity",
            &json!(0),
        )
    }

    /// A unit of its own, on the right, for one of its curves.
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

    /// Its width and height on the grid.
    pub(crate) fn size(&self) -> (u32, u32) {
        self.size
    }

    /// As Grafana reads it.
    pub(crate) fn json(self, id: u32, x: u32, y: u32) -> Value {
        let name = match self.kind {
            Kind::TimeSeries => "timeseries",
            Kind::Stat => "stat",
            Kind::BarGauge => "bargauge",
            Kind::Text => "text",
        };
        let mut panel = object(json!({
            "id": id, "type": name, "title": self.title, "options": self.options, "transparent": self.kind == Kind::Text,
            "gridPos": { "x": x, "y": y, "w": self.size.0, "h": self.size.1 },
        }));
        if self.kind == Kind::Text {
            return Value::Object(panel);
        }
        let targets = self.targets.iter().zip('A'..).map(|(target, id)| {
            json!({ "refId": id, "datasource": data_source(), "target": target, "textEditor": true })
        });
        let steps: Vec<Value> = self
            .steps
            .iter()
            .map(|(colour, value)| json!({ "color": colour, "value": value.map(number) }))
            .collect();
        let mut defaults = self.defaults;
        defaults.insert("thresholds".to_owned(), json!({ "mode": "absolute", "steps": steps }));
        if self.kind == Kind::TimeSeries {
            defaults.insert("custom".to_owned(), Value::Object(self.custom));
        }
        panel.insert("description".to_owned(), json!(self.description));
        panel.insert("datasource".to_owned(), data_source());
        panel.insert("targets".to_owned(), targets.collect());
        panel.insert("fieldConfig".to_owned(), json!({ "defaults": defaults, "overrides": self.overrides }));
        Value::Object(panel)
    }
}

/// Whole numbers without a point, as Grafana writes them.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 {
        json!(value).to_string().trim_end_matches(".0").parse().unwrap_or(json!(value))
    } else {
        json!(value)
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
