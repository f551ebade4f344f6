//! Carbon's own configuration, if it can be read: whether its rules fit what the daemon sends.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use slurm_points::levels::DocumentedLevel;
use slurm_points::metric::{Leaf, Rollup};

use super::carbon_conf::CarbonConf;
use super::rules::{self, Rule, RuleError};
use super::series::Series;
use super::{CheckLine, ini, read_text};
use crate::commands::carbon_rules::{self, AGGREGATION, Block, SCHEMAS};
use crate::config::retentions::in_carbons_words;
use crate::config::{Config, default_paths};
use crate::host::host;
use crate::self_metrics;
use crate::tagged::tagged;

/// A figure that the daemon may send, at a documented level. It has a path, or a name with tags if
/// no destination gets paths.
struct Figure {
    /// The path, in which the documentation's word stands for what varies: the rules are the same
    /// for every user or partition.
    path: String,
    rollup: Rollup,
    /// Seconds between two points.
    every: u32,
}

/// Returns a note if ticks in the queue may be older than `[graphite] retentions` keeps the finest
/// points. It is for a Carbon whose rules are not known.
pub(super) fn long_queue(config: &Config) -> Option<CheckLine> {
    let (key, needed) = longest(config);
    (needed > config.retentions.finest).then(|| {
        CheckLine::costs(
            format!(
                "queue: {key} is {}; Carbon must keep the finest points as long",
                in_carbons_words(needed)
            ),
            "`slurm-graphite carbon-rules` prints such rules; whisper files that exist already \
             keep their archives until whisper-auto-resize.",
        )
    })
}

/// The longest delay with which a tick may be sent, s, and the key that sets it.
fn longest(config: &Config) -> (&'static str, u64) {
    let limits = &config.queue.limits;
    let keys = [("max_age", limits.max_age), ("resend_window", limits.resend_window)];
    let [age, window] = keys.map(|(key, duration)| (key, duration.as_secs()));
    if age.1 >= window.1 { age } else { window }
}

/// The lines of storage-schemas.conf, storage-aggregation.conf and carbon.conf.
pub(super) fn lines(
    config: &Config,
    cluster: Option<&str>,
    series: Option<&Series>,
    place: &CarbonConf,
) -> Vec<CheckLine> {
    let Some(figures) = figures(config, cluster) else {
        return vec![CheckLine::unknown(
            "storage-schemas.conf: not checked, because the prefix needs the cluster's name, which \
                is not known",
        )];
    };
    let files = [
        schemas(config, place, &figures),
        aggregation(config, place, &figures),
        creates(config, place, series).map(|line| vec![line]),
    ];
    files.into_iter().flat_map(|file| file.unwrap_or_else(|line| vec![line])).collect()
}

/// Reads one of Carbon's files. Also returns what a line about it begins with.
fn read_file(name: &str, path: &Path) -> (String, std::io::Result<String>) {
    (format!("{name} ({})", path.display()), read_text(path))
}

/// A note if the file has a block of `carbon-rules` that is not the one that this configuration
/// needs.
fn outdated(
    config: &Config,
    title: &str,
    file: &Path,
    text: &str,
    block: &Block,
) -> Option<CheckLine> {
    let what = match block.is_outdated_in(text.as_bytes()) {
        Ok(false) => return None,
        Ok(true) => {
            "its block of slurm-graphite is not the one that this configuration needs".to_owned()
        }
        Err(error) => error.to_string(),
    };
    let folder = file.parent().unwrap_or(Path::new("/")).display();
    Some(CheckLine::costs(
        format!("{title}: {what}"),
        format!(
            "Run `slurm-graphite carbon-rules{} --write {folder}`; with --dry-run it prints the \
                difference.",
            with_file(config)
        ),
    ))
}

/// Returns the option with which a command reads the same configuration, or nothing if it does so
/// without one.
fn with_file(config: &Config) -> String {
    let other = config.file.as_ref().filter(|file| !default_paths().contains(file));
    other.map_or_else(String::new, |file| format!(" --config {}", file.display()))
}

/// Returns the advice to run the command that writes the rules where Carbon reads them: one remedy
/// for all of its files. `None`: they are a copy, not Carbon's own.
fn write_here(config: &Config, place: &CarbonConf) -> Option<String> {
    let folder = place.schemas.parent().filter(|_| place.is_carbons)?;
    let (with, folder) = (with_file(config), folder.display());
    Some(format!(
        "Run `sudo slurm-graphite carbon-rules{with} --write {folder} --max-creates 1000`"
    ))
}

