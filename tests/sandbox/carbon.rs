//! carbon-cache with its own whisper tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{Folder, Process, Series, Space, find_program, free_port, proc};

/// How much Carbon does at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limits {
    /// Everything at once: what a test needs.
    Wide,
    /// 50 new series a minute and 500 updates a second, as in Debian's carbon.conf.
    AsShipped,
    /// A cache of 100 points, written at 10 series a second, with flow control.
    Tight,
    /// One series a second: points stay in memory.
    Slow,
    /// A cache of 30,000 points, written at 4 series a second, with flow control: it stops reading before it would have
    /// to discard points.
    Full,
}

/// Options of a Carbon.
#[derive(Debug, Clone)]
pub struct Options {
    /// The text of storage-schemas.conf.
    pub schemas: String,
    /// The text of storage-aggregation.conf.
    pub aggregation: String,
    /// How much it does at a time.
    pub limits: Limits,
    /// The port of the graphite-web to which it announces series with tags.
    pub graphite_web: Option<u16>,
    /// Whether it stores figures about itself, once a second, until its limits are changed.
    pub own_figures: bool,
}

impl Default for Options {
    /// One point a second, kept for an hour.
    fn default() -> Self {
        Self {
            schemas: "[everything]\npattern = .*\nretentions = 1s:1h\n".to_owned(),
            aggregation: String::new(),
            limits: Limits::Wide,
            graphite_web: None,
            own_figures: false,
        }
    }
}

/// A carbon-cache; a folder may have several with different names.
#[derive(Debug)]
pub struct Carbon {
    /// The daemon itself.
    pub process: Process,
    /// The port of the plaintext protocol on 127.0.0.1.
    pub line_port: u16,
    /// The port of the pickle protocol.
    pub pickle_port: u16,
    /// The port for graphite-web's queries.
    pub query_port: u16,
    /// The port of the graphite-web to which it announces series with tags.
    pub(crate) graphite_web: Option<u16>,
    whisper: PathBuf,
}

/// Starts carbon-cache, here or in a namespace.
type Start<'a> = &'a dyn Fn(&Path) -> Result<Process>;

impl Carbon {
    /// Starts a Carbon and waits until it listens.
    pub fn start(folder: &Folder, name: &str, options: &Options) -> Result<Self> {
        let mut carbon = Self::spawn(folder, name, options)?;
        carbon.process.wait_ready()?;
        Ok(carbon)
    }

    /// Starts a Carbon without waiting for it.
    pub fn spawn(folder: &Folder, name: &str, options: &Options) -> Result<Self> {
        let mut carbon = Self::new(folder, name, options)?;
        carbon.process.spawn()?;
        Ok(carbon)
    }

    /// Writes the configuration and chooses the ports, but starts nothing.
    pub fn new(folder: &Folder, name: &str, options: &Options) -> Result<Self> {
        let start = |program: &Path| Ok(Process::new(folder, name, program.to_owned()));
        let ports = [free_port()?, free_port()?, free_port()?];
        Self::from(folder, name, options, &start, ports, proc::listening)
    }

    /// The same in a separate network, on Carbon's usual ports.
    pub fn within(space: &Space, folder: &Folder, name: &str, options: &Options) -> Result<Self> {
        let start = |program: &Path| space.process(folder, name, program, true);
        Self::from(folder, name, options, &start, [2003, 2004, 7002], space.listening())
    }

    fn from(
        folder: &Folder,
        name: &str,
        options: &Options,
        start: Start<'_>,
        [line_port, pickle_port, query_port]: [u16; 3],
        listening: impl Fn(u16) -> bool + Send + Sync + 'static,
    ) -> Result<Self> {
        let home = folder.path().join(name);
        let whisper = home.join("whisper");
        fs::create_dir_all(&whisper).with_context(|| whisper.display().to_string())?;
        fs::write(home.join("storage-schemas.conf"), &options.schemas)?;
        fs::write(home.join("storage-aggregation.conf"), &options.aggregation)?;
        let conf = home.join("carbon.conf");
        let ports = [line_port, pickle_port, query_port];
        let mut text = carbon_conf(&home, ports, options.limits, options.graphite_web);
        if options.own_figures {
            text = text.replace("CARBON_METRIC_INTERVAL = 0", "CARBON_METRIC_INTERVAL = 1");
        }
        fs::write(&conf, text)?;
        let process = start(&find_program("carbon-cache")?)?
            .args([format!("--config={}", conf.display())])
            .args(["--nodaemon", "--logfile=-", "start"])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .ready(move || ports.into_iter().all(&listening));
        let graphite_web = options.graphite_web;
        Ok(Self { process, line_port, pickle_port, query_port, graphite_web, whisper })
    }

