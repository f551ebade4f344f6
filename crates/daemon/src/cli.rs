//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::Flags;
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
    /// Print one tick as `path value timestamp` lines; with a Carbon, of the file or of --carbon, send it too, and have it confirmed
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
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[arg(
        long,
        value_name = "HOST:PORT",
        help = "Carbon's pickle receiver; several times for several, [::1]:2004 for IPv6"
    )]
    carbon: Vec<String>,
    /// Time between two readings: Carbon's finest retention [default: 30s]
    #[arg(long, value_name = "TIME")]
    interval: Option<String>,
    /// First part of every path; {cluster} and {host} are filled in [default: cluster]
    #[arg(long, value_name = "PATH")]
    prefix: Option<String>,
    /// slurm.conf [default: SLURM_CONF, then libslurm's own search]
    #[arg(long, value_name = "FILE")]
    slurm_conf: Option<PathBuf>,
    /// Ask slurmrestd instead of libslurm: https://host:6820, http://localhost:6820 or unix:/path
    #[arg(long, value_name = "URL", conflicts_with = "slurm_conf")]
    rest: Option<String>,
    /// The token for slurmrestd, read again when it changes
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Folder for the queue, so that it outlives the daemon [default: in memory]
    #[arg(long, value_name = "DIR")]
    queue_dir: Option<PathBuf>,
    /// error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

impl Options {
    /// Whether a level was asked for.
    pub(crate) const fn wants_log(&self) -> bool {
        self.log_level.is_some()
    }

    /// What the configuration takes from the command line.
    pub(crate) fn flags(&self) -> Flags {
        Flags {
            carbon: self.carbon.clone(),
            interval: self.interval.clone(),
            prefix: self.prefix.clone(),
            slurm_conf: self.slurm_conf.clone(),
            rest: self.rest.clone(),
            token_file: self.token_file.clone(),
            queue_dir: self.queue_dir.clone(),
            log_level: self.log_level.clone(),
            log_format: self.log_format.clone(),
        }
    }
}
