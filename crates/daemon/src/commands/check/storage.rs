//! Carbon's own configuration, if it can be read: whether its rules fit what the daemon sends.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use slurm_snapshot::Reading;

use super::carbon_conf::{CarbonConf, usual};
use super::rules::{self, Archives, Rule};
use super::{CheckLine, ini};
use crate::collectors::{Paths, fits};
use crate::commands::once::Ticks;
use crate::config::{Config, default_paths};
use crate::metric::Rollup;
use crate::tagged::tagged;
use crate::{prefix, self_metrics};

/// What would be sent, by path, or by name with tags where no destination gets paths.
type Series = BTreeMap<String, Sent>;

/// How one path is sent.
#[derive(Clone, Copy)]
struct Sent {
    rollup: Rollup,
    /// Seconds between two points.
    every: u32,
    /// Such a path will be there. Otherwise the documentation's word for what varies stands for any number of paths.
    is_exact: bool,
}

/// The lines of storage-schemas.conf, storage-aggregation.conf and carbon.conf.
pub(super) async fn lines(
    config: &Config,
    reading: Option<&Reading>,
    named: Option<&Path>,
) -> Vec<CheckLine> {
    let place = match named {
        Some(file) => CarbonConf { schemas: file.to_owned(), is_carbons: false },
        None => match usual(config).await {
            Ok(place) => place,
            Err(why) => return vec![CheckLine::unknown(format!("storage-schemas.conf: {why}"))],
        },
    };
    let Some(series) = series(config, reading) else {
        return vec![CheckLine::unknown(
            "storage-schemas.conf: not checked, because the prefix needs the cluster's name, which is not known",
        )];
    };
    let mut lines = schemas(config, &place, &series);
    lines.extend([aggregation(&place, &series), creates(config, &place, &series)]);
    lines
}

/// The paths of ticks, as far as they are known before the first tick; `metrics --count` counts the same ones.
pub(in crate::commands) fn paths(config: &Config, reading: &Reading) -> Vec<String> {
    let series = series(config, Some(reading)).unwrap_or_default();
    exact(&series).map(|(path, _)| path.clone()).collect()
}

/// A level for what has no path of its own (`other_users`, `no_qos`) comes with those that have, which are off by default.
fn is_of_the_rest(below: &str) -> bool {
    below.split('.').any(|component| component.starts_with("other_") || component.starts_with("no_"))
}

/// What a tick holds, and what the documentation says a later one may. `None` without the cluster's name.
fn series(config: &Config, reading: Option<&Reading>) -> Option<Series> {
    let host = prefix::host();
    let prefix = config.prefix.expand(reading.and_then(|reading| reading.cluster.as_deref()), &host)?;
    let mut series = Series::new();
    let mut add_every = |paths: &Paths, below: &str, every: u32| {
        let is_exact = !below.contains('<') && !is_of_the_rest(below);
        for leaf in paths.leaves.leaves() {
            let path = format!("{prefix}.{below}.gauge-{}", leaf.leaf).replace(['<', '>'], "");
            series.insert(path, Sent { rollup: leaf.rollup, every, is_exact });
        }
    };
    // What varies in a tick is in the dry one; of a survey the documentation's words stand for it.
    for (collector, settings) in config.collectors.enabled() {
        let is_survey = collector.is_survey();
        let every = if is_survey { settings.interval(config.interval) } else { config.interval };
        let has_users = settings.users() > Some(0);
        let may_vary = |paths: &&Paths| is_survey && (has_users || !paths.below.contains("<user>"));
        let wanted = |paths: &&Paths| !paths.below.contains('<') || may_vary(paths);
        let paths = collector.paths_with(settings).iter().filter(wanted);
        paths.for_each(|paths| add_every(paths, paths.below, every));
    }
    let replies = config.collectors.survey_replies();
    for (below, paths) in self_metrics::levels(&host, &config.carbon, &replies) {
        add_every(paths, &below, config.interval);
    }
    let dry_tick = reading.and_then(|reading| Ticks::new(config).batch(reading.clone()).ok());
    for point in dry_tick.iter().flat_map(|tick| tick.points()) {
        let mut known = config.collectors.enabled().flat_map(|(collector, _)| collector.paths);
        let rollup = known.find_map(|paths| rollup(paths, &prefix, point.path()));
        let rollup = rollup.unwrap_or(Rollup::Average);
        series.insert(point.path().to_owned(), Sent { rollup, every: config.interval, is_exact: true });
    }
    Some(match config.has_tags_only() {
        true => series.into_iter().map(|(path, sent)| (tagged(&path), sent)).collect(),
        false => series,
    })
}

