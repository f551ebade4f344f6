//! The rules: storage-schemas.conf's fit the configured prefix, intervals and queue; storage-aggregation.conf's fit every
//! configuration.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Block;
use crate::config::Config;

const DAY: u64 = 86_400;

/// The block of storage-schemas.conf. Blocks for several prefixes can be in one file, so their sections have names of their own.
pub(crate) fn schemas(config: &Config) -> Block {
    let interval = config.interval;
    let prefix = config.prefix.to_string();
    let pattern = pattern(&prefix);
    let mut text = format!(
        "# For Carbon's storage-schemas.conf, with the prefix {prefix} and an interval of {interval} s, above all other rules: the\n\
         # first rule that matches wins. Carbon applies a rule only when it creates a series, so put this in place before the\n\
         # first start. `slurm-graphite carbon-rules --write` replaces everything between BEGIN and END.\n"
    );
    let mut rule = |name: &str, families: &str, retentions: String| {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "[slurm_graphite{name}:{prefix}]\npattern = {pattern}{families}\nretentions = {retentions}\n\n"
        );
    };
    let fine = finest(config);
    // Users come and go, and each has files of his own: a month of them is enough.
    for (collector, settings) in config.collectors.all().filter(|(_, settings)| settings.users().is_some()) {
        let family = collector.family();
        let (name, step) = match collector.is_survey() {
            true => (format!("_users_{family}"), settings.interval(interval)),
            false => ("_users".to_owned(), interval),
        };
        rule(&name, &format!(r"{family}\.user\."), retentions(step, fine, 30, None));
    }
    for (step, families) in surveys(config) {
        let name = format!("_every_{}", self::step(step));
        rule(&name, &format!(r"({})\.", families.join("|")), retentions(step, fine, 90, Some("3y")));
    }
    rule("", "", retentions(interval, fine, 90, Some("3y")));
    Block::new(&prefix, &text)
}

/// The block of storage-aggregation.conf.
pub(crate) fn aggregation() -> Block {
    Block::shipped(include_str!("../../../../../config/carbon/storage-aggregation.conf"))
}

/// Days that the finest archive is kept: an older tick would overwrite a rolled-up value.
fn finest(config: &Config) -> u64 {
    let limits = &config.queue.limits;
    limits.max_age.max(limits.resend_window).as_secs().div_ceil(DAY).max(1)
}

/// The families of surveys by their interval, s; those that are off too, for the day when they are on.
fn surveys(config: &Config) -> BTreeMap<u32, Vec<&'static str>> {
    let mut surveys: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (collector, settings) in config.collectors.all().filter(|(collector, _)| collector.is_survey()) {
        surveys.entry(settings.interval(config.interval)).or_default().push(collector.family());
    }
    surveys
}

/// Archives as Carbon has them: the finest for `fine` days, five minutes for `middle` days, an hour for as long as `coarse` says.
fn retentions(interval: u32, fine: u64, middle: u64, coarse: Option<&str>) -> String {
    // Whisper needs every archive's step to be a multiple of the finer one's, and the coarser archive to be kept for longer.
    let five_minutes = 300_u32.next_multiple_of(interval);
    let hour = 3600_u32.next_multiple_of(five_minutes);
    let middle = fine.saturating_add(1).max(middle);
    let days = [(five_minutes, format!("{middle}d")), (interval, format!("{fine}d"))];
    let coarse = coarse.map(|kept| (hour, kept.to_owned()));
    let mut archives: Vec<_> = coarse.into_iter().chain(days).collect();
    // It takes no two of one step: of those the longest.
    archives.dedup_by_key(|(step, _)| *step);
    let archives = archives.iter().rev().map(|(seconds, kept)| format!("{}:{kept}", step(*seconds)));
    archives.collect::<Vec<_>>().join(",")
}

/// `cluster` also lets `cluster.{cluster}` through, so that one rule serves both. A name with tags begins with the family.
fn pattern(prefix: &str) -> String {
    let any = "[^.]+";
    let fixed = prefix.replace('.', r"\.").replace("{cluster}", any).replace("{host}", any);
    let optional = if prefix.contains("{cluster}") { "" } else { r"(\.[^.]+)?" };
    format!(r"^({fixed}{optional}\.)?slurm_")
}

