//! Dashboards drawn by Grafana's component library in a headless Chromium (tests/tools/grafana),
//! from graphite-web's series.
//!
//! It is not Grafana: a variable has its first value, a click does nothing, and the list of alerts
//! is empty. tests/tools/grafana/build.sh installs the library and makes page.js.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::grafana::{Panel, Variables, list, replaced};
use crate::{Dashboard, Folder, GraphiteWeb, Rendered, command, find_program};

/// Pixels of the page's width: a screen of 1920 without Grafana's menu.
const WIDTH: u64 = 1600;

/// Pixels of a line of Grafana's grid, with the space below it, and of the page's heading.
const LINE: u64 = 38;
const HEADING: u64 = 48;

/// The library and Chromium.
#[derive(Debug)]
pub struct Panels {
    library: PathBuf,
    chromium: PathBuf,
}

/// A panel as it was drawn.
#[derive(Debug, Clone, Deserialize)]
pub struct Drawn {
    /// Its title.
    pub title: String,
    /// `timeseries`, `stat` …
    pub kind: String,
    /// The function that makes a single figure of a series, such as `last` or `sum`; empty for
    /// curves and tables.
    pub calc: String,
    /// All its text, except that on canvases.
    pub text: String,
    /// The texts of a table's cells, line by line.
    pub cells: Vec<Vec<String>>,
    /// Whether something in it is wider than the panel.
    pub is_cut: bool,
    /// Its canvases.
    pub canvases: Vec<Canvas>,
    /// The texts that its units write before and after a number.
    pub suffixes: Vec<String>,
    /// The series that it got.
    pub series: Vec<Given>,
}

/// The drawing on a canvas.
#[derive(Debug, Clone, Deserialize)]
pub struct Canvas {
    /// Texts: those of the axes.
    pub texts: Vec<String>,
    /// The colours of lines, each with whether the line was visible.
    pub strokes: Vec<String>,
}

/// A series that a panel got.
#[derive(Debug, Clone, Deserialize)]
pub struct Given {
    /// Its name.
    pub name: String,
    /// Number of its points that have a value.
    pub points: usize,
    /// The last one's value.
    pub last: Option<f64>,
}

/// One panel or heading of a page.
#[derive(Debug, Clone)]
pub struct Part {
    /// As in the dashboard.
    pub panel: Panel,
    /// Its series, by target.
    pub series: Vec<Vec<Rendered>>,
    /// Its line on the page.
    y: u64,
    /// Its fieldConfig as in the dashboard, whose units must be drawn.
    config: Value,
    /// The time that it shows.
    seconds: (u64, u64),
}

/// A dashboard with the series of its panels.
#[derive(Debug, Clone)]
pub struct Page {
    title: Value,
    /// The panels and the headings, from top to bottom.
    pub parts: Vec<Part>,
    seconds: (u64, u64),
}

impl Page {
    /// Requests the series of the panels between two moments: of all that are in open rows, and of
    /// the collapsed rows whose titles `is_opened` chooses.
    pub fn request(
        dashboard: &Dashboard,
        web: &GraphiteWeb,
        variables: &Variables,
        seconds: (u64, u64),
        is_opened: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let (mut parts, mut lower) = (Vec::new(), 0);
        for json in list(&dashboard.json, "panels") {
            let mut outer = Panel::new(json);
            let y = number(json, "y") + lower;
            let inside = list(json, "panels").filter(|_| is_opened(&outer.title));
            let inside: Vec<Panel> = inside.map(Panel::new).collect();
            if let (Some(collapsed), false) = (outer.json.get_mut("collapsed"), inside.is_empty()) {
                *collapsed = json!(false);
            }
            let bottom = |panel: &Panel| number(&panel.json, "y") + number(&panel.json, "h");
            let inner = inside.iter().map(bottom).max().map_or(0, |end| end - bottom(&outer));
            let inside = inside.into_iter().map(|panel| (number(&panel.json, "y") + lower, panel));
            for (y, panel) in std::iter::once((y, outer)).chain(inside.collect::<Vec<_>>()) {
                parts.push(Part::new(panel, y, seconds, web, variables)?);
            }
            lower += inner;
        }
        let title = dashboard.json.get("title").cloned().unwrap_or_default();
        Ok(Self { title, parts, seconds })
    }

    /// Changes the series that the panels get.
    #[must_use]
    pub fn with_series(mut self, change: impl Fn(&mut Rendered)) -> Self {
        self.parts.iter_mut().flat_map(|part| &mut part.series).flatten().for_each(change);
        self
    }

