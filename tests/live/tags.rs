//! Every point is stored under its path in one Carbon, and under its name with tags in another
//! Carbon and in VictoriaMetrics. All three have the same points, with the names from
//! docs/metrics.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::carbon::Options;
use sandbox::{
    Carbon, Folder, GraphiteWeb, Rendered, Sandbox, VictoriaMetrics, daemon, destination,
    free_port, run, wait,
};

/// Longer than anything here should take on a busy machine.
const PATIENCE: Duration = wait::LIMIT;

const COLLECTORS: &str = "\
[collectors.rpc_stats]
users = 5
[collectors.jobs]
enabled = true
interval = \"1s\"
accounts = 9
users = 5
[collectors.nodes]
enabled = true
interval = \"1s\"
each = true
[collectors.partitions]
enabled = true
interval = \"1s\"
[collectors.controllers]
enabled = true
interval = \"1s\"
";

type Points = BTreeMap<u64, f64>;

#[test]
fn each_point_is_under_its_path_and_under_its_name_with_tags() {
    let sandbox = Sandbox::start().unwrap();
    let options = Options {
        schemas: schemas(&sandbox.folder).unwrap(),
        graphite_web: Some(free_port().unwrap()),
        ..Options::default()
    };
    let mut carbon = Carbon::spawn(&sandbox.folder, "tagged", &options).unwrap();
    let mut web = GraphiteWeb::spawn(&sandbox.folder, &carbon).unwrap();
    let mut victoria = VictoriaMetrics::spawn(&sandbox.folder, "victoria").unwrap();
    for process in [&mut carbon.process, &mut web.process, &mut victoria.process] {
        process.wait_ready().unwrap();
    }
    let names = Names::documented(&sandbox.folder).unwrap();
    collect(&sandbox, &carbon, &victoria, || {
        let known: BTreeSet<String> =
            web.find_by_tags("name=~slurm_").unwrap_or_default().into_iter().collect();
        sandbox.carbon.paths().keys().all(|path| known.contains(&names.tagged(path).unwrap()))
    })
    .unwrap();

    let expected = || -> Result<BTreeMap<String, Points>> {
        let files = sandbox.carbon.paths().into_keys();
        files.map(|path| Ok((names.tagged(&path)?, sandbox.carbon.series(&path)?.points))).collect()
    };
    // The daemon has ended and every tick was read; the receivers will soon have stored what they
    // have not stored yet.
    let mut seen = (BTreeMap::new(), BTreeMap::new());
    let is_same = || {
        seen = (expected().unwrap(), rendered(&web));
        !seen.0.is_empty() && is_equal(&seen.0, &seen.1)
    };
    let result = wait::until("every series in graphite-web", PATIENCE, is_same);
    assert!(result.is_ok(), "{result:?}: {}", difference(&seen.0, &seen.1));
    let exported = victoria.export("{__name__=~\"slurm_.*\"}").unwrap();
    assert!(is_equal(&seen.0, &exported), "{}", difference(&seen.0, &exported));

    let families: BTreeSet<&str> =
        seen.0.keys().filter_map(|name| name.split('.').next()).collect();
    assert!(families.len() >= 8 && seen.0.len() > 300, "{} of {families:?}", seen.0.len());
    let selected = |tags: &str| web.render(&format!("seriesByTag({tags})"), "-5min").unwrap().len();
    assert_eq!(selected("'name=slurm_jobs.state.jobs','cluster=sandbox','state=running'"), 1);
    let by_label =
        "{__name__=\"slurm_jobs.partition.state.jobs\", cluster=\"sandbox\", state=\"running\"}";
    assert_eq!(victoria.export(by_label).unwrap().len(), 1);
    assert_eq!(selected("'name=slurm_partitions.state.nodes','partition=~.*','state=idle'"), 1);

    let (folder, conf) = (&sandbox.folder, sandbox.slurm.conf().display().to_string());
    let toml = folder
        .write("check.toml", &(destination("tags", &carbon.address()) + "tags = true\n"))
        .unwrap();
    let args = ["check", "--connect", "--slurm-conf", &conf, "--config", &toml];
    let checked = run(folder, &args).unwrap();
    assert!(
        checked.stdout.contains("read the test point, slurm_graphite.check;"),
        "{}",
        checked.stdout
    );
    wait::until("the point of check", PATIENCE, || selected("'name=slurm_graphite.check'") == 1)
        .unwrap();
}

