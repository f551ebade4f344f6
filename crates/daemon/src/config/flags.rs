//! The flags of the command line, each of which overrides the file's value. They are in groups,
//! because a command has only the flags that it uses.

use std::path::PathBuf;

use clap::Args;

/// All of them.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(crate) carbon: CarbonFlags,
    #[command(flatten)]
    pub(crate) paths: PathFlags,
    #[command(flatten)]
    pub(crate) slurm: SlurmFlags,
    /// Folder for the queue, so that it survives a restart of the daemon [default: in memory]
    #[arg(long, value_name = "DIR")]
    pub(crate) queue_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) log: LogFlags,
}

/// The flags of `once`.
#[derive(Clone, Debug, Args)]
pub(crate) struct OnceFlags {
    #[command(flatten)]
    carbon: CarbonFlags,
    #[command(flatten)]
    paths: PathFlags,
    #[command(flatten)]
    asking: StatsFlags,
}

/// The flags of commands that only ask slurmctld.
#[derive(Clone, Debug, Args)]
pub(crate) struct StatsFlags {
    #[command(flatten)]
    slurm: SlurmFlags,
    #[command(flatten)]
    log: LogFlags,
}

impl From<OnceFlags> for Flags {
    fn from(OnceFlags { carbon, paths, asking }: OnceFlags) -> Self {
        Self { carbon, paths, ..asking.into() }
    }
}

impl From<StatsFlags> for Flags {
    fn from(StatsFlags { slurm, log }: StatsFlags) -> Self {
        Self { slurm, log, ..Self::default() }
    }
}

impl From<PathFlags> for Flags {
    fn from(paths: PathFlags) -> Self {
        Self { paths, ..Self::default() }
    }
}

/// Flags about destinations.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CarbonFlags {
    #[arg(
        long,
        value_name = "HOST:PORT",
        help = "Carbon's pickle receiver, instead of those in the file; repeat for more than one, \
            [::1]:2004 for IPv6. Without --config the file's queue.dir is not used"
    )]
    pub(crate) carbon: Vec<String>,
}

/// Flags about paths and timestamps.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PathFlags {
    /// Time between two readings (30 or 30s): Carbon's finest retention [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) interval: Option<String>,
    /// First part of every path; {cluster} and {host} are filled in [default: cluster]
    #[arg(long, value_name = "PATH")]
    pub(crate) prefix: Option<String>,
}

/// Flags about requests to slurmctld.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SlurmFlags {
    /// slurm.conf [default: SLURM_CONF, then libslurm's own search]
    #[arg(long, value_name = "FILE")]
    pub(crate) slurm_conf: Option<PathBuf>,
    /// Ask slurmrestd instead of libslurm: https://host:6820, http://localhost:6820 or unix:/path
    #[arg(long, value_name = "URL", conflicts_with = "slurm_conf")]
    pub(crate) rest: Option<String>,
    /// The token for slurmrestd, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// Flags about the log on stderr.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LogFlags {
    /// error, warn, info, debug or trace [default: info for run, error for other commands]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}
