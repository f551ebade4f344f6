//! Licences that a server elsewhere lends, and slurmdbd shares among the clusters.

use anyhow::{Context, Result, bail};
use sandbox::{Accounting, Folder, Slurm, wait};
use slurm_snapshot::{Answer, Reply};

use super::answers;

/// What the server is said to have lent.
const CONSUMED: u32 = 70;

/// Name, total, and from Slurm 23.02 on what is consumed and not explained, of each remote licence.
type Row = (String, Option<u32>, Option<u32>, Option<u32>);

fn shown(slurm: &Slurm) -> Result<Vec<Row>> {
    let text = slurm.run("scontrol", &["-o", "show", "lic"])?;
    let row = |line: &str| {
        let word = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key));
        let number = |key: &str| word(key).and_then(|number| number.parse().ok());
        let name = word("LicenseName=").context("no name")?.to_owned();
        Ok((name, number("Total="), number("LastConsumed="), number("LastDeficit=")))
    };
    text.lines().filter(|line| line.contains("Remote=yes")).map(row).collect()
}

fn read(folder: &Folder, slurm: &Slurm) -> Result<Vec<Row>> {
    let answers = answers(folder, slurm.reader(None)?, slurm.conf(), r#"{"licenses":{"id":1}}"#)?;
    let [Answer::Reading(reading)] = answers.as_slice() else { bail!("{answers:?}") };
    let Some(Reply::Licenses(licenses)) = &reading.reply else { bail!("{reading:?}") };
    let remote = licenses.licenses.iter().filter(|of| of.remote);
    Ok(remote.map(|of| (of.name.clone(), of.total, of.last_consumed, of.last_deficit)).collect())
}

/// Half of a hundred belong to other clusters: 20 of the 70 are more than those.
#[test]
fn what_a_remote_licences_server_has_lent_is_scontrols() {
    let folder = Folder::new().unwrap();
    let accounting = Accounting::start(&folder).unwrap();
    let slurm = &accounting.slurm;
    let knows = slurm.release().unwrap().as_str() >= "23.02";
    let sacctmgr = |args: &str| slurm.run("sacctmgr", &args.split(' ').collect::<Vec<_>>()).unwrap();
    sacctmgr(
        "-i add resource name=solver server=flex servertype=flexlm count=100 type=license cluster=sandbox percentallowed=50",
    );
    let mut expected = (None, None);
    if knows {
        sacctmgr(&format!("-i modify resource name=solver server=flex set lastconsumed={CONSUMED}"));
        expected = (Some(CONSUMED), Some(20));
    }
    let expected = [("solver@flex".to_owned(), Some(50), expected.0, expected.1)];
    wait::until("scontrol shows them", wait::LIMIT, || shown(slurm).unwrap() == expected).unwrap();
    assert_eq!(read(&folder, slurm).unwrap(), expected);
}
