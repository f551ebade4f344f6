//! graphite-web over a [`Carbon`]'s whisper files and cache: what Grafana asks, and what draws pictures.
//!
//! Debian's package, run by the system's python3 under Python's own small web server.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{Carbon, Folder, Process, find_program, free_port, proc};

const PYTHON: &str = "/usr/bin/python3";

/// An answer may be a picture of many series on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A graphite-web.
#[derive(Debug)]
pub struct GraphiteWeb {
    /// The server itself.
    pub process: Process,
    port: u16,
}

/// A series as /render gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// Its name, the alias if it has one.
    pub name: String,
    /// Timestamp and value, oldest first.
    pub points: Vec<(u64, Option<f64>)>,
}

impl Rendered {
    /// The values that are there.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = f64> {
        self.points.iter().filter_map(|(_, value)| *value)
    }
}

impl GraphiteWeb {
    /// Starts a graphite-web without waiting for it.
    ///
    /// # Errors
    /// It is not installed.
    pub fn spawn(folder: &Folder, carbon: &Carbon) -> Result<Self> {
        find_program("graphite-manage")?;
        let port = free_port()?;
        let home = folder.path().join("graphite-web");
        fs::create_dir_all(&home).with_context(|| home.display().to_string())?;
        fs::write(home.join("sandbox_settings.py"), settings(&home, carbon))?;
        let script = home.join("graphite_web.py");
        fs::write(&script, include_str!("graphite_web.py"))?;
        let mut process = Process::new(folder, "graphite-web", PathBuf::from(PYTHON))
            .args([script.into_os_string(), port.to_string().into()])
            .env("DJANGO_SETTINGS_MODULE", "graphite.settings")
            .env("GRAPHITE_SETTINGS_MODULE", "sandbox_settings")
            .env("PYTHONPATH", &home)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .ready(move || proc::listening(port));
        process.spawn()?;
        Ok(Self { process, port })
    }

    /// The names below a pattern, as a query variable of Grafana gets them.
    ///
    /// # Errors
    /// It does not answer, or not with 200.
    pub fn find(&self, query: &str) -> Result<Vec<String>> {
        let found = self.json("GET", &format!("/metrics/find?query={}", encoded(query)), "")?;
        let found = found.as_array().context("no list")?.iter();
        found
            .map(|node| Ok(node.get("text").and_then(Value::as_str).context("no text")?.to_owned()))
            .collect()
    }

    /// The series of a target, asked for as Grafana does: from `seconds` ago until now, or with graphite-web's own words for times.
    ///
    /// # Errors
    /// It does not answer, or not with 200: the message has its words.
    pub fn render(&self, target: &str, from: &str) -> Result<Vec<Rendered>> {
        let body = format!(
            "target={}&from={}&until=now&format=json&maxDataPoints=1000",
            encoded(target),
            encoded(from)
        );
        let found = self.json("POST", "/render", &body)?;
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

    /// A picture, as PNG: `parameters` are those of /render.
    ///
    /// # Errors
    /// It does not answer, or not with a picture.
    pub fn picture(&self, parameters: &[(&str, String)]) -> Result<Vec<u8>> {
        let pairs = parameters.iter().map(|(key, value)| format!("{key}={}", encoded(value)));
        let body = format!("{}&format=png", pairs.collect::<Vec<_>>().join("&"));
        let picture = self.ask("POST", "/render", &body)?;
        ensure!(picture.starts_with(b"\x89PNG"), "no picture but {:?}", String::from_utf8_lossy(&picture));
        Ok(picture)
    }

    fn json(&self, method: &str, path: &str, body: &str) -> Result<Value> {
        let answer = self.ask(method, path, body)?;
        serde_json::from_slice(&answer).with_context(|| String::from_utf8_lossy(&answer).into_owned())
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no answer")?;
        let (head, content) = answer.split_at(end + 4);
        let head = String::from_utf8_lossy(head);
        let status = head.split_whitespace().nth(1).unwrap_or_default();
        ensure!(status == "200", "{status}: {}", String::from_utf8_lossy(content));
        Ok(content.to_vec())
    }
}

/// Tags and events, which nobody sends here, would only cost time.
fn settings(home: &Path, carbon: &Carbon) -> String {
    let (home, whisper) = (home.display(), carbon.whisper().display());
    format!(
        "\
SECRET_KEY = 'sandbox'
TIME_ZONE = 'UTC'
ALLOWED_HOSTS = ['*']
LOG_DIR = '{home}'
STORAGE_DIR = '{home}'
STANDARD_DIRS = ['{whisper}']
CARBONLINK_HOSTS = ['127.0.0.1:{}:a']
DATABASES = {{'default': {{'ENGINE': 'django.db.backends.sqlite3', 'NAME': '{home}/graphite.db'}}}}
DEFAULT_CACHE_DURATION = 0
FIND_CACHE_DURATION = 0
",
        carbon.query_port
    )
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
