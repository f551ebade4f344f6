//! Tests of what a changed `[slurm]` replaces, and what it leaves. The readers' programs do not
//! exist.

use std::collections::BTreeMap;

use slurm_points::replies::SurveyReplies;
use slurm_snapshot::{Ahead, Nodes, Partitions, Reply};

use super::*;

fn config(slurm: &str) -> Config {
    Config::parse_valid(&format!(
        "prefix = \"{{cluster}}\"\nqueue.dir = \"/queue\"\n[slurm]\nreader = \"/nonexistent\"\n\
            {slurm}\n[collectors.finished]\nenabled = true\n"
    ))
}

/// The log had said that nothing is sent, and after a reload it never said that points are sent.
#[tokio::test]
async fn a_changed_slurm_forgets_the_name_and_not_that_the_log_misses_it() {
    let (readers, none): (_, Memory<'_>) = (ReaderMemory::default(), &|_| None);
    let mut cluster = Cluster::start(&config(""), &readers, none);
    let prefix = config("").prefix;
    assert_eq!((cluster.prefix(&prefix, "h"), cluster.seen.entry.nameless), (None, true));
    cluster.replace(&config("timeout = \"9s\""), &readers, none);
    assert!(cluster.seen.entry.nameless);
    assert!(cluster.accept_name("alpha", &config(""), none));
    assert_eq!(
        (cluster.prefix(&prefix, "h").as_deref(), cluster.seen.entry.nameless),
        (Some("alpha"), false)
    );
    cluster.replace(&config(""), &readers, none);
    assert_eq!((cluster.name(), cluster.seen.entry.nameless), (None, false));
}

/// Another ledger would not know of what waits for the disk, and would not publish it.
#[tokio::test]
async fn a_changed_slurm_leaves_a_commit_of_finished_jobs_to_its_end() {
    let (readers, none): (_, Memory<'_>) = (ReaderMemory::default(), &|_| None);
    let mut cluster = Cluster::start(&config(""), &readers, none);
    let finished = cluster.finished.as_mut().unwrap();
    finished.open("alpha", 1_700_000_000, || Some(BTreeMap::new()), |_| 7);
    assert_eq!(finished.ticket(), Some(7));
    cluster.replace(&config("timeout = \"9s\""), &readers, none);
    assert_eq!(cluster.finished.as_ref().and_then(Accounting::ticket), Some(7));
    let ledger = cluster.finished.as_ref().and_then(Accounting::ledger).unwrap();
    assert_eq!(ledger.counts().cluster, "alpha");
}

/// One failed look-up after a reload ended the daemon for good. Among the controllers of another
/// slurm.conf this host must be found again.
#[tokio::test]
async fn a_changed_slurm_does_not_forget_that_this_host_was_found() {
    let (readers, none): (_, Memory<'_>) = (ReaderMemory::default(), &|_| None);
    let mut cluster = Cluster::start(&config("follow = \"slurmctld\""), &readers, none);
    let was_found = |cluster: &Cluster| cluster.follow.as_ref().unwrap().was_found;
    assert!(!was_found(&cluster));
    cluster.handle_ping(Some(Ahead { own: Some(0), ..Ahead::default() }));
    for (more, found) in [("timeout = \"9s\"", true), ("conf = \"/beta.conf\"", false)] {
        cluster.replace(&config(&format!("follow = \"slurmctld\"\n{more}")), &readers, none);
        assert_eq!(was_found(&cluster), found, "{more}");
    }
}

/// Totals of the old cluster's nodes went on under the new one's name, and its users kept their
/// paths.
#[tokio::test]
async fn what_a_collector_remembers_of_another_cluster_is_forgotten_when_the_name_is_known() {
    let config = Config::parse_valid(
        "[slurm]\nreader = \"/nonexistent\"\n[collectors.nodes]\nenabled = true\nevents = true\n",
    );
    let memory = "{\"last\":1700000000,\"total\":{\"reboots\":41}}";
    let reboots = |is_of_another: bool| {
        let readers = ReaderMemory::default();
        let mut cluster = Cluster::start(&config, &readers, &|_| Some(memory.to_owned()));
        assert!(
            cluster.accept_name("beta", &config, &|_| (!is_of_another).then(|| memory.to_owned()))
        );
        let asked = cluster.collecting.needs(Role::Surveys).unwrap();
        let nodes = Nodes { partitions: Some(Partitions::default()), ..Nodes::default() };
        let reply = Some(Reply::Nodes(Box::new(nodes)));
        let mut replies = SurveyReplies::default();
        replies.insert(ReplyKind::Nodes, Reading { reply, ..Reading::default() }.into());
        let mut batch = Batch::new(1_700_000_060);
        let done = RoundResult {
            timestamp: 1_700_000_060,
            ended: 1_700_000_060,
            requested: asked,
            replies,
        };
        cluster.collecting.collect_survey(DueCollectors::All, &done, "c", &mut batch);
        let mut points = batch.points();
        points
            .find(|point| point.path().ends_with("gauge-reboots_total"))
            .map(|point| point.value().to_string())
    };
    assert_eq!(reboots(false).as_deref(), Some("41"));
    assert_eq!(reboots(true).as_deref(), Some("0"));
}

/// slurmrestd reported another name at each tick, and each made all series again; and the old paths
/// must not get the values of another cluster while a name is not believed.
#[tokio::test(start_paused = true)]
async fn another_name_counts_after_three_ticks_and_at_most_once_an_hour() {
    let (readers, none): (_, Memory<'_>) = (ReaderMemory::default(), &|_| None);
    let config = config("");
    let mut cluster = Cluster::start(&config, &readers, none);
    let mut takes = |name: &str| cluster.accept_name(name, &config, none);
    assert!(takes("alpha"), "the first one counts at once");
    let names = (0..60).map(|tick| format!("name{tick}"));
    assert!(names.into_iter().all(|name| !takes(&name)));
    let answers = [
        "beta", "beta", "alpha", "beta", "beta", "beta", "beta", "alpha", "alpha", "alpha", "alpha",
    ];
    let expected = [false, false, true, false, false, true, true, false, false, false, false];
    assert_eq!(answers.map(&mut takes), expected);
    tokio::time::advance(RENAMED_EVERY).await;
    assert!(takes("alpha"), "an hour later");
    assert!(!takes("beta"));
}