fn step(seconds: u32) -> String {
    match (seconds % 3600, seconds % 60) {
        (0, _) => format!("{}h", seconds / 3600),
        (_, 0) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(config: &Config) -> String {
        schemas(config).text
    }

    #[test]
    fn the_shipped_file_is_what_this_prints_for_the_defaults() {
        crate::golden::golden("../../config/carbon/storage-schemas.conf", &document(&Config::default()));
    }

    #[test]
    fn steps_divide_each_other_for_every_interval() {
        for interval in 1..=3600 {
            let text = document(&Config { interval, ..Config::default() });
            let rules: Vec<Vec<u32>> =
                text.lines().filter_map(|line| line.strip_prefix("retentions = ")).map(steps_of).collect();
            assert_eq!(rules.len(), 6);
            assert_eq!((rules[0][0], rules[5][0]), (interval, interval));
            for steps in rules {
                assert!(steps[0] % interval == 0 && steps[0] < 60 + interval.max(2), "{text}");
                assert!(steps.windows(2).all(|pair| pair[1] > pair[0] && pair[1] % pair[0] == 0), "{text}");
            }
        }
    }

    fn steps_of(retentions: &str) -> Vec<u32> {
        let step = |archive: &str| {
            let (number, unit) =
                archive.split(':').next().unwrap().split_at_checked(archive.find(':').unwrap() - 1).unwrap();
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
        let config = Config::of(
            "interval = \"10s\"\n[collectors.jobs]\ninterval = \"2m\"\n[collectors.nodes]\ninterval = \"2m\"",
        );
        let text = document(&config);
        let found = |path: &str| first(&text, path).unwrap().lines().nth(2).unwrap().to_owned();
        assert_eq!(found("cluster.slurm_jobs.total.gauge-jobs"), "retentions = 2m:1d,6m:90d,1h:3y");
        assert_eq!(found("cluster.slurm_partitions.debug.gauge-up"), "retentions = 1m:1d,5m:90d,1h:3y");
        assert_eq!(
            found("cluster.slurm_jobs.user.ann.state.running.gauge-jobs"),
            "retentions = 2m:1d,6m:30d"
        );
        assert_eq!(found("cluster.slurm_sched_stats.gauge-x"), "retentions = 10s:1d,5m:90d,1h:3y");
        assert_eq!(found("slurm_jobs.total.jobs;cluster=cluster"), "retentions = 2m:1d,6m:90d,1h:3y");
    }

    /// Every value of the configuration, up to a year.
    #[test]
    fn the_finest_archive_is_as_long_as_a_tick_may_be_late() {
        for (queue, expected) in [
            ("", "30s:1d,5m:90d,1h:3y"),
            ("max_age = \"24h\"", "30s:1d,5m:90d,1h:3y"),
            ("max_age = \"25h\"", "30s:2d,5m:90d,1h:3y"),
            ("max_age = \"1h\"\nresend_window = \"1day\"", "30s:1d,5m:90d,1h:3y"),
            ("max_age = \"90d\"", "30s:90d,5m:91d,1h:3y"),
            ("max_age = \"1y\"", "30s:366d,5m:367d,1h:3y"),
        ] {
            let text = document(&Config::of(&format!("[queue]\n{queue}\n")));
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
        let is_users = |path| first(&text, path).unwrap().starts_with("slurm_graphite_users:cluster]");
        assert!(is_users("cluster.slurm_rpc_stats.user.ann.gauge-count"));
        assert!(is_users("cluster.sandbox.slurm_rpc_stats.user.ann.gauge-count"));
        assert!(is_users("slurm_rpc_stats.user.count;cluster=sandbox;user=ann"));
        assert!(!is_users("slurm_rpc_stats.others.count;cluster=sandbox"));
        assert!(!is_users("cluster.slurm_rpc_stats.others.gauge-count"));
        assert!(!is_users("cluster.slurm_sched_stats.gauge-x"));
    }

    #[test]
    fn patterns_find_what_is_published_and_nothing_else() {
        let matches = |prefix: &str, path: &str| regex::Regex::new(&pattern(prefix)).unwrap().is_match(path);
        assert!(matches("cluster", "cluster.slurm_sched_stats.gauge-x"));
        assert!(matches("cluster", "cluster.sandbox.slurm_graphite.node1.gauge-x"));
        assert!(matches("hpc.{cluster}", "hpc.sandbox.slurm_sched_stats.gauge-x"));
        assert!(matches("hpc.{cluster}", "slurm_sched_stats.x;cluster=hpc.sandbox"));
        assert!(!matches("cluster", "clusters.slurm_sched_stats.gauge-x"));
        assert!(!matches("a.b", "a_b.slurm_sched_stats.gauge-x"));
    }
}
