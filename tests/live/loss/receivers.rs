//! Points that a receiver cannot understand are never called confirmed.

use anyhow::{Result, ensure};
use sandbox::{Imitation, Invocation, destination, find_program, slurm_graphite};

use super::sizes::Size;
use super::{SKIPPED, isolated, side_by_side};

#[test]
fn pickle_to_the_plaintext_port_is_never_called_confirmed() {
    side_by_side(&[("run", pickle_to_2003), ("once", once_to_2003)]);
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
    let reader = Imitation::good(folder)?.toml();
    let toml = format!("[slurm]\n{reader}{}", destination("carbon", "127.0.0.1:2003"));
    let (program, config) = (slurm_graphite()?, folder.write("once.toml", &toml)?);
    let inside = space.words(&format!("{} once --send --config {config} >&2", program.display()));
    let words: Vec<&str> = inside.iter().map(String::as_str).collect();
    let finished = Invocation::of_program(folder, &find_program("nsenter")?, &words)?.finish()?;
    let said: Vec<&str> =
        finished.stderr.lines().filter(|line| !line.starts_with("cluster.")).collect();
    let confirmed =
        said.iter().any(|line| line.contains("confirmed") && !line.contains("not confirmed"));
    ensure!(!confirmed, "it was called confirmed: {said:?}");
    let doubts = said.iter().any(|line| line.contains("port 2003 usually reads plaintext"));
    ensure!(finished.code != Some(0) || doubts, "exit 0: {said:?}");
    Ok(format!("exit {:?}: {said:?}", finished.code))
}