/// How the documentation rolls `path` up, if it is one of these.
fn rollup(paths: &Paths, prefix: &str, path: &str) -> Option<Rollup> {
    let (below, leaf) = path.strip_prefix(prefix)?.strip_prefix('.')?.rsplit_once(".gauge-")?;
    fits(paths.below, below).then_some(())?;
    paths.leaves.leaves().into_iter().find(|known| known.leaf == leaf).map(|known| known.rollup)
}

fn schemas(config: &Config, place: &CarbonConf, series: &Series) -> Vec<CheckLine> {
    let title = format!("storage-schemas.conf ({})", place.schemas.display());
    let wrong = |text: String, advice: &str| vec![CheckLine::wrong(format!("{title}: {text}"), advice)];
    let text = match std::fs::read_to_string(&place.schemas) {
        Ok(text) => text,
        Err(error) => return wrong(error.to_string(), "May this user read it?"),
    };
    let rules = match rules::schemas(&text) {
        Ok(rules) => rules,
        Err(error @ rules::RuleError::Pattern(..)) => {
            return vec![CheckLine::unknown(format!("{title}: {error}"))];
        }
        Err(error) => return wrong(error.to_string(), "Correct it: Carbon does not start with it."),
    };
    let (fitting, misfits) = judge(config, &rules, series);
    if !misfits.is_empty() {
        let line = |Misfit { rule, of, what, advice }| {
            CheckLine::wrong(format!("{title}: {rule} is the first to match {of}: {what}"), advice)
        };
        return misfits.into_iter().map(line).collect();
    }
    let fitting =
        fitting.iter().map(|(every, rules)| format!("{} fits an interval of {every} s", rules.join(" and ")));
    vec![CheckLine::good(format!("{title}: {}", fitting.collect::<Vec<_>>().join(", ")))]
}

/// A rule that does not fit paths which it is the first to match.
struct Misfit {
    rule: String,
    of: String,
    what: String,
    advice: String,
}

/// The rules that fit, by the interval of the paths that they are the first to match, s; and those that do not.
fn judge(
    config: &Config,
    rules: &[Rule<Archives>],
    series: &Series,
) -> (BTreeMap<u32, Vec<String>>, Vec<Misfit>) {
    let (mut fitting, mut misfits) = (BTreeMap::<u32, Vec<String>>::new(), Vec::new());
    let all = exact(series).count();
    for rule in rules {
        let mut its: BTreeMap<u32, Series> = BTreeMap::new();
        for (path, sent) in series {
            if rules::first(rules, path).is_some_and(|first| std::ptr::eq(first, rule)) {
                its.entry(sent.every).or_default().insert(path.clone(), *sent);
            }
        }
        for (every, its) in its {
            let Some((what, advice)) = misfit(config, rule, every) else {
                fitting.entry(every).or_default().push(rule.title());
                continue;
            };
            let example = exact(&its).map(|(path, _)| path).next().or_else(|| its.keys().next());
            let example = example.map(String::as_str).unwrap_or_default();
            let of = match exact(&its).count() {
                0 => format!("such paths as {example}"),
                count if count == all => "every path".to_owned(),
                count => format!("{count} of {all} paths, such as {example}"),
            };
            misfits.push(Misfit { rule: rule.title(), of, what, advice });
        }
    }
    (fitting, misfits)
}

/// The series that will certainly exist.
fn exact(series: &Series) -> impl Iterator<Item = (&String, &Sent)> {
    series.iter().filter(|(_, sent)| sent.is_exact)
}

/// What does not fit about a rule, and what to do.
fn misfit(config: &Config, rule: &Rule<Archives>, every: u32) -> Option<(String, String)> {
    let (step, kept) = rule.says.finest();
    let interval = u64::from(every);
    let other = config.file.as_ref().filter(|file| !default_paths().contains(file));
    let with_file = other.map_or_else(String::new, |file| format!(" --config {}", file.display()));
    let above = format!(
        "Put the output of `slurm-graphite storage-schemas{with_file}` above it before the first start; whisper files that \
         exist already keep their archives until whisper-auto-resize."
    );
    if step > interval {
        return Some((
            format!("it keeps one point every {step} s, so ticks every {interval} s overwrite each other"),
            above,
        ));
    }
    if step < interval {
        return Some((
            format!("it keeps one point every {step} s, so an interval of {interval} s leaves holes"),
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
            format!(
                "it keeps its finest points for {}, less than queue.{key} ({})",
                span(kept),
                span(needed.as_secs())
            ),
            format!(
                "Keep them longer, or lower queue.{key}: an older point would overwrite a rolled-up value."
            ),
        )
    })
}

