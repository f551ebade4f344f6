//! `make scale-out`: 100,000 points a tick through a relay to three stores, one of which is stopped
//! and one killed in the middle of a tick; and every target of the dashboards and alert rules on
//! graphite-web and on VictoriaMetrics.
//!
//! The queue and the sender run in this process: no slurmctld produces 100,000 points a tick.

#![forbid(unsafe_code)]

mod faults;
mod feed;
mod stores;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use carbon::Protocol;
use sandbox::{Folder, GraphiteWeb, Relay};
use tools::exit_code;

use self::faults::Relaying;
use self::feed::{Feed, Runtime};
use self::stores::Store;

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let all = ["c-relay", "relay", "vmagent", "targets"].map(str::to_owned);
    exit_code("scale-out", each(if wanted.is_empty() { &all } else { &wanted }))
}

fn each(names: &[String]) -> Result<()> {
    for name in names {
        match name.as_str() {
            "c-relay" => c_relay(),
            "relay" => relay(),
            "vmagent" => vmagent(),
            "targets" => targets::compare(),
            other => bail!("there is no {other:?}: c-relay, relay, vmagent, targets"),
        }
        .with_context(|| name.clone())?;
    }
    Ok(())
}

fn c_relay() -> Result<()> {
    let folder = Folder::new()?;
    let caches = stores::caches(&folder)?;
    let web = |(index, cache)| GraphiteWeb::spawn_named(&folder, &format!("web{index}"), cache);
    let webs: Vec<GraphiteWeb> = caches.iter().enumerate().map(web).collect::<Result<_>>()?;
    let web = GraphiteWeb::over(&folder, "web", &webs.iter().collect::<Vec<_>>())?;
    let relay = Relay::c(&folder, &caches.iter().collect::<Vec<_>>())?;
    let stores = caches.into_iter().map(Store::Cache).collect();
    let name = "carbon-c-relay, carbon_ch over three carbon-caches";
    play(name, stores, relay, Protocol::Plaintext, |stored| feed::read_through(&web, stored))
}

fn relay() -> Result<()> {
    let folder = Folder::new()?;
    let caches = stores::caches(&folder)?;
    let relay = Relay::carbon(&folder, &caches.iter().collect::<Vec<_>>())?;
    let stores = caches.into_iter().map(Store::Cache).collect();
    let name = "carbon-relay by pickle over three carbon-caches";
    play(name, stores, relay, Protocol::Pickle, |_| Ok(()))
}

fn vmagent() -> Result<()> {
    let folder = Folder::new()?;
    let stores = stores::victorias(&folder)?;
    let agent = Relay::vmagent(&folder, &victoria("vmagent")?, &stores)?;
    let stores = stores.into_iter().map(Store::Victoria).collect();
    play("vmagent over three VictoriaMetrics", stores, agent, Protocol::Plaintext, |_| Ok(()))
}

/// Runs the whole scenario. `read` reads the stored ticks as a user would.
fn play(
    name: &'static str,
    stores: Vec<Store>,
    relay: Relay,
    protocol: Protocol,
    read: impl Fn(usize) -> Result<()>,
) -> Result<()> {
    let runtime = Runtime::start()?;
    let feed = Feed::start(&runtime, &relay.address(), protocol)?;
    Relaying { name, stores, relay: relay.process, feed }.play(read)
}

/// A program from the VictoriaMetrics that run.sh has unpacked; the installed one may be too old.
fn victoria(name: &str) -> Result<PathBuf> {
    let folder =
        std::env::var_os("VICTORIA").context("VICTORIA names no folder: run `make scale-out`")?;
    Ok(PathBuf::from(folder).join(name))
}
