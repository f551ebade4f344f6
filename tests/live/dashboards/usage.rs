//! Dashboards that need slurmdbd: every target about finished jobs and accounts, with a real
//! slurmdbd, and some of the values compared with what was submitted.

use std::time::Duration;

use anyhow::Result;
use sandbox::grafana::replaced;
use sandbox::{Accounting, Carbon, Folder, GraphiteWeb, Process, daemon, wait};

use super::dashboards;
use super::live::{is_rare, seen};
use super::paths::paths;
use super::values::shown;

const MINUTE: Duration = Duration::from_secs(60);

const OF_SLURMDBD: [&str; 3] = ["slurm_jobs_finished.", "slurm_associations.", "slurm_slurmdbd."];

/// A cluster with accounting, and the programs that collect and show its figures.
struct Town {
    _daemon: Process,
    web: GraphiteWeb,
    _carbon: Carbon,
    accounting: Accounting,
    _folder: Folder,
}

impl Town {
    fn start() -> Result<Self> {
        let folder = Folder::new()?;
        let (carbon, web) = GraphiteWeb::with_carbon(&folder, "1s:4h")?;
        let accounting = Accounting::start(&folder)?;
        let daemon = daemon::spawn_daemon(
            &folder,
            "daemon",
            &format!(
                "[slurm]\nconf = \"{}\"\n[queue]\ndir = \"{}\"\n[[carbon]]\naddress = \"{}\"\n\
                 [collectors.finished]\nenabled = true\ninterval = \"1s\"\naccounts = 5\n\
                 [collectors.associations]\nenabled = true\ninterval = \"1s\"\nusers = 5\n\
                 [collectors.slurmdbd]\nenabled = true\ninterval = \"1s\"\n",
                accounting.slurm.conf().display(),
                folder.path().join("queue").display(),
                carbon.address()
            ),
        )?;
        Ok(Self { _daemon: daemon, web, _carbon: carbon, accounting, _folder: folder })
    }

    fn limit(&self, words: &str) -> Result<()> {
        let words: Vec<&str> = ["-i", "modify"].into_iter().chain(words.split(' ')).collect();
        self.accounting.slurm.run("sacctmgr", &words).map(drop)
    }

    fn submit(&self, count: usize, words: &[&str], script: &str) -> Result<()> {
        for _ in 0..count {
            self.accounting
                .slurm
                .submit(&[words, &["--output=/dev/null", "--wrap", script]].concat())?;
        }
        Ok(())
    }

    fn wait_for(&self, dashboard: &str, panel: &str, curve: &str, value: f64) -> Result<()> {
        let what = format!("{dashboard}, {panel}, {curve}: {value}");
        wait::until(&what, MINUTE, || {
            let shown = shown(&self.web, "cluster", "-2min", [dashboard, panel, curve]);
            shown.is_ok_and(|shown| (shown - value).abs() < 1e-6)
        })
        .map(drop)
    }
}

#[test]
fn what_needs_slurmdbd_is_shown_as_it_was_submitted() {
    let town = Town::start().unwrap();
    let limits = "GrpJobs=2 GrpSubmitJobs=20 GrpTRES=cpu=8 GrpTRESMins=cpu=90000";
    town.limit(&format!("account physics set {limits}")).unwrap();
    town.limit("qos urgent set GrpJobs=1").unwrap();
    town.submit(3, &["--account=chemistry", "--time=5"], "sleep 1").unwrap();
    town.submit(2, &["--account=chemistry", "--time=5"], "sleep 1; exit 3").unwrap();
    // Two of five have failed; every count must agree.
    town.wait_for("jobs", "Jobs ended since the first start, by state", "completed", 3.0).unwrap();
    town.wait_for("jobs", "Jobs ended since the first start, by state", "failed", 2.0).unwrap();
    for (dashboard, panel) in [
        ("overview", "Jobs failing"),
        ("jobs", "Failed, last hour"),
        ("jobs", "Share of jobs that failed"),
    ] {
        town.wait_for(dashboard, panel, "failed", 0.4).unwrap();
    }
    // Two of five jobs run, each with one CPU; and one of two.
    town.submit(5, &["--account=physics", "-n1"], "sleep 300").unwrap();
    town.submit(2, &["--account=chemistry", "--qos=urgent", "-n1"], "sleep 300").unwrap();
    town.wait_for("usage", "Jobs waiting at an account's limit", "jobs", 3.0).unwrap();
    town.wait_for("usage", "Jobs waiting at a QOS's limit", "jobs", 1.0).unwrap();
    town.wait_for("usage", "Running jobs of GrpJobs", "physics", 100.0).unwrap();
    town.wait_for("usage", "Submitted jobs of GrpSubmitJobs", "physics", 25.0).unwrap();
    town.wait_for("usage", "TRES of GrpTRES", "physics.cpu", 25.0).unwrap();
    town.wait_for("usage", "Running jobs of a QOS's GrpJobs", "urgent", 100.0).unwrap();

    let of_slurmdbd = |target: &str| {
        // slurmctld adds up usage every five minutes (PriorityCalcPeriod), slurmdbd every hour.
        // live.rs tests these targets with invented points.
        let mut paths = paths(target);
        paths.retain(|path| !path.ends_with("gauge-level_fs") && !path.contains(".rollup."));
        paths.iter().any(|path| OF_SLURMDBD.iter().any(|family| path.starts_with(family)))
    };
    let (mut asked, mut wrong) = (0, Vec::new());
    for dashboard in dashboards() {
        let variables = dashboard.opened(&town.web, &[("prefix", "cluster")]).unwrap();
        for panel in dashboard.panels() {
            for target in
                panel.targets.iter().filter(|target| of_slurmdbd(target) && !is_rare(target))
            {
                let resolved = replaced(target, &variables).unwrap();
                asked += 1;
                if let Err(error) = seen(&resolved, &town.web.render(&resolved, "-10min").unwrap())
                {
                    wrong.push(format!("{}, {:?}: {error:#}", dashboard.name, panel.title));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(asked > 20, "only {asked} targets");
}
