//! Whether a panel shows its values in the right unit, which follows from docs/metrics.md and
//! Graphite's functions.

use std::collections::BTreeSet;

use sandbox::grafana::{Panel, list};

use super::is_carbons;
use super::paths::{Documented, paths};
use super::structure::{UNITS, has_word};

/// The units in docs/metrics.md, and Grafana's units for them. A figure that is 0 or 1 is shown as
/// a word.
const SHOWN: [(&str, &[&str]); 9] = [
    // Or the sum of several.
    ("0 or 1", &["", "locale"]),
    ("0-1", &["percentunit"]),
    ("1/min", &["locale", "reqpm", "short"]),
    ("bytes", &["bytes"]),
    ("count", &["locale", "short"]),
    ("fraction", &["percentunit", "short"]),
    // It may be above 1.
    ("ratio", &["percentunit", "short"]),
    ("s", &["s"]),
    ("µs", &["µs"]),
];
/// Functions whose result has another unit than their input, with Grafana's unit for it.
const CHANGING: [(&str, &str); 6] = [
    ("asPercent", "percent"),
    ("busy", "suffix:threads"),
    ("divideSeries", "percentunit"),
    ("perSecond", "suffix:/s"),
    // Per minute.
    ("scaleToSeconds", "short"),
    // A difference between times is an age.
    ("timeFunction", "s"),
];
/// The factors by which seconds are scaled, and the units that they get.
const SCALES: [(&str, &str); 2] = [(", 0.000277777778)", "h"), (", 0.0166666667)", "min")];
/// Functions whose result has the same unit as their input.
const KEEPING: &str = "alias aliasByNode aliasSub consolidateBy diffSeries exclude group \
    groupByNode highestAverage highestCurrent highestMax keepLastValue limit maxSeries minSeries \
    movingSum nonNegativeDerivative offset removeAboveValue removeBelowValue removeEmptySeries \
    maximumAbove scale sortBy sortByName sumSeries summarize timeShift";
/// Every curve of a panel that is shown in the wrong unit, as text.
pub(crate) fn problems(panel: &Panel, documented: &Documented) -> Vec<String> {
    let mut found = Vec::new();
    // Its states are words.
    if panel.kind == "state-timeline" {
        return found;
    }
    for target in &panel.targets {
        let shown = shown(panel, target);
        match wanted(target, documented) {
            Ok(wanted) if wanted.contains(shown) => {}
            Ok(wanted) => {
                found.push(format!(
                    "{:?}: {target} is {wanted:?} and shown as {shown:?}",
                    panel.title
                ));
            }
            Err(error) => found.push(format!("{:?}: {target}: {error}", panel.title)),
        }
    }
    found
}

/// The units in which a target's values may be shown.
fn wanted(target: &str, documented: &Documented) -> Result<BTreeSet<&'static str>, String> {
    let target = &without_guards(target);
    let functions = functions(target);
    if let Some(odd) = functions.iter().find(|name| {
        !has_word(KEEPING, name) && !CHANGING.iter().any(|(changing, _)| changing == *name)
    }) {
        return Err(format!("nobody knows what {odd} makes of a unit"));
    }
    // The mean of times.
    if target.contains("gauge-outage_seconds") && target.contains("gauge-ended_timed") {
        return Ok(BTreeSet::from([scaled(target).unwrap_or("s")]));
    }
    // The outermost function decides.
    let changed =
        functions.iter().find_map(|name| CHANGING.iter().find(|(changing, _)| changing == name));
    if let Some((_, unit)) = changed {
        // A table's title says that its numbers are threads.
        let other = if *unit == "suffix:threads" { "short" } else { unit };
        return Ok(BTreeSet::from([*unit, other]));
    }
    if is_carbons(target) {
        return Ok(BTreeSet::from(["locale"]));
    }
    let units: BTreeSet<&str> =
        paths(target).iter().flat_map(|path| documented.units(path)).collect();
    if let Some(unit) = scaled(target) {
        let is_time = units == BTreeSet::from(["s"]);
        return if is_time {
            Ok(BTreeSet::from([unit]))
        } else {
            Err(format!("{units:?} as {unit}"))
        };
    }
    let [unit] = Vec::from_iter(&units)[..] else {
        return Err(format!("its paths have the units {units:?}"));
    };
    SHOWN
        .iter()
        .find(|(documented, _)| documented == unit)
        .map(|(_, shown)| shown.iter().copied().collect())
        .ok_or_else(|| format!("Grafana has nothing for {unit:?}"))
}

/// The unit of a target whose seconds are scaled.
fn scaled(target: &str) -> Option<&'static str> {
    let (_, unit) = SCALES.into_iter().find(|(factor, _)| target.contains(factor))?;
    let of_cpus = target.contains("gauge-cpu_seconds");
    UNITS
        .into_iter()
        .find(|known| *known == format!("suffix:{}{unit}", if of_cpus { "CPU-" } else { "" }))
}

/// A target without the contents of isNonNull, which is 0 or 1 in any case, and without the lists
/// that these divide.
fn without_guards(target: &str) -> String {
    let mut left = target
        .replace("divideSeriesLists(", "group(")
        .replace("divideSeries(divideSeries(", "divideSeries(group(")
        // 0 instead of nothing.
        .replace("scale($prefix.slurm_nodes.total.gauge-nodes_total, 0)", "1")
        // Seconds of RPCs per second.
        .replace("scale(perSecond(", "busy(group(");
    while let Some(start) = left.find("isNonNull(") {
        let mut depth = 0;
        let inside = left[start..].char_indices().find(|(_, letter)| {
            depth += i32::from(*letter == '(') - i32::from(*letter == ')');
            *letter == ')' && depth == 0
        });
        let end = inside.map_or(left.len(), |(at, _)| start + at + 1);
        left.replace_range(start..end, "1");
    }
    left.replace("scale(1, ", "group(1, ")
}

/// The names of functions, from the outside to the inside.
fn functions(target: &str) -> Vec<&str> {
    let before = target.match_indices('(').filter_map(|(at, _)| target.get(..at));
    before
        .filter_map(|text| text.rsplit(|letter: char| !letter.is_ascii_alphanumeric()).next())
        .filter(|name| !name.is_empty())
        .collect()
}

/// The unit of a curve: that of its override, or the panel's.
fn shown<'a>(panel: &'a Panel, target: &str) -> &'a str {
    let config = &panel.json["fieldConfig"];
    let own = list(config, "overrides").find_map(|one| {
        let curve = one["matcher"]["options"].as_str()?;
        let unit = list(one, "properties").find(|property| property["id"] == "unit")?;
        target.ends_with(&format!(", '{curve}')")).then_some(&unit["value"])
    });
    own.unwrap_or(&config["defaults"]["unit"]).as_str().unwrap_or_default()
}
