//! One dashboard as a page: pictures of its curves from graphite-web, and the numbers of its other panels.

use std::path::Path;

use anyhow::{Context, Result};
use sandbox::grafana::{Variables, replaced};
use sandbox::{Dashboard, GraphiteWeb, Panel};
use serde_json::{Value, json};

/// Pixels of a column and of a line in Grafana's grid.
const CELL: (u64, u64) = (46, 28);

/// The minimum distance between two points of a curve in pixels: about five seconds, which are averaged.
const STEP: u64 = 9;

/// How many of the last points are averaged for a bar: with one tick a second a single interval has too little in it.
const LAST: usize = 30;

const COLOURS: [(&str, &str); 19] = [
    ("blue", "5794F2"),
    ("light-blue", "8AB8FF"),
    ("super-light-blue", "C0D8FF"),
    ("green", "73BF69"),
    ("light-green", "96D98D"),
    ("super-light-green", "C8F2C2"),
    ("orange", "FF9830"),
    ("light-orange", "FFB357"),
    ("semi-dark-orange", "FF780A"),
    ("purple", "B877D9"),
    ("light-purple", "CA95E5"),
    ("red", "F2495C"),
    ("semi-dark-red", "E02F44"),
    ("dark-red", "C4162A"),
    ("text", "CCCCDC"),
    ("yellow", "FADE2A"),
    ("light-yellow", "FFEE52"),
    ("grey", "9AA0A6"),
    ("panel", "181B1F"),
];

/// Grafana's classic palette.
const PALETTE: &str = "7EB26D,EAB839,6ED0E0,EF843C,E24D42,1F78C1,BA43A9,705DA0,508642,CCA300";

/// The input of compose.py.
pub(crate) struct Page {
    title: String,
    parts: Vec<Value>,
}

impl Page {
    /// Requests everything above the row `end`.
    pub(crate) fn draw(
        dashboard: Dashboard,
        web: &GraphiteWeb,
        end: &str,
        seconds: u32,
        folder: &Path,
    ) -> Result<Self> {
        let dashboard = opened(dashboard)?;
        let given = Variables::from([("prefix".to_owned(), "cluster".to_owned())]);
        let variables = dashboard.variables(&given, |query| web.find(query))?;
        let title = dashboard.json.get("title").and_then(Value::as_str).context("no title")?.to_owned();
        let mut page = Self { title, parts: Vec::new() };
        let panels = dashboard.json.get("panels").and_then(Value::as_array).context("no panels")?;
        let is_row = |panel: &&Value| panel.get("type").and_then(Value::as_str) == Some("row");
        let titled = |row: &&Value| row.get("title").and_then(Value::as_str) == Some(end);
        let last = panels.iter().filter(is_row).find(titled).and_then(|row| place(row, "y"));
        let is_drawn = |panel: &Value| last.is_none_or(|last| place(panel, "y").is_some_and(|y| y < last));
        for row in panels.iter().filter(is_row).filter(|row| is_drawn(row)) {
            page.part(row, json!({ "kind": "row" }))?;
        }
        for panel in dashboard.panels().iter().filter(|panel| is_drawn(&panel.json)) {
            // In a small picture there is room for more bars than curves.
            let mut variables = variables.clone();
            variables.insert("most".to_owned(), if panel.kind == "bargauge" { "10" } else { "5" }.to_owned());
            let targets: Result<Vec<String>> =
                panel.targets.iter().map(|target| replaced(target, &variables)).collect();
            let targets = targets?;
            let part = match panel.kind.as_str() {
                "timeseries" => curves(panel, &targets, web, seconds, folder)?,
                "table" => table(panel, &targets, web, seconds)?,
                "alertlist" => json!({ "kind": "words", "words": "Grafana lists the alerts that fire here" }),
                _ => numbers(panel, &targets, web, seconds)?,
            };
            page.part(&panel.json, part)?;
        }
        Ok(page)
    }

    /// The input of compose.py as JSON.
    pub(crate) fn json(&self) -> Value {
        let colours: Vec<&str> =
            COLOURS.iter().map(|(_, colour)| *colour).chain(PALETTE.split(',')).collect();
        json!({ "title": self.title, "parts": self.parts, "cell": [CELL.0, CELL.1], "colours": colours })
    }

