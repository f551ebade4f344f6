//! InfluxDB 1 as the store: it acknowledges nothing either, and keeps what it has read in memory
//! for a second.

use std::time::Duration;

use sandbox::{Folder, Imitation, InfluxDb, daemon, wait};

/// The value of a point is the number of its request, so a lost tick is a number that is not there.
const COUNTED: &str = "cluster.slurm_sched_stats.gauge-jobs_submitted";

#[test]
fn influxdb_that_is_killed_twice_has_every_tick() {
    let folder = Folder::new().unwrap();
    let mut store = InfluxDb::start(&folder).unwrap();
    let reader = Imitation::good(&folder).unwrap().toml();
    let toml = format!(
        "[slurm]\n{reader}[[carbon]]\nname = \"influxdb\"\nprotocol = \"plaintext\"\naddress = \
            \"{}\"\n",
        store.address()
    );
    let mut daemon = daemon::spawn_daemon(&folder, "daemon", &toml).unwrap();
    let newest = |store: &InfluxDb| store.series(COUNTED).ok()?.last().map(|(_, value)| *value);
    for _ in 0..2 {
        let before = wait::until_some("a point", wait::LIMIT, || newest(&store)).unwrap();
        wait::until("five more", wait::LIMIT, || {
            newest(&store).is_some_and(|now| now >= before + 5.0)
        })
        .unwrap();
        store.process.kill().unwrap();
        wait::pause(Duration::from_secs(4));
        store.process.start().unwrap();
    }
    let before = wait::until_some("a point", wait::LIMIT, || newest(&store)).unwrap();
    wait::until("five more", wait::LIMIT, || newest(&store).is_some_and(|now| now >= before + 5.0))
        .unwrap();
    daemon.stop().unwrap();
    let all = || store.series(COUNTED).unwrap_or_default();
    // The backlog is sent behind the newest tick.
    wait::until("all ticks in their order", wait::LIMIT, || {
        let values: Vec<f64> = all().into_iter().map(|(_, value)| value).collect();
        values.len() > 20 && values.windows(2).all(|two| two[1] == two[0] + 1.0)
    })
    .unwrap_or_else(|error| panic!("{error}: {:?}", all()));
}
