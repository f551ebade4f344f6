//! Carbon's own configuration, where it can be read: whether its rules fit what the daemon sends.
//!
//! It can where Carbon is on this host, or a copy of its folder is named. A file of this host says nothing of a Carbon
//! elsewhere, nor of another Carbon here: the ports in carbon.conf must be those that are sent to.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use carbon::{Destination, Protocol, path};
use slurm_snapshot::Reading;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::ini::Ini;
use super::rules::{self, Archives, Rule};
use super::{Report, dry_tick};
use crate::collectors::{COLLECTORS, Paths, Rollup, Settings};
use crate::config::Config;
use crate::{health, naming};

/// Debian's place, and that of everybody else.
const USUAL: [&str; 2] = ["/etc/carbon", "/opt/graphite/conf"];

/// What would be sent: every path, and how it should be rolled up.
type Series = BTreeMap<String, Rollup>;

/// The folder with Carbon's files.
struct Place {
    schemas: PathBuf,
    /// Carbon itself reads it: what is not there is not there for Carbon either.
    is_carbons: bool,
}

/// The lines about all of it.
pub(super) async fn look(
    config: &Config,
    reading: Option<&Reading>,
    named: Option<&Path>,
    report: &mut Report,
) -> Result<()> {
    let place = match named {
        Some(file) => Place { schemas: file.to_owned(), is_carbons: false },
        None => match usual(config).await {
            Ok(place) => place,
            Err(why) => return report.unknown(&format!("storage-schemas.conf: {why}")),
        },
    };
    let Some(series) = series(config, reading) else {
        return report.unknown(
            "storage-schemas.conf: not looked at, for the prefix needs the cluster's name, which slurmctld did not tell",
        );
    };
    schemas(config, &place, &series, report)?;
    aggregation(&place, &series, report)?;
    creates(&place, &series, report)
}

/// The folder of the Carbon that is sent to, or why none is known.
async fn usual(config: &Config) -> Result<Place, String> {
    if config.carbon.is_empty() {
        return Err("no Carbon is named".to_owned());
    }
    let mut others = None;
    for to in &config.carbon {
        if !is_here(to).await {
            continue;
        }
        for folder in USUAL.map(Path::new) {
            let Ok(text) = std::fs::read_to_string(folder.join("carbon.conf")) else { continue };
            if ports(&text, to.protocol).contains(&to.address.port()) {
                return Ok(Place { schemas: folder.join("storage-schemas.conf"), is_carbons: true });
            }
            others = Some(format!(
                "the Carbon of {} does not listen on port {}; say --storage-schemas FILE",
                folder.display(),
                to.address.port()
            ));
        }
        others.get_or_insert_with(|| format!("not in {}; say --storage-schemas FILE", USUAL.join(" nor ")));
    }
    Err(others.unwrap_or_else(|| {
        "Carbon is on another host; copy its folder of configuration here, and say --storage-schemas FILE"
            .to_owned()
    }))
}

/// Whether it is an address of this host: only such can be bound to.
async fn is_here(to: &Destination) -> bool {
    let looked_up = timeout(Duration::from_secs(2), lookup_host(to.address.to_string())).await;
    let Ok(Ok(mut addresses)) = looked_up else { return false };
    addresses.any(|address| UdpSocket::bind((address.ip(), 0)).is_ok())
}

/// Where a carbon-cache of this carbon.conf listens for `protocol`.
fn ports(text: &str, protocol: Protocol) -> Vec<u16> {
    let key = match protocol {
        Protocol::Pickle => "pickle_receiver_port",
        Protocol::Plaintext => "line_receiver_port",
    };
    let ini = Ini::parse(text);
    let caches = ini.sections().iter().filter(|section| section.name.starts_with("cache"));
    caches.filter_map(|section| section.get(key)?.parse().ok()).collect()
}

/// What a tick holds, and what the documentation says a later one may. `None` without the cluster's name.
fn series(config: &Config, reading: Option<&Reading>) -> Option<Series> {
    let host = naming::host();
    let prefix = config.prefix.fill(reading.and_then(|reading| reading.cluster.as_deref()), &host)?;
    let enabled = COLLECTORS.iter().filter(|collector| {
        let Config { interval, collectors, .. } = config;
        (collector.start)(&Settings { interval: *interval, collectors, memory: None }).is_some()
    });
    let documented: Vec<&Paths> = enabled.flat_map(|collector| collector.paths).collect();
    let mut series = Series::new();
    let mut add = |paths: &Paths, below: &str| {
        for leaf in paths.leaves.leaves() {
            series.insert(format!("{prefix}.{below}.gauge-{}", leaf.leaf), leaf.rollup);
        }
    };
    for paths in documented.iter().filter(|paths| !paths.below.contains('<')) {
        add(paths, paths.below);
    }
    let host = path::component(&host);
    for paths in health::PATHS {
        let below = paths.below.replace("<host>", &host);
        if !below.contains('<') {
            add(paths, &below);
            continue;
        }
        if below.contains("<reply>") {
            config.collectors.replies().for_each(|reply| add(paths, &below.replace("<reply>", reply)));
            continue;
        }
        for to in &config.carbon {
            add(paths, &below.replace("<destination>", &path::component(&to.name)));
        }
    }
    for point in reading.and_then(|reading| dry_tick(config, reading)).iter().flat_map(|tick| tick.points()) {
        let rollup = documented.iter().find_map(|paths| rollup(paths, &prefix, point.path()));
        series.entry(point.path().to_owned()).or_insert(rollup.unwrap_or(Rollup::Average));
    }
    Some(series)
}

