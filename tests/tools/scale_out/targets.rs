//! Evaluates every target of the dashboards and alert rules on graphite-web and on VictoriaMetrics,
//! with the same invented points for every path in docs/metrics.md. Both must return the same
//! series with the same values, or there must be a reason why not; alert rules may not differ.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sandbox::grafana::{replaced, variables};
use sandbox::graphite_web::{find, render};
use sandbox::{
    Carbon, Dashboard, Folder, GraphiteWeb, Invocation, Rendered, VictoriaMetrics, printed,
    unix_seconds, wait,
};
use tools::say;

use super::victoria;

/// Seconds between two points, and how many there are.
const STEP: u64 = 30;
const COUNT: u64 = 120;
/// The requested time range, up to the newest point.
const ASKED: u64 = 45 * 60;
const ALERT: &str = "alert ";
/// Metrics that are never 0 in a cluster: a division by 0 gives nothing on graphite-web, and
/// infinity on VictoriaMetrics.
const TOTALS: [&str; 3] = ["gauge-nodes_total", "gauge-cpus_total", "gauge-gpus_total"];

/// Metrics with this value half of the time, so that the rules about them are true at some times
/// and not at others. What is never true is 0 on graphite-web and has no point on VictoriaMetrics.
const SPECIAL: [(&str, u64); 3] = [
    ("slurm_sched_stats.gauge-bf_active", 0),
    ("slurm_sched_stats.gauge-dbd_agent_queue_size", 6000),
    ("slurm_jobs.total.gauge-records", 9500),
];
/// Targets of dashboards that differ, identified by a part of their text, and why.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "timeFunction(",
        "the age of data: VictoriaMetrics counts it to the end of a minute, which may be less than \
         one away, and its minutes begin with the time that is asked for",
    ),
    (
        "divideSeriesLists(",
        "VictoriaMetrics pairs the series of two lists in any order: a point that is missing in \
            one curve may be missing in another instead",
    ),
];

pub(crate) fn compare() -> Result<()> {
    let folder = Folder::new()?;
    let (carbon, web) = GraphiteWeb::with_carbon(&folder, &format!("{STEP}s:6h"))?;
    let step = format!("-search.graphiteStorageStep={STEP}s");
    let mut other = VictoriaMetrics::start_program(
        &folder,
        "victoria",
        &victoria("victoria-metrics")?,
        &[&step],
    )?;
    other.process.wait_ready()?;
    let newest = invent(&folder, &carbon, &other)?;

    let shipped = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/grafana"));
    let (mut asked, mut empty, mut different) = (0, 0, Vec::new());
    let mut look = |whose: &str, target: &str, window: u64| -> Result<()> {
        asked += 1;
        let times = format!("from={}&until={newest}", newest - window);
        let ours = render(web.port, target, &times).with_context(|| target.to_owned())?;
        let theirs = render(other.http_port, target, &times);
        empty += usize::from(ours.iter().all(|one| one.values().next().is_none()));
        let why = match theirs {
            Ok(theirs) => difference(target, &ours, &theirs, (newest - window, newest)),
            Err(error) => Some(format!("{error:#}").lines().next().unwrap_or_default().to_owned()),
        };
        different.extend(why.map(|why| format!("{whose}: {target}\n    {why}")));
        Ok(())
    };
    for dashboard in Dashboard::all(shipped)? {
        let given = [("prefix", "cluster")];
        let values = dashboard.opened(&web, &given)?;
        let theirs =
            dashboard.variables(&variables(&given), |query| find(other.http_port, query))?;
        ensure!(values == theirs, "variables of {}: {values:?} and {theirs:?}", dashboard.name);
        let panels = dashboard.panels().into_iter();
        let targets = panels.flat_map(|panel| {
            panel.targets.into_iter().map(move |target| (panel.title.clone(), target))
        });
        for (title, target) in targets.chain(dashboard.annotations()) {
            look(&format!("{}, {title:?}", dashboard.name), &replaced(&target, &values)?, ASKED)?;
        }
    }
    let files = ["alerting/slurm.yaml", "alerting/slurm-graphite.yaml"];
    let rules: Result<Vec<_>> =
        files.iter().map(|file| alerts(&folder, &shipped.join(file))).collect();
    for (title, target, window) in rules?.into_iter().flatten() {
        look(&format!("{ALERT}{title:?}"), &target, window)?;
    }
    let is_known = |one: &&String| {
        !one.starts_with(ALERT) && DIFFERENT.iter().any(|(part, _)| one.contains(part))
    };
    let (known, unknown): (Vec<_>, Vec<_>) = different.iter().partition(is_known);
    let rules = different.iter().filter(|one| one.starts_with(ALERT)).count();
    say(&format!(
        "\n## Targets on graphite-web and VictoriaMetrics\n\n{asked} asked, {empty} without a \
         point, {} differ as known, {} otherwise, of which {rules} of alert rules\n",
        known.len(),
        unknown.len()
    ))?;
    for one in unknown.iter().chain(&known) {
        say(&format!("- {one}\n"))?;
    }
    for (part, why) in DIFFERENT {
        say(&format!("\n{part}: {why}\n"))?;
    }
    ensure!(unknown.is_empty(), "targets that differ, and nobody knows why");
    Ok(())
}

