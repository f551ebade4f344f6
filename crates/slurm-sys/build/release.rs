//! The release of the headers, and the one table of the changes of each release. A release is its
//! year and month as one number: 2205.
//!
//! A new release that changes a reply gets a line in [`CHANGES`].

/// The releases that changed something. slurm-reader's conversions use their cfgs: `slurm_ge_2205`
/// and so on.
const CHANGES: &[u32] = &[
    2205, // a node's cpus_efctv
    2302, // last_consumed and last_deficit of licences
    2311, // schedule_exit, bf_exit
    2405, // the RPC queue's columns; the name of the function for reasons
    2411, // the flags of a request for QOS
    2505, // a licence's nodes; no select_nodeinfo
    2511, // no parts_packed; schedule_cycle_sum is 64 bits wide
    2605,
    // slurmdb_config_get: no list, and no PrivateData; the name of the function that frees the
    // configuration
];

/// The oldest release that the reader works with: the first with `slurm_init`.
const OLDEST: u32 = 2011;

/// The source of slurm-snapshot's list of releases: the headers of these were compared with
/// [`CHANGES`].
const KNOWN: &str = include_str!("../../slurm-snapshot/src/release.rs");

/// Whether a release is in slurm-snapshot's list.
pub(crate) fn is_known(release: u32) -> bool {
    KNOWN.contains(&format!("Release::new({}, {})),", release / 100, release % 100))
}

/// Reads the release from what bindgen has made of `SLURM_VERSION_NUMBER`.
pub(crate) fn read_release(bindings: &str) -> Result<u32, String> {
    let constant =
        bindings.split_once("SLURM_VERSION_NUMBER").and_then(|(_, rest)| rest.split(';').next());
    let number =
        constant.and_then(|constant| constant.rsplit('=').next()?.trim().parse::<u32>().ok());
    let [_, year, month, _] = number.ok_or("they have no SLURM_VERSION_NUMBER")?.to_be_bytes();
    match u32::from(year) * 100 + u32::from(month) {
        release if release < OLDEST => {
            Err(format!("they are of Slurm {release}: the reader needs {OLDEST} or newer"))
        }
        release => Ok(release),
    }
}

/// Returns the cfgs that are true for this release, comma-separated.
pub(crate) fn cfgs(release: u32) -> String {
    let since = CHANGES.iter().filter(|since| **since <= release);
    since.map(|since| format!("slurm_ge_{since}")).collect::<Vec<_>>().join(",")
}
