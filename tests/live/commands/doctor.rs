//! `check --connect`: every ✗, caused with the real programs where possible.

use std::fs;
use std::time::Duration;

use sandbox::carbon::{Limits, Options};
use sandbox::{
    Finished, Folder, Invocation, Manner, NOBODY, Sandbox, Sink, Slurm, find_program, free_port,
    is_root, run, slurm_graphite, wait,
};

const SCHEMAS: &str = include_str!("../../../config/carbon/storage-schemas.conf");
const AGGREGATION: &str = include_str!("../../../config/carbon/storage-aggregation.conf");

/// A sandbox whose Carbon has the shipped rules.
fn sandbox(limits: Limits) -> Sandbox {
    let (schemas, aggregation) = (SCHEMAS.to_owned(), AGGREGATION.to_owned());
    Sandbox::with(&Options { schemas, aggregation, limits, ..Options::default() }).unwrap()
}

/// `check --connect` for this cluster and this Carbon, with `more` flags.
fn check(sandbox: &Sandbox, more: &[&str]) -> Finished {
    check_slurm(sandbox, &[&["--carbon", &sandbox.carbon.address()], more].concat())
}

/// `check --connect` for this cluster with these flags; without a Carbon, if they name none.
fn check_slurm(sandbox: &Sandbox, flags: &[&str]) -> Finished {
    let conf = sandbox.slurm.conf().display().to_string();
    run(&sandbox.folder, &[&["check", "--connect", "--slurm-conf", &conf], flags].concat()).unwrap()
}

/// `check --connect` for this cluster and the Carbon of this table.
fn check_carbon(sandbox: &Sandbox, carbon: &str) -> Finished {
    let file = sandbox.folder.write("carbon.toml", &format!("[[carbon]]\n{carbon}")).unwrap();
    check_slurm(sandbox, &["--config", &file])
}

/// Exit code 1, with exactly one ✗ line, which begins with `start` and is followed by advice that
/// contains `advice`.
fn wrong(checked: &Finished, start: &str, advice: &str) {
    let said = &checked.stdout;
    assert_eq!(said.lines().filter(|line| line.starts_with('✗')).count(), 1, "not one ✗: {said}");
    let mut lines = said.lines().skip_while(|line| !line.starts_with('✗'));
    assert!(
        lines.next().is_some_and(|line| line.starts_with(&format!("✗ {start}"))),
        "{start}: {said}"
    );
    let is_advice = |line: &str| line.starts_with("  ") && line.contains(advice);
    assert!(lines.next().is_some_and(is_advice), "{advice}: {said}");
    assert_eq!(checked.code, Some(1), "{said}");
    assert!(checked.stderr.contains("see the advice above"), "{}", checked.stderr);
}

fn says(checked: &Finished, line: &str) {
    assert!(
        checked.stdout.lines().any(|said| said.starts_with(line)),
        "{line}: {}",
        checked.stdout
    );
}

/// Success, without these words.
fn good(checked: &Finished, without: &str) {
    assert!(checked.code == Some(0) && !checked.stdout.contains(without), "{}", checked.stdout);
}