/// Stores points for every documented path, with two values for each level that varies, in both
/// programs. Returns the newest timestamp.
fn invent(folder: &Folder, carbon: &Carbon, victoria: &VictoriaMetrics) -> Result<u64> {
    let text = printed(folder, &["metrics", "--format", "tsv"])?;
    let documented = text.lines().skip(1).filter_map(|line| line.split('\t').next());
    let paths: BTreeSet<String> = documented.flat_map(filled).collect();
    let newest = (unix_seconds() / STEP - 2) * STEP;
    let mut lines = String::new();
    for (index, path) in (0_u64..).zip(&paths) {
        for number in (0..COUNT).filter(|number| index % 3 != 0 || number % 17 != 5) {
            // Waves, and counters with one reset.
            let value = if index % 2 == 0 {
                (index * 7 + number * 13) % 101
            } else {
                (number % 70) * (index % 9 + 1)
            };
            let is_total = TOTALS.iter().any(|total| path.ends_with(total));
            let value = match SPECIAL.iter().find(|(leaf, _)| path.ends_with(leaf)) {
                Some((_, at_times)) if number % 60 > 30 => *at_times,
                _ => value + u64::from(is_total),
            };
            writeln!(lines, "{path} {value} {}", newest - (COUNT - 1 - number) * STEP)?;
        }
    }
    for port in [carbon.line_port, victoria.line_port] {
        TcpStream::connect(("127.0.0.1", port))?.write_all(lines.as_bytes())?;
    }
    wait::until("every path in both", Duration::from_secs(120), || {
        let has = |path: &String| {
            carbon.series(path).is_ok_and(|series| series.points.contains_key(&newest))
        };
        paths.iter().all(has) && victoria.export("{__graphite__=\"cluster.*.*\"}").is_ok()
    })?;
    Ok(newest)
}

/// Replaces placeholders: states and the like by words that targets use, everything else by `alpha`
/// and `beta`.
fn filled(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('<') else { return vec![path.to_owned()] };
    let Some((what, after)) = rest.split_once('>') else { return vec![path.to_owned()] };
    let names: &[&str] =
        match (what, before.contains("slurm_nodes.") || before.contains("slurm_partitions.")) {
            ("state", true) => &["idle", "allocated", "mixed", "down", "drained", "fail"],
            ("state", false) => {
                &["pending", "running", "completed", "failed", "timeout", "cancelled", "completing"]
            }
            ("flag", _) => &["drain", "not_responding", "maintenance", "reserved"],
            ("reason", _) => {
                &["end", "timeout", "Priority", "Resources", "Dependency", "PartitionDown"]
            }
            ("tres", _) => &["cpu", "mem", "gres_gpu"],
            ("reply", _) => &["jobs", "nodes", "accounting"],
            _ => &["alpha", "beta"],
        };
    names.iter().flat_map(|name| filled(&format!("{before}{name}{after}"))).collect()
}

