//! Every target of every panel against a real slurmctld, Carbon and graphite-web.
//!
//! Targets for which this Slurm or the sandbox has no data are tested with invented points. That
//! shows that the target is correct, but not that anybody sends such points.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::grafana::{replaced, variables};
use sandbox::{
    Bustle, Carbonapi, Dashboard, GraphiteWeb, Process, Rendered, Sandbox, carbon, daemon, wait,
};

use super::alerts::{Rule, curve, invent, recent};
use super::paths::paths;

/// Seconds that the cluster works before its targets are requested: a few backfill cycles, and two
/// counts of jobs.
const WORK: u32 = 32;

/// The second of `sdiag --reset`. The third user asks first in second 14: just before the reset it
/// might leave one point, and a rate needs two.
const RESET: u32 = 13;

/// The prefixes that the dashboards must support: of a single cluster, and of one of several.
const PREFIXES: [(&str, &str); 2] =
    [("cluster", "cluster"), ("cluster.{cluster}", "cluster.sandbox")];

/// Paths that may have no point here, and why.
const EXCUSED: [(&str, &str); 16] = [
    ("slurm_nodes.gpu.", "the sandbox has no GPU"),
    ("slurm_nodes.shard.", "the sandbox has no GPU"),
    ("slurm_nodes.total.gauge-gpus_", "the sandbox has no GPU, and of none there is no share"),
    (
        "slurm_nodes.events.class.down.gauge-ended_timed",
        "no node fails here; tests/live/node_events.rs has some",
    ),
    ("slurm_licenses.", "the sandbox has no licence"),
    ("slurm_reservations.all.gauge-seconds_", "the sandbox has no reservation"),
    ("slurm_reservations.maint.", "the sandbox has no reservation"),
    ("slurm_jobs_finished.", "there is no slurmdbd here; usage.rs has one"),
    ("slurm_associations.", "there is no slurmdbd here; usage.rs has one"),
    ("slurm_slurmdbd.", "there is no slurmdbd here; usage.rs has one"),
    ("slurm_graphite.$host.gauge-token_expires_in", "there is no token here"),
    ("slurm_graphite.$host.gauge-standby", "there is one controller here, and no follow"),
    ("slurm_sched_exit.", "slurmctld tells why cycles ended from Slurm 23.11 on"),
    (
        "slurm_rpc_stats.type.$type.gauge-queued",
        "the RPC queue: from Slurm 24.05, where it is enabled",
    ),
    (
        "slurm_rpc_stats.type.$type.gauge-dropped",
        "the RPC queue: from Slurm 24.05, where it is enabled",
    ),
    (
        "slurm_rpc_stats.pending.",
        "only while messages to nodes wait, which here takes none a second",
    ),
];

/// The prefix of a daemon with the shipped configuration.
const SHIPPED: &str = "shipped";

/// A cluster that has done some work, collected under both prefixes, and with the shipped
/// configuration.
pub(crate) struct Worked {
    pub(crate) web: GraphiteWeb,
    /// Only where its program is.
    carbonapi: Option<Carbonapi>,
    _daemons: Vec<Process>,
    pub(crate) sandbox: Sandbox,
    /// Begin of the work.
    from: u64,
}

impl Worked {
    pub(crate) fn start() -> Result<Self> {
        // Some targets look back further than an hour.
        let options = carbon::Options { own_figures: true, ..carbon::Options::keeping("1s:4h") };
        let sandbox = Sandbox::with(&options)?;
        let feature = "availablefeatures=ib activefeatures=ib";
        sandbox.slurm.call(&format!("scontrol update nodename=localhost {feature}"))?;
        let web = GraphiteWeb::spawn(&sandbox.folder, &sandbox.carbon)?;
        let daemons: Result<Vec<Process>> = PREFIXES
            .iter()
            .enumerate()
            .map(|(index, (prefix, _))| collect(&sandbox, &format!("daemon{index}"), prefix))
            .chain([as_shipped(&sandbox)])
            .collect();
        let from = daemon::unix_seconds();
        let mut worked = Self { web, carbonapi: None, _daemons: daemons?, sandbox, from };
        let (start, mut bustle) = (Instant::now(), Bustle::default());
        for second in 0..WORK {
            bustle.second(&worked.sandbox.slurm, second)?;
            if second == RESET {
                worked.sandbox.slurm.run("sdiag", &["--reset"])?;
            }
            wait::pause(Duration::from_secs(u64::from(second + 1)).saturating_sub(start.elapsed()));
        }
        worked.web.process.wait_ready()?;
        worked.carbonapi = Carbonapi::over(&worked.sandbox.folder, &worked.sandbox.carbon)?;
        Ok(worked)
    }

