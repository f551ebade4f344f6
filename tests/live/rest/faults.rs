//! slurmrestd, slurmctld and the token really fail: there is one line in the log, ticks continue,
//! and figures come back.

use std::time::Duration;

use sandbox::tls::Authority;
use sandbox::{Daemon, Slurmrestd, TlsProxy, Way, now, proc, wait};

use super::{DOWN, SOON, UP, check, cluster, served};

#[test]
fn slurmrestd_killed_and_slurmctld_killed_are_told_apart_and_come_back() {
    let (folder, mut slurm, mut rest) = cluster(Way::Token, 3600, "");
    let mut daemon = Daemon::start(&folder, &rest.toml()).unwrap();
    daemon.tick_with(true, 0.0, SOON).unwrap();
    let reader = daemon.reader().unwrap();

    let killed = now();
    rest.process.kill().unwrap();
    let said = daemon.said(killed, DOWN, SOON).unwrap();
    assert!(said.line.contains("refused"), "{}", said.line);
    rest.process.start().unwrap();
    daemon.tick_with(true, now(), SOON).unwrap();

    let killed = now();
    slurm.slurmctld.kill().unwrap();
    let said = daemon.said(killed, DOWN, SOON).unwrap();
    assert!(
        said.line.contains("slurmrestd answers 50") && !said.line.contains("token"),
        "{}",
        said.line
    );
    slurm.slurmctld.start().unwrap();
    daemon.tick_with(true, now(), SOON).unwrap();
    assert_eq!(daemon.news(killed).unwrap(), [DOWN, UP]);
    assert_eq!(daemon.reader().unwrap(), reader, "no reason for another reader");
    daemon.ticks(2).unwrap();
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
}

/// Only if `make releases` has built both; the reader is neither told nor restarted.
#[test]
#[ignore = "needs two releases in chroots: SANDBOX_ROOT, and SANDBOX_OLDER_ROOT of Slurm 24.11"]
fn slurmrestd_of_24_11_replaced_by_that_of_26_05_under_a_running_reader() {
    let older = std::path::PathBuf::from(std::env::var_os("SANDBOX_OLDER_ROOT").unwrap());
    let (folder, slurm, mut newer) = cluster(Way::Token, 3600, "");
    newer.process.kill().unwrap();
    let mut older = Slurmrestd::of_release(&folder, &slurm, &older, "24.11", newer.port).unwrap();
    older.process.start().unwrap();
    let mut daemon = Daemon::start(&folder, &newer.toml()).unwrap();
    daemon.tick_with(true, 0.0, SOON).unwrap();
    daemon.ticks(3).unwrap();
    let reader = daemon.reader().unwrap();
    let toml = newer.toml();
    let before = check(&folder, &toml);
    assert!(before.contains("version v0.0.42") && before.contains("Slurm 24.11"), "{before}");

    let gone = now();
    older.process.kill().unwrap();
    newer.process.start().unwrap();
    let there = now();
    let back = daemon.tick_with(true, there, SOON).unwrap();
    let after = check(&folder, &toml);
    assert!(after.contains("version v0.0.45") && after.contains("Slurm 26.05"), "{after}");
    daemon.ticks(3).unwrap();
    let up = daemon.recorded().unwrap().own("slurmctld_up");
    let lost: Vec<_> = up.iter().filter(|(_, up)| **up < 0.5).map(|(at, _)| *at).collect();
    assert!(lost.iter().all(|&at| at <= back), "{lost:?} after {back}");
    assert!(daemon.news(gone).unwrap().len() <= 2, "{:?}", daemon.news(gone).unwrap());
    assert_eq!(daemon.reader().unwrap(), reader, "no reason for another reader");
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
}

/// If it is renewed while it is valid, it costs no tick; if it expires, it costs ticks until there
/// is another.
#[test]
fn a_token_that_ends_is_taken_from_its_file_again_without_a_restart() {
    let (folder, slurm, rest) = cluster(Way::Token, 10, "");
    let mut daemon = Daemon::start(&folder, &rest.toml()).unwrap();
    daemon.tick_with(true, 0.0, SOON).unwrap();
    let reader = daemon.reader().unwrap();
    daemon.said(0.0, "expires in 0 min", SOON).unwrap();
    let begin = now();
    rest.renew(&slurm, 8).unwrap();
    wait::pause(Duration::from_secs(4));
    let up = daemon.recorded().unwrap().own("slurmctld_up");
    assert!(up.values().all(|up| *up > 0.5), "no tick is lost by a renewal");

    let said = daemon.said(begin, DOWN, SOON).unwrap();
    // In 23.02 slurmdbd is asked first.
    let by_slurmdbd = rest.slurmdbd.is_some() && said.line.contains("and is the token valid?");
    assert!(by_slurmdbd || said.line.contains("rejects the token"), "{}", said.line);
    daemon.said(begin, "for slurmrestd has expired", SOON).unwrap();
    let renewed = now();
    rest.renew(&slurm, 3600).unwrap();
    let up = daemon.tick_with(true, renewed, SOON).unwrap();
    daemon.ticks(1).unwrap();
    let recorded = daemon.recorded().unwrap();
    let without = recorded
        .own("slurmctld_up")
        .into_iter()
        .filter(|(at, up)| *at as f64 > renewed && *up < 0.5);
    let without = without.count();
    assert!(
        without <= 1,
        "{without} ticks without figures after {renewed}, the first good one at {up}"
    );
    let left = recorded.own("token_expires_in");
    assert!(
        left.values().any(|left| *left < 0.0) && *left.values().last().unwrap() > 3000.0,
        "{left:?}"
    );
    assert_eq!(daemon.reader().unwrap(), reader);
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
}

