//! The rules: storage-schemas.conf's fit the configured prefix, intervals and queue;
//! storage-aggregation.conf's fit every configuration.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Block;
use crate::config::Config;
use crate::config::retentions::{Retentions, in_carbons_words};

const DAY: u64 = 86_400;

/// Seconds for which points of single users are kept in a coarser archive: a month. Users come and
/// go, and each has files of their own.
const OF_USERS: u64 = 30 * DAY;

/// The block of storage-schemas.conf. Blocks for several prefixes can be in one file, so their
/// sections have names of their own.
pub(crate) fn schemas(config: &Config) -> Block {
    let interval = config.interval;
    let prefix = config.prefix.to_string();
    let pattern = pattern(&prefix);
    let mut text = format!(
        "# For Carbon's storage-schemas.conf, with the prefix {prefix} and an interval of \
         {interval} s, above all other rules: the\n# first rule that matches wins. Carbon applies \
         a rule only when it creates a series, so put this in place before the\n# first start. \
         `slurm-graphite carbon-rules --write` replaces everything between BEGIN and END.\n"
    );
    let mut rule = |name: &str, families: &str, retentions: String| {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "[slurm_graphite{name}:{prefix}]\npattern = {pattern}{families}\nretentions = \
                {retentions}\n\n"
        );
    };
    let finest = finest(config);
    let retentions = |step| archives(&config.retentions, finest, step);
    for (collector, settings) in
        config.collectors.all().filter(|(_, settings)| settings.users().is_some())
    {
        let family = collector.family();
        let (name, step) = match collector.is_survey() {
            true => (format!("_users_{family}"), settings.interval(interval)),
            false => ("_users".to_owned(), interval),
        };
        rule(&name, &format!(r"{family}\.user\."), of_users(retentions(step)));
    }
    for (step, families) in surveys(config) {
        let name = format!("_every_{}", in_carbons_words(step.into()));
        rule(&name, &format!(r"({})\.", families.join("|")), in_words(retentions(step)));
    }
    rule("", "", in_words(retentions(interval)));
    Block::new(&prefix, &text)
}

/// The block of storage-aggregation.conf.
pub(crate) fn aggregation() -> Block {
    Block::shipped(include_str!("../../../../../config/carbon/storage-aggregation.conf"))
}

/// Returns the seconds for which the finest archive is kept. It must be as long as a tick may be
/// late, because a tick that is older would overwrite a rolled-up value.
fn finest(config: &Config) -> u64 {
    let limits = &config.queue.limits;
    let late = limits.max_age.max(limits.resend_window).as_secs().div_ceil(DAY).saturating_mul(DAY);
    late.max(config.retentions.finest)
}

/// Returns the families of all surveys by their interval, s. Surveys that are off are among them,
/// for the day when they are on.
fn surveys(config: &Config) -> BTreeMap<u32, Vec<&'static str>> {
    let mut surveys: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (collector, settings) in
        config.collectors.all().filter(|(collector, _)| collector.is_survey())
    {
        surveys.entry(settings.interval(config.interval)).or_default().push(collector.family());
    }
    surveys
}

/// An archive of whisper: seconds between two points, and seconds kept.
type Archive = (u32, u64);

/// The archives, the finest first. Whisper needs every step to be a multiple of the finer one's,
/// and a coarser archive to be kept for longer.
fn archives(settings: &Retentions, finest: u64, interval: u32) -> Vec<Archive> {
    let mut archives = vec![(interval, finest)];
    for &(step, kept) in &settings.coarser {
        let Some((finer, shorter)) = archives.pop() else { break };
        let step = step.next_multiple_of(finer);
        let kept = kept.max(shorter.saturating_add(DAY));
        // It takes no two of one step: of those the longest.
        archives.extend((step > finer).then_some((finer, shorter)));
        archives.push((step, kept));
    }
    archives
}

/// Formats archives for the points of single users: the finest, and one coarser archive at most,
/// which keeps about a month.
fn of_users(mut archives: Vec<Archive>) -> String {
    let finest = archives.first().map_or(0, |(_, kept)| *kept);
    archives.truncate(2);
    if let [_, (_, kept)] = &mut archives[..] {
        *kept = OF_USERS.max(finest.saturating_add(DAY)).min(*kept);
    }
    in_words(archives)
}

fn in_words(archives: Vec<Archive>) -> String {
    let archives = archives.into_iter();
    let words = archives.map(|(step, kept)| {
        let [step, kept] = [step.into(), kept].map(in_carbons_words);
        format!("{step}:{kept}")
    });
    words.collect::<Vec<_>>().join(",")
}