    /// The open panels that have nothing to show with the shipped configuration, with their
    /// targets, and how many targets were requested.
    pub(crate) fn empty_as_shipped(
        &self,
        dashboards: &[Dashboard],
    ) -> Result<(Vec<String>, usize)> {
        let (mut empty, mut asked) = (Vec::new(), 0);
        for dashboard in dashboards {
            let variables = dashboard.opened(&self.web, &[("prefix", SHIPPED)])?;
            for panel in dashboard.open_panels() {
                for target in panel.targets.iter().filter(|target| !is_rare(target)) {
                    asked += 1;
                    let series = self.shown(&replaced(target, &variables)?)?;
                    if !series.iter().any(|one| one.values().next().is_some()) {
                        empty.push(format!("{}, {:?}: {target}", dashboard.name, panel.title));
                    }
                }
            }
        }
        Ok((empty, asked))
    }

    /// The problems of a dashboard's targets as text, and how many targets were requested. Each
    /// must show points, unless it has an excuse.
    pub(crate) fn problems(&self, dashboard: &Dashboard) -> Result<(Vec<String>, usize)> {
        let release = self.sandbox.slurm.release()?;
        let (mut problems, mut asked) = (Vec::new(), 0);
        for (_, prefix) in PREFIXES {
            let variables = dashboard.opened(&self.web, &[("prefix", prefix)])?;
            let panels = dashboard.panels();
            let targets = panels.iter().flat_map(|panel| {
                panel.targets.iter().map(|target| (panel.title.clone(), target.clone()))
            });
            for (title, target) in targets.chain(dashboard.annotations()) {
                asked += 1;
                let resolved = replaced(&target, &variables)?;
                let is_excused = is_excused(&target, &release) || is_rare(&target);
                for (server, rendered) in self.rendered(&resolved, self.span(), 1000) {
                    let series = rendered.with_context(|| resolved.clone());
                    let shown = series
                        .and_then(|all| if is_excused { Ok(()) } else { seen(&resolved, &all) });
                    if let Err(error) = shown {
                        problems
                            .push(format!("{server}, {}, {title:?}: {error:#}", dashboard.name));
                    }
                }
            }
        }
        Ok((problems, asked))
    }

    fn span(&self) -> (u64, u64) {
        (self.from, daemon::unix_seconds())
    }

    /// The series that graphite-web returns for a target.
    fn shown(&self, target: &str) -> Result<Vec<Rendered>> {
        self.web.render_between(target, self.span(), 1000)
    }

    /// The series that each server returns for a target.
    fn rendered(
        &self,
        target: &str,
        span: (u64, u64),
        points: u64,
    ) -> Vec<(&'static str, Result<Vec<Rendered>>)> {
        let web = ("graphite-web", self.web.render_between(target, span, points));
        let api = self
            .carbonapi
            .as_ref()
            .map(|api| ("carbonapi", api.render_between(target, span, points)));
        [web].into_iter().chain(api).collect()
    }

    /// The targets that a server refuses although there is only less to show: most collectors are
    /// off, or nothing is there at all.
    pub(crate) fn refused(&self, dashboards: &[Dashboard], rules: &[Rule]) -> Result<Vec<String>> {
        let mut targets = BTreeSet::new();
        for prefix in [SHIPPED, "nothing"] {
            for dashboard in dashboards {
                let variables = dashboard.opened(&self.web, &[("prefix", prefix)])?;
                let panels = dashboard.panels().into_iter().flat_map(|panel| panel.targets);
                for target in
                    panels.chain(dashboard.annotations().into_iter().map(|(_, target)| target))
                {
                    targets.insert(replaced(&target, &variables)?);
                }
            }
            let prefixed =
                |rule: &Rule| rule.target.replace("cluster.slurm_", &format!("{prefix}.slurm_"));
            targets.extend(rules.iter().map(prefixed));
        }
        let mut refused = Vec::new();
        for target in targets {
            for (server, rendered) in self.rendered(&target, self.span(), 1000) {
                refused
                    .extend(rendered.err().map(|error| format!("{server}: {target}: {error:#}")));
            }
        }
        Ok(refused)
    }

