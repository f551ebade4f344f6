//! The configuration: the legal values and the default of every key.
//!
//! The file and the flags are read together, and *all* problems are reported at once, each with its
//! location. Nothing is started with a configuration that has a problem. The defaults of collectors
//! are in slurm-points, and those of a destination's timeouts in carbon.

mod collectors;
mod destinations;
#[expect(clippy::disallowed_methods, reason = "before READY, and in a thread")]
mod file;
mod flags;
mod problem;
mod rest;
pub(crate) mod retentions;
mod section;
mod tls;
mod value;

use std::path::PathBuf;
use std::time::Duration;

use carbon::{Address, Destination, Limits, MetricNames};
use slurm_points::configured::Collectors;
use slurm_points::prefix::Prefix;

use self::destinations::read_destination;
pub(crate) use self::file::{ConfigFile, VARIABLE, default_paths};
#[cfg(test)]
pub(crate) use self::flags::{CarbonFlags, SlurmFlags};
pub(crate) use self::flags::{Flags, OnceFlags, PathFlags, StatsFlags};
use self::problem::Problem;
pub(crate) use self::problem::Problems;
pub(crate) use self::rest::RestSettings;
use self::retentions::Retentions;
use self::section::{Section, line_of};
use self::value::{between, bytes, interval, log_format, log_level, one_of, path, rate, reader};
pub(crate) use self::value::{duration, seconds};
use crate::host::host;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
/// A year as humantime counts it.
const YEAR: Duration = Duration::from_secs(31_557_600);

/// Name of a destination that is the only one and has no `name`. It does not depend on the address,
/// so another address leaves the destination's ticks and paths as they are.
pub(crate) const ONLY_NAME: &str = "carbon";

/// The configuration: all settings of the file and of the flags that override it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// Path of the file that the configuration was read from. `None`: only flags and defaults are
    /// used.
    pub(crate) file: Option<PathBuf>,
    /// Messages about default files that were not read, because other users could have written
    /// them.
    pub(crate) passed_over: Vec<String>,
    /// Seconds between two ticks.
    pub(crate) interval: u32,
    pub(crate) prefix: Prefix,
    /// Time that the daemon may take at its end to send what is left.
    pub(crate) drain_timeout: Duration,
    pub(crate) slurm: SlurmSettings,
    pub(crate) queue: QueueSettings,
    /// The archives in the rules that `carbon-rules` prints.
    pub(crate) retentions: Retentions,
    pub(crate) carbon: Vec<Destination>,
    pub(crate) collectors: Collectors,
    pub(crate) log: LogSettings,
}

/// The queue, which keeps ticks until every destination is done with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueSettings {
    /// Folder of the queue's files. `None`: the queue is in memory.
    pub(crate) dir: Option<PathBuf>,
    pub(crate) limits: Limits,
    /// Most points of a backlog that are sent in a second. `None`: 5,000, or ten times the live
    /// rate if that is more.
    pub(crate) replay_rate: Option<u32>,
}

/// The settings of the requests to slurmctld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlurmSettings {
    /// `slurm.conf`; `None`: `SLURM_CONF`, then libslurm's own search, configless included.
    pub(crate) conf: Option<PathBuf>,
    pub(crate) reader: ReaderChoice,
    /// Settings for slurmrestd, which is asked instead of libslurm if they have an endpoint.
    pub(crate) rest: RestSettings,
    /// Time that a reader may be silent before it is killed.
    pub(crate) timeout: Duration,
    /// Whether figures of the cluster are published only by the host where the active slurmctld
    /// runs.
    pub(crate) follow: bool,
}

/// The reader that asks slurmctld.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReaderChoice {
    /// Takes the reader of slurmrestd with `rest`; else the one that fits this host's libslurm, and
    /// the native one where none does.
    #[default]
    Auto,
    Libslurm,
    Native,
    Program(PathBuf),
}

/// The settings of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogSettings {
    pub(crate) level: tracing::level_filters::LevelFilter,
    pub(crate) format: LogFormat,
}

/// The shape of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            file: None,
            passed_over: Vec::new(),
            interval: 30,
            prefix: Prefix::default(),
            drain_timeout: Duration::from_secs(5),
            slurm: SlurmSettings {
                conf: None,
                reader: ReaderChoice::Auto,
                rest: RestSettings::default(),
                timeout: Duration::from_secs(30),
                follow: false,
            },
            queue: QueueSettings {
                dir: None,
                limits: Limits {
                    max_bytes: 256 << 20,
                    max_age: Duration::from_secs(12 * 3600),
                    resend_window: Duration::from_secs(600),
                },
                replay_rate: None,
            },
            retentions: Retentions::default(),
            carbon: Vec::new(),
            collectors: Collectors::default(),
            log: LogSettings {
                level: tracing::level_filters::LevelFilter::INFO,
                format: LogFormat::Text,
            },
        }
    }
}

