//! The cost of a reading over slurmrestd, measured alternately with libslurm's reader on the same
//! cluster.

use anyhow::Result;
use sandbox::{Folder, Manner, Sink, Slurm, Slurmrestd, TlsProxy, Way, destination};
use tools::contender::in_turn;
use tools::{above, say};

use crate::turns::Part::Child;
use crate::turns::{SETTLE, collector, ratio, table};

/// The target: memory of the reader in MB, with TLS.
const MOST_MEMORY: f64 = 5.0 * 1.024 * 1.024;

/// The turns of the readers, which are the child processes. Returns the targets that were missed.
pub(crate) fn rest() -> Result<Vec<String>> {
    let folder = Folder::new()?;
    let mut slurm = Slurm::new(&folder)?;
    Slurmrestd::allow_tokens(&folder, &slurm)?;
    slurm.start_all()?;
    let mut rest = Slurmrestd::new(&folder, &slurm, Way::Token)?;
    rest.process.start()?;
    rest.renew(&slurm, 3600)?;
    let proxy = TlsProxy::start(&folder, rest.port)?;
    let sink = Sink::start(Manner::Record)?;
    let tls = format!(
        "rest = \"https://localhost:{}\"\nca_file = {:?}\n",
        proxy.port, proxy.authority.ca
    );
    let way = |name: &'static str, slurm: String| {
        let toml = format!("[slurm]\n{slurm}\n{}", destination("sink", &sink.address()));
        collector(&folder, name, toml, false, SETTLE)
    };
    let [libslurm, http, tls] = in_turn([
        way("libslurm", format!("conf = {:?}\n", slurm.conf())),
        way("http", rest.toml()),
        way("tls", tls + &rest.token_toml()),
    ])?;
    let rows = [
        ("libslurm", &libslurm, Child),
        ("slurmrestd, HTTP", &http, Child),
        ("slurmrestd, HTTPS", &tls, Child),
    ];
    say(&format!(
        "\n{}",
        table("a reading by the reader of", ("libslurm's", &libslurm, Child), &rows)
    ))?;
    let of_libslurm = |costs| ratio((costs, Child), (&libslurm, Child));
    Ok(above([
        ("CPU over HTTP compared with libslurm's", of_libslurm(&http), 1.0),
        ("CPU over HTTPS compared with libslurm's", of_libslurm(&tls), 1.0),
        ("MB over HTTPS", Child.mb(&tls), MOST_MEMORY),
    ]))
}