/// Points by time, without those that are missing.
type Points = BTreeMap<u64, f64>;

/// The difference between two answers, if there is any. Without an alias, a series is named by the
/// text of its function, which the two programs spell differently; if it is the only series, its
/// name is ignored.
fn difference(
    target: &str,
    ours: &[Rendered],
    theirs: &[Rendered],
    times: (u64, u64),
) -> Option<String> {
    let (ours, theirs) = (sorted(ours, times), sorted(theirs, times));
    let names = |all: &[(String, Points)]| -> Vec<String> {
        all.iter().map(|(name, _)| name.clone()).collect()
    };
    let is_named = target.contains("alias") || ours.len() != 1;
    if ours.len() != theirs.len() || is_named && names(&ours) != names(&theirs) {
        let first = |all| names(all).into_iter().take(3).collect::<Vec<_>>();
        return Some(format!("other series: {:?} and {:?}", first(&ours), first(&theirs)));
    }
    ours.iter().zip(&theirs).find_map(|((name, ours), (_, theirs))| {
        // graphite-web rounds per-second values to six digits.
        let is_same = |at: &u64| match (ours.get(at), theirs.get(at)) {
            (Some(one), Some(other)) => (one - other).abs() <= one.abs() * 1e-9 + 1e-5,
            _ => false,
        };
        let all: BTreeSet<&u64> = ours.keys().chain(theirs.keys()).collect();
        let other: Vec<&&u64> = all.iter().filter(|at| !is_same(at)).collect();
        let at = other.first()?;
        let (count, values) = (other.len(), [ours.get(at), theirs.get(at)]);
        let after = at.saturating_sub(times.0);
        Some(format!(
            "{name}: {count} of {} values, {after} s after the first {values:?}",
            all.len()
        ))
    })
}

/// Sorted by name and values, because curves may share a name. The two programs differ at the ends
/// of a time range: if a point is missing at the beginning, VictoriaMetrics fills it with an
/// earlier one.
fn sorted(all: &[Rendered], (from, until): (u64, u64)) -> Vec<(String, Points)> {
    let is_inside = |at: u64| at > from + 2 * STEP && at < until;
    let mut all: Vec<(String, Points)> = all
        .iter()
        .map(|one| {
            let points = one.points.iter().filter(|(at, _)| is_inside(*at));
            let points = points.filter_map(|(at, value)| Some((*at, (*value)?))).collect();
            (one.name.replace(' ', ""), points)
        })
        .filter(|(_, points): &(String, Points)| !points.is_empty())
        .collect();
    let values =
        |points: &Points| points.values().map(|value| (value * 1e3).round()).collect::<Vec<f64>>();
    all.sort_by(|(one, a), (other, b)| {
        one.cmp(other).then_with(|| values(a).partial_cmp(&values(b)).unwrap_or(Ordering::Equal))
    });
    all
}

/// Prints title, target and window of each alert rule, separated by tabs.
const ALERTS: &str = "\
import sys, yaml
for group in yaml.safe_load(open(sys.argv[1]))['groups']:
    for rule in group['rules']:
        data = rule['data'][0]
        print(rule['title'], data['model']['target'], data['relativeTimeRange']['from'], sep='\\t')
";

/// Title, target and window of each alert rule.
fn alerts(folder: &Folder, file: &Path) -> Result<Vec<(String, String, u64)>> {
    let args = ["-c", ALERTS, &file.display().to_string()];
    let text = Invocation::of_program(folder, Path::new("/usr/bin/python3"), &args)?.succeed()?;
    let rule = |line: &str| {
        let words: Vec<&str> = line.split('\t').collect();
        let [title, target, window] = words[..] else { bail!("an alert rule: {line}") };
        Ok((title.to_owned(), target.to_owned(), window.parse()?))
    };
    let rules = text.lines().map(rule).collect::<Result<Vec<_>>>()?;
    ensure!(!rules.is_empty(), "no rules");
    Ok(rules)
}
