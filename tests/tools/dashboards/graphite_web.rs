//! The open curves of the dashboards for sites without Grafana: graphite-web's own dashboards, and
//! a page of pictures that graphite-web draws.
//!
//! Both need nothing but graphite-web, which has neither variables nor tiles nor tables: each
//! variable has all its values.

use serde_json::{Value, json};

/// The values of the variables in the files.
const VARIABLES: [(&str, &str); 5] =
    [("$prefix", "cluster"), ("$type", "*"), ("$user", "*"), ("$host", "*"), ("$most", "10")];

/// A panel as graphite-web draws it.
struct Graph {
    title: String,
    targets: Vec<String>,
    is_stacked: bool,
    is_logarithmic: bool,
}

/// The curves of a dashboard that are open.
fn graphs(dashboard: &Value) -> Vec<Graph> {
    let panels = dashboard.get("panels").and_then(Value::as_array).into_iter().flatten();
    panels.filter_map(Graph::new).collect()
}

impl Graph {
    fn new(panel: &Value) -> Option<Self> {
        if panel.get("type")? != "timeseries" {
            return None;
        }
        let targets = panel.get("targets")?.as_array()?.iter();
        let targets: Vec<String> = targets
            .filter_map(|target| target.get("target")?.as_str())
            .map(|target| {
                let all = VARIABLES.iter();
                all.fold(target.to_owned(), |text, (name, value)| text.replace(name, value))
            })
            .collect();
        let custom = panel.pointer("/fieldConfig/defaults/custom")?;
        let graph = Self {
            title: panel.get("title")?.as_str()?.to_owned(),
            is_stacked: custom.pointer("/stacking/mode")? == "normal",
            is_logarithmic: custom.pointer("/scaleDistribution/type")? == "log",
            targets,
        };
        graph.targets.iter().all(|target| !target.contains('$')).then_some(graph)
    }

    /// The parameters of /render, except for size and time.
    fn parameters(&self) -> Value {
        let (axis, value) = if self.is_logarithmic { ("logBase", "10") } else { ("yMin", "0") };
        let area = if self.is_stacked { "stacked" } else { "none" };
        json!({ "target": self.targets, "title": self.title, "areaMode": area, axis: value })
    }

    /// The same, in an address.
    fn query(&self) -> String {
        let parameters = self.parameters();
        let pairs = parameters.as_object().into_iter().flatten().flat_map(|(key, value)| {
            let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            values
                .into_iter()
                .map(move |value| format!("{key}={}", escaped(value.as_str().unwrap_or_default())))
        });
        pairs.collect::<Vec<_>>().join("&")
    }
}

fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |escaped, byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'*' => {
            escaped + char::from(byte).encode_utf8(&mut [0; 4])
        }
        _ => format!("{escaped}%{byte:02X}"),
    })
}

/// A dashboard of graphite-web's, in the form that it saves; `None` if nothing of it is open.
pub(crate) fn state(name: &str, dashboard: &Value) -> Option<Value> {
    let graphs: Vec<Value> = graphs(dashboard)
        .iter()
        .map(|graph| {
            let query = graph.query();
            json!([query, graph.parameters(), format!("/render?{query}")])
        })
        .collect();
    (!graphs.is_empty()).then(|| {
        json!({
            "name": format!("slurm-{name}"),
            "graphs": graphs,
            "timeConfig": { "type": "relative", "relativeStartUnits": "hours",
                "relativeStartQuantity": "3", "relativeUntilUnits": "now",
                "relativeUntilQuantity": "", "startDate": "", "startTime": "9:00 AM",
                "endDate": "", "endTime": "5:00 PM" },
            "refreshConfig": { "interval": 60_000, "enabled": true },
            "graphSize": { "width": 700, "height": 300 },
            "defaultGraphParams": { "from": "-3hours", "until": "now", "width": "700",
                "height": "300" },
        })
    })
}

/// The page, with the pictures of these dashboards, each below its title.
pub(crate) fn page<'d>(dashboards: impl IntoIterator<Item = (&'d str, &'d Value)>) -> String {
    let mut all = Vec::new();
    for (title, dashboard) in dashboards {
        let queries: Vec<String> = graphs(dashboard).iter().map(Graph::query).collect();
        if !queries.is_empty() {
            all.push(json!([title, queries]));
        }
    }
    PAGE.replace("DASHBOARDS", &format!("{:#}", Value::Array(all)))
}

const PAGE: &str = r#"<!doctype html>
<!-- Written by `make dashboards`; do not edit here. Pictures that graphite-web draws, again each
     minute. Open it as slurm.html?graphite=http://graphite.example.org&prefix=cluster&from=-3hours -->
<meta charset="utf-8">
<title>Slurm</title>
<style>
  body { background: #eee; color: #222; font-family: sans-serif }
  img { margin: 2px; width: calc(50% - 8px); max-width: 700px }
</style>
<body>
<script>
const dashboards = DASHBOARDS;
const asked = new URLSearchParams(location.search);
const graphite = (asked.get('graphite') ?? '').replace(/\/$/, '');
const prefix = asked.get('prefix') ?? 'cluster';
const from = asked.get('from') ?? '-3hours';
const pictures = [];
for (const [title, queries] of dashboards) {
  const heading = document.createElement('h2');
  heading.textContent = title;
  document.body.append(heading);
  for (const query of queries) {
    const picture = document.createElement('img');
    const own = query.replaceAll('cluster.slurm_', encodeURIComponent(prefix) + '.slurm_');
    pictures.push([picture, `${graphite}/render?width=700&height=300&from=${from}&${own}`]);
    document.body.append(picture);
  }
}
const draw = () =>
  pictures.forEach(([picture, address]) => (picture.src = `${address}&_=${Date.now()}`));
draw();
setInterval(draw, 60_000);
</script>
"#;