fn span(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

fn aggregation(place: &CarbonConf, series: &Series) -> CheckLine {
    let path = place.schemas.with_file_name("storage-aggregation.conf");
    let title = format!("storage-aggregation.conf ({})", path.display());
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if place.is_carbons && error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return CheckLine::unknown(format!("{title}: {error}")),
    };
    let rules = match rules::aggregations(&text) {
        Ok(rules) => rules,
        Err(error) => return CheckLine::unknown(format!("{title}: {error}")),
    };
    let wrong = |(path, sent): &(&String, &Sent)| {
        rules::first(&rules, path).is_some_and(|rule| rule.says != Some(sent.rollup))
    };
    let mut misfits = exact(series).filter(wrong);
    let Some((example, _)) = misfits.next() else {
        return CheckLine::good(format!("{title}: every path has the right roll-up"));
    };
    let rule = rules::first(&rules, example).map(Rule::title).unwrap_or_default();
    let count = misfits.count() + 1;
    CheckLine::wrong(
        format!(
            "{title}: {count} of {} paths have the wrong roll-up, such as {example} by {rule}",
            exact(series).count()
        ),
        "Put the rules of slurm-graphite's config/carbon/storage-aggregation.conf above all other rules: averaging a counter \
         or a maximum gives meaningless values.",
    )
}

