//! What is known of each controller's protocol numbers, in a file: after a restart no number is tried that was refused.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::number::Numbers;

/// Of the file.
const MOST: u64 = 64 << 10;

/// Controllers that are remembered: those of one cluster, and of some before it.
const CONTROLLERS: usize = 64;

/// The numbers of every controller, by its name and port.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    path: Option<PathBuf>,
    controllers: BTreeMap<String, Numbers>,
}

impl Remembered {
    /// What the file says. One that is absent or damaged says nothing: then numbers are found again.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        let mut controllers = path.as_deref().and_then(read).unwrap_or_default();
        controllers.retain(|_, numbers| numbers.is_plausible());
        Self { path, controllers }
    }

    /// The numbers of one controller.
    pub(crate) fn of(&mut self, controller: &str) -> &mut Numbers {
        if self.controllers.len() >= CONTROLLERS && !self.controllers.contains_key(controller) {
            self.controllers.clear();
        }
        self.controllers.entry(controller.to_owned()).or_default()
    }

    /// Writes the file. Without it readings go on, so that an error is only returned to be logged.
    pub(crate) fn write(&self) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let text = serde_json::to_vec(&self.controllers).map_err(|error| error.to_string())?;
        let new = path.with_extension("new");
        let written = fs::File::create(&new).and_then(|mut file| file.write_all(&text));
        written.and_then(|()| fs::rename(&new, path)).map_err(|error| format!("{}: {error}", path.display()))
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
        remembered.write().unwrap();
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
