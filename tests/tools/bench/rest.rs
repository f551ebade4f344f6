//! The cost of a reading over slurmrestd, measured alternately with libslurm's reader on the same cluster.

use anyhow::Result;
use sandbox::{Folder, Manner, Sink, Slurm, Slurmrestd, TlsProxy, Way, destination};
use tools::contender::in_turn;

use crate::turns::{Costs, SETTLE, collector};
use crate::{mb, ms, unreached};

const READINGS: u32 = 10;
/// The target: memory of the reader, with TLS.
const MOST_MEMORY_KIB: f64 = 5.0 * 1024.0;

/// The turns of both readers, which are the child processes.
pub(crate) struct Rest {
    libslurm: Costs,
    http: Costs,
    tls: Costs,
}

pub(crate) fn rest() -> Result<Rest> {
    let folder = Folder::new()?;
    let mut slurm = Slurm::new(&folder)?;
    Slurmrestd::allow_tokens(&folder, &slurm)?;
    slurm.start_all()?;
    let mut rest = Slurmrestd::new(&folder, &slurm, Way::Token)?;
    rest.process.start()?;
    rest.renew(&slurm, 3600)?;
    let mut proxy = TlsProxy::new(&folder, rest.port)?;
    proxy.process.start()?;
    let sink = Sink::start(Manner::Record)?;
    let tls = format!(
        "rest = \"https://localhost:{}\"\nca_file = {:?}\n{}",
        proxy.port,
        proxy.ca,
        rest.token_toml()
    );
    let way = |name: &'static str, slurm: String| {
        let toml = format!("[slurm]\n{slurm}\n{}", destination("sink", &sink.address()));
        collector(&folder, name, move |_| toml.clone(), SETTLE, READINGS)
    };
    let [libslurm, http, tls] = in_turn([
        way("libslurm", format!("conf = {:?}\n", slurm.conf())),
        way("http", rest.toml()),
        way("tls", tls),
    ])?;
    Ok(Rest { libslurm, http, tls })
}

impl Rest {
    pub(crate) fn table(&self) -> String {
        let row = |name: &str, costs: &Costs| {
            let kib = costs.median(|cost| cost.child_kib);
            let ratio = costs.median(|cost| cost.child) / self.libslurm.median(|cost| cost.child);
            format!("| {name} | {} | {ratio:.2} | {:.1} MB |\n", ms(costs, |cost| cost.child), mb(kib))
        };
        [
            "\n| a reading by the reader of | CPU | compared with libslurm's | RSS |\n|---|---|---|---|\n"
                .to_owned(),
            row("libslurm", &self.libslurm),
            row("slurmrestd, HTTP", &self.http),
            row("slurmrestd, HTTPS", &self.tls),
        ]
        .concat()
    }

    pub(crate) fn missed(&self) -> Vec<String> {
        let own = |costs: &Costs| costs.median(|cost| cost.child);
        let (http, tls, most) = (own(&self.http), own(&self.tls), own(&self.libslurm));
        let kib = self.tls.median(|cost| cost.child_kib);
        unreached([
            (http <= most, format!("{http:.0} µs over HTTP, {most:.0} µs by libslurm")),
            (tls <= most, format!("{tls:.0} µs over HTTPS, {most:.0} µs by libslurm")),
            (kib <= MOST_MEMORY_KIB, format!("{kib:.0} KiB over HTTPS, not {MOST_MEMORY_KIB}")),
        ])
    }
}
