//! The kinds of panels with their defaults.

use serde_json::{Value, json};

use super::{NO_COLOUR, Panel, object};

/// A curve is drawn through this many milliseconds without a point: three ticks of 30 s. A longer
/// outage is a gap.
const TICKS_MS: u32 = 90_000;

/// The colour of unknown values, which nothing else has.
const UNKNOWN: &str = "purple";

/// Curves over time, from 0 on unless the axis is logarithmic.
pub(crate) fn series(title: &str, description: &str) -> Panel {
    let mut panel = Panel::new("timeseries", title, description, (12, 8));
    panel.custom = object(json!({
        "drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1, "fillOpacity": 8,
            "gradientMode": "none",
        "showPoints": "auto", "pointSize": 5, "spanNulls": TICKS_MS, "axisPlacement": "auto",
            "axisLabel": "",
        "scaleDistribution": { "type": "linear" }, "stacking": { "mode": "none", "group": "A" },
        "thresholdsStyle": { "mode": "off" },
    }));
    panel.options = object(json!({
        "legend": { "showLegend": true, "displayMode": "table", "placement": "bottom",
            "calcs": ["lastNotNull", "mean", "max"] },
        "tooltip": { "mode": "multi", "sort": "desc" },
    }));
    panel.default("color", json!({ "mode": "palette-classic" })).min(0.0)
}

/// The newest value of each series. If there is none, the panel shows words instead of the last
/// known value.
fn newest(kind: &'static str, title: &str, description: &str, size: (u32, u32)) -> Panel {
    let mut panel = Panel::new(kind, title, description, size);
    panel.is_now = true;
    panel.default("noValue", json!("no data")).default("mappings", json!([no_data(0, UNKNOWN)]))
}

/// The newest value, large, with the curve of the last hour below it.
pub(crate) fn stat(title: &str, description: &str) -> Panel {
    let mut panel = newest("stat", title, description, (4, 4));
    panel.options = object(json!({
        "colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto",
            "textMode": "auto",
        "reduceOptions": { "calcs": ["last"], "fields": "", "values": false },
    }));
    panel.default("color", json!({ "mode": "thresholds" }))
}

/// The newest value of each series as a bar.
pub(crate) fn bars(title: &str, description: &str) -> Panel {
    let mut panel = newest("bargauge", title, description, (12, 9));
    panel.options = object(json!({
        "displayMode": "gradient", "orientation": "horizontal", "showUnfilled": true,
            "valueMode": "color",
        "reduceOptions": { "calcs": ["last"], "fields": "", "values": false },
    }));
    panel.colour_of_others("blue").min(0.0)
}

/// A line for each series: the newest value, the largest in the shown time, and a sparkline. `what`
/// is the heading of the column of names.
pub(crate) fn table(title: &str, description: &str, what: &str) -> Panel {
    let mut panel = newest("table", title, description, (8, 9)).colour_of_others("blue").min(0.0);
    panel.custom =
        object(json!({ "align": "auto", "cellOptions": { "type": "auto" }, "inspect": false }));
    panel.options = object(json!({
        "showHeader": true, "cellHeight": "sm", "sortBy": [{ "displayName": "Largest", "desc": true }],
    }));
    panel.transformations = vec![
        json!({ "id": "reduce", "options": { "mode": "seriesToRows", "reducers": ["last", "max",
            "allValues"] } }),
        json!({ "id": "organize", "options": {
            "renameByName": { "Field": what, "Last": "Now", "Max": "Largest",
                "All values": "Trend" },
            "indexByName": {}, "excludeByName": {},
        } }),
    ];
    // A third of the page has no room for Grafana's widths.
    panel
        .property("Now", "custom.width", &json!(80))
        .property("Largest", "custom.cellOptions", &json!({ "type": "gauge", "mode": "basic" }))
        .property("Largest", "custom.width", &json!(120))
        .property("Trend", "custom.cellOptions", &json!({ "type": "sparkline", "hideValue": true }))
        .property("Trend", "custom.width", &json!(80))
}

/// A bar for each series, in the colours of its states: value, word and colour; 0 is not drawn.
/// `nothing` is what it says without a series.
pub(crate) fn timeline(
    title: &str,
    description: &str,
    nothing: &str,
    states: &[(u8, &str, &str)],
) -> Panel {
    let mut panel = Panel::new("state-timeline", title, description, (24, 5));
    panel.custom = object(json!({ "lineWidth": 0, "fillOpacity": 80 }));
    panel.options = object(json!({
        "mergeValues": true, "showValue": "auto", "alignValue": "left", "rowHeight": 0.9,
        "legend": { "showLegend": false, "displayMode": "list", "placement": "bottom",
            "calcs": [] },
        "tooltip": { "mode": "single", "sort": "none" },
    }));
    panel.merged = Some("max");
    let mut words = serde_json::Map::new();
    for (index, (value, word, colour)) in states.iter().enumerate() {
        let word = json!({ "text": word, "color": colour, "index": index });
        words.insert(value.to_string(), word);
    }
    words.insert("0".to_owned(), json!({ "text": "", "color": NO_COLOUR, "index": states.len() }));
    panel
        .default("color", json!({ "mode": "thresholds" }))
        .default("noValue", json!(nothing))
        .default("mappings", json!([{ "type": "value", "options": words }]))
}

/// The alerts that fire now, or soon will, for the selected cluster.
pub(crate) fn alerts(title: &str, description: &str) -> Panel {
    let mut panel = Panel::new("alertlist", title, description, (8, 8));
    panel.options = object(json!({
        "viewMode": "list", "groupMode": "default", "groupBy": [], "maxItems": 20, "sortOrder": 1,
            "dashboardAlerts": false,
        "alertName": "", "alertInstanceLabelFilter": "{prefix=\"$prefix\"}",
        "stateFilter": { "firing": true, "pending": true, "noData": true, "error": true,
            "normal": false },
    }));
    panel
}

/// The colour is that of the words "no data", or of the panel behind them.
pub(super) fn no_data(index: u32, colour: &str) -> Value {
    json!({ "type": "special", "options": {
        "match": "null+nan", "result": { "text": "no data", "color": colour, "index": index },
    } })
}

/// A panel with text.
pub(crate) fn text(title: &str, content: &str) -> Panel {
    let mut panel = Panel::new("text", title, "", (24, 3));
    panel.options = object(json!({ "mode": "markdown", "content": content }));
    panel
}
