//! Licences that reservations set aside.

use std::time::Duration;

use sandbox::{Daemon, Folder, Slurm, wait};

const LICENCES: &str =
    "[collectors]\nmax_duty = \"100%\"\n[collectors.licenses]\nenabled = true\ninterval = \"2s\"\n";

/// The time that slurmctld compares with is that of jobs. A reservation's begin, end and deletion were not seen until a
/// job took or returned a licence.
#[test]
fn what_a_reservation_sets_aside_is_seen_without_any_job() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    slurm.configure("Licenses=foo:10\n").unwrap();
    slurm.start_all().unwrap();
    let conf = format!("conf = {:?}\n", slurm.conf());
    let mut daemon = Daemon::start_surveying(&folder, &conf, LICENCES).unwrap();
    let reserved = |daemon: &mut Daemon, expected: f64| {
        let what = format!("{expected} licences set aside");
        daemon.until(&what, wait::LIMIT, |recorded| {
            let series = recorded.series("cluster.slurm_licenses.foo.gauge-reserved");
            series.last_key_value().filter(|(_, reserved)| **reserved == expected).map(drop)
        })
    };
    reserved(&mut daemon, 0.0).unwrap();
    // So that a reply from before would be called unchanged.
    wait::pause(Duration::from_secs(3));
    let create = "create reservation reservationname=lic starttime=now+3 duration=10 users=root licenses=foo:3 flags=any_nodes nodecnt=0";
    slurm.run("scontrol", &create.split(' ').collect::<Vec<_>>()).unwrap();
    reserved(&mut daemon, 3.0).unwrap();
    slurm.run("scontrol", &["delete", "reservationname=lic"]).unwrap();
    reserved(&mut daemon, 0.0).unwrap();
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
}