    fn part(&mut self, panel: &Value, mut part: Value) -> Result<()> {
        let map = part.as_object_mut().context("no part")?;
        map.insert("title".to_owned(), panel.get("title").context("no title")?.clone());
        map.insert("place".to_owned(), panel.get("gridPos").context("no place")?.clone());
        self.parts.push(part);
        Ok(())
    }
}

fn place(panel: &Value, key: &str) -> Option<u64> {
    panel.pointer(&format!("/gridPos/{key}"))?.as_u64()
}

/// The dashboard with those collapsed rows opened whose collectors are on, and without the other collapsed rows and
/// text panels.
fn opened(mut dashboard: Dashboard) -> Result<Dashboard> {
    let panels = dashboard.json.get_mut("panels").and_then(Value::as_array_mut).context("no panels")?;
    let (mut open, mut more, mut less) = (Vec::new(), 0, 0);
    for mut panel in std::mem::take(panels) {
        let is_closed = panel.get("collapsed") == Some(&Value::Bool(true));
        let text = |key: &str| panel.get(key).and_then(Value::as_str).unwrap_or_default();
        // The pictures are made without slurmdbd.
        let needs_slurmdbd = ["finished", "slurmdbd"].iter().any(|name| text("title").contains(name));
        let is_on = text("title").contains("(collectors.") && !needs_slurmdbd;
        if text("type") == "text" || (is_closed && !is_on) {
            less += place(&panel, "h").context("h")?;
            continue;
        }
        let inner = match panel.get_mut("panels").map(Value::take) {
            Some(Value::Array(inner)) if is_closed => inner,
            _ => Vec::new(),
        };
        let bottom = |panel: &Value| Some(place(panel, "y")? + place(panel, "h")?);
        let (end, own) = (inner.iter().filter_map(bottom).max(), bottom(&panel).context("y")?);
        for mut panel in std::iter::once(panel).chain(inner) {
            let y = place(&panel, "y").context("y")? + more - less;
            *panel.pointer_mut("/gridPos/y").context("y")? = json!(y);
            open.push(panel);
        }
        more += end.map_or(0, |end| end - own);
    }
    *panels = open;
    Ok(dashboard)
}

/// How a unit of Grafana's is shown on an axis that cannot write "1.5 ms": a factor and a word.
fn axis(unit: &str) -> (f64, &str) {
    match unit {
        "µs" => (0.001, "ms"),
        "percentunit" => (100.0, "%"),
        "percent" => (1.0, "%"),
        "s" => (1.0, "s"),
        "bytes" => (1.0, "bytes"),
        "reqpm" => (1.0, "per minute"),
        "suffix: /s" => (1.0, "per second"),
        _ => (1.0, ""),
    }
}