#[test]
fn what_is_well_is_said_line_by_line_and_the_canary_arrives() {
    let sandbox = sandbox(Limits::Wide);
    let queue = sandbox.path("queue").display().to_string();
    fs::create_dir(&queue).unwrap();
    let schemas = sandbox.path("carbon/storage-schemas.conf").display().to_string();
    sandbox.slurm.submit(&["--begin=now+1hour", "--wrap", "true"]).unwrap();
    let nodes = sandbox.slurm.call("sinfo --noheader --Node --format=%n").unwrap();
    let nodes = nodes.lines().collect::<std::collections::BTreeSet<_>>().len();
    // slurmctld counts jobs every 30 s at most.
    wait::until("a job in its statistics", Duration::from_secs(60), || {
        sandbox
            .slurm
            .sdiag()
            .is_ok_and(|sdiag| sdiag.get(sandbox::section::TOP, "Jobs pending") == Some(1))
    })
    .unwrap();
    let all = check(&sandbox, &["--queue-dir", &queue, "--storage-schemas", &schemas]);
    assert_eq!((all.code, all.stderr.as_str()), (Some(0), ""), "{}", all.stdout);
    let carbon = sandbox.carbon.address();
    let starts = [
        "– configuration: flags",
        "✓ slurm.conf: ",
        "✓ libslurm: release ",
        "✓ munge: slurmctld accepts",
        "✓ slurmctld: cluster sandbox answers in ",
        "✓ queue: ",
        "✓ series: ",
        &format!(
            "✓ nodes: {nodes}; [collectors.nodes] is off and would cost one request every 60 s \
                that takes the lock of its nodes, "
        ),
        "✓ jobs: 1; [collectors.jobs] is off and would cost one request every 60 s that takes the \
            lock of its jobs",
        "✓ storage-schemas.conf (",
        "✓ storage-aggregation.conf (",
        "✓ carbon.conf (",
        &format!("✓ carbon {carbon}: accepted and read the test point, cluster.slurm_graphite."),
        "no problem found",
    ];
    assert_eq!(all.stdout.lines().count(), starts.len(), "{}", all.stdout);
    for (line, start) in all.stdout.lines().zip(starts) {
        assert!(line.starts_with(start), "{line}, not {start}");
    }
    // The queue's folder is unchanged, and Carbon has one new series, whose value is the time of
    // the check.
    assert_eq!(fs::read_dir(&queue).unwrap().count(), 0);
    wait::until("the canary", wait::LIMIT, || !sandbox.carbon.paths().is_empty()).unwrap();
    let paths: Vec<String> = sandbox.carbon.paths().into_keys().collect();
    let [path] = &paths[..] else { panic!("{paths:?}") };
    assert!(all.stdout.contains(&format!("test point, {path}\n")), "{}", all.stdout);
    let points = sandbox.carbon.series(path).unwrap().points;
    let newest = points.values().copied().fold(0.0, f64::max);
    assert!((sandbox::now() - newest).abs() < 60.0 && newest.fract() == 0.0, "{points:?}");
    let text = "[collectors.nodes]\nenabled = true\n[collectors.jobs]\nenabled = true\n";
    let on = sandbox.folder.write("own.toml", text).unwrap();
    good(&check(&sandbox, &["--config", &on]), "is off");
    each_type_of_rpc_counts_with_its_six_figures(&sandbox);
    a_queue_that_could_not_be_kept_is_said(&sandbox);
}

/// The two readings of the check, a second apart, were no interval of 30 s: of the six figures of
/// each type three were not counted.
fn each_type_of_rpc_counts_with_its_six_figures(sandbox: &Sandbox) {
    let (_, operations) =
        include_str!("../../../docs/operations.md").split_once("The defaults make ").unwrap();
    // 131 series (155 from Slurm 23.11 on)
    let mut numbers = operations.split([' ', '(']).filter_map(|word| word.parse::<usize>().ok());
    let is_newer = sandbox.slurm.release().unwrap().as_str() >= "23.11";
    let documented = numbers.nth(usize::from(is_newer)).unwrap();
    wait::until("6 figures for each type, 7 for all, 2 for what is pending", wait::LIMIT, || {
        let said = check(sandbox, &[]).stdout;
        let (before, _) = said.split_once(" slurm_rpc_stats").unwrap();
        let counted: usize = before.rsplit(' ').next().unwrap().parse().unwrap();
        let sdiag = sandbox.slurm.run("sdiag", &[]).unwrap();
        let (types, _) = sdiag.split_once("statistics by user").unwrap();
        let types = types.matches("ave_time:").count();
        let (_, all) = said.split_once("✓ series: ").unwrap();
        counted == 6 * types + 7 + 2 && all.starts_with(&format!("{} now", documented + 6 * types))
    })
    .unwrap();
}

