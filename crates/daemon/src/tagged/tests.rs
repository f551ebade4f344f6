//! Every possible path has a unique name with tags, within Carbon's and VictoriaMetrics' limits.

use std::collections::{BTreeMap, BTreeSet};

use carbon::path;
use proptest::prelude::*;
use slurm_points::collectors::fits;
use slurm_points::prefix::Prefix;
use slurm_points::tagged::MAX_VALUE;

use super::*;

#[test]
fn what_varies_is_a_tag_and_all_else_the_name() {
    for (path, expected) in [
        (
            "cluster.slurm_sched_stats.gauge-main_last_cycle",
            "slurm_sched_stats.main_last_cycle;cluster=cluster",
        ),
        ("cluster.alpha.slurm_sched_stats.gauge-x", "slurm_sched_stats.x;cluster=alpha"),
        (
            "hpc.eu.slurm_jobs.state.running.gauge-jobs",
            "slurm_jobs.state.jobs;cluster=hpc.eu;prefix=hpc.eu;state=running",
        ),
        (
            "cluster.slurm_associations.user.physics.ann.tres.gres_gpu.gauge-used",
            "slurm_associations.user.tres.used;account=physics;cluster=cluster;tres=gres_gpu;user=ann",
        ),
        (
            "cluster.a.slurm_graphite.node1.queue.gauge-batches",
            "slurm_graphite.queue.batches;cluster=a;host=node1",
        ),
        (
            "a.slurm_graphite.node1.gauge-check",
            "slurm_graphite.check;cluster=a;host=node1;prefix=a",
        ),
    ] {
        assert_eq!(tagged(path), expected);
    }
}

#[test]
fn a_prefix_or_a_name_that_looks_like_a_family_is_none() {
    for (path, expected) in [
        (
            "slurm_jobs.slurm_jobs.total.gauge-jobs",
            "slurm_jobs.total.jobs;cluster=slurm_jobs;prefix=slurm_jobs",
        ),
        (
            "cluster.slurm_jobs.slurm_jobs.total.gauge-jobs",
            "slurm_jobs.total.jobs;cluster=slurm_jobs",
        ),
        (
            "cluster.slurm_licenses.slurm_health.gauge-used",
            "slurm_licenses.used;cluster=cluster;license=slurm_health",
        ),
    ] {
        assert_eq!(tagged(path), expected);
    }
}

/// Both were `cluster=x`: two daemons wrote one series.
#[test]
fn two_prefixes_have_no_name_in_common() {
    let prefixes =
        ["x", "cluster.x", "cluster", "cluster.cluster", "cluster.cluster.x", "a.x", "cluster.a.x"];
    let names: BTreeSet<String> =
        prefixes.iter().map(|prefix| tagged(&format!("{prefix}.slurm_health.gauge-up"))).collect();
    assert_eq!(names.len(), prefixes.len(), "{names:?}");
}

#[test]
fn a_path_of_an_older_version_loses_nothing() {
    assert_eq!(tagged("cluster.slurm_gone.x.y.gauge-z"), "slurm_gone.x.y.z;cluster=cluster");
    assert_eq!(tagged("cluster.other"), "cluster.other");
}

/// Then distinct paths of one prefix have distinct names, because values are in the tags as they
/// are.
#[test]
fn no_two_figures_have_a_name_and_tags_in_common() {
    let mut seen = BTreeMap::new();
    for level in every_level() {
        for leaf in level.leaves() {
            let name = tagged(&format!("cluster.{}.gauge-{}", level.below, leaf.leaf));
            let tags: BTreeSet<String> = name
                .split(';')
                .skip(1)
                .map(|tag| tag.split('=').next().unwrap().to_owned())
                .collect();
            let key = (name.split(';').next().unwrap().to_owned(), tags);
            let before = seen.insert(key, (level.below, leaf.leaf.clone()));
            assert_eq!(before, None, "{name}");
        }
    }
    assert!(seen.len() > 500, "{}", seen.len());
}

#[test]
fn no_level_fits_two_declarations() {
    let declared: BTreeSet<&str> = every_level().map(|level| level.below).collect();
    for below in &declared {
        let given = below.replace(['<', '>'], "");
        let fitting: Vec<_> = declared.iter().filter(|declared| fits(declared, &given)).collect();
        assert_eq!(fitting, [below]);
    }
}

/// A path below `prefix` with these names for what varies.
fn filled(prefix: &str, below: &str, leaf: &str, names: &[String]) -> String {
    let mut names = names.iter().cycle();
    let components = below.split('.').map(|component| match component.starts_with('<') {
        true => path::component(names.next().unwrap()).into_owned(),
        false => component.to_owned(),
    });
    format!("{prefix}.{}.gauge-{leaf}", components.collect::<Vec<_>>().join("."))
}

/// Accepts a name with tags as Carbon's TaggedSeries and graphite-web's tables do; VictoriaMetrics
/// allows more of each.
fn check(tagged: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{tagged}: {what}"));
    let mut parts = tagged.split(';');
    let name = parts.next().unwrap_or_default();
    if path::check(name).is_err() || name.len() > MAX_VALUE {
        return wrong("its name");
    }
    let mut tags = Vec::new();
    for part in parts {
        let Some((tag, value)) = part.split_once('=') else { return wrong("no value") };
        if tag.is_empty()
            || tag == "name"
            || !tag.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        {
            return wrong("a tag's name");
        }
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if value.is_empty() || value.len() > MAX_VALUE || !value.bytes().all(is_legal) {
            return wrong("a tag's value");
        }
        tags.push(tag);
    }
    if tags.is_empty() || tags.len() > 20 || !tags.windows(2).all(|pair| pair[0] < pair[1]) {
        return wrong("its tags are none, many, or not in order");
    }
    Ok(())
}

fn prefix() -> impl Strategy<Value = String> {
    const TEMPLATES: &[&str] =
        &["cluster", "cluster.{cluster}", "hpc.{cluster}.{host}", "a_long-one.{cluster}"];
    (proptest::sample::select(TEMPLATES), any::<String>(), any::<String>()).prop_map(
        |(template, cluster, host)| {
            template.parse::<Prefix>().unwrap().expand(Some(&cluster), &host).unwrap()
        },
    )
}

proptest! {
    #[test]
    fn every_documented_path_has_a_name_within_the_limits(
        prefix in prefix(),
        names in proptest::collection::vec(prop_oneof![any::<String>(), "[~;=a]{1,4}", "[a.]{190,\
            210}"], 4),
    ) {
        for level in every_level() {
            for leaf in level.leaves() {
                let path = filled(&prefix, level.below, &leaf.leaf, &names);
                prop_assert_eq!(carbon::path::check(&path).ok().map(|()| check(&tagged(&path))),
                    Some(Ok(())));
            }
        }
    }

    #[test]
    fn distinct_paths_have_distinct_names(
        prefixes in proptest::collection::vec("(cluster\\.){0,3}(cluster|[ab]|[ab]\\.[ab])", 2),
        names in proptest::collection::vec(proptest::collection::vec("[ab.]{1,2}|x{190,193}", 4),
            2),
    ) {
        let mut seen = BTreeMap::new();
        for (prefix, names) in prefixes.iter().zip(&names) {
            for level in every_level() {
                let leaf = level.leaves().into_iter().next().unwrap();
                let path = filled(prefix, level.below, &leaf.leaf, names);
                let before = seen.insert(tagged(&path), path.clone());
                prop_assert!(before.as_ref().is_none_or(|before| *before == path), "{:?} and {}",
                    before, path);
            }
        }
    }
}