impl Config {
    /// The configuration in `file`, with `flags` overriding it.
    pub(crate) fn load(file: ConfigFile, flags: &Flags) -> Result<Self, Problems> {
        let ConfigFile { path, text, is_private, passed_over } = file;
        let mut problems = Problems { file: path.clone(), is_private, ..Problems::default() };
        let mut config = Self { file: path, passed_over, ..Self::default() };
        let (table, errors) = toml::de::DeTable::parse_recoverable(&text);
        for error in errors {
            let line = error.span().map(|span| line_of(&text, span.start));
            let there = error.span().and_then(|span| text.get(span)).unwrap_or_default();
            let text = match error.message() {
                // A word without quotes: the parser does not know what it was meant to be.
                message if message.starts_with("string values must be quoted") => {
                    "a text needs quotes (\"30s\"); a switch is true or false, without quotes"
                        .to_owned()
                }
                message if message.starts_with("duplicate key") => {
                    format!("{there} is there a second time; remove one of the two")
                }
                message => message.to_owned(),
            };
            problems.list.push(Problem { line, key: "not TOML".to_owned(), text });
        }
        // What follows a syntax error was read as something else: complaints about it would
        // mislead.
        if problems.list.is_empty() {
            config.apply_file(Section::new("", table, &text, &mut problems));
        }
        config.apply_flags(flags, &mut problems);
        for to in &mut config.carbon {
            to.replay_rate = config.queue.replay_rate;
        }
        config.collectors.over_rest = config.slurm.rest.endpoint.is_some();
        config.check(&mut problems);
        if problems.list.is_empty() { Ok(config) } else { Err(problems.locate()) }
    }

    #[cfg(test)]
    fn parse(text: &str, flags: &Flags) -> Result<Self, Problems> {
        Self::load(ConfigFile { text: text.to_owned(), ..ConfigFile::default() }, flags)
    }

    /// The configuration in a text that is known to be valid.
    #[cfg(test)]
    pub(crate) fn parse_valid(text: &str) -> Self {
        Self::parse(text, &Flags::default()).unwrap()
    }

    /// Sets what the file has: every section reads its keys, then complains about those that nobody
    /// has read.
    fn apply_file(&mut self, mut top: Section<'_, '_>) {
        top.set("interval", interval, &mut self.interval);
        top.set("prefix", str::parse::<Prefix>, &mut self.prefix);
        top.set("drain_timeout", between(Duration::ZERO, MINUTE * 10), &mut self.drain_timeout);

        if let Some(mut slurm) = top.section("slurm") {
            slurm.set_some("conf", path, &mut self.slurm.conf);
            slurm.set("reader", reader, &mut self.slurm.reader);
            self.slurm.rest.apply(&mut slurm);
            slurm.set("timeout", between(SECOND, MINUTE * 10), &mut self.slurm.timeout);
            slurm.set("follow", one_of([("slurmctld", true)]), &mut self.slurm.follow);
            slurm.report_unread();
        }
        if let Some(mut log) = top.section("log") {
            log.set("level", log_level, &mut self.log.level);
            log.set("format", log_format, &mut self.log.format);
            log.report_unread();
        }
        if let Some(collectors) = top.section("collectors") {
            self::collectors::read_collectors(&mut self.collectors, collectors);
        }
        if let Some(mut queue) = top.section("queue") {
            let limits = &mut self.queue.limits;
            queue.set_some("dir", path, &mut self.queue.dir);
            queue.set("max_bytes", bytes, &mut limits.max_bytes);
            queue.set("max_age", between(SECOND, YEAR), &mut limits.max_age);
            queue.set("resend_window", between(Duration::ZERO, DAY), &mut limits.resend_window);
            queue.set_some("replay_rate", rate, &mut self.queue.replay_rate);
            queue.report_unread();
        }
        if let Some(mut graphite) = top.section("graphite") {
            graphite.set("retentions", str::parse::<Retentions>, &mut self.retentions);
            graphite.report_unread();
        }
        let destinations = &mut self.carbon;
        top.each_section("carbon", |carbon, count| read_destination(carbon, count, destinations));
        top.report_unread();
    }