/// Also what `check` says of tokens; and each tick sends one request for statistics, and nothing
/// else of ours reaches slurmctld.
#[test]
fn tls_and_token_must_be_the_right_ones_and_a_tick_is_one_rpc_and_no_ping() {
    let (folder, slurm, rest) = cluster(Way::Token, 3600, "");
    let proxy = TlsProxy::start(&folder, rest.port).unwrap();
    let check = |url: &str, more: &str| {
        check(&folder, &format!("rest = \"{url}\"\n{}{more}", rest.token_toml()))
    };
    let port = proxy.port;
    let ca_line = |authority: &Authority| format!("ca_file = \"{}\"\n", authority.ca.display());
    let (ca, other) =
        (ca_line(&proxy.authority), ca_line(&Authority::new(&folder, "other").unwrap()));
    let good = check(&format!("https://localhost:{port}"), &ca);
    for line in [
        "✓ connection: https://localhost",
        "✓ TLS",
        "✓ slurmrestd: API version v0.0.",
        "✓ token: for user",
        "✓ slurmctld: cluster",
    ] {
        assert!(good.contains(line), "{line}: {good}");
    }
    for (url, more, words) in [
        (format!("https://localhost:{port}"), other.as_str(), "✗ TLS: "),
        (format!("https://127.0.0.1:{port}"), ca.as_str(), "✗ TLS: "),
        (format!("https://localhost:{}", rest.port), ca.as_str(), "✗ TLS: "),
        (format!("http://localhost:{port}"), "", "use https://"),
    ] {
        let found = check(&url, more);
        assert!(
            found.contains(words) && found.contains("– slurmctld: not reached"),
            "{url} {more}: {found}"
        );
    }
    let toml = format!("rest = \"https://localhost:{port}\"\n{}{ca}", rest.token_toml());
    let mut daemon = Daemon::start(&folder, &toml).unwrap();
    daemon.tick_with(true, 0.0, SOON).unwrap();
    let pings = served(&slurm, "REQUEST_PING");
    let mut counts = || {
        let read = daemon.recorded().unwrap().last("readings_ok");
        (f64::from(u32::try_from(served(&slurm, "REQUEST_STATS_INFO")).unwrap()), read)
    };
    let before = counts();
    wait::pause(Duration::from_secs(8));
    let after = counts();
    // sdiag's own request, and the time between a reading and its point.
    let (more, ticks) = (after.0 - before.0 - 1.0, after.1 - before.1);
    assert!((more - ticks).abs() <= 1.0 && ticks >= 5.0, "{more} requests in {ticks} ticks");
    assert_eq!(served(&slurm, "REQUEST_PING"), pings);
    let most = proc::peak_kib(daemon.reader().unwrap()).unwrap();
    // A release build takes 4 MiB; what debug information and checks add does not matter.
    assert!(most <= if cfg!(debug_assertions) { 10 } else { 5 } * 1024, "{most} KiB");
    daemon.stop().unwrap();

    // slurmrestd 23.02 asks slurmdbd first, and reports only that there is no connection to it.
    let refused = match rest.slurmdbd.is_some() {
        true => ("✗ slurmctld: ", "and is the token valid?"),
        false => ("✗ token: ", "rejects the token"),
    };
    let forged = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJleHAiOjE4MDAwMDAwMDAwLCJzdW4iOiJhbGljZSJ9.c2lnbmF0dXJl";
    for (text, (line, words)) in [("", ("✗ token: ", "the file has no token")), (forged, refused)]
    {
        folder.write("token", text).unwrap();
        let said = super::check(&folder, &rest.toml());
        assert!(said.contains(line) && said.contains(words), "{said}");
        assert!(!said.contains("eyJ"), "a token in what is printed");
    }
}