fn curves(
    panel: &Panel,
    targets: &[String],
    web: &GraphiteWeb,
    seconds: u32,
    folder: &Path,
) -> Result<Value> {
    let at = |pointer: &str| panel.json.pointer(pointer);
    let custom = |key: &str| at(&format!("/fieldConfig/defaults/custom/{key}")).and_then(Value::as_str);
    let stacked = custom("stacking/mode") == Some("normal");
    let (factor, word) = axis(at("/fieldConfig/defaults/unit").and_then(Value::as_str).unwrap_or_default());
    let (width, height) = (place(&panel.json, "w").context("w")?, place(&panel.json, "h").context("h")?);
    // 8 pixels to the neighbouring panels, and a line and a half for the title.
    let (width, height) = (width * CELL.0 - 24, height * CELL.1 - 46);
    let colour = |name: &str| {
        COLOURS.iter().find(|(known, _)| *known == name).map_or("", |(_, colour)| colour).to_owned()
    };
    let mut parameters = vec![
        ("width", width.to_string()),
        ("height", height.to_string()),
        ("from", format!("-{seconds}s")),
        ("until", "now".to_owned()),
        ("bgcolor", colour("panel")),
        ("fgcolor", colour("grey")),
        ("majorGridLineColor", "33363B".to_owned()),
        ("minorGridLineColor", "24272C".to_owned()),
        ("colorList", PALETTE.to_owned()),
        ("fontName", "DejaVu Sans".to_owned()),
        ("fontSize", "9".to_owned()),
        ("lineWidth", "1.3".to_owned()),
        ("lineMode", "connected".to_owned()),
        ("minorY", "0".to_owned()),
        ("margin", "9".to_owned()),
        ("hideLegend", "false".to_owned()),
        ("minXStep", STEP.to_string()),
        ("xFormat", "%H:%M".to_owned()),
        ("yUnitSystem", if word == "bytes" { "binary" } else { "si" }.to_owned()),
    ];
    let overridden = |name: &str, id: &str| {
        let all = at("/fieldConfig/overrides").and_then(Value::as_array).into_iter().flatten();
        all.filter(|one| one.pointer("/matcher/options").and_then(Value::as_str) == Some(name))
            .filter_map(|one| one.get("properties")?.as_array())
            .flatten()
            .find(|property| property.get("id").and_then(Value::as_str) == Some(id))
            .and_then(|property| property.get("value").cloned())
    };
    let is_log = custom("scaleDistribution/type") == Some("log");
    let (mut right, mut words) =
        (false, Vec::from_iter((!panel.title.contains(word)).then(|| word.to_owned())));
    let named: Result<Vec<Vec<String>>> = targets.iter().map(|target| apart(target, web, seconds)).collect();
    for target in &named?.concat() {
        let name =
            target.rsplit_once(", '").and_then(|(_, name)| name.strip_suffix("')")).unwrap_or_default();
        let mut drawn = target.clone();
        let unit = overridden(name, "unit");
        let own = unit.as_ref().and_then(Value::as_str).map(axis);
        if let Some(factor) =
            [own.map_or(factor, |(factor, _)| factor)].into_iter().find(|factor| *factor != 1.0)
        {
            drawn = format!("aliasSub(scale({drawn}, {factor}), '^scale.(.*),.*$', '\\1')");
        }
        if is_log {
            // graphite-web fails at a logarithm of 0; Grafana leaves it out.
            drawn =
                format!("aliasSub(removeBelowValue({drawn}, 0.001), '^removeBelowValue.(.*),.*$', '\\1')");
        }
        let shade =
            overridden(name, "color").and_then(|value| Some(value.get("fixedColor")?.as_str()?.to_owned()));
        if let Some(shade) = shade {
            drawn = format!("color({drawn}, '{}')", colour(&shade));
        }
        if overridden(name, "custom.lineStyle").is_some() {
            drawn = format!("alias(dashed({drawn}, {}), '{name}')", 4);
        }
        if let Some((_, word)) = own {
            right = true;
            words.push(format!("right: {word}"));
            drawn = format!("secondYAxis({drawn})");
            drawn = format!("alias({drawn}, '{name}')");
        }
        parameters.push(("target", drawn));
    }
    if stacked {
        parameters.push(("areaMode", "stacked".to_owned()));
        parameters.push(("areaAlpha", "0.55".to_owned()));
    }
    if is_log {
        parameters.push(("logBase", "10".to_owned()));
    } else if right {
        parameters.extend([("yMinLeft", "0".to_owned()), ("yMinRight", "0".to_owned())]);
    } else {
        parameters.push(("yMin", "0".to_owned()));
    }
    let file = format!("{}.png", panel.json.get("id").context("no id")?);
    std::fs::write(folder.join(&file), web.picture(&parameters)?)?;
    Ok(json!({ "kind": "curves", "file": file, "unit": words.join(", ") }))
}

/// Splits a target with several series into one for each, so that each can have its colour.
fn apart(target: &str, web: &GraphiteWeb, seconds: u32) -> Result<Vec<String>> {
    if !target.starts_with("aliasByNode(") {
        return Ok(vec![target.to_owned()]);
    }
    let series = web.render(target, &format!("-{seconds}s"))?;
    Ok(series.iter().map(|one| format!("alias(grep({target}, '^{0}$'), '{0}')", one.name)).collect())
}