/// Runs for a few ticks, until graphite-web knows all series. When the daemon ends, it must report
/// that each of the three has read everything.
fn collect(
    sandbox: &Sandbox,
    carbon: &Carbon,
    victoria: &VictoriaMetrics,
    known: impl Fn() -> bool,
) -> Result<()> {
    sandbox.slurm.submit(&["--wrap", "true"])?;
    let destinations = [
        destination("paths", &sandbox.carbon.address()),
        destination("tags", &carbon.address()) + "tags = true\n",
        destination("victoria", &victoria.address()) + "tags = true\nprotocol = \"plaintext\"\n",
    ];
    let (slurm, destinations) = (sandbox.slurm.toml(), destinations.concat());
    let toml =
        format!("prefix = \"cluster.{{cluster}}\"\n[slurm]\n{slurm}{destinations}{COLLECTORS}");
    let mut daemon = daemon::spawn_daemon(&sandbox.folder, "daemon", &toml)?;
    let points = |below: &str| {
        sandbox
            .carbon
            .series(&format!("cluster.sandbox.{below}"))
            .map_or(0, |series| series.points.len())
    };
    wait::until("ticks with a job that has ended", PATIENCE, || {
        points("slurm_jobs.state.completed.gauge-jobs") > 0
            && points("slurm_health.gauge-seconds_since_reading") > 4
    })?;
    wait::until("every series in graphite-web's database", PATIENCE, known)?;
    daemon.stop()?;
    let log = fs::read_to_string(daemon.log())?;
    ensure!(
        log.matches(sandbox::ALL_READ).count() == 3,
        "not every destination has read everything: {log}"
    );
    Ok(())
}

/// Our own rules with shorter retention. A series that matches none of them gets Carbon's default,
/// one point a minute.
fn schemas(folder: &Folder) -> Result<String> {
    let printed =
        run(folder, &["carbon-rules", "--file", "schemas", "--prefix", "cluster.{cluster}"])?
            .stdout;
    let lines = printed.lines().map(|line| match line.split_once('=') {
        Some(("retentions ", _)) => "retentions = 1s:1h\n".to_owned(),
        _ => format!("{line}\n"),
    });
    Ok(lines.collect())
}

fn rendered(web: &GraphiteWeb) -> BTreeMap<String, Points> {
    let points = |one: Rendered| {
        let points = one.points.into_iter().filter_map(|(at, value)| Some((at, value?)));
        (one.name, points.collect())
    };
    let series = web.render("seriesByTag('name=~slurm_')", "-3min").unwrap_or_default();
    series.into_iter().map(points).collect()
}

/// JSON may change a number's last digit, and VictoriaMetrics keeps about twelve digits.
fn is_equal(expected: &BTreeMap<String, Points>, found: &BTreeMap<String, Points>) -> bool {
    expected.keys().eq(found.keys())
        && expected.values().zip(found.values()).all(|(one, other)| are_equal(one, other))
}

fn are_equal(one: &Points, other: &Points) -> bool {
    let mut values = one.values().zip(other.values());
    one.keys().eq(other.keys())
        && values.all(|(one, other)| (one - other).abs() <= one.abs() * 1e-9)
}

fn difference(expected: &BTreeMap<String, Points>, found: &BTreeMap<String, Points>) -> String {
    let missing: Vec<_> =
        expected.keys().filter(|name| !found.contains_key(*name)).take(5).collect();
    let more: Vec<_> = found.keys().filter(|name| !expected.contains_key(*name)).take(5).collect();
    let pairs = expected.iter().filter_map(|(name, points)| Some((name, points, found.get(name)?)));
    let other = pairs.into_iter().find(|(_, points, found)| !are_equal(points, found));
    let all = expected.len();
    format!("of {all} series missing {missing:#?}, not expected {more:#?}, other points {other:#?}")
}

/// The documented paths, with placeholders in angle brackets, and the rule of docs/metrics.md for
/// their names.
struct Names(Vec<Vec<String>>);

impl Names {
    fn documented(folder: &Folder) -> Result<Self> {
        let printed = run(folder, &["metrics", "--format", "tsv"])?.stdout;
        let paths =
            printed.lines().filter_map(|line| line.strip_prefix("cluster.")?.split('\t').next());
        Ok(Self(paths.map(|path| path.split('.').map(str::to_owned).collect()).collect()))
    }

    /// The name and tags of a path: words in angle brackets are tags, the rest is the name.
    fn tagged(&self, path: &str) -> Result<String> {
        let below = path.strip_prefix("cluster.sandbox.").with_context(|| path.to_owned())?;
        let given: Vec<&str> = below.split('.').collect();
        let fits = |documented: &&Vec<String>| {
            let mut pairs = documented.iter().zip(&given);
            documented.len() == given.len()
                && pairs.all(|(word, given)| word.starts_with('<') || word == given)
        };
        let documented =
            self.0.iter().find(fits).with_context(|| format!("{path} is not documented"))?;
        let mut tags = BTreeMap::from([("cluster", "sandbox")]);
        let mut name = Vec::new();
        for (word, given) in documented.iter().zip(given) {
            match word.strip_prefix('<').and_then(|word| word.strip_suffix('>')) {
                Some(tag) => drop(tags.insert(tag, given)),
                None => name.push(given.strip_prefix("gauge-").unwrap_or(given)),
            }
        }
        let tags: String = tags.iter().map(|(tag, value)| format!(";{tag}={value}")).collect();
        Ok(name.join(".") + &tags)
    }
}