    /// The counting targets whose sum depends on how many points are requested. Each is requested
    /// with points that were invented for it.
    pub(crate) fn uneven(&self, dashboards: &[Dashboard]) -> Result<(Vec<String>, usize)> {
        let panels = dashboards
            .iter()
            .flat_map(|one| one.panels().into_iter().map(move |panel| (one, panel)));
        let mut targets: Vec<(&Dashboard, String)> = panels
            .flat_map(|(one, panel)| panel.targets.into_iter().map(move |target| (one, target)))
            .filter(|(_, target)| counts(target))
            .collect();
        targets.dedup();
        let leaves: BTreeSet<String> = targets
            .iter()
            .flat_map(|(_, target)| paths(target))
            .flat_map(|path| ["alpha", "beta"].map(|name| named(&path, name)))
            .collect();
        let leaves = leaves.into_iter().map(|leaf| (leaf, curve(|ago| 1000.0 - ago)));
        let newest = recent();
        invent(&self.sandbox.carbon, "counted", newest, (1, 60), leaves)?;
        let until = daemon::unix_seconds();
        let mut uneven = Vec::new();
        for (dashboard, target) in &targets {
            let variables = dashboard.opened(&self.web, &[("prefix", "counted")])?;
            let resolved = replaced(target, &variables)?;
            let [all, few] =
                [1000, 10].map(|points| self.rendered(&resolved, (until - 90, until), points));
            for ((server, all), (_, few)) in all.into_iter().zip(few) {
                let [all, few] = [sum(&all?), sum(&few?)];
                if all != few || all < 59.0 {
                    uneven.push(format!("{server}: {resolved}: {all} in all points, {few} in ten"));
                }
            }
        }
        Ok((uneven, targets.len()))
    }

    /// The problems of the targets with an excuse as text, with points that were invented for them;
    /// and how many targets were requested.
    pub(crate) fn invented(&self, dashboards: &[Dashboard]) -> Result<(Vec<String>, usize)> {
        let release = self.sandbox.slurm.release()?;
        let (mut targets, mut leaves) = (Vec::new(), BTreeSet::new());
        for dashboard in dashboards {
            for panel in dashboard.panels() {
                for target in
                    panel.targets.into_iter().filter(|target| is_excused(target, &release))
                {
                    if is_rare(&target) {
                        continue;
                    }
                    for path in paths(&target) {
                        leaves.extend(["alpha", "beta"].map(|name| named(&path, name)));
                    }
                    targets.push((dashboard, panel.title.clone(), target));
                }
            }
        }
        let leaves = leaves.into_iter().map(|leaf| (leaf, curve(|ago| 1000.0 - ago)));
        invent(&self.sandbox.carbon, "invented", recent(), (1, 90), leaves)?;
        let mut problems = Vec::new();
        for (dashboard, title, target) in &targets {
            let variables = dashboard.opened(&self.web, &[("prefix", "invented")])?;
            let resolved = replaced(target, &variables)?;
            if let Err(error) = seen(&resolved, &self.shown(&resolved)?) {
                problems.push(format!("{}, {title:?}: {error:#}", dashboard.name));
            }
        }
        Ok((problems, targets.len()))
    }

    /// Whether an annotation has a point: `sdiag --reset` must cause one, or nobody would see it.
    pub(crate) fn marked(&self, dashboard: &Dashboard) -> Result<bool> {
        let variables = variables(&[("prefix", "cluster")]);
        let (_, target) = dashboard.annotations().into_iter().next().context("no annotation")?;
        let series = self.shown(&replaced(&target, &variables)?)?;
        let reset = series
            .iter()
            .find(|one| one.name.contains("sdiag --reset"))
            .context("no such series")?;
        Ok(reset.values().any(|value| value > 0.0))
    }
}

