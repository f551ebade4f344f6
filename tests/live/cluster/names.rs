//! Names that any user can invent.

use sandbox::daemon::surveys;
use sandbox::{Daemon, Folder, NOBODY, Slurm, is_root};

/// Each of them made 15 files, which stay, and a zero in each file in every round.
#[test]
fn a_hundred_and_fifty_invented_accounts_and_qos_make_no_series() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::start(&folder).unwrap();
    let jobs = surveys(&["jobs"]) + "accounts = 3\nqos = true\nusers = 2\n";
    let mut daemon = Daemon::start_surveying(&folder, &slurm.toml(), &jobs).unwrap();
    for invented in 0..150 {
        let (account, qos) =
            (format!("rnd{invented}"), format!("Rnd{invented},rnd{}", invented + 1));
        let words = ["-H", "-A", &account, "-q", &qos, "--output=/dev/null", "--wrap", "true"];
        let submitted = match is_root() {
            true => slurm.run_as(NOBODY, "sbatch", &words),
            false => slurm.run("sbatch", &words),
        };
        submitted.unwrap();
    }
    slurm.submit(&["-A", "physics", "--time=10", "--wrap", "exec sleep 600"]).unwrap();
    // From 24.11 on squeue shows the QOS that the user has written.
    let qos = if slurm.release().unwrap().as_str() >= "24.11" { "other_qos" } else { "no_qos" };
    let qos = format!("{qos}.state.pending");
    for (path, jobs) in [
        ("other_accounts.state.pending", 150.0),
        (qos.as_str(), 150.0),
        ("account.physics.state.running", 1.0),
    ] {
        daemon.until_is(&format!("cluster.slurm_jobs.{path}.gauge-jobs"), jobs).unwrap();
    }
    daemon.ticks(4).unwrap();
    let recorded = daemon.recorded().unwrap();
    let of_accounts = recorded.below("cluster.slurm_jobs.account.");
    assert!(of_accounts.iter().all(|path| path.contains(".account.physics.")), "{of_accounts:?}");
    let invented: Vec<_> =
        recorded.below("cluster.").into_iter().filter(|path| path.contains("rnd")).collect();
    assert!(invented.is_empty(), "{invented:?}");
    if is_root() {
        let user = recorded.below("cluster.slurm_jobs.user.nobody.");
        assert!(user.is_empty(), "none of these jobs has started: {user:?}");
    }
    daemon.stop().unwrap();
}