/// Returns the pattern of all paths below `prefix`. That of `cluster` also matches
/// `cluster.{cluster}`, so that one rule serves both. It also matches names with tags, which begin
/// with the family.
fn pattern(prefix: &str) -> String {
    let any = "[^.]+";
    let fixed = prefix.replace('.', r"\.").replace("{cluster}", any).replace("{host}", any);
    let optional = if prefix.contains("{cluster}") { "" } else { r"(\.[^.]+)?" };
    format!(r"^({fixed}{optional}\.)?slurm_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(config: &Config) -> String {
        schemas(config).text
    }

    #[test]
    fn the_shipped_file_is_what_this_prints_for_the_defaults() {
        crate::tests::golden(
            "../../config/carbon/storage-schemas.conf",
            &document(&Config::default()),
        );
    }

    #[test]
    fn steps_divide_each_other_for_every_interval() {
        for interval in 1..=3600 {
            let text = document(&Config { interval, ..Config::default() });
            let rules: Vec<Vec<u32>> = text
                .lines()
                .filter_map(|line| line.strip_prefix("retentions = "))
                .map(steps_of)
                .collect();
            assert_eq!(rules.len(), 6);
            assert_eq!((rules[0][0], rules[5][0]), (interval, interval));
            for steps in rules {
                assert!(steps[0] % interval == 0 && steps[0] < 60 + interval.max(2), "{text}");
                assert!(
                    steps.windows(2).all(|pair| pair[1] > pair[0] && pair[1] % pair[0] == 0),
                    "{text}"
                );
            }
        }
    }

    fn steps_of(retentions: &str) -> Vec<u32> {
        let step = |archive: &str| {
            let (number, unit) = archive
                .split(':')
                .next()
                .unwrap()
                .split_at_checked(archive.find(':').unwrap() - 1)
                .unwrap();
            number.parse::<u32>().unwrap()
                * match unit {
                    "s" => 1,
                    "m" => 60,
                    _ => 3600,
                }
        };
        retentions.split(',').map(step).collect()
    }

    #[test]
    fn a_survey_has_a_rule_with_its_own_interval() {
        let config = Config::parse_valid(
            "interval = \"10s\"\n[collectors.jobs]\ninterval = \"2m\"\n[collectors.nodes]\n\
                interval = \"2m\"",
        );
        let text = document(&config);
        let found = |path: &str| first(&text, path).unwrap().lines().nth(2).unwrap().to_owned();
        assert_eq!(
            found("cluster.slurm_jobs.total.gauge-jobs"),
            "retentions = 2m:14d,6m:90d,1h:3y"
        );
        assert_eq!(
            found("cluster.slurm_partitions.debug.gauge-up"),
            "retentions = 1m:14d,5m:90d,1h:3y"
        );
        assert_eq!(
            found("cluster.slurm_jobs.user.ann.state.running.gauge-jobs"),
            "retentions = 2m:14d,6m:30d"
        );
        assert_eq!(found("cluster.slurm_sched_stats.gauge-x"), "retentions = 10s:14d,5m:90d,1h:3y");
        assert_eq!(
            found("slurm_jobs.total.jobs;cluster=cluster"),
            "retentions = 2m:14d,6m:90d,1h:3y"
        );
    }

    /// Tries values of `max_age` up to a year, the longest that is legal.
    #[test]
    fn the_finest_archive_is_as_long_as_a_tick_may_be_late() {
        for (queue, expected) in [
            ("", "30s:14d,5m:90d,1h:3y"),
            ("max_age = \"14d\"", "30s:14d,5m:90d,1h:3y"),
            ("max_age = \"15d\"", "30s:15d,5m:90d,1h:3y"),
            ("max_age = \"90d\"", "30s:90d,5m:91d,1h:3y"),
            ("max_age = \"1y\"", "30s:366d,5m:367d,1h:3y"),
            ("[graphite]\nretentions = \"2d,1h:1y\"", "30s:2d,1h:1y"),
            ("max_age = \"2d\"\n[graphite]\nretentions = \"1d\"", "30s:2d"),
            ("[graphite]\nretentions = \"1d,10s:1y,1h:2y\"", "30s:1y,1h:2y"),
        ] {
            let text = document(&Config::parse_valid(&format!("[queue]\n{queue}\n")));
            let rule = first(&text, "cluster.slurm_sched_stats.gauge-x").unwrap();
            assert!(rule.contains(&format!("retentions = {expected}\n")), "{queue}: {rule}");
        }
    }

    /// The first rule that a path matches.
    fn first<'t>(text: &'t str, path: &str) -> Option<&'t str> {
        text.split("\n[").skip(1).find(|rule| {
            let pattern = rule.lines().find_map(|line| line.strip_prefix("pattern = ")).unwrap();
            regex::Regex::new(pattern).unwrap().is_match(path)
        })
    }

    #[test]
    fn users_have_a_rule_above_the_one_that_would_take_them_too() {
        let text = document(&Config::default());
        let is_users =
            |path| first(&text, path).unwrap().starts_with("slurm_graphite_users:cluster]");
        assert!(is_users("cluster.slurm_rpc_stats.user.ann.gauge-count"));
        assert!(is_users("cluster.sandbox.slurm_rpc_stats.user.ann.gauge-count"));
        assert!(is_users("slurm_rpc_stats.user.count;cluster=sandbox;user=ann"));
        assert!(!is_users("slurm_rpc_stats.others.count;cluster=sandbox"));
        assert!(!is_users("cluster.slurm_rpc_stats.others.gauge-count"));
        assert!(!is_users("cluster.slurm_sched_stats.gauge-x"));
    }

    #[test]
    fn patterns_find_what_is_published_and_nothing_else() {
        let matches =
            |prefix: &str, path: &str| regex::Regex::new(&pattern(prefix)).unwrap().is_match(path);
        assert!(matches("cluster", "cluster.slurm_sched_stats.gauge-x"));
        assert!(matches("cluster", "cluster.sandbox.slurm_graphite.node1.gauge-x"));
        assert!(matches("hpc.{cluster}", "hpc.sandbox.slurm_sched_stats.gauge-x"));
        assert!(matches("hpc.{cluster}", "slurm_sched_stats.x;cluster=hpc.sandbox"));
        assert!(!matches("cluster", "clusters.slurm_sched_stats.gauge-x"));
        assert!(!matches("a.b", "a_b.slurm_sched_stats.gauge-x"));
    }
}
