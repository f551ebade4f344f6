//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{Flags, OnceFlags, PathFlags, StatsFlags, duration, seconds};

/// Sends slurmctld's scheduler statistics to Graphite.
///
/// Once an interval, one RPC asks slurmctld for everything that `sdiag` shows. Every figure goes to
/// Carbon as cluster.slurm_sched_stats.gauge-…, and is sent again if Carbon lost it.
///
/// Try it: `slurm-graphite stats --watch 5` shows what slurmctld does, `slurm-graphite once` prints
/// what would be sent. The daemon is `slurm-graphite run --carbon HOST:2004`.
#[derive(Debug, Parser)]
#[command(name = "slurm-graphite", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check the configuration, and with --connect everything that it names
    Check {
        /// Also check slurm.conf, munge, slurmctld, the queue's folder, Carbon's rules, and each
        /// Carbon, to which it sends one point; count the series, for which it asks slurmctld once
        /// for everything that is enabled; and once for its nodes, to say what they would cost
        #[arg(long)]
        connect: bool,
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
        /// Carbon's storage-schemas.conf or a copy of it; the other files are read from the same
        /// folder [default: this host's Carbon]
        #[arg(long, value_name = "FILE", requires = "connect")]
        storage_schemas: Option<PathBuf>,
        #[command(flatten, next_help_heading = "Configuration")]
        options: Options,
    },
    /// Print the rules that Carbon needs for this configuration, or write them into Carbon's files
    ///
    /// The rules belong above all others in storage-schemas.conf and storage-aggregation.conf,
    /// before the first start. A file that cannot be edited safely is refused and stays as it is.
    CarbonRules {
        /// Print the rules of one file only
        #[arg(long, value_name = "FILE", conflicts_with = "write")]
        file: Option<RulesFile>,
        /// Put them into the files of this folder, Carbon's own, above all other rules: a block for
        /// each prefix, which the next time replaces. Each file as the site had it is kept as
        /// FILE.before-slurm-graphite
        #[arg(long, value_name = "DIR")]
        write: Option<PathBuf>,
        /// With --write: change nothing, print the lines that would go (-) and come (+)
        #[arg(long, requires = "write")]
        dry_run: bool,
        /// With --write: raise MAX_CREATES_PER_MINUTE in carbon.conf to this number where it is
        /// smaller
        #[arg(long, value_name = "NUMBER", requires = "write")]
        max_creates: Option<u32>,
        #[command(flatten, next_help_heading = "Configuration")]
        options: Options<PathFlags>,
    },
    /// Send the statistics to Carbon at every interval until it is stopped: the daemon
    Run {
        /// Send a recording instead (`stats --json`, one reading a line) at its own timestamps;
        /// needs --prefix
        #[arg(long, value_name = "FILE", requires = "prefix")]
        replay: Option<PathBuf>,
        #[command(flatten, next_help_heading = "Configuration")]
        options: Options,
    },
    /// Print what the running daemon does: its last tick, slurmctld, each destination, the queue,
    /// the readers
    ///
    /// Exit code 0: everything is OK. 1: something has failed for longer than --patience, see the
    /// lines with ✗. 69: no daemon answered within 5 s. It reads no configuration, because the
    /// daemon answers on a socket of its own.
    Status {
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
        /// Largest age of the last tick, and longest absence of slurmctld or a destination
        /// [default: 90s, or three intervals if that is longer]
        #[arg(long, value_name = "TIME", value_parser = duration)]
        patience: Option<Duration>,
        /// The daemon's socket [default: status.sock in RUNTIME_DIRECTORY or /run/slurm-graphite]
        #[arg(long, value_name = "FILE")]
        socket: Option<PathBuf>,
    },
    /// Print what `sdiag` shows, or whose jobs run and wait
    Stats {
        /// Print one line of JSON; without --jobs, --replay can read it
        #[arg(long, conflicts_with = "reset")]
        json: bool,
        /// Whose jobs run and wait: the first 20 by CPUs. Asks slurmctld for all its jobs once
        #[arg(long, conflicts_with_all = ["reset", "watch"])]
        jobs: bool,
        /// Property that --jobs counts by
        #[arg(long, value_name = "WHAT", requires = "jobs", default_value = "user")]
        by: By,
        /// With --jobs: those that ended in the last hour, and how. Needs slurmdbd
        #[arg(long, requires = "jobs")]
        finished: bool,
        /// Reset slurmctld's counters instead; only an operator of the cluster may
        #[arg(long)]
        reset: bool,
        /// Refresh at this interval (5 or 5s) with what happened in between; full-screen on a
        /// terminal, q to quit
        #[arg(long, value_name = "TIME", conflicts_with_all = ["json", "reset"],
            value_parser = seconds)]
        watch: Option<u32>,
        #[command(flatten, next_help_heading = "Configuration")]
        options: Options<StatsFlags>,
    },
    /// Print one tick as `path value timestamp` lines; with --send, send it too
    Once {
        /// Also send it to the configured Carbon or to --carbon, and wait until it has been read
        #[arg(long, conflicts_with = "replay")]
        send: bool,
        /// Print a recording instead (`stats --json`, one reading a line)
        #[arg(long, value_name = "FILE")]
        replay: Option<PathBuf>,
        #[command(flatten, next_help_heading = "Configuration")]
        options: Options<OnceFlags>,
    },
    /// Print every metric path with its unit and meaning
    Metrics {
        /// Only metrics with this text in their path or meaning, such as bf_
        filter: Option<String>,
        /// Format of the output
        #[arg(long, value_enum, default_value_t = MetricsFormat::Markdown)]
        format: MetricsFormat,
    },
}

/// The property that jobs are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    User,
    Account,
    Partition,
    /// Pending jobs, by the reason that squeue shows
    Reason,
    Qos,
}

/// One of Carbon's files with rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RulesFile {
    /// storage-schemas.conf
    Schemas,
    /// storage-aggregation.conf
    Aggregation,
}

/// The formats in which metrics are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetricsFormat {
    Markdown,
    Tsv,
    Json,
}

/// The source of the configuration. A flag overrides the file's value. A command has only the flags
/// that it uses.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Options<F: Args = Flags> {
    /// The configuration file [default: /etc/slurm-graphite/slurm-graphite.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: F,
}

impl<F: Args + Into<Flags>> Options<F> {
    /// Makes them options of a command that has every flag.
    pub(crate) fn all(self) -> Options {
        Options { config: self.config, flags: self.flags.into() }
    }
}

impl Options {
    /// Whether --carbon takes the place of the default file's destinations.
    pub(crate) const fn goes_elsewhere(&self) -> bool {
        self.config.is_none() && !self.flags.carbon.carbon.is_empty()
    }
}