    fn apply_flags(&mut self, flags: &Flags, problems: &mut Problems) {
        let Flags { carbon, paths, slurm, queue_dir, log } = flags;
        let mut problem = |key: &str, text: String| problems.add(format!("--{key}"), text);
        macro_rules! set {
            ($key:literal, $text:expr, $parse:expr, $target:expr) => {
                if let Some(text) = $text {
                    match $parse(text) {
                        Ok(value) => $target = value,
                        Err(error) => problem($key, error.to_string()),
                    }
                }
            };
        }
        set!("interval", &paths.interval, seconds, self.interval);
        set!("prefix", &paths.prefix, str::parse::<Prefix>, self.prefix);
        set!("log-level", &log.log_level, log_level, self.log.level);
        set!("log-format", &log.log_format, log_format, self.log.format);
        if let Some(conf) = &slurm.slurm_conf {
            self.slurm.conf = Some(conf.clone());
            self.slurm.rest.endpoint = None;
        }
        set!("rest", &slurm.rest, |text: &str| text.parse().map(Some), self.slurm.rest.endpoint);
        if slurm.rest.is_some() {
            self.slurm.conf = None;
        }
        if let Some(file) = &slurm.token_file {
            self.slurm.rest.token_file = Some(file.clone());
        }
        if let Some(dir) = queue_dir {
            self.queue.dir = Some(dir.clone());
        }
        if !carbon.carbon.is_empty() {
            self.carbon.clear();
        }
        for text in &carbon.carbon {
            match text.parse::<Address>() {
                Ok(address) if self.carbon.iter().any(|to| to.address == address) => {
                    problem("carbon", format!("{address} is given twice"));
                }
                Ok(address) => {
                    let is_first = self.carbon.is_empty();
                    let name = if is_first { ONLY_NAME.to_owned() } else { address.to_string() };
                    self.carbon.push(Destination::new(name, address));
                }
                Err(error) => problem("carbon", error.to_string()),
            }
        }
    }

    /// Checks that the values fit each other.
    fn check(&self, problems: &mut Problems) {
        let Self { slurm, queue, collectors, .. } = self;
        // A prefix can be too long for what comes behind it.
        let too_long = |to: &Destination| {
            let path = self.prefix.longest_path(&host(), &to.name);
            carbon::path::check(&path)
                .err()
                .map(|error| format!("is too long for the path {path}: {error}"))
        };
        if let Some(text) = self.carbon.iter().find_map(too_long) {
            problems.add("prefix", text);
        }
        // The queue's file has room for more than its log.
        let least = carbon::LEAST_FILE_BYTES;
        if queue.dir.is_some() && queue.limits.max_bytes < least {
            let least = least >> 20;
            problems.add(
                "queue.max_bytes",
                format!(
                    "with queue.dir it must be {least}MiB or more; only a queue in memory can be \
                        smaller"
                ),
            );
        }
        slurm.rest.check(slurm.conf.is_some(), &slurm.reader, problems);
        for (is_wrong, text) in [
            (
                collectors.over_rest,
                "slurm.rest: slurmrestd does not say which slurmctld has answered",
            ),
            (
                slurm.reader == ReaderChoice::Native,
                "reader = \"native\", which does not ping the other controllers",
            ),
        ] {
            if slurm.follow && is_wrong {
                problems.add("slurm.follow", format!("cannot be used with {text}"));
            }
        }
        collectors::check(collectors, self.interval, queue.dir.is_some(), problems);
    }

    /// Returns the problem that this host is none of the controllers, `hosts`, so that there is
    /// nothing to follow.
    pub(crate) fn not_a_controller(&self, hosts: &[String]) -> Problems {
        let text = format!(
            "this host, {}, is none of SlurmctldHost ({}), neither by name nor by address; run the \
             daemon on those hosts, or remove `follow`. If one address moves between the hosts \
             (SlurmctldHost=a,b(address)), what moves it must start and stop this daemon together \
             with slurmctld",
            host(),
            hosts.join(", ")
        );
        Problems::one("slurm.follow", text)
    }

    /// Whether all destinations get names with tags.
    pub(crate) fn has_tags_only(&self) -> bool {
        !self.carbon.is_empty() && self.carbon.iter().all(|to| to.names != MetricNames::Paths)
    }

    /// Checks that there is a destination, which a daemon needs.
    pub(crate) fn with_destination(self) -> Result<Self, Problems> {
        if self.carbon.is_empty() {
            let text = "nowhere to send to; give --carbon HOST:2004, or [[carbon]] with address = \
                \"HOST:2004\" in the file";
            return Err(Problems::one("carbon", text));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
