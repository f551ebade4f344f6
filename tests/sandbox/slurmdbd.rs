//! A slurmdbd for a cluster that enforces none of its limits: slurmrestd 23.02 opens a connection
//! to it with each request.

use std::fs;

use anyhow::Result;

use crate::accounting::{CLUSTER, mariadbd, slurmdbd, sql};
use crate::{Folder, Process, Slurm, free_port};

/// slurmdbd and its database.
#[derive(Debug)]
pub struct Slurmdbd {
    /// Ends before its database does.
    pub slurmdbd: Process,
    _mariadbd: Process,
}

impl Slurmdbd {
    /// Starts it and munged, and adds it to slurm.conf. Call this before slurmctld is started.
    pub fn start(folder: &Folder, slurm: &mut Slurm) -> Result<Self> {
        let port = free_port()?;
        let conf = fs::read_to_string(slurm.conf())?;
        let storage = format!(
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n\
             AccountingStoragePort={port}\nAccountingStoragePass={}/munge/sock",
            folder.path().display()
        );
        fs::write(
            slurm.conf(),
            conf.replace("AccountingStorageType=accounting_storage/none", &storage),
        )?;
        // A user who authenticates to slurmrestd with a token uses it for slurmdbd too.
        let tokens: String = conf
            .lines()
            .filter(|line| line.starts_with("AuthAlt"))
            .map(|line| format!("\n{line}"))
            .collect();
        let (mut slurmdbd, mut mariadbd) =
            (slurmdbd(folder, slurm, port, &tokens)?, mariadbd(folder)?);
        slurm.munged.start()?;
        mariadbd.start()?;
        sql(folder.path(), crate::accounting::EMPTY_DATABASE)?;
        slurmdbd.start()?;
        slurm.run("sacctmgr", &["-i", "add", "cluster", CLUSTER])?;
        Ok(Self { slurmdbd, _mariadbd: mariadbd })
    }
}