/// Returns every figure that may be sent. `None`: the prefix needs the cluster's name, which is not
/// known.
fn figures(config: &Config, cluster: Option<&str>) -> Option<Vec<Figure>> {
    let host = host();
    let prefix = config.prefix.expand(cluster, &host)?;
    let figure = |(below, level, every): (String, &DocumentedLevel, u32)| -> Vec<Figure> {
        let below = below.replace(['<', '>'], "");
        let figure = |leaf: Leaf| {
            let path = format!("{prefix}.{below}.gauge-{}", leaf.leaf);
            let path = if config.has_tags_only() { tagged(&path) } else { path };
            Figure { path, rollup: leaf.rollup, every }
        };
        level.leaves().into_iter().map(figure).collect()
    };
    let collectors = config.collectors.enabled().flat_map(|(collector, settings)| {
        let every = if collector.is_survey() {
            settings.interval(config.interval)
        } else {
            config.interval
        };
        let is_sent = move |level: &&'static DocumentedLevel| {
            settings.users() > Some(0) || !level.below.contains("<user>")
        };
        let levels = collector.levels_with(settings).filter(is_sent);
        levels.map(move |level| (level.below.to_owned(), level, every))
    });
    let own = self_metrics::levels(&host, &config.carbon, &config.collectors.survey_replies());
    let own = own.into_iter().map(|(below, level)| (below, level, config.interval));
    Some(collectors.chain(own).flat_map(figure).collect())
}

/// The lines of storage-schemas.conf; the error is the line of a file that cannot be judged.
fn schemas(
    config: &Config,
    place: &CarbonConf,
    figures: &[Figure],
) -> Result<Vec<CheckLine>, CheckLine> {
    let (title, text) = read_file(SCHEMAS, &place.schemas);
    let wrong =
        |text: &dyn Display, advice: &str| CheckLine::wrong(format!("{title}: {text}"), advice);
    let text = text.map_err(|error| wrong(&error, "May this user read it?"))?;
    let rules = rules::schemas(&text).map_err(|error| match error {
        RuleError::Pattern(..) => CheckLine::unknown(format!("{title}: {error}")),
        RuleError::Retentions(..) => wrong(&error, "Correct it: Carbon does not start with it."),
    })?;
    let Judgement { fitting, misfits } = judge(config, place, &rules, figures);
    let block = carbon_rules::schemas(config);
    let mut lines: Vec<CheckLine> =
        misfits.iter().map(|(text, advice)| wrong(text, advice)).collect();
    if lines.is_empty() {
        let fitting = fitting.iter().map(|(every, rules)| {
            let fit = if rules.len() == 1 { "fits" } else { "fit" };
            format!("{} {fit} an interval of {every} s", rules.join(" and "))
        });
        let fitting = fitting.collect::<Vec<_>>().join(", ");
        // Rules that fit are the site's to choose.
        let edited = match block.is_outdated_in(text.as_bytes()) {
            Ok(true) => "; edited here (`[graphite] retentions` survives `carbon-rules --write`)",
            _ => "",
        };
        lines.push(CheckLine::good(format!("{title}: {fitting}{edited}")));
        if !edited.is_empty() {
            return Ok(lines);
        }
    }
    lines.extend(outdated(config, &title, &place.schemas, &text, &block));
    Ok(lines)
}

/// The effect of Carbon's rules on the figures.
#[derive(Default)]
struct Judgement {
    /// The rules that fit, by the seconds between two points of the figures for which they are the
    /// first to match.
    fitting: BTreeMap<u32, Vec<String>>,
    /// The rules that do not fit, each with what to do.
    misfits: Vec<(String, String)>,
}

fn judge(
    config: &Config,
    place: &CarbonConf,
    rules: &[Rule<(u64, u64)>],
    figures: &[Figure],
) -> Judgement {
    let mut matched = BTreeMap::<_, Vec<&str>>::new();
    for Figure { path, every, .. } in figures {
        let first = rules.iter().position(|rule| rule.matches(path));
        matched.entry((first, *every)).or_default().push(path);
    }
    let mut judged = Judgement::default();
    for ((first, every), paths) in &matched {
        let Some(rule) = first.and_then(|first| rules.get(first)) else { continue };
        let Some((what, advice)) = misfit(config, place, rule, *every) else {
            judged.fitting.entry(*every).or_default().push(rule.title.clone());
            continue;
        };
        let subject = match (paths.len(), figures.len(), paths.first()) {
            (count, all, Some(example)) if count < all => {
                format!("{count} of {all} kinds of paths, such as {example}")
            }
            _ => "every path".to_owned(),
        };
        judged
            .misfits
            .push((format!("{} is the first to match {subject}: {what}", rule.title), advice));
    }
    judged
}

