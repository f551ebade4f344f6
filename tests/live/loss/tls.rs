//! TLS to Carbon: what is lost when the receiver or the proxy in front of it fails, what does not count as an answer,
//! and the messages if the two ends do not match.
//!
//! carbon-c-relay reads lines over TLS itself; stunnel provides TLS for carbon-cache's pickle port.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::carbon::Options;
use sandbox::tls::{Authority, Identity, stunnel};
use sandbox::{Plan, Process, Relay, Stage, destination, now, run, wait};

use super::side_by_side;
use super::sizes::Size;

/// With renewals every second, each of which asks for an answer.
const WINDOW: &str = "resend_window = \"4s\"\n";
const THREE_WINDOWS: Duration = Duration::from_secs(13);

#[test]
fn what_fails_behind_tls_costs_nothing() {
    side_by_side(&[
        ("carbon-c-relay reads lines over TLS, and is killed", c_relay),
        ("stunnel in front of carbon-cache, with client certificates: both are killed", killed),
        ("carbon-cache hangs behind stunnel, and is killed", || {
            hung("", |stage, _| stage.carbon.process.freeze())
        }),
        ("the same, and stunnel's own timer answers for it", || {
            hung("TIMEOUTclose = 1\n", |stage, _| stage.carbon.process.freeze())
        }),
        ("stunnel hangs, and is killed", || hung("", |_, proxy| proxy.freeze())),
    ]);
}

#[test]
fn certificates_that_change_are_read_again_and_a_bad_file_leaves_the_last_good_one_in_use() {
    side_by_side(&[("files change", files_change)]);
}

#[test]
fn ends_that_do_not_fit_are_said_in_one_line_each_and_ticks_are_kept() {
    side_by_side(&[("eight destinations", unfit)]);
}

/// Without the cluster's name there is no point to send that a TLS port could reject.
#[test]
fn check_says_that_a_certificate_has_expired_and_tells_a_tls_port_without_a_point_to_send() {
    let (stage, _proxy, authority) = behind("").unwrap();
    let expired = authority.issue(&stage.folder, "expired", "DNS:client", false).unwrap();
    let port = port_of(&stage).unwrap();
    let tables = table("tls", port, &authority.ca) + &client(&expired);
    let plain =
        destination("plain", &format!("localhost:{port}")) + &destination("carbon", &stage.carbon.address());
    let file = stage.folder.path().join("check.toml");
    let text = format!("prefix = \"{{cluster}}\"\n[slurm]\nreader = \"/nowhere\"\n{tables}{plain}");
    fs::write(&file, text).unwrap();
    let check = |args: &[&str]| {
        let file = file.display().to_string();
        let args = [&["check"], args, &["--config", &file]].concat();
        run(&stage.folder, &args).unwrap().stdout
    };
    let expiry = format!(
        "carbon tls: cert_file {}: certificate \"CN=expired\" has expired, on 2020-0",
        expired.certificate.display()
    );
    // A reload, which checks its file first, must not make it worse.
    assert!(check(&[]).contains(&format!("– {expiry}")));
    let checked = check(&["--connect"]);
    for line in [
        &format!("✗ {expiry}"),
        "✗ carbon plain: the port speaks TLS, and this destination does not\n",
        // The only one whose name is `carbon`.
        "✓ carbon 127.0.0.1:",
        "✓ carbon tls: accepts connections and reads\n",
    ] {
        assert!(checked.contains(line), "{line}: {checked}");
    }
}