/// How the documentation rolls `path` up, if it is one of these.
fn rollup(paths: &Paths, prefix: &str, path: &str) -> Option<Rollup> {
    let (below, leaf) = path.strip_prefix(prefix)?.strip_prefix('.')?.rsplit_once(".gauge-")?;
    let (mut given, mut documented) = (below.split('.'), paths.below.split('.'));
    loop {
        match (given.next(), documented.next()) {
            (None, None) => break,
            (Some(given), Some(documented)) if documented.starts_with('<') || given == documented => {}
            _ => return None,
        }
    }
    paths.leaves.leaves().into_iter().find(|known| known.leaf == leaf).map(|known| known.rollup)
}

fn schemas(config: &Config, place: &Place, series: &Series, report: &mut Report) -> Result<()> {
    let title = format!("storage-schemas.conf ({})", place.schemas.display());
    let text = match std::fs::read_to_string(&place.schemas) {
        Ok(text) => text,
        Err(error) => return report.wrong(&format!("{title}: {error}"), "May this user read it?"),
    };
    let rules = match rules::schemas(&text) {
        Ok(rules) => rules,
        Err(error @ rules::RuleError::Pattern(..)) => return report.unknown(&format!("{title}: {error}")),
        Err(error) => {
            return report.wrong(&format!("{title}: {error}"), "Correct it: Carbon does not start so.");
        }
    };
    let mut wrong = false;
    let mut fitting = Vec::new();
    for rule in &rules {
        let mut its =
            series.keys().filter(|path| rules::first(&rules, path).is_some_and(|r| std::ptr::eq(r, rule)));
        let Some(example) = its.next() else { continue };
        let count = its.count() + 1;
        match misfit(config, rule) {
            None => fitting.push(rule.title()),
            Some((what, advice)) => {
                wrong = true;
                let of = if count == series.len() {
                    "every path".to_owned()
                } else {
                    format!("{count} of {} paths, such as {example}", series.len())
                };
                report.wrong(
                    &format!("{title}: {} is the first to match {of}: {what}", rule.title()),
                    &advice,
                )?;
            }
        }
    }
    if wrong {
        return Ok(());
    }
    report.good(&format!("{title}: {} fits an interval of {} s", fitting.join(" and "), config.interval))
}

/// What does not fit about a rule, and what to do.
fn misfit(config: &Config, rule: &Rule<Archives>) -> Option<(String, String)> {
    let (step, kept) = rule.says.finest();
    let interval = u64::from(config.interval);
    let above = "Put what `slurm-graphite storage-schemas` prints above it, before the first start; a file that is \
                 there already keeps its archives until whisper-resize.";
    if step > interval {
        return Some((
            format!(
                "it keeps a point every {step} s, so that those of several ticks of {interval} s meet in one slot"
            ),
            above.to_owned(),
        ));
    }
    if step < interval {
        return Some((
            format!("it keeps a point every {step} s, so that an interval of {interval} s leaves holes"),
            format!("{above} Or set interval to {step} s."),
        ));
    }
    let limits = &config.queue.limits;
    let (key, needed) = if limits.max_age >= limits.resend_window {
        ("max_age", limits.max_age)
    } else {
        ("resend_window", limits.resend_window)
    };
    (kept < needed.as_secs()).then(|| {
        (
            format!("it keeps its finest points for {}, less than queue.{key} ({})", span(kept), span(needed.as_secs())),
            format!("Keep them longer, or lower queue.{key}: an older point would overwrite a value that is rolled up."),
        )
    })
}

fn span(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

fn aggregation(place: &Place, series: &Series, report: &mut Report) -> Result<()> {
    let path = place.schemas.with_file_name("storage-aggregation.conf");
    let title = format!("storage-aggregation.conf ({})", path.display());
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if place.is_carbons && error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return report.unknown(&format!("{title}: {error}")),
    };
    let rules = match rules::aggregations(&text) {
        Ok(rules) => rules,
        Err(error) => return report.unknown(&format!("{title}: {error}")),
    };
    let wrong = |(path, wanted): &(&String, &Rollup)| {
        rules::first(&rules, path).is_some_and(|rule| rule.says != Some(**wanted))
    };
    let mut misfits = series.iter().filter(wrong);
    let Some((example, _)) = misfits.next() else {
        return report.good(&format!("{title}: rolls every path up as it should"));
    };
    let rule = rules::first(&rules, example).map(Rule::title).unwrap_or_default();
    let count = misfits.count() + 1;
    report.wrong(
        &format!("{title}: {count} of {} paths are rolled up in a wrong way, such as {example} by {rule}", series.len()),
        "Put config/carbon/storage-aggregation.conf of slurm-graphite above all other rules: the mean of a counter or \
         of a maximum is none.",
    )
}