fn a_queue_that_could_not_be_kept_is_said(sandbox: &Sandbox) {
    let file = sandbox.folder.write("a-file", "").unwrap();
    let checked = check(sandbox, &["--queue-dir", &file]);
    wrong(&checked, &format!("queue: {file} cannot be written"), "sudo -u");
    let dir = sandbox.path("new-queue").display().to_string();
    let absent = check(sandbox, &["--queue-dir", &dir]);
    says(&absent, &format!("✓ queue: {dir} does not exist yet"));
    assert!(absent.stdout.contains(&format!("ReadWritePaths={dir}")), "{}", absent.stdout);
    fs::create_dir(&dir).unwrap();
    let text = format!("[queue]\ndir = \"{dir}\"\nmax_bytes = \"4096TiB\"\n");
    let greedy = sandbox.folder.write("own.toml", &text).unwrap();
    let checked = check(sandbox, &["--config", &greedy]);
    wrong(&checked, &format!("queue: {dir} has too little room"), "max_bytes");

    // Only root can act as another user, who then can neither write there nor create a folder.
    if is_root() {
        let (conf, carbon) = (sandbox.slurm.conf().display().to_string(), sandbox.carbon.address());
        let check =
            ["check", "--connect", "--slurm-conf", &conf, "--carbon", &carbon, "--queue-dir"];
        for (dir, start, advice) in [
            (dir.as_str(), "cannot be written to: Permission", "sudo -u"),
            ("/x/y", "does not exist", "StateDirectory"),
        ] {
            let nobody = Invocation::by(NOBODY, &sandbox.folder, &[&check[..], &[dir]].concat());
            wrong(&nobody.unwrap().finish().unwrap(), &format!("queue: {dir} {start}"), advice);
        }
    }
}

#[test]
fn a_rule_that_stands_above_ours_is_named() {
    let sandbox = sandbox(Limits::Wide);
    let file = sandbox.folder.write("copy/storage-schemas.conf", "").unwrap();
    let folder = file.trim_end_matches("/storage-schemas.conf");
    let checked = |text: &str, more: &[&str]| {
        fs::write(&file, text).unwrap();
        check(&sandbox, &[&["--storage-schemas", &file], more].concat())
    };
    let of_file = |what: &str| format!("storage-schemas.conf ({file}): {what}");
    let first_start = "above it before the first start";
    // Debian's rules: everything once a minute. In front of ours they hide them.
    let debian = "[carbon]\npattern = ^carbon\\.\nretentions = 60:90d\n\n[default_1min_for_1day]\n\
        pattern = .*\nretentions = 60s:1d\n\n";
    let above = checked(&format!("{debian}{SCHEMAS}"), &[]);
    let start = of_file("[default_1min_for_1day] is the first to match every path");
    wrong(&above, &start, "`slurm-graphite carbon-rules` prints above it");
    says(&above, "– storage-aggregation.conf");
    says(&above, "– carbon.conf");
    assert!(above.stdout.contains("overwrite each other"), "{}", above.stdout);
    // Another daemon's file: without it the rules of slurm-graphite.toml would be printed.
    let beta = sandbox.folder.write("beta.toml", "").unwrap();
    let another = checked(&format!("{debian}{SCHEMAS}"), &["--config", &beta]);
    wrong(
        &another,
        &start,
        &format!("`slurm-graphite carbon-rules --config {beta}` prints above it"),
    );
    good(&checked(&format!("{SCHEMAS}\n{debian}"), &[]), "its block");
    // What is enabled is still served by the block of an earlier configuration.
    fs::write(&beta, "[collectors.jobs]\ninterval = \"2m\"\n").unwrap();
    let outdated = checked(&format!("{SCHEMAS}\n{debian}"), &["--config", &beta]);
    assert_eq!(outdated.code, Some(0), "{}", outdated.stdout);
    assert!(outdated.stdout.contains("; edited here"), "{}", outdated.stdout);
    // An administrator's own retentions.
    let edited = checked(&SCHEMAS.replace("30s:14d", "30s:30d"), &[]);
    good(&edited, "is not the one");
    assert!(edited.stdout.contains("; edited here"), "{}", edited.stdout);
    let short = checked(&SCHEMAS.replace("30s:14d", "30s:6h"), &["--config", &beta]);
    wrong(&short, &of_file("[slurm_graphite"), "lower queue.max_age");
    says(&short, &format!("– {}", of_file("its block of slurm-graphite is not the one that")));
    says(&short, &format!("  Run `slurm-graphite carbon-rules --config {beta} --write {folder}`"));
    let torn = checked(&SCHEMAS.replace("# END", "# end"), &[]);
    says(&torn, &format!("– {}", of_file("line 1: a block of slurm-graphite begins here")));
    // Carbon searches for a pattern anywhere in a path, so this one matches some of ours.
    let some =
        checked(&format!("[cycles]\npattern = last_cycle$\nretentions = 60s:1d\n{SCHEMAS}"), &[]);
    wrong(&some, &of_file("[cycles] is the first to match 2 of "), first_start);
    wrong(&checked("", &[]), &of_file("no rule is the first"), first_start);
    for (text, more, advice) in [
        (SCHEMAS, &["--interval", "10s"][..], first_start),
        (SCHEMAS, &["--interval", "1m"], "set interval to 30 s"),
        ("[a]\npattern = .\nretentions = 30s:1h\n", &[], "lower queue.max_age"),
        ("[a]\npattern = .\nretentions = soon\n", &[], "does not start with it"),
    ] {
        wrong(&checked(text, more), "storage-schemas.conf", advice);
    }
    let python =
        checked(&format!("[odd]\npattern = ^(?!carbon)\nretentions = 1s:1d\n{SCHEMAS}"), &[]);
    says(&python, &format!("– {}", of_file("[odd] has a pattern that only Python")));
    assert_eq!(python.code, Some(0), "what cannot be looked at is not wrong");
    let gone = check(&sandbox, &["--storage-schemas", "/nowhere/storage-schemas.conf"]);
    wrong(
        &gone,
        "storage-schemas.conf (/nowhere/storage-schemas.conf): No such file",
        "May this user",
    );
    // Another Carbon on this host, whose rules do not apply to the sandbox's.
    says(&check(&sandbox, &[]), "– storage-schemas.conf: ");
}