/// A file may still have the certificate of an authority from before; whether that matters, the handshake shows.
#[test]
fn check_does_not_fail_over_an_expired_certificate_that_the_handshake_does_not_need() {
    let (stage, _proxy, authority) = behind("verifyChain = yes\nCAfile = ca.pem\n").unwrap();
    let folder = &stage.folder;
    let issue = |name: &str, good| authority.issue(folder, name, "DNS:client", good).unwrap();
    let (good, expired) = (issue("client", true), issue("expired", false));
    let append = |to: &Path| {
        let both = [to, &expired.certificate].map(|path| fs::read_to_string(path).unwrap());
        fs::write(to, both.concat()).unwrap();
    };
    append(&good.certificate);
    append(&authority.ca);
    let port = port_of(&stage).unwrap();
    let check = |identity: &Identity| {
        let text = format!("{}{}", table("tls", port, &authority.ca), client(identity));
        let file = folder.path().join("check.toml");
        fs::write(&file, format!("[slurm]\nreader = \"/nowhere\"\n{text}")).unwrap();
        let args = ["check", "--connect", "--config", &file.display().to_string()];
        run(folder, &args).unwrap().stdout
    };
    let checked = check(&good);
    for (key, path) in [("ca_file", &authority.ca), ("cert_file", &good.certificate)] {
        let line = format!("carbon tls: {key} {}: certificate \"CN=", path.display());
        let expired = format!("– {line}expired\" has expired, on 2020-0");
        assert!(checked.contains(&expired) && checked.contains(&format!("✓ {line}")), "{key}: {checked}");
    }
    assert!(checked.contains("✓ carbon tls: accepted and read the test point"), "{checked}");
    assert!(!checked.contains("✗ carbon tls"), "{checked}");
    // The receiver refuses this one.
    let checked = check(&expired);
    let line = format!("✗ carbon tls: cert_file {}: certificate", expired.certificate.display());
    assert!(checked.contains(&line) && !checked.contains("✓ carbon tls: accepted"), "{checked}");
}

/// A `[[carbon]]` table with TLS to a port on this host.
fn table(name: &str, port: u16, ca: &Path) -> String {
    let table = destination(name, &format!("localhost:{port}"));
    format!("{table}connect_timeout = \"2s\"\ntls = true\nca_file = {ca:?}\n")
}

fn client(identity: &Identity) -> String {
    format!("cert_file = {:?}\nkey_file = {:?}\n", identity.certificate, identity.key)
}

/// A stage whose daemon sends to a running stunnel in front of its Carbon.
fn behind(more: &str) -> Result<(Stage, Process, Authority)> {
    let stage = Stage::new(&Options::default())?;
    let authority = Authority::new(&stage.folder, "ca")?;
    let server = authority.issue(&stage.folder, "server", "DNS:localhost", true)?;
    let (mut proxy, port) = stunnel(&stage.folder, "stunnel", stage.carbon.pickle_port, &server, more)?;
    proxy.start()?;
    let mut plan = Size::Small.plan(&stage, "")?;
    plan.destinations = table("carbon", port, &authority.ca);
    plan.queue = WINDOW.to_owned();
    stage.configure(&plan)?;
    Ok((stage, proxy, authority))
}

/// The port of the stunnel in the daemon's configuration.
fn port_of(stage: &Stage) -> Result<u16> {
    let text = fs::read_to_string(stage.folder.path().join("daemon.toml"))?;
    let port = text.split_once("localhost:").and_then(|(_, rest)| rest.split('"').next());
    Ok(port.context("a port")?.parse()?)
}

/// Adds keys to the last table.
fn add(stage: &Stage, keys: &str) -> Result<()> {
    let file = stage.folder.path().join("daemon.toml");
    let text = fs::read_to_string(&file)?;
    Ok(fs::write(&file, text + keys)?)
}

fn c_relay() -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    let authority = Authority::new(&stage.folder, "ca")?;
    let server = authority.issue(&stage.folder, "server", "DNS:localhost", true)?;
    let transport = format!("transport plain ssl {}", server.in_one_file()?.display());
    let mut relay = Relay::c_over(&stage.folder, &[&stage.carbon], &transport)?;
    let mut plan = Plan::to("");
    plan.destinations =
        table("carbon", relay.port, &authority.ca) + "protocol = \"plaintext\"\nclose_notify = false\n";
    plan.queue = WINDOW.to_owned();
    stage.configure(&plan)?;
    stage.daemon.spawn()?;
    stage.ticks(3)?;
    let answered = stage.until(".carbon.carbon.gauge-renewals", |renewals| renewals >= 2.0)?;
    let since = now();
    relay.process.kill()?;
    stage.ticks(2)?;
    relay.process.start()?;
    stage.connected(since)?;
    stage.ticks(2)?;
    Ok(format!("{}, {answered} answers", stage.finish()?.clean()?))
}

