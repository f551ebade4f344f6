//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{Flags, duration};
use crate::url::Url;

/// slurmctld's scheduler statistics in Graphite.
///
/// Every interval one RPC asks slurmctld what `sdiag` shows; every figure goes to Carbon's pickle port under
/// cluster.slurm_sched_stats.gauge-…, and again after a lost connection.
///
/// Try it: `slurm-graphite once` prints what would be sent. Then `slurm-graphite run --carbon HOST:2004`.
#[derive(Debug, Parser)]
#[command(name = "slurm-graphite", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send the statistics to Carbon every interval, for ever: the daemon
    Run {
        #[command(flatten)]
        options: Options,
        /// Send a recording (`stats --json`, one line a reading) instead, at its own timestamps; wants --prefix
        #[arg(long, value_name = "FILE", requires = "prefix")]
        replay: Option<PathBuf>,
    },
    /// Print one tick as `path value timestamp` lines; with --carbon, or a --config that names one, send it too, and have it confirmed
    Once {
        #[command(flatten)]
        options: Options,
        /// Print a recording (`stats --json`, one line a reading) instead
        #[arg(long, value_name = "FILE")]
        replay: Option<PathBuf>,
    },
    /// Check the configuration
    Check {
        #[command(flatten)]
        options: Options,
        /// Look at slurm.conf, munge, slurmctld, the queue's folder, every Carbon (which gets one point) and its rules too
        #[arg(long)]
        connect: bool,
        /// Carbon's storage-schemas.conf, or a copy; what lies beside it is looked at too [default: this host's Carbon]
        #[arg(long, value_name = "FILE", requires = "connect")]
        storage_schemas: Option<PathBuf>,
        #[arg(
            long,
            value_name = "URL",
            requires = "connect",
            help = "Ask this graphite-web for the point that was sent: http://graphite.example.org; only http is spoken"
        )]
        read_back: Option<Url>,
    },
    /// Print what `sdiag` shows, whose jobs run and wait, or what `sshare` shows
    Stats {
        #[command(flatten)]
        options: Options,
        /// As one JSON line; without --jobs and --fairshare it is one that --replay reads
        #[arg(long, conflicts_with = "reset")]
        json: bool,
        /// Whose jobs run and wait: the first 20 by CPUs. slurmctld is asked for all its jobs once
        #[arg(long, conflicts_with_all = ["reset", "watch"])]
        jobs: bool,
        /// What --jobs counts them by
        #[arg(long, value_name = "WHAT", requires = "jobs", default_value = "user")]
        by: By,
        /// With --jobs: those that ended in the last hour, and how. slurmdbd is asked, and not slurmctld
        #[arg(long, requires = "jobs")]
        finished: bool,
        /// Shares and usage of accounts and users, as `sshare -al` prints them
        #[arg(long, conflicts_with_all = ["jobs", "reset", "watch"])]
        fairshare: bool,
        /// Reset slurmctld's counters instead; for an operator of the cluster
        #[arg(long)]
        reset: bool,
        /// Again every so many seconds, with what happened in between; on a terminal like a small top, q to end
        #[arg(
            long,
            value_name = "SECONDS",
            conflicts_with_all = ["json", "reset"],
            value_parser = clap::value_parser!(u32).range(1..=3600)
        )]
        watch: Option<u32>,
    },
    /// Print what the running daemon does: its last tick, slurmctld, each destination, the queue, the readers
    ///
    /// Exit code 0: all is well. 1: something has not been well for longer than --max-age; a line with ✗ says what. 69: no daemon
    /// answers within 5 s. It reads no configuration: the daemon answers on a socket of its own.
    Status {
        /// As one line of JSON
        #[arg(long)]
        json: bool,
        #[arg(
            long,
            value_name = "TIME",
            value_parser = duration,
            help = "How old the last tick may be, and how long slurmctld or a destination may be away [default: 90s, or three intervals where that is more]"
        )]
        max_age: Option<Duration>,
        /// The daemon's socket [default: status.sock in RUNTIME_DIRECTORY or /run/slurm-graphite]
        #[arg(long, value_name = "FILE")]
        socket: Option<PathBuf>,
    },
    /// Print every metric path with its unit and meaning, as Markdown
    Metrics {
        #[command(flatten)]
        options: Options,
        /// Count the series that this configuration makes on this cluster instead; nothing is sent
        #[arg(long)]
        count: bool,
    },
    /// Print the rules for Carbon's storage-schemas.conf that fit this configuration
    StorageSchemas {
        #[command(flatten)]
        options: Options,
    },
    /// Write the manual pages and the completions of shells into a folder, for packages
    #[command(hide = true)]
    Manual { folder: PathBuf },
}

/// What jobs are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    User,
    Account,
    Partition,
    /// Those that wait, by the reason that squeue shows
    Reason,
    Qos,
}

/// Where the configuration comes from; each flag goes over the file's value.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The configuration file [default: /etc/slurm-graphite/slurm-graphite.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

impl Options {
    /// Whether a level was asked for.
    pub(crate) const fn wants_log(&self) -> bool {
        self.flags.log_level.is_some()
    }

    /// Whether destinations are named here, and not in the default file alone.
    pub(crate) const fn names_destinations(&self) -> bool {
        self.config.is_some() || !self.flags.carbon.is_empty()
    }

    /// Whether --carbon takes the place of the default file's destinations.
    pub(crate) const fn goes_elsewhere(&self) -> bool {
        self.config.is_none() && !self.flags.carbon.is_empty()
    }
}
