//! `once` and `stats --reset` with a real cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use sandbox::{
    Invocation, NOBODY, Sandbox, free_port, is_root, printed, run, section, unix_seconds, wait,
};

use super::Terminal;

#[test]
fn once_prints_legal_lines_of_its_slot_says_who_has_read_them_and_a_reset_is_for_operators() {
    let mut sandbox = Sandbox::start().unwrap();
    let conf = sandbox.slurm.conf().display().to_string();
    let before = unix_seconds();
    let once = printed(&sandbox.folder, &["once", "--slurm-conf", &conf]).unwrap();
    let slots = [before / 30 * 30, unix_seconds() / 30 * 30];
    let mut paths = BTreeSet::new();
    for line in once.lines() {
        let [path, value, timestamp] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let legal = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
        };
        assert!(path.split('.').all(legal), "{line}");
        assert!(path.starts_with("cluster.slurm_"), "{line}");
        assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
        assert!(slots.contains(&timestamp.parse().unwrap()), "{line}, not {slots:?}");
        assert!(paths.insert(path), "twice: {line}");
    }
    for family in ["sched_stats", "rpc_stats.type", "rpc_stats.total"] {
        let family = format!("cluster.slurm_{family}.");
        assert!(paths.iter().any(|path| path.starts_with(&family)), "{family} is not in {paths:?}");
    }

    let on_a_terminal = Invocation::new(&sandbox.folder, &["once", "--slurm-conf", &conf]).unwrap();
    let shown = Terminal::open().unwrap().output(on_a_terminal).unwrap();
    let points = shown.lines().filter(|line| line.starts_with("cluster.")).count();
    let said =
        format!("slurm-graphite: {points} points; a first reading lacks the daemon's own figures");
    assert!(shown.contains(&said), "{said}: {shown}");

    let args = ["once", "--slurm-conf", &conf, "--prefix", "hpc.{cluster}"];
    let named = printed(&sandbox.folder, &args).unwrap();
    assert!(named.lines().all(|line| line.starts_with("hpc.sandbox.slurm_")), "{named}");

    sandbox.slurm.submit(&["--begin=now+1hour", "--wrap", "true"]).unwrap();
    let carbon = sandbox.carbon.address();
    let args = ["once", "--send", "--slurm-conf", &conf, "--interval", "1s", "--carbon", &carbon];
    let once = run(&sandbox.folder, &args).unwrap();
    let count = once.stdout.lines().count();
    let said = format!("slurm-graphite: sent {count} points to {carbon}, which has read them\n");
    assert_eq!((once.code, once.stderr), (Some(0), said));
    let line = once.stdout.lines().find(|line| line.contains("gauge-jobs_submitted")).unwrap();
    let [path, value, timestamp] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(value, "1");
    let limit = Duration::from_secs(10);
    assert_eq!(sandbox.value_at(path, timestamp.parse().unwrap(), limit).unwrap(), 1.0);
    wait::until("every path in whisper", limit, || sandbox.carbon.paths().len() == count).unwrap();

    // Of several destinations it says of each whether it has read.
    let away = format!("127.0.0.1:{}", free_port().unwrap());
    let both = run(&sandbox.folder, &[&args[..], &["--carbon", &away]].concat()).unwrap();
    assert_eq!(both.code, Some(1));
    for words in
        [format!("points to {carbon}, which has read them"), format!("not delivered: {away}: ")]
    {
        assert!(both.stderr.contains(&words), "{words}: {}", both.stderr);
    }

    // It fails where nobody reads.
    sandbox.carbon.process.stop().unwrap();
    let once = run(&sandbox.folder, &args).unwrap();
    assert_eq!(once.code, Some(1));
    assert!(!once.stderr.contains("may not have read"), "nothing was sent: {}", once.stderr);
    assert!(
        once.stderr.contains("not delivered") && once.stderr.contains(&carbon),
        "{}",
        once.stderr
    );
    // It gives up after drain_timeout.
    assert!(once.took < Duration::from_secs(7), "{:?}", once.took);

    // The refusal of a reset is Slurm's own.
    let submitted = || sandbox.slurm.sdiag().unwrap().get(section::TOP, "Jobs submitted");
    assert_eq!(submitted(), Some(1));
    if is_root() {
        let nobody = |args: &[&str]| {
            Invocation::by(NOBODY, &sandbox.folder, args).unwrap().finish().unwrap()
        };
        let refused = nobody(&["stats", "--reset", "--slurm-conf", &conf]);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
        assert!(
            refused.stderr.contains("Access/permission denied (errno 2002)"),
            "{}",
            refused.stderr
        );
        assert!(refused.stderr.contains("adminlevel=operator"), "{}", refused.stderr);
        assert_eq!(submitted(), Some(1));
        let read = nobody(&["stats", "--slurm-conf", &conf]);
        assert!(read.stdout.contains("Jobs submitted: 1"), "everybody may read: {read:?}");
    }

    printed(&sandbox.folder, &["stats", "--reset", "--slurm-conf", &conf]).unwrap();
    assert_eq!(submitted(), Some(0));
}