fn killed() -> Result<String> {
    let (mut stage, mut proxy, authority) = behind("verifyChain = yes\nCAfile = ca.pem\n")?;
    add(&stage, &client(&authority.issue(&stage.folder, "client", "DNS:client", true)?))?;
    stage.daemon.spawn()?;
    stage.steady()?;
    for carbon_too in [false, true] {
        let since = now();
        proxy.kill()?;
        if carbon_too {
            stage.carbon.process.kill()?;
            stage.carbon.process.start()?;
        }
        stage.ticks(1)?;
        proxy.start()?;
        stage.connected(since)?;
        stage.ticks(1)?;
    }
    let since = now();
    stage.carbon.process.kill()?;
    // The proxy accepts connections and closes them.
    stage.ticks(3)?;
    stage.carbon.process.start()?;
    stage.connected(since)?;
    stage.nothing_waits("carbon")?;
    Ok(stage.finish()?.clean()?.to_string())
}

/// The program's kernel accepts what is written, and loses it with the program.
fn hung(more: &str, freeze: fn(&mut Stage, &mut Process) -> Result<()>) -> Result<String> {
    let (mut stage, mut proxy, _authority) = behind(more)?;
    stage.daemon.spawn()?;
    stage.steady()?;
    freeze(&mut stage, &mut proxy)?;
    wait::pause(THREE_WINDOWS);
    let since = now();
    proxy.kill()?;
    stage.carbon.process.kill()?;
    stage.carbon.process.start()?;
    proxy.start()?;
    stage.connected(since)?;
    stage.ticks(1)?;
    let said = stage.collected.said(0.0, "set close_notify = false");
    ensure!(said != more.is_empty(), "an end without close_notify was said: {said}");
    Ok(stage.finish()?.clean()?.to_string())
}

fn files_change() -> Result<String> {
    const CHANGED: &str = "the files have changed, and are in use";
    const BAD: &str = "the files have changed, and cannot be used";
    let (mut stage, _proxy, authority) = behind("verifyChain = yes\nCAfile = ca.pem\n")?;
    let identity = authority.issue(&stage.folder, "client", "DNS:client", true)?;
    let next = authority.issue(&stage.folder, "next", "DNS:client", true)?;
    add(&stage, &client(&identity))?;
    stage.daemon.spawn()?;
    stage.steady()?;
    let since = now();
    // One of the two files is replaced before the other, and in between they do not match.
    fs::copy(&next.certificate, &identity.certificate)?;
    let said = stage.said(since, BAD)?;
    ensure!(said.level == "WARN" && said.line.contains("client.pem and "), "{}", said.line);
    stage.ticks(3)?;
    ensure!(
        !stage.collected.said(since, "not connected; ticks are kept"),
        "a file that cannot be used cost the connection"
    );
    fs::copy(&next.key, &identity.key)?;
    stage.said(since, CHANGED)?;
    let bad = stage.collected.entries().iter().filter(|entry| entry.line.contains(BAD)).count();
    ensure!(bad == 1, "said {bad} times");
    // And the new contents are in use: an authority that has not signed the server's certificate.
    let other = Authority::new(&stage.folder, "other")?;
    let good = fs::read(&authority.ca)?;
    let since = now();
    fs::copy(&other.ca, &authority.ca)?;
    let said = stage.said(since, "is not signed by an authority of ca_file")?;
    ensure!(said.line.contains("still using the old one"), "{}", said.line);
    fs::write(&authority.ca, good)?;
    let answers = stage.counter(".carbon.carbon.gauge-renewals")?;
    stage.until(".carbon.carbon.gauge-renewals", |renewals| renewals > answers)?;
    ensure!(!stage.collected.said(0.0, "not connected; ticks are kept"), "a connection was lost");
    Ok(stage.finish()?.clean()?.to_string())
}

