//! What the command line says: each flag goes over the file's value.

use std::path::PathBuf;

use clap::Args;

/// The flags that every command takes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Flags {
    #[arg(
        long,
        value_name = "HOST:PORT",
        help = "Carbon's pickle receiver, instead of the file's; several times for several, [::1]:2004 for IPv6. Without --config the file's queue.dir is left alone"
    )]
    pub(crate) carbon: Vec<String>,
    /// Time between two readings: Carbon's finest retention [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) interval: Option<String>,
    /// First part of every path; {cluster} and {host} are filled in [default: cluster]
    #[arg(long, value_name = "PATH")]
    pub(crate) prefix: Option<String>,
    /// slurm.conf [default: SLURM_CONF, then libslurm's own search]
    #[arg(long, value_name = "FILE")]
    pub(crate) slurm_conf: Option<PathBuf>,
    /// Ask slurmrestd instead of libslurm: https://host:6820, http://localhost:6820 or unix:/path
    #[arg(long, value_name = "URL", conflicts_with = "slurm_conf")]
    pub(crate) rest: Option<String>,
    /// The token for slurmrestd, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Folder for the queue, so that it outlives the daemon [default: in memory]
    #[arg(long, value_name = "DIR")]
    pub(crate) queue_dir: Option<PathBuf>,
    /// error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}