/// The lines of a table: the newest value, the mean and the curve of each series.
fn table(panel: &Panel, targets: &[String], web: &GraphiteWeb, seconds: u32) -> Result<Value> {
    let unit = panel.json.pointer("/fieldConfig/defaults/unit").and_then(Value::as_str).unwrap_or_default();
    let (mut values, mut lines) = (Vec::new(), Vec::new());
    for target in targets {
        for series in web.render(target, &format!("-{seconds}s"))? {
            let all: Vec<f64> = series.values().collect();
            let newest: Vec<f64> = all.iter().rev().take(LAST).copied().collect();
            if !newest.is_empty() {
                let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
                values.push((series.name, mean(&newest), mean(&all), all));
            }
        }
    }
    values.sort_by(|one, other| other.1.total_cmp(&one.1));
    for (name, now, mean, all) in values {
        lines.push(json!([name, written(now, unit), written(mean, unit), all]));
    }
    let heading = panel.json.pointer("/transformations/1/options/renameByName/Field").and_then(Value::as_str);
    Ok(json!({ "kind": "table", "heading": heading.unwrap_or_default(), "lines": lines }))
}

fn numbers(panel: &Panel, targets: &[String], web: &GraphiteWeb, seconds: u32) -> Result<Value> {
    let at = |pointer: &str| panel.json.pointer(pointer);
    let defaults = |key: &str| at(&format!("/fieldConfig/defaults/{key}"));
    let unit = defaults("unit").and_then(Value::as_str).unwrap_or_default();
    let total = at("/options/reduceOptions/calcs/0").and_then(Value::as_str) == Some("sum");
    let bars = panel.kind == "bargauge";
    let mut values = Vec::new();
    for target in targets {
        for series in web.render(target, &format!("-{seconds}s"))? {
            let newest: Vec<f64> = series.values().rev().take(if bars { LAST } else { 1 }).collect();
            if newest.is_empty() {
                continue;
            }
            let value =
                if total { series.values().sum() } else { newest.iter().sum::<f64>() / newest.len() as f64 };
            let mut steps = defaults("thresholds")
                .and_then(|thresholds| thresholds.get("steps")?.as_array())
                .into_iter()
                .flatten();
            let step = steps
                .rfind(|step| step.get("value").and_then(Value::as_f64).is_none_or(|from| value >= from));
            let name = step.and_then(|step| step.get("color")?.as_str()).unwrap_or("text");
            let colour =
                COLOURS.iter().find(|(known, _)| *known == name).map_or("CCCCDC", |(_, colour)| colour);
            let fixed = |all: Option<&Value>| {
                let of_series = all?.as_array()?.iter().find(|one| {
                    one.pointer("/matcher/options").and_then(Value::as_str) == Some(&series.name)
                });
                let own = of_series.and_then(|one| one.pointer("/properties/0/value/fixedColor"));
                own.or_else(|| defaults("color")?.get("fixedColor"))?.as_str().map(str::to_owned)
            };
            let fixed = fixed(at("/fieldConfig/overrides"));
            let colour = COLOURS
                .iter()
                .find(|(known, _)| fixed.as_deref() == Some(*known))
                .map_or(colour, |(_, hex)| *hex);
            let mapped =
                at(&format!("/fieldConfig/defaults/mappings/0/options/{value}/text")).and_then(Value::as_str);
            let text = mapped.map_or_else(|| written(value, unit), str::to_owned);
            values.push(json!({ "name": series.name, "value": value, "text": text, "colour": colour }));
        }
    }
    if values.is_empty() {
        values.push(json!({ "name": "", "value": 0.0, "text": "no data", "colour": "B877D9" }));
    }
    let max = defaults("max").and_then(Value::as_f64);
    Ok(json!({ "kind": if bars { "bars" } else { "numbers" }, "values": values, "max": max }))
}

/// A value with its unit, as Grafana writes it.
fn written(value: f64, unit: &str) -> String {
    let digits = |value: f64| {
        if value.abs() >= 10.0 || value.fract() == 0.0 {
            format!("{value:.0}")
        } else {
            format!("{value:.2}")
        }
    };
    match unit {
        "µs" if value >= 1e6 => format!("{} s", digits(value / 1e6)),
        "µs" if value >= 1e3 => format!("{} ms", digits(value / 1e3)),
        "µs" => format!("{} µs", digits(value)),
        "percentunit" => format!("{} %", digits(value * 100.0)),
        "percent" => format!("{value:.0} %"),
        "s" => format!("{} s", digits(value)),
        "reqpm" => format!("{} rpm", digits(value)),
        _ => digits(value),
    }
}