fn unfit() -> Result<String> {
    let (mut stage, _proxy, authority) = behind("")?;
    let folder = &stage.folder;
    let server = authority.issue(folder, "server", "DNS:localhost", true)?;
    let expired = authority.issue(folder, "expired", "DNS:localhost", false)?;
    let other = Authority::new(folder, "other")?;
    let to = stage.carbon.pickle_port;
    let (mut strict, strict_port) =
        stunnel(folder, "strict", to, &server, "verifyChain = yes\nCAfile = ca.pem\n")?;
    let (mut old, old_port) = stunnel(folder, "old", to, &expired, "")?;
    strict.start()?;
    old.start()?;
    let port = port_of(&stage)?;
    let ca = &authority.ca;
    let stranger = client(&other.issue(folder, "stranger", "DNS:client", true)?);
    let plain = |port: u16| destination("plain-to-tls", &format!("localhost:{port}"));
    let cases = [
        (table("wrong-ca", port, &other.ca), "is not signed by an authority of ca_file ("),
        (table("expired", old_port, ca), "the server's certificate expired 5"),
        (
            table("wrong-name", port, ca) + "server_name = \"carbon.example.org\"\n",
            "is for localhost and not for carbon.example.org",
        ),
        (table("no-client", strict_port, ca), "refuses a client without a certificate"),
        (table("stranger", strict_port, ca) + &stranger, "refuses the certificate of cert_file"),
        (plain(port), "the port speaks TLS, and this destination"),
        (table("tls-to-pickle", to, ca), "is it a plain port?"),
        (
            table("tls-to-lines", stage.carbon.line_port, ca) + "protocol = \"plaintext\"\n",
            "is it a plain port?",
        ),
    ];
    let names: Vec<String> =
        cases.iter().filter_map(|(table, _)| Some(table.split('"').nth(1)?.to_owned())).collect();
    add(&stage, &cases.iter().map(|(table, _)| table.as_str()).collect::<String>())?;
    stage.daemon.spawn()?;
    let file = stage.folder.path().join("daemon.toml").display().to_string();
    let checked = run(&stage.folder, &["check", "--connect", "--config", &file])?;
    for (name, (_, words)) in names.iter().zip(&cases) {
        let wrong = checked.stdout.lines().filter(|line| line.starts_with(&format!("✗ carbon {name}: ")));
        let lines: Vec<&str> = wrong.collect();
        ensure!(lines.len() == 1 && lines.concat().contains(words), "check on {name}: {}", checked.stdout);
        stage.said(0.0, words)?;
        let waiting = stage.until(&format!(".carbon.{name}.gauge-queue_held"), |ticks| ticks >= 3.0)?;
        ensure!(waiting >= 3.0, "{name} keeps {waiting} ticks");
        let quoted = format!("\"{name}\"");
        let news =
            stage.collected.entries().iter().filter(|entry| entry.is_news() && entry.line.contains(&quoted));
        let news: Vec<&str> = news.map(|entry| entry.line.as_str()).collect();
        let clear = news.iter().filter(|line| line.contains(words)).count();
        // Without TLS, all that is seen is a connection that is closed, until the port is probed.
        ensure!(clear == 1 && news.len() <= 1 + 2 * usize::from(name == "plain-to-tls"), "{name}: {news:#?}");
    }
    let own: Vec<&str> =
        checked.stdout.lines().filter(|line| line.starts_with("✓ carbon localhost:")).collect();
    for words in ["speaks TLS 1.3: certificate \"CN=server\" expires on ", "accepted "] {
        ensure!(own.iter().any(|line| line.contains(words)), "{words}: {}", checked.stdout);
    }
    // With the right authority in the file, the backlog is sent.
    let since = now();
    fs::copy(&authority.ca, &other.ca)?;
    let back = stage.said(since, "back after ")?;
    ensure!(back.line.contains("\"wrong-ca\""), "{}", back.line);
    stage.nothing_waits("wrong-ca")?;
    Ok(format!("{} kept their ticks, and one has sent them", names.len()))
}