    /// Changes the limits, from its next start on.
    pub fn limit(&self, limits: Limits) -> Result<()> {
        let home = self.whisper.parent().context("a whisper tree without a folder")?;
        let ports = [self.line_port, self.pickle_port, self.query_port];
        Ok(fs::write(home.join("carbon.conf"), carbon_conf(home, ports, limits, self.graphite_web))?)
    }

    /// Removes everything it has stored, as a new disk would.
    pub fn forget(&self) -> Result<()> {
        fs::remove_dir_all(&self.whisper)?;
        Ok(fs::create_dir(&self.whisper)?)
    }

    /// `127.0.0.1:PORT` of the pickle protocol.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.pickle_port)
    }

    /// The points of one metric path in whisper's finest archive.
    pub fn series(&self, path: &str) -> Result<Series> {
        Series::read(&self.file(path))
    }

    /// The folder of all metrics.
    pub fn whisper(&self) -> &Path {
        &self.whisper
    }

    /// The file of a metric path, whether or not it exists.
    pub fn file(&self, path: &str) -> PathBuf {
        self.whisper.join(format!("{}.wsp", path.replace('.', "/")))
    }

    /// All metric paths that have a file, with the file, sorted.
    pub fn paths(&self) -> BTreeMap<String, PathBuf> {
        let mut found = BTreeMap::new();
        collect(&self.whisper, "", &mut found);
        found
    }
}

fn collect(folder: &Path, prefix: &str, found: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if let Some(leaf) = name.strip_suffix(".wsp") {
            found.insert(format!("{prefix}{leaf}"), path);
        } else if path.is_dir() {
            collect(&path, &format!("{prefix}{name}."), found);
        }
    }
}

fn carbon_conf(
    home: &Path,
    [line, pickle, query]: [u16; 3],
    limits: Limits,
    graphite_web: Option<u16>,
) -> String {
    let (creates, updates, size) = match limits {
        Limits::Wide => ("inf", "50000", "inf"),
        Limits::AsShipped => ("50", "500", "inf"),
        Limits::Tight => ("inf", "10", "100"),
        Limits::Slow => ("inf", "1", "inf"),
        Limits::Full => ("inf", "4", "30000"),
    };
    let home = home.display();
    let tags = graphite_web.map_or_else(
        || "ENABLE_TAGS = False".to_owned(),
        // After 5 s it gives a request up and announces the series again with a later point.
        |port| {
            format!("ENABLE_TAGS = True\nGRAPHITE_URL = http://127.0.0.1:{port}\nTAG_BATCH_SIZE = 20\nTAG_UPDATE_INTERVAL = 11")
        },
    );
    // Otherwise its own metrics would be among those of a test, and tags would be sent to a graphite-web on port 80.
    format!(
        "\
[cache]
STORAGE_DIR = {home}
LOCAL_DATA_DIR = {home}/whisper
CONF_DIR = {home}
LOG_DIR = {home}
PID_DIR = {home}
USER =
CARBON_METRIC_INTERVAL = 0
MAX_CACHE_SIZE = {size}
USE_FLOW_CONTROL = True
MAX_UPDATES_PER_SECOND = {updates}
MAX_CREATES_PER_MINUTE = {creates}
LINE_RECEIVER_INTERFACE = 127.0.0.1
LINE_RECEIVER_PORT = {line}
PICKLE_RECEIVER_INTERFACE = 127.0.0.1
PICKLE_RECEIVER_PORT = {pickle}
CACHE_QUERY_INTERFACE = 127.0.0.1
CACHE_QUERY_PORT = {query}
ENABLE_UDP_LISTENER = False
{tags}
LOG_CREATES = True
"
    )
}
