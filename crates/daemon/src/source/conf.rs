//! The slurm.conf that libslurm will read, and whether it has changed since a reader was started.
//!
//! The file may be on a file system that hangs, and this thread runs the ticks. So another thread checks the file, one
//! check at a time, and a check that takes longer than a second counts as no change. Waking that thread costs a third
//! of a tick, so it is done at every tick only while there are no readings, and otherwise now and then.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout};

/// While readings come: at the default interval of 30 s with every second tick.
const LOOK_EVERY: Duration = Duration::from_secs(31);
/// How long a request waits for a look.
const PATIENCE: Duration = Duration::from_secs(1);
/// Where libslurm looks when nothing is said: Debian's and the RPMs' place, and that of a configless host.
pub(crate) const USUAL: [&str; 2] = ["/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"];

/// The slurm.conf that is named, by the configuration or by the environment, and by which.
pub(crate) fn named(conf: Option<&Path>) -> Option<(PathBuf, &'static str)> {
    let by_configuration = conf.map(|conf| (conf.to_owned(), "the configuration"));
    by_configuration.or_else(|| Some((std::env::var_os("SLURM_CONF")?.into(), "SLURM_CONF")))
}

/// Modification time and size of each file; `None`: not there.
type ConfFingerprint = Vec<Option<(SystemTime, u64)>>;

/// The files, and what is known of them.
pub(super) struct ConfWatch {
    look: Arc<dyn Fn() -> ConfFingerprint + Send + Sync>,
    /// The file that was named, if one was.
    named: Option<PathBuf>,
    /// When the last reader was started.
    seen: Option<ConfFingerprint>,
    looked: Option<Instant>,
    looking: Option<JoinHandle<ConfFingerprint>>,
}

impl ConfWatch {
    /// Watches `conf`, or without it the places where libslurm looks.
    pub(super) fn new(conf: Option<&Path>) -> Self {
        let named = named(conf).map(|(named, _)| named);
        let paths = named.clone().map_or_else(|| USUAL.map(PathBuf::from).to_vec(), |conf| vec![conf]);
        Self::with(named, move || paths.iter().map(|path| fingerprint(path)).collect())
    }

    /// Watches these files and folders, as they are now.
    pub(super) async fn files(paths: Vec<PathBuf>) -> Self {
        let mut watch = Self::with(None, move || paths.iter().map(|path| fingerprint(path)).collect());
        // Nothing is named, so that nothing can be missing.
        let _ = watch.note().await;
        watch
    }

    fn with(named: Option<PathBuf>, look: impl Fn() -> ConfFingerprint + Send + Sync + 'static) -> Self {
        Self { look: Arc::new(look), named, seen: None, looked: None, looking: None }
    }

    /// Notes what a reader that is started now will read. An error if the file that was named does not exist.
    pub(super) async fn note(&mut self) -> Result<(), PathBuf> {
        if let Some(now) = self.look().await {
            self.seen = Some(now);
        }
        let missing = self.seen.as_ref().is_some_and(|seen| seen.iter().all(Option::is_none));
        self.named.clone().filter(|_| missing).map_or(Ok(()), Err)
    }

    /// Whether it is another than when it was last noted or found changed; `soon` looks at once.
    pub(super) async fn has_changed(&mut self, soon: bool) -> bool {
        if !soon && self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return false;
        }
        let Some(now) = self.look().await else { return false };
        let changed = self.seen.as_ref().is_some_and(|seen| *seen != now);
        self.seen = Some(now);
        changed
    }

    /// `None` while nothing is known: nobody waits twice for a look that hangs.
    async fn look(&mut self) -> Option<ConfFingerprint> {
        let patience = if self.looking.is_some() { Duration::ZERO } else { PATIENCE };
        let look = Arc::clone(&self.look);
        let looking = self.looking.get_or_insert_with(|| spawn_blocking(move || look()));
        let found = timeout(patience, looking).await.ok()?;
        (self.looking, self.looked) = (None, Some(Instant::now()));
        found.ok()
    }
}

fn fingerprint(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = path.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, mpsc};

    use super::*;

    #[tokio::test]
    async fn a_file_system_that_hangs_is_waited_for_once_and_for_a_second() {
        let (answers, hangs) = mpsc::channel();
        let (hangs, looks) = (Mutex::new(hangs), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&looks);
        let mut watch = ConfWatch::with(None, move || {
            counted.fetch_add(1, Ordering::Relaxed);
            hangs.lock().unwrap().recv().unwrap()
        });
        answers.send(vec![None]).unwrap();
        watch.note().await.unwrap();
        let start = Instant::now();
        assert!(!watch.has_changed(true).await);
        let waited = start.elapsed();
        assert!((PATIENCE..PATIENCE * 2).contains(&waited), "{waited:?}");
        for _ in 0..100 {
            assert!(!watch.has_changed(true).await);
        }
        assert!(start.elapsed() < waited + PATIENCE / 2, "the others wait too");
        assert_eq!(looks.load(Ordering::Relaxed), 2, "one look at a time");
        answers.send(vec![Some((SystemTime::UNIX_EPOCH, 1))]).unwrap();
        while !watch.has_changed(true).await {
            assert!(start.elapsed() < PATIENCE * 10);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
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
        tokio::time::advance(LOOK_EVERY).await;
        assert!(watch.has_changed(false).await, "later");
        watch.note().await.unwrap();
    }
}
