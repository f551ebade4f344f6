//! What is known of each controller's protocol numbers, in a file: after a restart no number is tried that was refused.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
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
    controllers: BTreeMap<String, Numbers>,
    /// To the thread that has the file: the disk may hang, and readings go on. `None`: nothing is kept.
    file: Option<Sender<Vec<u8>>>,
}

impl Remembered {
    /// What the file says. One that is absent or damaged says nothing: then numbers are found again. So does one on a disk that
    /// hangs.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        let Some((file, found)) = path.and_then(|path| start(path).ok()) else { return Self::default() };
        let mut controllers = found.recv_timeout(PATIENCE).ok().flatten().unwrap_or_default();
        controllers.retain(|_, numbers| numbers.is_plausible());
        Self { controllers, file: Some(file) }
    }

    /// The numbers of one controller.
    pub(crate) fn of(&mut self, controller: &str) -> &mut Numbers {
        if self.controllers.len() >= CONTROLLERS && !self.controllers.contains_key(controller) {
            self.controllers.clear();
        }
        self.controllers.entry(controller.to_owned()).or_default()
    }

    /// Writes the file, without waiting for the disk.
    pub(crate) fn write(&self) {
        if let (Some(file), Ok(text)) = (&self.file, serde_json::to_vec(&self.controllers)) {
            // The thread lives as long as this.
            let _ = file.send(text);
        }
    }
}

type FoundNumbers = Receiver<Option<BTreeMap<String, Numbers>>>;

/// One thread for all that is written, so that nothing older replaces something newer. It reads the file first.
fn start(path: PathBuf) -> io::Result<(Sender<Vec<u8>>, FoundNumbers)> {
    let (file, texts) = mpsc::channel::<Vec<u8>>();
    let (answer, found) = mpsc::channel();
    thread::Builder::new().name("numbers".to_owned()).spawn(move || {
        // The receiver may have given up.
        let _ = answer.send(read(&path));
        for text in texts {
            if let Err(error) = replace(&path, &text) {
                log(&format_args!("{}: {error}", path.display()));
            }
        }
    })?;
    Ok((file, found))
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
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
        // What is written last stays, however often it is written.
        for started in 0..100 {
            remembered.of("ctl:6817").accept(38, started);
            remembered.write();
        }
        let begin = std::time::Instant::now();
        while read(&path).as_ref() != Some(&remembered.controllers)
            && begin.elapsed() < Duration::from_secs(60)
        {
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