#[test]
fn the_rules_of_a_carbon_on_this_host_are_found_by_its_port_its_series_counted_and_each_ones_loss_is_said()
 {
    let sandbox = sandbox(Limits::AsShipped);
    let (conf, carbon) = (sandbox.slurm.conf().display().to_string(), sandbox.carbon.address());
    let program = slurm_graphite().unwrap().display().to_string();
    // Nobody else sees this mount.
    let script = format!(
        "mount --bind {} /etc/carbon && exec {program} check --connect --slurm-conf {conf} \
            --carbon {carbon}",
        sandbox.path("carbon").display()
    );
    let by_port = || {
        let unshare = find_program("unshare").unwrap();
        let args = ["--map-root-user", "--mount", "sh", "-c", &script];
        Invocation::of_program(&sandbox.folder, &unshare, &args).unwrap().finish().unwrap()
    };
    // Each type of RPC that slurmctld has seen makes more series, and the check's own are among
    // them.
    by_port();
    let first = by_port();
    says(&first, "– carbon.conf (/etc/carbon/carbon.conf): ");
    says(
        &first,
        "✓ storage-schemas.conf (/etc/carbon/storage-schemas.conf): [slurm_graphite:cluster] fits",
    );
    says(&first, "✓ storage-aggregation.conf (/etc/carbon/storage-aggregation.conf)");
    // Named, it costs some minutes, and passes.
    let schemas = sandbox.path("carbon/storage-schemas.conf").display().to_string();
    let few = check(&sandbox, &["--storage-schemas", &schemas]);
    assert_eq!(few.code, Some(0), "{}", few.stdout);
    says(&few, "– carbon.conf (");
    says(&few, "  Raise MAX_CREATES_PER_MINUTE");
    assert!(few.stdout.contains(" series at 50 a minute, and drops points"), "{}", few.stdout);

    let once =
        run(&sandbox.folder, &["once", "--send", "--slurm-conf", &conf, "--carbon", &carbon])
            .unwrap();
    assert_eq!(once.code, Some(0), "{}", once.stderr);
    // 50 a minute. The requests of the check add types of RPC, with six series each, between its
    // two runs.
    wait::until("as many series as Carbon makes", wait::LIMIT, || {
        sandbox.carbon.paths().len() > 45
    })
    .unwrap();
    let second = by_port();
    let [before, after] = [&first, &second].map(|checked| new_series(checked).unwrap());
    assert!(after + 20 <= before, "those that are there are not new: {}", second.stdout);

    // Counters that would be averaged.
    sandbox.carbon.limit(Limits::Wide).unwrap();
    fs::write(sandbox.path("carbon/storage-aggregation.conf"), "").unwrap();
    let averaged = check(&sandbox, &["--storage-schemas", &schemas]);
    wrong(&averaged, "storage-aggregation.conf (", "above all other rules");
}

