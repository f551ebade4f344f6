//! The slurm.conf that libslurm will read, and whether it has changed since a reader was started.
//!
//! The file may be on a file system that hangs, so a thread checks it, and a check that takes
//! longer than a second counts as no change. A thread costs a third of a tick, so it is done at
//! every tick only while there are no readings, and otherwise now and then.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub(crate) use slurmctld_protocol::USUAL_CONFS as USUAL;

/// Time between two looks at the files while readings come: at the default interval of 30 s every
/// second tick has one.
const LOOK_EVERY: Duration = Duration::from_secs(31);
/// Time that a request waits for a look at the files.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the path of slurm.conf that the configuration or SLURM_CONF names, and which of the two
/// does; `None` if neither does.
pub(crate) fn named(conf: Option<&Path>) -> Option<(PathBuf, &'static str)> {
    let by_configuration = conf.map(|conf| (conf.to_owned(), "the configuration"));
    by_configuration.or_else(|| Some((std::env::var_os("SLURM_CONF")?.into(), "SLURM_CONF")))
}

/// Modification time and size of each file; `None`: not there.
type ConfFingerprint = Vec<Option<(SystemTime, u64)>>;

/// Files that are watched for changes: slurm.conf, or those that tell of a new libslurm or reader.
pub(super) struct ConfWatch {
    /// Name of these files for the thread that looks at them.
    owner: &'static str,
    paths: Arc<[PathBuf]>,
    /// The slurm.conf that was named, if one was.
    named: Option<PathBuf>,
    /// The files as they were when the last reader was started.
    seen: Option<ConfFingerprint>,
    looked: Option<Instant>,
}

impl ConfWatch {
    /// Watches `conf`, or without it the places where libslurm looks.
    pub(super) fn new(conf: Option<&Path>) -> Self {
        let named = named(conf).map(|(named, _)| named);
        let paths =
            named.clone().map_or_else(|| USUAL.map(PathBuf::from).to_vec(), |conf| vec![conf]);
        Self { owner: "slurm.conf", paths: paths.into(), named, seen: None, looked: None }
    }

    /// Watches these files and folders, as they are now.
    pub(super) async fn files(paths: Vec<PathBuf>) -> Self {
        let mut watch =
            Self { owner: "libslurm", paths: paths.into(), named: None, seen: None, looked: None };
        // Nothing is named, so that nothing can be missing.
        let _ = watch.note().await;
        watch
    }

    /// Notes what a reader that is started now will read. An error if the file that was named does
    /// not exist.
    pub(super) async fn note(&mut self) -> Result<(), PathBuf> {
        if let Some(now) = self.look().await {
            self.seen = Some(now);
        }
        let missing = self.seen.as_ref().is_some_and(|seen| seen.iter().all(Option::is_none));
        self.named.clone().filter(|_| missing).map_or(Ok(()), Err)
    }

    /// Whether a file has changed since the files were last noted or found changed. `soon` looks at
    /// once, and not only after [`LOOK_EVERY`].
    pub(super) async fn has_changed(&mut self, soon: bool) -> bool {
        if !soon && self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return false;
        }
        let Some(now) = self.look().await else { return false };
        let changed = self.seen.as_ref().is_some_and(|seen| *seen != now);
        self.seen = Some(now);
        changed
    }

    /// Looks at the files, in a thread. `None`: nothing is known, because the look takes too long.
    /// Nobody waits twice for a look that hangs.
    async fn look(&mut self) -> Option<ConfFingerprint> {
        let question = format!("{:?}", self.paths);
        let paths = Arc::clone(&self.paths);
        let look = move || paths.iter().map(|path| fingerprint(path).ok()).collect();
        let found = waiting_threads::ask(self.owner, &question, PATIENCE, look).await.ok()?;
        self.looked = Some(Instant::now());
        Some(found)
    }
}

#[expect(clippy::disallowed_methods, reason = "threads call it")]
pub(crate) fn fingerprint(path: &Path) -> std::io::Result<(SystemTime, u64)> {
    let metadata = path.metadata()?;
    Ok((metadata.modified()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn while_all_is_well_it_is_looked_at_now_and_then() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("slurm.conf");
        let mut watch = ConfWatch::new(Some(&conf));
        assert_eq!(watch.note().await, Err(conf.clone()));
        std::fs::write(&conf, "a").unwrap();
        assert!(!watch.has_changed(false).await);
        assert!(watch.has_changed(true).await, "soon");
        assert!(!watch.has_changed(true).await, "once");
        std::fs::write(&conf, "more").unwrap();
        assert!(!watch.has_changed(false).await);
        watch.looked = Instant::now().checked_sub(LOOK_EVERY);
        assert!(watch.has_changed(false).await, "later");
        watch.note().await.unwrap();
    }
}
