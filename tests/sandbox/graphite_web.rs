//! graphite-web for a [`Carbon`]'s whisper files and cache: it answers Grafana.
//!
//! It is Debian's package, run by the system's python3 with Python's own small web server.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::carbon::Options;
use crate::http::{self, encoded};
use crate::{Carbon, Folder, Process, find_program, free_port, proc};

const PYTHON: &str = "/usr/bin/python3";

/// A graphite-web.
#[derive(Debug)]
pub struct GraphiteWeb {
    /// The server itself.
    pub process: Process,
    /// The port of its API.
    pub port: u16,
}

/// A series in a reply of /render.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// Its name, or its alias if it has one.
    pub name: String,
    /// Timestamp and value, oldest first.
    pub points: Vec<(u64, Option<f64>)>,
}

impl Rendered {
    /// The values that are not empty.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = f64> {
        self.points.iter().filter_map(|(_, value)| *value)
    }
}

impl GraphiteWeb {
    /// Starts a graphite-web without waiting for it.
    pub fn spawn(folder: &Folder, carbon: &Carbon) -> Result<Self> {
        Self::spawn_named(folder, "graphite-web", carbon)
    }

    /// Starts a graphite-web with a name, for a folder with several, without waiting for it.
    pub fn spawn_named(folder: &Folder, name: &str, carbon: &Carbon) -> Result<Self> {
        let port = carbon.graphite_web.map_or_else(free_port, Ok)?;
        let reads = format!(
            "STANDARD_DIRS = ['{}']\nCARBONLINK_HOSTS = ['127.0.0.1:{}:a']\n",
            carbon.whisper().display(),
            carbon.query_port
        );
        Self::reading(folder, name, port, &reads)
    }

    /// Starts a Carbon with these retentions and a graphite-web for it, and waits for both.
    pub fn with_carbon(folder: &Folder, retentions: &str) -> Result<(Carbon, Self)> {
        let mut carbon = Carbon::spawn(folder, "carbon", &Options::keeping(retentions))?;
        let mut web = Self::spawn(folder, &carbon)?;
        carbon.process.wait_ready()?;
        web.process.wait_ready()?;
        Ok((carbon, web))
    }

    /// Starts one that has no files and asks others (CLUSTER_SERVERS).
    pub fn over(folder: &Folder, name: &str, others: &[&Self]) -> Result<Self> {
        let others: Vec<String> =
            others.iter().map(|other| format!("'127.0.0.1:{}'", other.port)).collect();
        let reads = format!(
            "STANDARD_DIRS = []\nCARBONLINK_HOSTS = []\nCLUSTER_SERVERS = [{}]\n",
            others.join(", ")
        );
        Self::reading(folder, name, free_port()?, &reads)
    }

    fn reading(folder: &Folder, name: &str, port: u16, reads: &str) -> Result<Self> {
        find_program("graphite-manage")?;
        let home = folder.path().join(name);
        folder.write(&format!("{name}/sandbox_settings.py"), &settings(&home, reads))?;
        let script =
            folder.write(&format!("{name}/graphite_web.py"), include_str!("graphite_web.py"))?;
        let mut process = Process::new(folder, name, PathBuf::from(PYTHON))
            .args([script, port.to_string()])
            .env("DJANGO_SETTINGS_MODULE", "graphite.settings")
            .env("GRAPHITE_SETTINGS_MODULE", "sandbox_settings")
            .env("PYTHONPATH", &home)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .ready(move || proc::listening(port));
        process.spawn()?;
        Ok(Self { process, port })
    }

    /// The content of any answer.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        http::ask(self.port, method, path, body)
    }

    /// The names that match a pattern, as a query variable of Grafana gets them.
    pub fn find(&self, query: &str) -> Result<Vec<String>> {
        find(self.port, query)
    }

    /// The series with tags that this expression selects, such as `name=~slurm_`.
    pub fn find_by_tags(&self, expression: &str) -> Result<Vec<String>> {
        let query = format!("/tags/findSeries?limit=100000&expr={}", encoded(expression));
        Ok(serde_json::from_value(http::json(self.port, "GET", &query, "")?)?)
    }

    /// The series of a target, requested as Grafana does: `from` is in graphite-web's format for
    /// times.
    pub fn render(&self, target: &str, from: &str) -> Result<Vec<Rendered>> {
        render(self.port, target, &format!("from={}&until=now&maxDataPoints=1000", encoded(from)))
    }

    /// The series of a target between two moments, Unix seconds, with at most this many points for
    /// each series, as for a panel of so many pixels.
    pub fn render_between(
        &self,
        target: &str,
        (from, until): (u64, u64),
        points: u64,
    ) -> Result<Vec<Rendered>> {
        render(self.port, target, &format!("from={from}&until={until}&maxDataPoints={points}"))
    }
}

/// The series of a target from any server with Graphite's /render on this port; `more` is the rest
/// of the query.
pub fn render(port: u16, target: &str, more: &str) -> Result<Vec<Rendered>> {
    let body = format!("target={}&format=json&{more}", encoded(target));
    let found = http::json(port, "POST", "/render", &body)?;
    let series = |series: &Value| {
        let points = series.get("datapoints")?.as_array()?.iter();
        let points = points.map(|point| Some((point.get(1)?.as_u64()?, point.get(0)?.as_f64())));
        Some(Rendered {
            name: series.get("target")?.as_str()?.to_owned(),
            points: points.collect::<Option<_>>()?,
        })
    };
    let found = found.as_array().context("no list")?.iter();
    found.map(|one| series(one).with_context(|| format!("not a series: {one}"))).collect()
}

/// The names that match a pattern, from any server with Graphite's /metrics/find on this port.
pub fn find(port: u16, query: &str) -> Result<Vec<String>> {
    let found = http::json(port, "GET", &format!("/metrics/find?query={}", encoded(query)), "")?;
    let found = found.as_array().context("no list")?.iter();
    found
        .map(|node| Ok(node.get("text").and_then(Value::as_str).context("no text")?.to_owned()))
        .collect()
}

/// Without events, which nobody sends here and which would only cost time.
fn settings(home: &Path, reads: &str) -> String {
    let home = home.display();
    format!(
        "\
SECRET_KEY = 'sandbox'
TIME_ZONE = 'UTC'
ALLOWED_HOSTS = ['*']
LOG_DIR = '{home}'
STORAGE_DIR = '{home}'
{reads}\
DATABASES = {{'default': {{'ENGINE': 'django.db.backends.sqlite3', 'NAME': '{home}/graphite.db'}}}}
DEFAULT_CACHE_DURATION = 0
FIND_CACHE_DURATION = 0
TAGDB_CACHE_DURATION = 0
"
    )
}