/// Number of series that Carbon must create, according to the line about carbon.conf.
fn new_series(checked: &Finished) -> Option<usize> {
    let (_, rest) = checked.stdout.split_once("carbon.conf): ")?;
    let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    // The second number; the first is minutes, unless there is no time to wait.
    let mut numbers = rest.split(' ').filter(is_number);
    let first = numbers.next()?;
    if rest.starts_with(first) { Some(first) } else { numbers.next() }?.parse().ok()
}

#[test]
fn a_carbon_that_is_closed_stopped_or_somebody_else_is_told_apart() {
    let mut sandbox = sandbox(Limits::Wide);
    // A port of the other protocol is not well.
    let of_protocol = |protocol: &str, port: u16| {
        check_carbon(
            &sandbox,
            &format!("address = \"127.0.0.1:{port}\"\nprotocol = \"{protocol}\"\n"),
        )
    };
    let (line, pickle) = (sandbox.carbon.line_port, sandbox.carbon.pickle_port);
    for (protocol, port) in [("pickle", line), ("plaintext", pickle)] {
        let start = format!("carbon 127.0.0.1:{port}: accepts connections, but closes them");
        wrong(&of_protocol(protocol, port), &start, "Is that the port of `protocol`");
    }
    assert_eq!(sandbox.carbon.paths().len(), 0);
    for (protocol, port) in [("pickle", pickle), ("plaintext", line)] {
        let checked = of_protocol(protocol, port);
        says(&checked, &format!("✓ carbon 127.0.0.1:{port}: accepted and read the test point"));
        assert_eq!(checked.code, Some(0), "{}", checked.stdout);
    }
    wait::until("the canary", wait::LIMIT, || sandbox.carbon.paths().len() == 1).unwrap();

    let checked = |sandbox: &Sandbox, address: &str| {
        check_carbon(sandbox, &format!("address = \"{address}\"\nconnect_timeout = \"1s\"\n"))
    };
    let closed = format!("127.0.0.1:{}", free_port().unwrap());
    wrong(
        &checked(&sandbox, &closed),
        &format!("carbon {closed}: connecting"),
        "Is carbon-cache running",
    );
    let nameless = checked(&sandbox, "no-such-host.invalid:2004");
    wrong(&nameless, "carbon no-such-host.invalid:2004: looking up", "getent hosts");
    for (manner, advice) in [
        (Manner::Silent, "Is carbon-cache stopped"),
        (Manner::Close, "Is that the port of"),
        (Manner::Talk, "Is this the address and the port of Carbon"),
    ] {
        wrong(&checked(&sandbox, &Sink::start(manner).unwrap().address()), "carbon ", advice);
    }
    let carbon = sandbox.carbon.address();
    sandbox.carbon.process.freeze().unwrap();
    let frozen = checked(&sandbox, &carbon);
    let start = format!("carbon {carbon}: accepts connections, but does not read");
    wrong(&frozen, &start, "carbon-cache stopped");
    assert!(frozen.took < Duration::from_secs(5), "{:?}", frozen.took);
    sandbox.carbon.process.thaw().unwrap();

    // If only some are healthy, the line says so; if none is, it is not OK.
    let both = check(&sandbox, &["--carbon", &closed]);
    wrong(&both, &format!("carbon {closed}"), "Is carbon-cache running");
    says(&both, &format!("✓ carbon {carbon}"));
    wrong(&check_slurm(&sandbox, &[]), "carbon: no destination", "--carbon HOST:2004");
}