/// MAX_CREATES_PER_MINUTE against the series that Carbon does not have yet.
fn creates(place: &Place, series: &Series, report: &mut Report) -> Result<()> {
    let path = place.schemas.with_file_name("carbon.conf");
    let title = format!("carbon.conf ({})", path.display());
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return report.unknown(&format!("{title}: {error}")),
    };
    let ini = Ini::parse(&text);
    let caches = || ini.sections().iter().filter(|section| section.name.starts_with("cache"));
    let limits = caches().filter_map(|section| section.get("max_creates_per_minute")?.parse::<f64>().ok());
    let limit = limits.fold(f64::INFINITY, f64::min);
    if limit.is_infinite() {
        return report.good(&format!("{title}: new series are made without a limit"));
    }
    let whisper = caches().find_map(|section| section.get("local_data_dir")).map(Path::new);
    let new = match whisper.filter(|whisper| whisper.is_dir() && place.is_carbons) {
        Some(whisper) => series
            .keys()
            .filter(|path| !whisper.join(format!("{}.wsp", path.replace('.', "/"))).exists())
            .count(),
        None => series.len(),
    };
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53")]
    let minutes = (new as f64 / limit).ceil();
    if minutes <= 1.0 {
        return report.good(&format!("{title}: {new} series are new, {limit} a minute are made"));
    }
    report.wrong(
        &format!(
            "{title}: {new} series at {limit} a minute take {minutes} minutes; points of series not yet created are dropped"
        ),
        "Raise MAX_CREATES_PER_MINUTE before the first start and restart Carbon, or let those minutes pass.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_rules_fit_the_defaults_and_every_path_is_known_to_them() {
        let config = Config::default();
        let series = series(&config, None).unwrap();
        assert!(series.len() > 50);
        let rules =
            rules::schemas(include_str!("../../../../../config/carbon/storage-schemas.conf")).unwrap();
        for path in series.keys() {
            let rule = rules::first(&rules, path).unwrap();
            assert!(rule.name.is_some() && misfit(&config, rule).is_none(), "{path}");
        }
        let text = include_str!("../../../../../config/carbon/storage-aggregation.conf");
        let rules = rules::aggregations(text).unwrap();
        for (path, rollup) in &series {
            assert_eq!(rules::first(&rules, path).unwrap().says, Some(*rollup), "{path}");
        }
    }

    #[test]
    fn a_queue_that_may_be_older_than_the_finest_archive_does_not_fit() {
        let mut config = Config::default();
        let says = |retentions: &str| {
            let text = format!("[a]\npattern = .*\nretentions = {retentions}\n");
            rules::schemas(&text).unwrap().remove(0)
        };
        assert!(misfit(&config, &says("30s:1d")).is_none());
        assert!(
            misfit(&config, &says("30s:6h"))
                .is_some_and(|(what, _)| what.contains("6h, less than queue.max_age (12h)"))
        );
        config.queue.limits.max_age = Duration::from_secs(60);
        config.queue.limits.resend_window = Duration::from_secs(86_401);
        assert!(misfit(&config, &says("30s:1d")).is_some_and(|(what, _)| what.contains("resend_window")));
        assert!(misfit(&config, &says("60s:1y")).is_some_and(|(what, _)| what.contains("meet in one slot")));
        assert!(misfit(&config, &says("10s:1y")).is_some_and(|(what, _)| what.contains("holes")));
    }

    #[test]
    fn only_the_ports_of_a_cache_are_those_of_its_rules() {
        let text = "[cache]\nPICKLE_RECEIVER_PORT = 2004\n[cache:b]\nPICKLE_RECEIVER_PORT = 2104\nLINE_RECEIVER_PORT = 2103\n[relay]\nPICKLE_RECEIVER_PORT = 2014\n";
        assert_eq!(ports(text, Protocol::Pickle), [2004, 2104]);
        assert_eq!(ports(text, Protocol::Plaintext), [2103]);
    }

    #[test]
    fn what_varies_in_a_path_matches_anything_and_nothing_else_does() {
        let paths = health::PATHS.iter().find(|paths| paths.below.ends_with("<destination>")).unwrap();
        let of = |path: &str| rollup(paths, "hpc.x", path);
        assert_eq!(of("hpc.x.slurm_graphite.node1.carbon.main.gauge-connects"), Some(Rollup::Last));
        assert_eq!(of("hpc.x.slurm_graphite.node1.queue.main.gauge-connects"), None);
        assert_eq!(of("hpc.slurm_graphite.node1.carbon.main.gauge-connects"), None);
    }
}
