//! What a receiver gets and what is reported about it: no half lines, and no confirmation of points that it could not
//! understand.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::{Imitation, Invocation, destination, find_program, free_port, slurm_graphite, wait};

use super::sizes::Size;
use super::{SKIPPED, isolated, side_by_side};

#[test]
fn a_connection_abandoned_within_a_line_is_reset() {
    side_by_side(&[
        ("a reload that touches the destination", || torn(true)),
        ("the end of the daemon", || torn(false)),
    ]);
}

#[test]
fn pickle_to_the_plaintext_port_is_never_called_confirmed() {
    side_by_side(&[("run", pickle_to_2003), ("once", once_to_2003)]);
}

/// A receiver that accepts an unterminated last line, as VictoriaMetrics does, would store half a number.
fn torn(reload: bool) -> Result<String> {
    let port = free_port()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 1)?;
    let mut stage = Size::Large.stage("")?;
    stage.plan.destinations =
        destination("carbon", &format!("127.0.0.1:{port}")) + "protocol = \"plaintext\"\n";
    stage.plan.drain = "1s";
    stage.configure()?;
    stage.daemon.spawn()?;
    let mut streams: Vec<TcpStream> = vec![listener.accept()?.0];
    stage.until(".carbon.carbon.gauge-queue_ticks", |ticks| ticks >= 2.0)?;
    if reload {
        stage.plan.destinations = stage.plan.destinations.replace("\"3s\"", "\"4s\"");
        stage.reload()?;
        wait::pause(Duration::from_millis(300));
    } else {
        stage.daemon.stop()?;
    }
    listener.set_nonblocking(true)?;
    streams.extend(std::iter::from_fn(|| Some(listener.accept().ok()?.0)));
    // The reload's new connection stays open, so only the first is read to its end.
    let first = streams.first_mut().context("no connection")?;
    first.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut bytes = Vec::new();
    let end = first.read_to_end(&mut bytes);
    ensure!(bytes.len() > 1000, "{} bytes arrived", bytes.len());
    let tail =
        String::from_utf8_lossy(bytes.get(bytes.len().saturating_sub(60)..).unwrap_or_default()).into_owned();
    ensure!(end.is_err() || tail.ends_with('\n'), "a clean end behind {tail:?}");
    Ok(format!("{} bytes, then {end:?}", bytes.len()))
}

fn pickle_to_2003() -> Result<String> {
    let Some((mut stage, _space)) = isolated()? else { return Ok(SKIPPED.to_owned()) };
    Size::Usual.set(&mut stage)?;
    stage.plan.destinations = destination("carbon", "127.0.0.1:2003");
    stage.configure()?;
    stage.daemon.spawn()?;
    stage.ticks(12)?;
    stage.stop()?;
    let stored = stage.settled()?;
    ensure!(stored.missing() as u64 == stored.checked, "something of it was stored: {stored}");
    let said = |words: &str| stage.collected.said(0.0, words);
    ensure!(!said("confirmed\""), "it was called confirmed");
    ensure!(said("port 2003 usually reads plaintext"), "the port is not named");
    Ok(format!("{:#?}", stage.collected.news(0.0).map(|entry| &entry.line).collect::<Vec<_>>()))
}

fn once_to_2003() -> Result<String> {
    let Some((stage, space)) = isolated()? else { return Ok(SKIPPED.to_owned()) };
    let folder = &stage.folder;
    let config = folder.path().join("once.toml");
    let reader = Imitation::good(folder)?.toml();
    std::fs::write(&config, format!("[slurm]\n{reader}{}", destination("carbon", "127.0.0.1:2003")))?;
    let program = slurm_graphite()?;
    let inside = space.words(&format!("{} once --send --config {} >&2", program.display(), config.display()));
    let words: Vec<&str> = inside.iter().map(String::as_str).collect();
    let finished = Invocation::of(folder, &find_program("nsenter")?, &words)?.finish()?;
    let said: Vec<&str> = finished.stderr.lines().filter(|line| !line.starts_with("cluster.")).collect();
    let confirmed = said.iter().any(|line| line.contains("confirmed") && !line.contains("not confirmed"));
    ensure!(!confirmed, "it was called confirmed: {said:?}");
    let doubts = said.iter().any(|line| line.contains("port 2003 usually reads plaintext"));
    ensure!(finished.code != Some(0) || doubts, "exit 0: {said:?}");
    Ok(format!("exit {:?}: {said:?}", finished.code))
}
