//! TLS to Carbon: what is lost when the receiver or the proxy in front of it fails, what does not
//! count as an answer, and the messages if the two ends do not match.
//!
//! carbon-c-relay reads lines over TLS itself; stunnel provides TLS for carbon-cache's pickle port.

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Result, ensure};
use sandbox::carbon::Options;
use sandbox::tls::{Authority, Identity, TlsProxy};
use sandbox::{Process, Relay, Stage, destination, free_port, now, run, wait};

use super::hangs::{THREE_WINDOWS, WINDOW};
use super::sizes::Size;
use super::{dies, side_by_side};

/// For a stunnel that admits only clients with a certificate of its authority.
const STRICT: &str = "verifyChain = yes\nCAfile = tls-ca.pem\n";

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

/// Without the cluster's name there is no point to send that a TLS port could reject.
#[test]
fn check_says_that_a_certificate_has_expired_and_tells_a_tls_port_without_a_point_to_send() {
    let (stage, proxy) = behind("").unwrap();
    let (folder, port) = (&stage.folder, proxy.port);
    let expired = proxy.authority.issue(folder, "expired", "DNS:client", false).unwrap();
    let tables = table("tls", port, &proxy.authority.ca) + &client(&expired);
    // Another spelling: two destinations with one address are refused.
    let plain = destination("plain", &format!("127.0.0.1:{port}"))
        + &destination("carbon", &stage.carbon.address());
    let top = "prefix = \"{cluster}\"\n";
    let check = |args: &[&str]| check(&stage, top, &format!("{tables}{plain}"), args).unwrap();
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

/// A file may still have the certificate of an authority from before; whether that matters, the
/// handshake shows.
#[test]
fn check_does_not_fail_over_an_expired_certificate_that_the_handshake_does_not_need() {
    let (stage, TlsProxy { authority, port, process: _process, .. }) = behind(STRICT).unwrap();
    let issue =
        |name: &str, good| authority.issue(&stage.folder, name, "DNS:client", good).unwrap();
    let (good, expired) = (issue("client", true), issue("expired", false));
    for to in [&good.certificate, &authority.ca] {
        let both = [to, &expired.certificate].map(|path| fs::read_to_string(path).unwrap());
        fs::write(to, both.concat()).unwrap();
    }
    let check = |identity: &Identity| {
        let text = table("tls", port, &authority.ca) + &client(identity);
        check(&stage, "", &text, &["--connect"]).unwrap()
    };
    let checked = check(&good);
    for (key, path) in [("ca_file", &authority.ca), ("cert_file", &good.certificate)] {
        let line = format!("carbon tls: {key} {}: certificate \"CN=", path.display());
        let expired = format!("– {line}expired\" has expired, on 2020-0");
        assert!(
            checked.contains(&expired) && checked.contains(&format!("✓ {line}")),
            "{key}: {checked}"
        );
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

/// A connection that had carried ticks was said to need a client certificate.
#[test]
fn a_server_that_asks_for_a_renegotiation_is_named_for_that() {
    let mut stage = Size::Small.stage(WINDOW).unwrap();
    let authority = Authority::new(&stage.folder, "ca").unwrap();
    let server = authority.issue(&stage.folder, "server", "DNS:localhost", true).unwrap();
    let port = free_port().unwrap();
    // `R` at the beginning of a line asks for it.
    let script = format!(
        "while sleep 3; do echo R; done | openssl s_server -accept {port} -tls1_2 -cert {} -key {}",
        server.certificate.display(),
        server.key.display()
    );
    let asks = Process::new(&stage.folder, "s_server", "/bin/sh".into()).args(["-c", &script]);
    let mut asks = asks.ready(move || TcpStream::connect(("127.0.0.1", port)).is_ok());
    asks.start().unwrap();
    stage.plan.destinations = table("carbon", port, &authority.ca);
    stage.configure().unwrap();
    stage.daemon.spawn().unwrap();
    let line = stage.daemon.line("renegotiation", wait::LIMIT).unwrap();
    assert!(line.contains("HandshakeFailure") && !line.contains("cert_file"), "{line}");
    asks.kill().unwrap();
}

/// The output of `check` for a configuration with these keys at its top and these destinations.
fn check(stage: &Stage, top: &str, destinations: &str, args: &[&str]) -> Result<String> {
    let text = format!("{top}[slurm]\nreader = \"/nowhere\"\n{destinations}");
    let file = stage.folder.write("check.toml", &text)?;
    Ok(run(&stage.folder, &[&["check"], args, &["--config", &file]].concat())?.stdout)
}

/// A stage whose daemon sends to a running stunnel in front of its Carbon.
fn behind(more: &str) -> Result<(Stage, TlsProxy)> {
    let mut stage = Size::Small.stage(WINDOW)?;
    let proxy = TlsProxy::with(&stage.folder, "tls", stage.carbon.pickle_port, "localhost", more)?;
    stage.plan.destinations = table("carbon", proxy.port, &proxy.authority.ca);
    stage.configure()?;
    Ok((stage, proxy))
}

/// A stage whose daemon has a certificate, and has begun to send to a running stunnel in front of
/// its Carbon.
fn with_a_certificate() -> Result<(Stage, TlsProxy, Identity)> {
    let (mut stage, proxy) = behind(STRICT)?;
    let identity = proxy.authority.issue(&stage.folder, "client", "DNS:client", true)?;
    stage.plan.destinations += &client(&identity);
    stage.configure()?;
    Ok((stage.run()?, proxy, identity))
}

fn c_relay() -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    let authority = Authority::new(&stage.folder, "ca")?;
    let server = authority.issue(&stage.folder, "server", "DNS:localhost", true)?;
    let transport = format!("transport plain ssl {}", server.in_one_file()?.display());
    let mut relay = Relay::c_over(&stage.folder, &[&stage.carbon], &transport)?;
    stage.plan.destinations = table("carbon", relay.port, &authority.ca)
        + "protocol = \"plaintext\"\nclose_notify = false\n";
    stage.plan.queue = WINDOW.to_owned();
    stage.configure()?;
    stage.daemon.spawn()?;
    stage.ticks(3)?;
    let answered = stage.until(".carbon.carbon.gauge-renewals", |renewals| renewals >= 2.0)?;
    dies(&mut stage, &mut relay.process)?;
    Ok(format!("{}, {answered} answers", stage.clean()?))
}

fn killed() -> Result<String> {
    let (mut stage, TlsProxy { process: mut proxy, .. }, _) = with_a_certificate()?;
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
    stage.clean()
}

/// The program's kernel accepts what is written, and loses it with the program.
fn hung(more: &str, freeze: fn(&mut Stage, &mut Process) -> Result<()>) -> Result<String> {
    let (stage, TlsProxy { process: mut proxy, .. }) = behind(more)?;
    let mut stage = stage.run()?;
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
    stage.clean()
}

#[test]
fn certificates_that_change_are_read_again_and_a_bad_file_leaves_the_last_good_one_in_use()
-> Result<()> {
    const CHANGED: &str = "the files have changed, and are in use";
    const BAD: &str = "the files have changed, and cannot be used";
    const AWAY: &str = "not connected; ticks are kept";
    let (mut stage, TlsProxy { authority, process: _process, .. }, identity) =
        with_a_certificate()?;
    let next = authority.issue(&stage.folder, "next", "DNS:client", true)?;
    let since = now();
    // One of the two files is replaced before the other, and in between they do not match.
    fs::copy(&next.certificate, &identity.certificate)?;
    let said = stage.said(since, BAD)?;
    ensure!(said.level == "WARN" && said.line.contains("client.pem and "), "{}", said.line);
    stage.ticks(3)?;
    ensure!(!stage.collected.said(since, AWAY), "a file that cannot be used cost the connection");
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
    let answers = stage.of_carbon("renewals")?;
    stage.until(".carbon.carbon.gauge-renewals", |renewals| renewals > answers)?;
    ensure!(!stage.collected.said(0.0, AWAY), "a connection was lost");
    stage.clean().map(drop)
}

#[test]
fn ends_that_do_not_fit_are_said_in_one_line_each_and_ticks_are_kept() -> Result<()> {
    let (mut stage, TlsProxy { authority, port, process: _process, .. }) = behind("")?;
    let folder = &stage.folder;
    let issue = |name, good| authority.issue(folder, name, "DNS:localhost", good);
    let other = Authority::new(folder, "other")?;
    let to = stage.carbon.pickle_port;
    let server = issue("server", true)?;
    // One for each destination: two with one address are refused.
    let strict = Relay::stunnel(folder, "strict", to, &server, STRICT)?;
    let strange = Relay::stunnel(folder, "strange", to, &server, STRICT)?;
    let named = Relay::stunnel(folder, "named", to, &server, "")?;
    let signed = Relay::stunnel(folder, "signed", to, &server, "")?;
    let old = Relay::stunnel(folder, "old", to, &issue("expired", false)?, "")?;
    let ca = &authority.ca;
    let stranger = client(&other.issue(folder, "stranger", "DNS:client", true)?);
    let lines = table("tls-to-lines", stage.carbon.line_port, ca) + "protocol = \"plaintext\"\n";
    let cases = [
        (table("wrong-ca", signed.port, &other.ca), "is not signed by an authority of ca_file ("),
        (table("expired", old.port, ca), "the server's certificate expired 5"),
        (
            table("wrong-name", named.port, ca) + "server_name = \"carbon.example.org\"\n",
            "is for localhost and not for carbon.example.org",
        ),
        (table("no-client", strict.port, ca), "refuses a client without a certificate"),
        (table("stranger", strange.port, ca) + &stranger, "refuses the certificate of cert_file"),
        (
            destination("plain-to-tls", &format!("127.0.0.1:{port}")),
            "the port speaks TLS, and this destination",
        ),
        (table("tls-to-pickle", to, ca), "is it a plain port?"),
        (lines, "is it a plain port?"),
    ];
    stage.plan.destinations += &cases.iter().map(|(table, _)| table.as_str()).collect::<String>();
    stage.configure()?;
    stage.daemon.spawn()?;
    let file = stage.file().display().to_string();
    let checked = run(&stage.folder, &["check", "--connect", "--config", &file])?;
    for (table, words) in &cases {
        let name = table.split('"').nth(1).unwrap_or_default();
        let wrong =
            checked.stdout.lines().filter(|line| line.starts_with(&format!("✗ carbon {name}: ")));
        let lines: Vec<&str> = wrong.collect();
        ensure!(
            lines.len() == 1 && lines.concat().contains(words),
            "check on {name}: {}",
            checked.stdout
        );
        stage.said(0.0, words)?;
        let waiting =
            stage.until(&format!(".carbon.{name}.gauge-queue_held"), |ticks| ticks >= 3.0)?;
        ensure!(waiting >= 3.0, "{name} keeps {waiting} ticks");
        let quoted = format!("\"{name}\"");
        let news = stage.collected.news(0.0).filter(|entry| entry.line.contains(&quoted));
        let news: Vec<&str> = news.map(|entry| entry.line.as_str()).collect();
        let clear = news.iter().filter(|line| line.contains(words)).count();
        // Without TLS, all that is seen is a connection that is closed.
        ensure!(
            clear == 1 && news.len() <= 1 + 2 * usize::from(name == "plain-to-tls"),
            "{name}: {news:#?}"
        );
    }
    let own: Vec<&str> =
        checked.stdout.lines().filter(|line| line.starts_with("✓ carbon localhost:")).collect();
    for words in ["speaks TLS 1.3: certificate \"CN=tls-server\" expires on ", "accepted "] {
        ensure!(own.iter().any(|line| line.contains(words)), "{words}: {}", checked.stdout);
    }
    // With the right authority in the file, the backlog is sent.
    let since = now();
    fs::copy(&authority.ca, &other.ca)?;
    let back = stage.said(since, "back after ")?;
    ensure!(back.line.contains("\"wrong-ca\""), "{}", back.line);
    stage.nothing_waits("wrong-ca")
}
