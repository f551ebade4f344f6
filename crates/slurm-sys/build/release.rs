//! The release of the headers, and the one table of the changes of each release.
//!
//! A new release that changes a reply gets a line in [`CHANGES`]; any other only moves [`NEWEST`].

use std::fmt;
use std::path::Path;

/// (first release, cfg that is true from then on). slurm-reader's conversions use these cfgs.
const CHANGES: &[(HeaderRelease, &str)] = &[
    (HeaderRelease(22, 5), "slurm_ge_2205"),  // a node's cpus_efctv
    (HeaderRelease(23, 2), "slurm_ge_2302"),  // last_consumed and last_deficit of licences
    (HeaderRelease(23, 11), "slurm_ge_2311"), // schedule_exit, bf_exit
    (HeaderRelease(24, 5), "slurm_ge_2405"),  // the RPC queue's columns
    (HeaderRelease(24, 11), "slurm_ge_2411"), // the flags of a request for QOS
    (HeaderRelease(25, 5), "slurm_ge_2505"),  // a licence's nodes; a job's flag 9
    (HeaderRelease(25, 11), "slurm_ge_2511"), // no parts_packed; schedule_cycle_sum is 64 bits wide; a job's flag 24
    (HeaderRelease(26, 5), "slurm_ge_2605"),  // slurmdb_config_get: no list, and no PrivateData
];

/// The first release with `slurm_init`.
const OLDEST: HeaderRelease = HeaderRelease(20, 11);

/// The last release whose headers were compared with this table.
const NEWEST: HeaderRelease = HeaderRelease(26, 5);

/// A Slurm major release: year and month.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeaderRelease(pub(crate) u32, pub(crate) u32);

impl HeaderRelease {
    /// Reads `SLURM_VERSION_NUMBER` from the headers under `include`: slurm_version.h has it from 22.05, slurm.h
    /// before.
    pub(crate) fn read(include: &Path) -> Result<Self, String> {
        let files = ["slurm_version.h", "slurm.h"].map(|name| include.join("slurm").join(name));
        let number = files
            .iter()
            .filter_map(|file| std::fs::read_to_string(file).ok())
            .find_map(|text| version_number(&text))
            .ok_or_else(|| {
                format!("no SLURM_VERSION_NUMBER in {} or {}", files[0].display(), files[1].display())
            })?;
        let release = Self((number >> 16) & 0xff, (number >> 8) & 0xff);
        if release < OLDEST {
            return Err(format!(
                "{} is of Slurm {release}: the reader needs {OLDEST} or newer",
                include.join("slurm").display()
            ));
        }
        Ok(release)
    }

    pub(crate) fn is_newer_than_the_table(self) -> bool {
        self > NEWEST
    }

    /// The cfgs that are true for this release.
    pub(crate) fn cfgs(self) -> Vec<&'static str> {
        CHANGES.iter().filter(|(since, _)| *since <= self).map(|(_, cfg)| *cfg).collect()
    }
}

/// Every cfg there is.
pub(crate) fn all_cfgs() -> Vec<&'static str> {
    CHANGES.iter().map(|(_, cfg)| *cfg).collect()
}

fn version_number(header: &str) -> Option<u32> {
    header.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_definition = words.next() == Some("#define") && words.next() == Some("SLURM_VERSION_NUMBER");
        let digits = words.next().filter(|_| is_definition)?.strip_prefix("0x")?;
        u32::from_str_radix(digits, 16).ok()
    })
}

impl fmt::Display for HeaderRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}.{:02}", self.0, self.1)
    }
}