    /// Only the parts above this heading.
    #[must_use]
    pub fn above(mut self, heading: &str) -> Self {
        let end = self
            .parts
            .iter()
            .position(|part| part.panel.kind == "row" && part.panel.title == heading);
        self.parts.truncate(end.unwrap_or(self.parts.len()));
        self
    }

    /// The input of page.jsx, and the height in pixels.
    fn json(&self) -> (Value, u64) {
        let bottom = self.parts.iter().map(|part| part.y + number(&part.panel.json, "h")).max();
        let page = json!({
            "title": self.title, "from": self.seconds.0 * 1000, "to": self.seconds.1 * 1000,
                "width": WIDTH,
            "panels": self.parts.iter().map(Part::json).collect::<Vec<_>>(),
        });
        (page, HEADING + bottom.unwrap_or(0) * LINE)
    }
}

impl Part {
    fn new(
        panel: Panel,
        y: u64,
        (from, until): (u64, u64),
        web: &GraphiteWeb,
        variables: &Variables,
    ) -> Result<Self> {
        // The only time range of its own that a panel here has.
        let own = panel.json.get("timeFrom").is_some();
        let seconds = if own { (until - 3600, until) } else { (from, until) };
        let points = number(&panel.json, "w") * WIDTH / 24;
        let series = panel.targets.iter().map(|target| {
            let target = replaced(target, variables)?;
            web.render_between(&target, seconds, points).with_context(|| target.clone())
        });
        let series = series.collect::<Result<_>>()?;
        let config = panel.json.get("fieldConfig").cloned().unwrap_or_default();
        Ok(Self { panel, series, y, config, seconds })
    }

    fn json(&self) -> Value {
        let mut json = self.panel.json.clone();
        if let Some(at) = json.pointer_mut("/gridPos/y") {
            *at = json!(self.y);
        }
        let series: Vec<Value> = self
            .series
            .iter()
            .flatten()
            .map(|one| {
                let points: Vec<Value> =
                    one.points.iter().map(|(at, value)| json!([value, at])).collect();
                json!({ "name": one.name, "points": points })
            })
            .collect();
        json!({ "json": json, "series": series, "config": self.config,
            "from": self.seconds.0 * 1000, "to": self.seconds.1 * 1000 })
    }
}

impl Panels {
    /// The library as build.sh has made it in this folder.
    pub fn find(library: &Path) -> Result<Self> {
        ensure!(
            library.join("page.js").exists(),
            "{} has no page.js: run `make grafana`",
            library.display()
        );
        Ok(Self { library: library.to_owned(), chromium: find_program("chromium")? })
    }

    /// Draws a page, also as a picture if a file is named.
    pub fn draw(&self, folder: &Folder, page: &Page, picture: Option<&Path>) -> Result<Vec<Drawn>> {
        let (json, height) = page.json();
        let library = self.library.display();
        let html = folder.write(
            "page.html",
            &format!(
                "<!doctype html><meta charset=utf-8><link rel=stylesheet \
                 href='file://{library}/page.css'><style>{STYLE}</style><body><div \
                 id=root></div><script>window.PAGE={}</script><script \
                 src='file://{library}/page.js'></script>",
                json.to_string().replace('<', "\\u003c")
            ),
        )?;
        let mut chromium = command(folder.path(), &self.chromium);
        chromium.env("TZ", "UTC").args(FLAGS);
        chromium.arg(format!("--user-data-dir={}", folder.path().join("chromium").display()));
        chromium.arg(format!("--window-size={},{height}", WIDTH + 16));
        if let Some(picture) = picture {
            chromium.arg(format!("--screenshot={}", picture.display()));
        }
        let output = chromium.arg(format!("file://{html}")).output()?;
        let dom = String::from_utf8_lossy(&output.stdout);
        let report =
            dom.split_once("id=\"report\">").and_then(|(_, rest)| rest.split_once("</script>"));
        let (report, _) = report
            .with_context(|| format!("no report: {}", String::from_utf8_lossy(&output.stderr)))?;
        Ok(serde_json::from_str(report)?)
    }
}

const STYLE: &str = "body{margin:0;padding:0 8px;background:#111217;overflow:hidden}\
    h1{margin:0;line-height:40px;font-size:20px}.row{padding:6px 12px;font-size:16px}\
    .no-data{text-align:center;padding-top:2em;opacity:.6}.words{padding:1em;opacity:.6}";

const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-file-access-from-files",
    "--virtual-time-budget=20000",
    "--dump-dom",
];

fn number(panel: &Value, key: &str) -> u64 {
    panel.pointer(&format!("/gridPos/{key}")).and_then(Value::as_u64).unwrap_or_default()
}