#[test]
fn slurmctld_and_munged_dead_frozen_or_with_another_key_are_told_apart() {
    let mut sandbox = sandbox(Limits::Wide);
    // Neither libslurm's endless wait nor slurm.timeout applies.
    let soon = |checked: &Finished, seconds| {
        assert!(checked.took < Duration::from_secs(seconds), "{:?}", checked.took);
    };
    sandbox.slurm.munged.freeze().unwrap();
    let frozen = check(&sandbox, &[]);
    wrong(&frozen, "munge: munged accepts connections at ", "Is it stopped");
    says(&frozen, "– slurmctld: not asked");
    soon(&frozen, 6);
    sandbox.slurm.munged.thaw().unwrap();

    // slurmctld accepts what was made with its own munged's key.
    let (mut other, conf) = sandbox.slurm.other_munged(&sandbox.folder).unwrap();
    other.start().unwrap();
    let (conf, carbon) = (conf.display().to_string(), sandbox.carbon.address());
    let args = ["check", "--connect", "--slurm-conf", &conf, "--carbon", &carbon];
    let stranger = run(&sandbox.folder, &args).unwrap();
    if stranger.stdout.contains("errno 1007") {
        // 24.11 says so; 22.05 ends the connection.
        let start = "munge: munged is running, but slurmctld rejects its credentials";
        wrong(&stranger, start, "the same munge.key");
    } else {
        let start = "slurmctld: slurm_get_statistics: Zero Bytes";
        wrong(&stranger, start, "Are munge.key and the clocks the same");
        says(&stranger, "✓ munge: munged answers at ");
    }

    // Munge is not blamed.
    sandbox.slurm.slurmctld.freeze().unwrap();
    let frozen = check(&sandbox, &[]);
    wrong(&frozen, "slurmctld: ", "does not answer");
    says(&frozen, "✓ munge: munged answers");
    sandbox.slurm.slurmctld.thaw().unwrap();
    sandbox.slurm.slurmctld.stop().unwrap();
    let dead = check(&sandbox, &["--prefix", "cluster.{cluster}"]);
    wrong(&dead, "slurmctld: ", "Is slurmctld running");
    // Without the cluster's name there is no path for the test point, so only the connection is
    // checked.
    says(&dead, &format!("✓ carbon {carbon}: accepts connections and reads"));
    says(&dead, "✓ munge: munged answers");
    soon(&dead, 15);
    wait::until("a canary of the other checks alone", wait::LIMIT, || {
        sandbox.carbon.paths().len() == 1
    })
    .unwrap();

    sandbox.slurm.slurmctld.start().unwrap();
    sandbox.slurm.munged.kill().unwrap();
    let dead = check(&sandbox, &[]);
    wrong(&dead, "munge: nothing answers at ", "systemctl status munge");
    says(&dead, "– slurmctld: not asked, because libslurm would wait for munged");
    says(&dead, "✓ carbon ");
    soon(&dead, 6);
    fs::remove_file(sandbox.path("munge/sock")).unwrap();
    let gone = check(&sandbox, &[]);
    wrong(&gone, "munge: nothing answers at ", "systemctl status munge");
    says(&gone, "– slurmctld: not asked, because it answers only with valid");
    soon(&gone, 6);
}

/// "libslurm gave no reason" stood before the reason.
#[test]
fn a_controller_whose_name_has_no_address_is_said() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::controller(&folder).unwrap();
    let name = "SlurmctldHost=localhost(127.0.0.1)";
    let conf = slurm.changed("unknown.conf", name, "SlurmctldHost=no-such-host.invalid").unwrap();
    let toml = format!("[slurm]\nconf = {conf:?}\nreader = \"libslurm\"\n");
    let config = folder.write("unknown.toml", &toml).unwrap();
    let said = run(&folder, &["stats", "--config", &config]).unwrap().stderr;
    assert!(said.contains("getent ahosts") && said.contains("libslurm said: "), "{said}");
    assert!(!said.contains("no reason"), "{said}");
}
