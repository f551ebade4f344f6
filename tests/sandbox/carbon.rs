//! carbon-cache with its own whisper tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{Folder, Process, Series, Space, find_program, free_port, proc};

/// The amounts that Carbon may do at a time.
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
    /// A cache of 30,000 points, written at 4 series a second, with flow control: it stops reading
    /// before it would have to discard points.
    Full,
}

/// Options of a Carbon.
#[derive(Debug, Clone)]
pub struct Options {
    /// The text of storage-schemas.conf.
    pub schemas: String,
    /// The text of storage-aggregation.conf.
    pub aggregation: String,
    /// The amounts that it may do at a time.
    pub limits: Limits,
    /// The port of the graphite-web to which it announces series with tags.
    pub graphite_web: Option<u16>,
    /// Whether it stores figures about itself, once a second, until its limits are changed.
    pub own_figures: bool,
}

impl Default for Options {
    /// One point a second, kept for an hour.
    fn default() -> Self {
        Self::keeping("1s:1h")
    }
}

impl Options {
    /// With these retentions for every series, in Carbon's format.
    pub fn keeping(retentions: &str) -> Self {
        Self {
            schemas: format!("[everything]\npattern = .*\nretentions = {retentions}\n"),
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
    /// Where it listens.
    address: &'static str,
    /// The port of the plaintext protocol.
    pub line_port: u16,
    /// The port of the pickle protocol.
    pub pickle_port: u16,
    /// The port for graphite-web's queries.
    pub query_port: u16,
    /// The port of the graphite-web to which it announces series with tags.
    pub(crate) graphite_web: Option<u16>,
    whisper: PathBuf,
}

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
        let process = Process::new(folder, name, find_program("carbon-cache")?);
        let ports = [free_port()?, free_port()?, free_port()?];
        Self::from(folder, name, options, process, "127.0.0.1", ports, proc::listening)
    }

    /// Starts one in a separate network, at this address, on Carbon's usual ports.
    pub fn within(
        space: &Space,
        folder: &Folder,
        address: &'static str,
        options: &Options,
    ) -> Result<Self> {
        let process = space.process(folder, "carbon", &find_program("carbon-cache")?, true)?;
        let ports = [2003, 2004, 7002];
        let mut carbon =
            Self::from(folder, "carbon", options, process, address, ports, space.listening())?;
        carbon.process.start()?;
        Ok(carbon)
    }

    fn from(
        folder: &Folder,
        name: &str,
        options: &Options,
        process: Process,
        address: &'static str,
        ports: [u16; 3],
        listening: impl Fn(u16) -> bool + Send + Sync + 'static,
    ) -> Result<Self> {
        let home = folder.path().join(name);
        let whisper = home.join("whisper");
        fs::create_dir_all(&whisper).with_context(|| whisper.display().to_string())?;
        fs::write(home.join("storage-schemas.conf"), &options.schemas)?;
        fs::write(home.join("storage-aggregation.conf"), &options.aggregation)?;
        let process = under_carbons_flags(process, &home.join("carbon.conf"))
            .ready(move || ports.into_iter().all(&listening));
        let [line_port, pickle_port, query_port] = ports;
        let graphite_web = options.graphite_web;
        let carbon =
            Self { process, address, line_port, pickle_port, query_port, graphite_web, whisper };
        carbon.configure(options.limits, options.own_figures)?;
        Ok(carbon)
    }

    /// Changes the limits, from its next start on.
    pub fn limit(&self, limits: Limits) -> Result<()> {
        self.configure(limits, false)
    }

    /// Number of points that it has discarded because its cache was full, by its log.
    pub fn dropped(&self) -> usize {
        self.process.lines().iter().filter(|line| line.contains("MetricCache is full")).count()
    }

    /// Address and port of the pickle protocol.
    pub fn address(&self) -> String {
        format!("{}:{}", self.address, self.pickle_port)
    }

    /// The points of one metric path in whisper's finest archive.
    pub fn series(&self, path: &str) -> Result<Series> {
        Series::read(&self.file(path))
    }

    fn configure(&self, limits: Limits, own_figures: bool) -> Result<()> {
        let (creates, updates, size) = match limits {
            Limits::Wide => ("inf", "50000", "inf"),
            Limits::AsShipped => ("50", "500", "inf"),
            Limits::Tight => ("inf", "10", "100"),
            Limits::Slow => ("inf", "1", "inf"),
            Limits::Full => ("inf", "4", "30000"),
        };
        // Otherwise tags would be sent to a graphite-web on port 80. After 5 s it gives a request
        // up and announces the series again with a later point.
        let tags = self.graphite_web.map_or_else(
            || "ENABLE_TAGS = False".to_owned(),
            |port| {
                format!(
                    "ENABLE_TAGS = True\nGRAPHITE_URL = http://127.0.0.1:{port}\n\
                TAG_BATCH_SIZE = 20\nTAG_UPDATE_INTERVAL = 11"
                )
            },
        );
        let home = self.whisper.parent().context("a whisper tree without a folder")?;
        // Otherwise its own metrics would be among those of a test.
        let text = format!(
            "\
{}\
CARBON_METRIC_INTERVAL = {}
MAX_CACHE_SIZE = {size}
USE_FLOW_CONTROL = True
MAX_UPDATES_PER_SECOND = {updates}
MAX_CREATES_PER_MINUTE = {creates}
LINE_RECEIVER_INTERFACE = {address}
LINE_RECEIVER_PORT = {}
PICKLE_RECEIVER_INTERFACE = {address}
PICKLE_RECEIVER_PORT = {}
CACHE_QUERY_INTERFACE = {address}
CACHE_QUERY_PORT = {}
ENABLE_UDP_LISTENER = False
{tags}
LOG_CREATES = True
",
            carbon_section("cache", home),
            u8::from(own_figures),
            self.line_port,
            self.pickle_port,
            self.query_port,
            address = self.address
        );
        Ok(fs::write(home.join("carbon.conf"), text)?)
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

/// The beginning of a carbon.conf.
pub(crate) fn carbon_section(name: &str, home: &Path) -> String {
    format!(
        "\
[{name}]
STORAGE_DIR = {0}
LOCAL_DATA_DIR = {0}/whisper
CONF_DIR = {0}
LOG_DIR = {0}
PID_DIR = {0}
USER =
",
        home.display()
    )
}

/// One of Carbon's programs, with this carbon.conf.
pub(crate) fn under_carbons_flags(process: Process, conf: &Path) -> Process {
    process
        .args([format!("--config={}", conf.display())])
        .args(["--nodaemon", "--logfile=-", "start"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
}
