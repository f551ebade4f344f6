//! `[collectors]`: which metrics are published, how often, and within which bounds. The collectors
//! declare the keys.

use std::time::Duration;

use slurm_points::collectors::{COLLECTORS, Collector};
use slurm_points::configured::Collectors;
use slurm_points::settings::{MOST_NAMES, STATES_ONLY, Settings, TIMES, Value};
use slurm_points::user_paths::MOST_USERS;

use super::problem::Problems;
use super::section::Section;
use super::value::{between, interval};

/// Reads the table `[collectors]` of the file into `collectors`.
pub(super) fn read_collectors(collectors: &mut Collectors, mut all: Section<'_, '_>) {
    all.set("max_duty", percent, &mut collectors.max_duty);
    all.set_number("max_threads", positive, &mut collectors.max_threads);
    for collector in COLLECTORS {
        if let Some(table) = all.section(collector.name)
            && let Some(settings) = collectors.settings_mut(collector.name)
        {
            apply(collector, settings, table);
        }
    }
    all.report_unread();
}

/// Checks that surveys fall on ticks, of which one comes every `tick` seconds, that finished jobs
/// have a queue on disk, and that slurmrestd is asked for nothing that costs it too much.
pub(super) fn check(collectors: &Collectors, tick: u32, has_dir: bool, problems: &mut Problems) {
    if let Some((_, finished)) = collectors.finished(tick) {
        if !has_dir {
            let text =
                "needs [queue] dir: it must remember across restarts which jobs it has counted";
            problems.add("collectors.finished", text);
        }
        if finished.catch_up < finished.window {
            problems.add("collectors.finished.catch_up", "must not be less than window");
        }
    }
    for (collector, settings) in collectors.all() {
        let name = collector.name;
        if let Some(seconds) = settings.interval.filter(|seconds| seconds % tick.max(1) != 0) {
            let text = format!("{seconds} s is not a multiple of interval, which is {tick} s");
            problems.add(format!("collectors.{name}.interval"), text);
        }
    }
    for (collector, settings) in collectors.enabled() {
        let name = collector.name;
        let replies = collectors.replies(collector, settings);
        let why = collector.replies.iter().find_map(|reply| reply.row().not_over_rest);
        if let (true, Some(why)) = (replies.is_empty(), why) {
            let remedy = match settings.values.contains_key(STATES_ONLY.key) {
                true => "use libslurm, or add states_only = true (Slurm 24.05 or newer)",
                false => "or use libslurm",
            };
            let text = format!("cannot be read over REST: {why}; disable it, {remedy}");
            problems.add(format!("collectors.{name}"), text);
        }
        if !collectors.over_rest && settings.flag(&STATES_ONLY) {
            let key = format!("collectors.{name}.{}", STATES_ONLY.key);
            problems.add(key, "can only be used with [slurm] rest");
        }
    }
}

fn apply(collector: &Collector, settings: &mut Settings, mut table: Section<'_, '_>) {
    table.set_flag("enabled", &mut settings.enabled);
    if collector.is_survey() {
        table.set_some("interval", interval, &mut settings.interval);
    }
    for (key, value) in &mut settings.values {
        match value {
            Value::Flag(flag) => table.set_flag(key, flag),
            Value::Users(count) => table.set_number(key, at_most(MOST_USERS), count),
            Value::Names(count) => table.set_number(key, at_most(MOST_NAMES), count),
            Value::Seconds(time) => table.set(key, seconds, time),
        }
    }
    table.report_unread();
}

fn percent(text: &str) -> Result<f64, String> {
    text.strip_suffix('%')
        .and_then(|number| number.trim().parse::<f64>().ok())
        .filter(|&percent| percent > 0.0 && percent <= 100.0)
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("{text:?} is not a share above 0% and up to 100%, such as \"5%\""))
}

fn positive(number: i64) -> Result<u32, String> {
    u32::try_from(number)
        .ok()
        .filter(|&number| number > 0)
        .ok_or_else(|| format!("{number} is not between 1 and {}", u32::MAX))
}

/// Accepts a number of paths, from 0 to `most`.
fn at_most(most: usize) -> impl Fn(i64) -> Result<usize, String> {
    move |number| {
        usize::try_from(number).ok().filter(|&count| count <= most).ok_or_else(|| {
            format!(
                "{number} is not between 0 and {most}; in Graphite every path is a file that stays"
            )
        })
    }
}