/// Returns what is wrong with a rule for figures that come every `every` seconds, and what to do.
/// `None`: the rule fits.
fn misfit(
    config: &Config,
    place: &CarbonConf,
    rule: &Rule<(u64, u64)>,
    every: u32,
) -> Option<(String, String)> {
    let (step, kept) = rule.says;
    let interval = u64::from(every);
    let rules = write_here(config, place).unwrap_or_else(|| {
        let with = with_file(config);
        format!("Put the rules that `slurm-graphite carbon-rules{with}` prints above it")
    });
    let above = format!(
        "{rules} before the first start; whisper files that exist already keep their archives \
         until whisper-auto-resize."
    );
    let (key, needed) = longest(config);
    if step > interval {
        let what = format!(
            "it keeps one point every {step} s, so ticks every {interval} s overwrite each other"
        );
        Some((what, above))
    } else if step < interval {
        let what = format!(
            "it keeps one point every {step} s, so an interval of {interval} s leaves holes"
        );
        Some((what, format!("{above} Or set interval to {step} s.")))
    } else if kept < needed {
        let kept = in_carbons_words(kept);
        let needed = in_carbons_words(needed);
        Some((
            format!("it keeps its finest points for {kept}, less than queue.{key} ({needed})"),
            format!(
                "Keep them longer, or lower queue.{key}: an older point would overwrite a \
                    rolled-up value."
            ),
        ))
    } else {
        None
    }
}

/// The lines of storage-aggregation.conf; the error is the line of a file that cannot be judged.
fn aggregation(
    config: &Config,
    place: &CarbonConf,
    figures: &[Figure],
) -> Result<Vec<CheckLine>, CheckLine> {
    let path = place.schemas.with_file_name(AGGREGATION);
    let (title, text) = read_file(AGGREGATION, &path);
    let unknown = |error: &dyn Display| CheckLine::unknown(format!("{title}: {error}"));
    let text = match text {
        Err(error) if place.is_carbons && error.kind() == std::io::ErrorKind::NotFound => {
            String::new()
        }
        text => text.map_err(|error| {
            CheckLine::costs(
                format!(
                    "{title}: {error}; without its rules Carbon averages counters and maxima, and \
                     drops sparse points when it rolls up"
                ),
                format!(
                    "Copy that file too, or put there what `slurm-graphite carbon-rules{} --file \
                     aggregation` prints.",
                    with_file(config)
                ),
            )
        })?,
    };
    let rules = rules::aggregations(&text).map_err(|error| unknown(&error))?;
    let misfit = |figure: &Figure| {
        let rule =
            rules::first(&rules, &figure.path).filter(|rule| rule.says != Some(figure.rollup))?;
        Some(format!("{} by {}", figure.path, rule.title))
    };
    let misfits: Vec<String> = figures.iter().filter_map(misfit).collect();
    let line = match misfits.first() {
        None => CheckLine::good(format!("{title}: every path has the right roll-up")),
        Some(example) => CheckLine::wrong(
            format!(
                "{title}: {} of {} kinds of paths have the wrong roll-up, such as {example}",
                misfits.len(),
                figures.len()
            ),
            format!(
                "{}: averaging a counter or a maximum gives meaningless values.",
                write_here(config, place).unwrap_or_else(|| {
                    "Put the rules that `slurm-graphite carbon-rules --file aggregation` prints \
                     above all other rules"
                        .to_owned()
                })
            ),
        ),
    };
    let outdated = outdated(config, &title, &path, &text, &carbon_rules::aggregation());
    Ok([line].into_iter().chain(outdated).collect())
}

