//! Licences that a server elsewhere lends, and slurmdbd shares among the clusters.

use anyhow::{Context, Result, bail};
use sandbox::{Folder, Slurm, wait};
use slurm_snapshot::Reply;

use super::oracle::value;
use super::reading;

/// Number of licences that the server is said to have lent.
const CONSUMED: u32 = 70;

/// Name, total, and from Slurm 23.02 on what is consumed and not explained, of each remote licence.
type Row = (String, Option<u32>, Option<u32>, Option<u32>);

fn shown(slurm: &Slurm) -> Result<Vec<Row>> {
    let text = slurm.call("scontrol -o show lic")?;
    let row = |line: &str| {
        let number = |key: &str| value(line, key).and_then(|number| number.parse().ok());
        let name = value(line, "LicenseName").context("no name")?.to_owned();
        Ok((name, number("Total"), number("LastConsumed"), number("LastDeficit")))
    };
    text.lines().filter(|line| line.contains("Remote=yes")).map(row).collect()
}

fn read_licenses(folder: &Folder, slurm: &Slurm) -> Result<Vec<Row>> {
    let reading = reading(folder, slurm, None, r#"{"licenses":{"id":1}}"#)?;
    let Some(Reply::Licenses(licenses)) = &reading.reply else { bail!("{reading:?}") };
    let remote = licenses.licenses.iter().filter(|of| of.remote);
    Ok(remote.map(|of| (of.name.clone(), of.total, of.last_consumed, of.last_deficit)).collect())
}

/// Half of a hundred belong to other clusters: 20 of the 70 are more than those.
pub(super) fn compare(folder: &Folder, slurm: &Slurm) {
    let server = "name=solver server=flex";
    let rest = "servertype=flexlm count=100 type=license cluster=sandbox percentallowed=50";
    slurm.call(&format!("sacctmgr -i add resource {server} {rest}")).unwrap();
    let mut expected = ("solver@flex".to_owned(), Some(50), None, None);
    if slurm.release().unwrap().as_str() >= "23.02" {
        slurm
            .call(&format!("sacctmgr -i modify resource {server} set lastconsumed={CONSUMED}"))
            .unwrap();
        (expected.2, expected.3) = (Some(CONSUMED), Some(20));
    }
    let expected = [expected];
    wait::until("scontrol shows them", wait::LIMIT, || shown(slurm).unwrap() == expected).unwrap();
    assert_eq!(read_licenses(folder, slurm).unwrap(), expected);
}