/// MAX_CREATES_PER_MINUTE against the series that Carbon does not have yet.
fn creates(config: &Config, place: &CarbonConf, series: &Series) -> CheckLine {
    let path = place.schemas.with_file_name("carbon.conf");
    let title = format!("carbon.conf ({})", path.display());
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return CheckLine::unknown(format!("{title}: {error}")),
    };
    let caches = ini::caches(&text);
    let limits =
        caches.iter().filter_map(|section| section.get("max_creates_per_minute")?.parse::<f64>().ok());
    let limit = limits.fold(f64::INFINITY, f64::min);
    if limit.is_infinite() {
        return CheckLine::good(format!("{title}: Carbon creates new series without a limit"));
    }
    if config.has_tags_only() {
        let count = exact(series).count();
        return CheckLine::unknown(format!(
            "{title}: {limit} new series a minute; how many of these {count} exist is not checked, because the files of series with \
             tags are named by hashes"
        ));
    }
    let whisper = caches.iter().find_map(|section| section.get("local_data_dir")).map(Path::new);
    let new = match whisper.filter(|whisper| whisper.is_dir() && place.is_carbons) {
        Some(whisper) => exact(series)
            .filter(|(path, _)| !whisper.join(format!("{}.wsp", path.replace('.', "/"))).exists())
            .count(),
        None => exact(series).count(),
    };
    let more = match config.collectors.enabled().any(|(collector, _)| collector.is_survey()) {
        true => "; those of jobs, nodes and so on come on top: see `slurm-graphite metrics --count`",
        false => "",
    };
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53")]
    let minutes = (new as f64 / limit).ceil();
    if minutes <= 1.0 {
        return CheckLine::good(format!(
            "{title}: {new} series are new, Carbon creates up to {limit} a minute{more}"
        ));
    }
    CheckLine::costs(
        format!(
            "{title}: Carbon needs {minutes} minutes to create {new} series at {limit} a minute, and drops points of those that it has not \
             created{more}"
        ),
        "Raise MAX_CREATES_PER_MINUTE and restart Carbon before the first start, or accept those minutes without points.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_rules_fit_the_defaults_and_every_path_is_known_to_them() {
        let config = Config::default();
        let series = series(&config, None).unwrap();
        assert!(exact(&series).count() > 50);
        let rules =
            rules::schemas(include_str!("../../../../../config/carbon/storage-schemas.conf")).unwrap();
        for path in series.keys() {
            let rule = rules::first(&rules, path).unwrap();
            assert!(rule.name.is_some() && misfit(&config, rule, 30).is_none(), "{path}");
        }
    }

    #[test]
    fn the_shipped_aggregation_fits_every_prefix_and_nobody_else() {
        let text = include_str!("../../../../../config/carbon/storage-aggregation.conf");
        let rules = rules::aggregations(text).unwrap();
        let with_tags = "[[carbon]]\naddress = \"a:2004\"\ntags = true\n";
        for (prefix, more) in
            [("cluster", ""), ("standby", ""), ("hpc.{host}", ""), ("hpc.{host}", with_tags)]
        {
            let config = Config::of(&format!("prefix = {prefix:?}\n{more}"));
            for (path, sent) in &series(&config, None).unwrap() {
                let rule = rules::first(&rules, path).unwrap();
                assert!(rule.name.is_some() && rule.says == Some(sent.rollup), "{path}");
            }
        }
        for other in [
            "carbon.agents.slurm_node-a.metricsReceived",
            "collectd.slurm_node.load.gauge.shortterm",
            "servers.slurm.gauge-count",
            "servers.slurmctld.jobs_started",
            "my_slurm_jobs.gauge-jobs",
        ] {
            assert_eq!(rules::first(&rules, other).unwrap().name, None, "{other}");
        }
    }

    const SURVEYS: [&str; 7] =
        ["jobs", "nodes", "partitions", "licenses", "reservations", "associations", "controllers"];

    /// With each survey alone, and with all of them, at several intervals.
    fn surveying() -> Vec<Config> {
        let on = |names: &[&str], more: &str| -> String {
            names.iter().map(|name| format!("[collectors.{name}]\nenabled = true\n{more}")).collect()
        };
        let alone = SURVEYS.iter().map(|name| on(&[name], ""));
        let users = "[collectors.rpc_stats]\nusers = 5\n".to_owned() + &on(&["jobs"], "users = 5\n");
        let several = [
            on(&SURVEYS, ""),
            on(&SURVEYS, "interval = \"5m\"\n"),
            format!("interval = \"10s\"\nprefix = \"hpc.{{host}}\"\n{}", on(&SURVEYS, "")),
            format!("interval = \"2m\"\n{}", on(&SURVEYS, "")),
            on(&["jobs"], "interval = \"10m\"\n") + &on(&["nodes"], ""),
            users.clone() + "[[carbon]]\naddress = \"a:2004\"\ntags = true\n",
            users,
        ];
        alone.chain(several).map(|toml| Config::of(&toml)).collect()
    }

    #[test]
    fn our_own_rules_are_right_for_every_survey() {
        for config in surveying() {
            let text = crate::commands::storage_schemas::document(&config);
            let (_, misfits) =
                judge(&config, &rules::schemas(&text).unwrap(), &series(&config, None).unwrap());
            let misfits: Vec<_> = misfits.iter().map(|m| format!("{} {} {}", m.rule, m.of, m.what)).collect();
            assert_eq!(misfits, [""; 0], "{text}");
        }
    }

    #[test]
    fn of_jobs_states_alone_no_series_is_new_that_never_comes() {
        let on = "[slurm]\nrest = \"unix:/s\"\n[collectors.jobs]\nenabled = true\nstates_only = true";
        let series = series(&Config::of(on), None).unwrap();
        let jobs: Vec<&str> =
            series.keys().filter_map(|path| path.strip_prefix("cluster.slurm_jobs.")).collect();
        assert_eq!(jobs, ["state.state.gauge-jobs", "total.gauge-jobs", "total.gauge-unparsed"]);
    }

    #[test]
    fn a_rule_for_the_ticks_that_takes_a_survey_too_is_wrong() {
        for config in surveying() {
            let text = crate::commands::storage_schemas::document(&config);
            let (_, own) = text.rsplit_once("[slurm_graphite]").unwrap();
            let rules = rules::schemas(&format!("[slurm_graphite]{own}")).unwrap();
            let (fitting, misfits) = judge(&config, &rules, &series(&config, None).unwrap());
            assert!(fitting.contains_key(&config.interval), "{own}");
            let differs = config.interval != 120;
            assert_eq!(misfits.iter().any(|misfit| misfit.what.contains("leaves holes")), differs, "{own}");
        }
    }

    #[test]
    fn a_queue_that_may_be_older_than_the_finest_archive_does_not_fit() {
        let mut config = Config::default();
        let says = |retentions: &str| {
            let text = format!("[a]\npattern = .*\nretentions = {retentions}\n");
            rules::schemas(&text).unwrap().remove(0)
        };
        let misfit_of = |config: &Config, rule: &Rule<Archives>| misfit(config, rule, 30);
        assert!(misfit_of(&config, &says("30s:1d")).is_none());
        assert!(
            misfit_of(&config, &says("30s:6h"))
                .is_some_and(|(what, _)| what.contains("6h, less than queue.max_age (12h)"))
        );
        config.queue.limits.max_age = Duration::from_secs(60);
        config.queue.limits.resend_window = Duration::from_secs(86_401);
        assert!(misfit_of(&config, &says("30s:1d")).is_some_and(|(what, _)| what.contains("resend_window")));
        assert!(
            misfit_of(&config, &says("60s:1y"))
                .is_some_and(|(what, _)| what.contains("overwrite each other"))
        );
        assert!(misfit_of(&config, &says("10s:1y")).is_some_and(|(what, _)| what.contains("holes")));
    }

    #[test]
    fn what_varies_in_a_path_matches_anything_and_nothing_else_does() {
        let paths = self_metrics::PATHS.iter().find(|paths| paths.below.ends_with("<destination>")).unwrap();
        let of = |path: &str| rollup(paths, "hpc.x", path);
        assert_eq!(of("hpc.x.slurm_graphite.node1.carbon.main.gauge-connects"), Some(Rollup::Last));
        assert_eq!(of("hpc.x.slurm_graphite.node1.queue.main.gauge-connects"), None);
        assert_eq!(of("hpc.slurm_graphite.node1.carbon.main.gauge-connects"), None);
    }
}
