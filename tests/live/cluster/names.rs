//! Names that any user can invent.

use rustix::process::getuid;
use sandbox::{Daemon, Folder, NOBODY, Recorded, Slurm, wait};

const ACCOUNTS: &str = "[collectors]\nmax_duty = \"100%\"\n\
    [collectors.jobs]\nenabled = true\ninterval = \"2s\"\naccounts = 3\nqos = true\nusers = 2\n";

/// Each of them made 15 files, which stay, and a zero in each file in every round.
#[test]
fn a_hundred_and_fifty_invented_accounts_make_no_series() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    slurm.start_all().unwrap();
    let conf = format!("conf = {:?}\n", slurm.conf());
    let mut daemon = Daemon::start_surveying(&folder, &conf, ACCOUNTS).unwrap();
    for invented in 0..150 {
        let account = format!("rnd{invented}");
        let words = ["-H", "-A", &account, "--output=/dev/null", "--wrap", "true"];
        let user = if getuid().is_root() { NOBODY } else { getuid().as_raw() };
        let submitted = if getuid().is_root() {
            slurm.run_as(user, "sbatch", &words)
        } else {
            slurm.run("sbatch", &words)
        };
        submitted.unwrap();
    }
    slurm.submit(&["-A", "physics", "--time=10", "--wrap", "exec sleep 600"]).unwrap();
    let last = |recorded: &Recorded, path: &str| {
        recorded
            .series(&format!("cluster.slurm_jobs.{path}.gauge-jobs"))
            .last_key_value()
            .map(|(_, &jobs)| jobs)
    };
    let all = |recorded: &Recorded| {
        let found = ["other_accounts.state.pending", "account.physics.state.running"]
            .map(|path| last(recorded, path));
        (found == [Some(150.0), Some(1.0)]).then_some(())
    };
    daemon.until("the invented accounts among the others", wait::LIMIT, all).unwrap();
    daemon.ticks(4).unwrap();
    let recorded = daemon.recorded().unwrap();
    let of_accounts = recorded.below("cluster.slurm_jobs.account.");
    assert!(of_accounts.iter().all(|path| path.contains(".account.physics.")), "{of_accounts:?}");
    let invented: Vec<_> =
        recorded.below("cluster.").into_iter().filter(|path| path.contains("rnd")).collect();
    assert!(invented.is_empty(), "{invented:?}");
    if getuid().is_root() {
        let user = recorded.below("cluster.slurm_jobs.user.nobody.");
        assert!(user.is_empty(), "none of these jobs has started: {user:?}");
    }
    daemon.stop().unwrap();
}