/// Whether a target shows how many there were in each interval, and no rate, share or sum over a
/// fixed time.
fn counts(target: &str) -> bool {
    let others = ["movingSum(", "summarize(", "scaleToSeconds(", "perSecond(", "divideSeries("];
    (target.contains("nonNegativeDerivative(") || target.contains("gauge-interval_count"))
        && !others.iter().any(|function| target.contains(function))
}

fn sum(series: &[Rendered]) -> f64 {
    series.iter().flat_map(Rendered::values).sum()
}

/// A path with this name in place of every node that is a variable or a wildcard.
pub(crate) fn named(path: &str, name: &str) -> String {
    let is_any = |node: &str| node == "*" || node.starts_with('$');
    path.split('.').map(|node| if is_any(node) { name } else { node }).collect::<Vec<_>>().join(".")
}

/// At least one series, a point in each of them, and a name for people.
pub(crate) fn seen(target: &str, series: &[Rendered]) -> Result<()> {
    ensure!(!series.is_empty(), "no series for {target}");
    for one in series {
        ensure!(one.values().next().is_some(), "{target}: no point in {}", one.name);
        let raw = one.name.is_empty() || one.name.contains("gauge-") || one.name.contains('(');
        ensure!(!raw, "{target}: a curve is called {}", one.name);
    }
    Ok(())
}

/// Whether a target may have no point.
fn is_excused(target: &str, release: &str) -> bool {
    let mut excuses =
        EXCUSED.iter().filter(|(start, _)| release < "23.11" || *start != "slurm_sched_exit.");
    let paths = paths(target);
    excuses.any(|(start, _)| paths.iter().any(|path| path.starts_with(start)))
}

/// Whether a target shows only what was not 0, or what was a week ago: no series on a good day here.
/// rules.rs has bad days.
pub(crate) fn is_rare(target: &str) -> bool {
    ["maximumAbove(", "timeShift("].iter().any(|function| target.contains(function))
}

/// A daemon with users among its paths, ticking once a second.
fn collect(sandbox: &Sandbox, name: &str, prefix: &str) -> Result<Process> {
    let (conf, queue) =
        (sandbox.slurm.conf().display().to_string(), sandbox.path(&format!("{name}.queue")));
    daemon::spawn_daemon(
        &sandbox.folder,
        name,
        &format!(
            "prefix = \"{prefix}\"\n[slurm]\nconf = \"{conf}\"\n[queue]\ndir = \"{}\"\n[[carbon]]\n\
name = \"carbon\"\naddress = \"{}\"\n{}",
            queue.display(),
            sandbox.carbon.address(),
            COLLECTORS
        ),
    )
}

/// A daemon with the shipped configuration, except that it ticks once a second and knows where the
/// sandbox is.
fn as_shipped(sandbox: &Sandbox) -> Result<Process> {
    let mut text = fs::read_to_string(shipped().join("../first.toml"))?;
    for (line, instead) in [
        ("interval = \"30s\"", "interval = \"1s\"".to_owned()),
        ("prefix = \"cluster\"", format!("prefix = \"{SHIPPED}\"")),
        ("address = \"localhost:2004\"", format!("address = \"{}\"", sandbox.carbon.address())),
        (
            "dir = \"/var/lib/slurm-graphite\"",
            format!("dir = \"{}\"", sandbox.path("shipped.queue").display()),
        ),
    ] {
        ensure!(
            text.matches(&format!("\n{line}\n")).count() == 1,
            "the shipped file has no line {line}"
        );
        text = text.replace(&format!("\n{line}\n"), &format!("\n{instead}\n"));
    }
    text += &format!("[slurm]\nconf = \"{}\"\n", sandbox.slurm.conf().display());
    daemon::spawn_daemon(&sandbox.folder, "daemon-as-shipped", &text)
}

/// Everything that a dashboard shows.
const COLLECTORS: &str = "\
[collectors.rpc_stats]
users = 5
[collectors.jobs]
enabled = true
interval = \"2s\"
accounts = 9
users = 5
[collectors.nodes]
events = true
features = 20
enabled = true
interval = \"2s\"
[collectors.partitions]
enabled = true
interval = \"2s\"
[collectors.reservations]
enabled = true
interval = \"2s\"
[collectors.controllers]
enabled = true
interval = \"2s\"
";

/// The folder with the dashboards to import.
pub(crate) fn shipped() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/grafana"))
}
