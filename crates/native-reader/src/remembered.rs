//! What is known of each controller's protocol numbers, in a file: after a restart no number is tried that was refused.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use reader_process::log;

use crate::number::Numbers;

/// Of the file.
const MOST: u64 = 64 << 10;

/// How long a start waits for the file.
const PATIENCE: Duration = Duration::from_secs(1);

/// Controllers that are remembered: those of one cluster, and of some before it.
const CONTROLLERS: usize = 64;

/// The numbers of every controller, by its name and port.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    path: Option<PathBuf>,
    controllers: BTreeMap<String, Numbers>,
}

impl Remembered {
    /// What the file says. One that is absent or damaged says nothing: then numbers are found again. So does one on a disk that
    /// hangs.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        let (answer, found) = mpsc::channel();
        if let Some(path) = path.clone() {
            // The receiver may have given up.
            thread::spawn(move || drop(answer.send(read(&path))));
        }
        let mut controllers = found.recv_timeout(PATIENCE).ok().flatten().unwrap_or_default();
        controllers.retain(|_, numbers: &mut Numbers| numbers.is_plausible());
        Self { path, controllers }
    }

    /// The numbers of one controller.
    pub(crate) fn of(&mut self, controller: &str) -> &mut Numbers {
        if self.controllers.len() >= CONTROLLERS && !self.controllers.contains_key(controller) {
            self.controllers.clear();
        }
        self.controllers.entry(controller.to_owned()).or_default()
    }

    /// Writes the file, without waiting for the disk. Without it readings go on.
    pub(crate) fn write(&self) {
        let Some(path) = self.path.clone() else { return };
        let Ok(text) = serde_json::to_vec(&self.controllers) else { return };
        thread::spawn(move || {
            let new = path.with_extension("new");
            let written = fs::File::create(&new).and_then(|mut file| file.write_all(&text));
            if let Err(error) = written.and_then(|()| fs::rename(&new, &path)) {
                log(&format_args!("{}: {error}", path.display()));
            }
        });
    }
}

fn read(path: &Path) -> Option<BTreeMap<String, Numbers>> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outlive_the_reader_and_damage_is_as_if_there_were_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        let mut remembered = Remembered::new(Some(path.clone()));
        remembered.of("ctl:6817").accept(38, 1000);
        remembered.write();
        let begin = std::time::Instant::now();
        while !path.exists() && begin.elapsed() < Duration::from_secs(60) {
            thread::yield_now();
        }
        let mut again = Remembered::new(Some(path.clone()));
        assert_eq!(again.of("ctl:6817"), remembered.of("ctl:6817"));
        for text in ["", "{", "[]", "{\"ctl\":{\"accepted\":\"x\"}}"] {
            fs::write(&path, text).unwrap();
            assert!(Remembered::new(Some(path.clone())).controllers.is_empty(), "{text}");
        }
        for index in 0..1000 {
            again.of(&index.to_string());
            assert!(again.controllers.len() <= CONTROLLERS);
        }
    }
}