/// Compares MAX_CREATES_PER_MINUTE with the number of series that Carbon does not have yet.
fn creates(
    config: &Config,
    place: &CarbonConf,
    series: Option<&Series>,
) -> Result<CheckLine, CheckLine> {
    let (title, text) = read_file("carbon.conf", &place.schemas.with_file_name("carbon.conf"));
    let caches =
        ini::caches(&text.map_err(|error| CheckLine::unknown(format!("{title}: {error}")))?);
    let limits = caches
        .iter()
        .filter_map(|section| section.get("max_creates_per_minute")?.parse::<f64>().ok());
    let limit = limits.fold(f64::INFINITY, f64::min);
    if limit.is_infinite() {
        return Ok(CheckLine::good(format!("{title}: Carbon creates new series without a limit")));
    }
    let unknown = |why| {
        let text = format!(
            "{title}: {limit} new series a minute; how many it must create is not known, {why}"
        );
        CheckLine::unknown(text)
    };
    let series = series.ok_or_else(|| unknown("because the series were not counted"))?;
    if config.has_tags_only() {
        return Err(unknown("because the files of series with tags are named by hashes"));
    }
    let whisper = caches.iter().find_map(|section| section.get("local_data_dir")).map(Path::new);
    let new = match whisper.filter(|whisper| whisper.is_dir() && place.is_carbons) {
        Some(whisper) => {
            let is_new =
                |path: &String| !whisper.join(format!("{}.wsp", path.replace('.', "/"))).exists();
            series.paths().filter(is_new).count()
        }
        None => series.len(),
    };
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53")]
    let minutes = (new as f64 / limit).ceil();
    if minutes <= 1.0 {
        let text = format!("{title}: {new} series are new, Carbon creates up to {limit} a minute");
        return Ok(CheckLine::good(text));
    }
    Ok(CheckLine::costs(
        format!(
            "{title}: Carbon needs {minutes} minutes to create {new} series at {limit} a minute, \
             and drops points of those that it has not created"
        ),
        "Raise MAX_CREATES_PER_MINUTE (`carbon-rules --max-creates`) and restart Carbon before the \
            first start, or accept those minutes without points.",
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn elsewhere() -> CarbonConf {
        CarbonConf { schemas: "/copy/storage-schemas.conf".into(), is_carbons: false }
    }

    /// Guards against two files that are wrong and have a remedy each.
    #[test]
    fn where_carbon_is_on_this_host_one_command_mends_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let schemas = folder.path().join(SCHEMAS);
        std::fs::write(&schemas, "").unwrap();
        let command = format!(
            "`sudo slurm-graphite carbon-rules --write {} --max-creates 1000`",
            folder.path().display()
        );
        for is_carbons in [true, false] {
            let place = CarbonConf { schemas: schemas.clone(), is_carbons };
            let lines = lines(&Config::default(), None, None, &place);
            let advised = lines.iter().filter(|line| {
                line.advice.as_ref().is_some_and(|advice| advice.contains(&command))
            });
            assert_eq!(advised.count(), if is_carbons { 2 } else { 0 });
            // A copy without the second file: what that costs is said.
            let averages = lines.iter().any(|line| line.text.contains("averages counters"));
            assert_eq!(averages, !is_carbons);
        }
    }

    #[test]
    fn the_shipped_rules_fit_the_defaults_and_every_path_is_known_to_them() {
        let config = Config::default();
        let figures = figures(&config, None).unwrap();
        assert!(figures.len() > 50);
        let rules =
            rules::schemas(include_str!("../../../../../config/carbon/storage-schemas.conf"))
                .unwrap();
        for Figure { path, .. } in &figures {
            let rule = rules::first(&rules, path).unwrap();
            assert!(
                rule.title != "no rule" && misfit(&config, &elsewhere(), rule, 30).is_none(),
                "{path}"
            );
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
            let config = Config::parse_valid(&format!("prefix = {prefix:?}\n{more}"));
            for Figure { path, rollup, .. } in &figures(&config, None).unwrap() {
                let rule = rules::first(&rules, path).unwrap();
                let is_right = rule.title != "no rule" && rule.says == Some(*rollup);
                assert!(is_right, "{path}: its roll-up is not in storage-aggregation.conf");
            }
        }
        for other in [
            "carbon.agents.slurm_node-a.metricsReceived",
            "collectd.slurm_node.load.gauge.shortterm",
            "servers.slurm.gauge-count",
            "servers.slurmctld.jobs_started",
            "my_slurm_jobs.gauge-jobs",
        ] {
            assert_eq!(rules::first(&rules, other).unwrap().title, "no rule", "{other}");
        }
    }

    const SURVEYS: [&str; 7] =
        ["jobs", "nodes", "partitions", "licenses", "reservations", "associations", "controllers"];

    /// Configurations with each survey alone, and with all of them, at several intervals.
    fn surveying() -> Vec<Config> {
        let on = |names: &[&str], more: &str| -> String {
            names
                .iter()
                .map(|name| format!("[collectors.{name}]\nenabled = true\n{more}"))
                .collect()
        };
        let alone = SURVEYS.iter().map(|name| on(&[name], ""));
        let users =
            "[collectors.rpc_stats]\nusers = 5\n".to_owned() + &on(&["jobs"], "users = 5\n");
        let several = [
            on(&SURVEYS, ""),
            on(&SURVEYS, "interval = \"5m\"\n"),
            format!("interval = \"10s\"\nprefix = \"hpc.{{host}}\"\n{}", on(&SURVEYS, "")),
            format!("interval = \"2m\"\n{}", on(&SURVEYS, "")),
            on(&["jobs"], "interval = \"10m\"\n") + &on(&["nodes"], ""),
            // Longer than the archives that the defaults have.
            "[queue]\nmax_age = \"1y\"\n".to_owned() + &on(&SURVEYS, ""),
            "[queue]\nmax_age = \"3d\"\n".to_owned() + &on(&SURVEYS, "interval = \"10m\"\n"),
            users.clone() + "[[carbon]]\naddress = \"a:2004\"\ntags = true\n",
            users,
        ];
        alone.chain(several).map(|toml| Config::parse_valid(&toml)).collect()
    }

    #[test]
    fn our_own_rules_are_right_for_every_survey() {
        for config in surveying() {
            let text = carbon_rules::schemas(&config).text;
            let Judgement { misfits, .. } = judge(
                &config,
                &elsewhere(),
                &rules::schemas(&text).unwrap(),
                &figures(&config, None).unwrap(),
            );
            assert!(misfits.is_empty(), "{misfits:?}: {text}");
        }
    }

    #[test]
    fn of_jobs_states_alone_no_figure_is_judged_that_never_comes() {
        let on =
            "[slurm]\nrest = \"unix:/s\"\n[collectors.jobs]\nenabled = true\nstates_only = true";
        let figures = figures(&Config::parse_valid(on), None).unwrap();
        let jobs: Vec<&str> = figures
            .iter()
            .filter_map(|figure| figure.path.strip_prefix("cluster.slurm_jobs."))
            .collect();
        assert_eq!(jobs, ["total.gauge-jobs", "total.gauge-unparsed", "state.state.gauge-jobs"]);
    }

    #[test]
    fn a_rule_for_the_ticks_that_takes_a_survey_too_is_wrong() {
        for config in surveying() {
            let text = carbon_rules::schemas(&config).text;
            let (_, own) = text.rsplit_once("[slurm_graphite:").unwrap();
            let rules = rules::schemas(&format!("[slurm_graphite:{own}")).unwrap();
            let Judgement { fitting, misfits } =
                judge(&config, &elsewhere(), &rules, &figures(&config, None).unwrap());
            assert!(fitting.contains_key(&config.interval), "{own}");
            let differs = config.interval != 120;
            assert_eq!(
                misfits.iter().any(|(what, _)| what.contains("leaves holes")),
                differs,
                "{own}"
            );
        }
    }

    #[test]
    fn a_queue_that_may_be_older_than_the_finest_archive_does_not_fit() {
        let mut config = Config::default();
        let says = |retentions: &str| {
            let text = format!("[a]\npattern = .*\nretentions = {retentions}\n");
            rules::schemas(&text).unwrap().remove(0)
        };
        let misfit_of =
            |config: &Config, rule: &Rule<(u64, u64)>| misfit(config, &elsewhere(), rule, 30);
        assert!(misfit_of(&config, &says("30s:1d")).is_none());
        assert!(
            misfit_of(&config, &says("30s:6h"))
                .is_some_and(|(what, _)| what.contains("6h, less than queue.max_age (12h)"))
        );
        config.queue.limits.max_age = Duration::from_secs(60);
        config.queue.limits.resend_window = Duration::from_secs(86_401);
        assert!(
            misfit_of(&config, &says("30s:1d"))
                .is_some_and(|(what, _)| what.contains("resend_window"))
        );
        assert!(
            misfit_of(&config, &says("60s:1y"))
                .is_some_and(|(what, _)| what.contains("overwrite each other"))
        );
        assert!(
            misfit_of(&config, &says("10s:1y")).is_some_and(|(what, _)| what.contains("holes"))
        );
    }
}