fn seconds(text: &str) -> Result<u32, String> {
    let [least, most] = [TIMES.0, TIMES.1].map(|seconds| Duration::from_secs(seconds.into()));
    let found = between(least, most)(text)?;
    u32::try_from(found.as_secs()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::ReplyKind;

    use super::*;
    use crate::config::Config;

    const REST: &str = "[slurm]\nrest = \"unix:/s\"\n";

    /// A collector's table as the shipped configuration has it: every key with its default.
    fn table(collector: &Collector) -> String {
        let comment =
            |text: &str| text.lines().map(|line| format!("# {line}\n")).collect::<String>();
        let settings = collector.settings.iter().map(|setting| {
            let default = match setting.default {
                Value::Flag(flag) => flag.to_string(),
                Value::Users(count) | Value::Names(count) => count.to_string(),
                Value::Seconds(time) => {
                    format!("\"{}h\"", time / 3600)
                }
            };
            format!("{}{} = {default}\n", comment(setting.comment), setting.key)
        });
        let interval = if collector.is_survey() { "#interval = \"60s\"\n" } else { "" };
        let enabled = !collector.is_survey();
        let head = format!("[collectors.{}]\nenabled = {enabled}\n{interval}", collector.name);
        comment(collector.comment) + &head + &settings.collect::<String>()
    }

    #[test]
    fn the_shipped_file_has_the_table_of_each_collector_as_it_declares_it() {
        let shipped = include_str!("../../../../config/slurm-graphite.toml");
        let mut paragraphs: Vec<String> =
            shipped.trim_end().split("\n\n").map(str::to_owned).collect();
        for collector in COLLECTORS {
            let table = table(collector).trim_end().to_owned();
            let has_line =
                |head: &str, paragraph: &String| paragraph.lines().any(|line| line == head);
            let head = format!("[collectors.{}]", collector.name);
            match paragraphs.iter().position(|paragraph| has_line(&head, paragraph)) {
                Some(location) => paragraphs[location] = table,
                None => paragraphs.insert(paragraphs.len() - 1, table),
            }
        }
        let made = paragraphs.join("\n\n") + "\n";
        crate::tests::golden("../../config/slurm-graphite.toml", &made);
    }

    #[test]
    fn a_reload_restarts_only_what_has_other_settings() {
        let old = Config::default().collectors;
        for collector in COLLECTORS {
            let change =
                if collector.is_survey() { "interval = \"5m\"" } else { "enabled = false" };
            let settings = collector.settings.iter().map(|setting| match setting.default {
                Value::Flag(flag) => format!("{} = {}", setting.key, !flag),
                Value::Users(count) | Value::Names(count) => {
                    format!("{} = {}", setting.key, count + 1)
                }
                Value::Seconds(time) => format!("{} = \"{}s\"", setting.key, time + 1),
            });
            for change in settings.chain([change.to_owned()]) {
                let new =
                    Config::parse_valid(&format!("[collectors.{}]\n{change}", collector.name))
                        .collectors;
                for other in COLLECTORS {
                    let is_other = other.name != collector.name;
                    assert_eq!(new.is_same(&old, other.name), is_other, "{} {change}", other.name);
                }
            }
        }
    }

    #[test]
    fn who_has_paths_is_remembered_where_users_have_any() {
        let remember = |toml: &str| Config::parse_valid(toml).collectors.remember();
        assert!(!remember("[collectors.jobs]\nusers = 3"), "it is off");
        assert!(remember("[collectors.rpc_stats]\nusers = 3"));
        assert!(remember("[collectors.jobs]\nenabled = true"), "its QOS");
        let jobs =
            |more| remember(&format!("[collectors.jobs]\nenabled = true\nqos = false\n{more}"));
        assert_eq!(["", "accounts = 3"].map(jobs), [false, true]);
        assert!(
            !remember(&format!("{REST}[collectors.jobs]\nenabled = true\nstates_only = true")),
            "none"
        );
        assert!(remember("[collectors.nodes]\nenabled = true\nevents = true"), "its sums");
        assert!(!remember(
            "queue.dir = \"/q\"\n[collectors.finished]\nenabled = true\naccounts = 3"
        ));
    }

    #[test]
    fn a_survey_asks_for_the_replies_of_what_is_on() {
        let replies = |toml: &str| Config::parse_valid(toml).collectors.survey_replies();
        assert!(replies("").is_empty());
        let partitions = replies("[collectors.partitions]\nenabled = true");
        assert!(partitions.into_iter().eq([ReplyKind::Nodes, ReplyKind::Jobs]));
        let partitions = replies(&format!("{REST}[collectors.partitions]\nenabled = true"));
        assert!(partitions.into_iter().eq([ReplyKind::Nodes]), "slurmrestd is not asked for jobs");
    }

    #[test]
    fn a_survey_comes_every_minute_or_at_the_first_multiple_after_it() {
        let settings = Settings::new(true, &[]);
        assert_eq!([1, 30, 45, 60, 300].map(|tick| settings.interval(tick)), [60, 60, 90, 60, 300]);
    }
}
