//! slurmrestd's token: its file, and what can be read from the token without the key.
//!
//! The file is read for each request, because it may have been replaced. The token itself never
//! appears in a log, an answer or `Debug` output.

use std::fmt;
use std::fs::{self, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64ct::{Base64UrlUnpadded, Encoding as _};
use rustix::process::geteuid;
use serde::Deserialize;
use slurm_snapshot::Token;

use crate::open_regular_file;

/// Number of bytes of the file that are read: many more than any token has.
const MOST: u64 = 64 * 1024;

/// The file with the token.
pub struct TokenFile {
    path: PathBuf,
    token: Option<String>,
    /// The claims of the token that may be reported.
    pub claims: Token,
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile").finish_non_exhaustive()
    }
}

impl TokenFile {
    /// Names a file with a token, which is not read yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, token: None, claims: Token::default() }
    }

    /// Reads the file. Returns whether the token has changed.
    ///
    /// # Errors
    /// The file cannot be read, or has no token.
    pub fn read_again(&mut self) -> Result<bool, String> {
        let wrong = |what: &dyn fmt::Display| format!("{}: {what}", self.path.display());
        let (text, metadata) = read_with_metadata(&self.path).map_err(|error| wrong(&error))?;
        let text = text.trim();
        // The form that `scontrol token` prints.
        let token = text.strip_prefix("SLURM_JWT=").unwrap_or(text);
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.token = None;
            return Err(wrong(&"the file has no token, only other text"));
        }
        let claims = claims(token).unwrap_or_default();
        let exposed = metadata.mode() & 0o004 != 0;
        let writable = is_open(&metadata) || folder_is_open(&self.path);
        let user = claims.sun.or(claims.username);
        self.claims =
            Token { user, expires: claims.exp.and_then(whole_seconds), exposed, writable };
        Ok(self.token.replace(token.to_owned()).as_deref() != Some(token))
    }

    /// Returns the token itself, if one was read.
    #[must_use]
    pub fn secret(&self) -> Option<&str> {
        self.token.as_deref()
    }
}

/// Whether others than root and this user may write a file or folder. If this process is root's,
/// its owner may be anyone, because root looks at the files of the daemon's user too.
fn is_open(found: &Metadata) -> bool {
    // Root itself, also where it is only a namespace's.
    let root = fs::metadata("/").map_or(0, |root| root.uid());
    is_open_for(found, geteuid().as_raw(), root)
}

fn is_open_for(found: &Metadata, me: u32, root: u32) -> bool {
    let is_anothers = me != 0 && ![0, root, me].contains(&found.uid());
    found.mode() & 0o022 != 0 || is_anothers
}

/// Whether others may replace the file: those who may write its folder, unless that is sticky.
fn folder_is_open(path: &Path) -> bool {
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::metadata(folder).is_ok_and(|folder| is_open(&folder) && folder.mode() & 0o1000 == 0)
}

fn read_with_metadata(path: &Path) -> std::io::Result<(String, Metadata)> {
    let (file, metadata) = open_regular_file(path)?;
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text)?;
    Ok((text, metadata))
}

/// The claims that matter here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Claims {
    exp: Option<serde_json::Number>,
    /// Slurm's claim for the user name.
    sun: Option<String>,
    username: Option<String>,
}

/// Returns a time in whole seconds, because that of a claim may have a fraction.
fn whole_seconds(number: serde_json::Number) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "cut to the range of i64")]
    number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64))
}

/// The claims of a JWT; `None` for any other text.
fn claims(token: &str) -> Option<Claims> {
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    let payload = Base64UrlUnpadded::decode_vec(payload.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&payload).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// `{"exp":1800000000,"iat":1799998200,"sun":"alice"}`, as slurmctld writes it.
    const ALICE: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
        eyJleHAiOjE4MDAwMDAwMDAsImlhdCI6MTc5OTk5ODIwMCwic3VuIjoiYWxpY2UifQ.c2ln";

    #[test]
    fn name_and_end_are_read_without_the_key() {
        let claims = claims(ALICE).unwrap();
        assert_eq!(
            (claims.sun.as_deref(), claims.exp.and_then(whole_seconds)),
            (Some("alice"), Some(1_800_000_000))
        );
        for text in ["", "a.b.c", "opaque", "..", "a.!.c", "a.e30"] {
            assert!(super::claims(text).is_none_or(|claims| claims.exp.is_none()), "{text}");
        }
    }

    #[test]
    fn a_pipe_is_refused_and_does_not_hang() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(
            TokenFile::new(path.clone()).read_again().unwrap_err(),
            format!("{}: not a regular file", path.display())
        );
    }

    #[test]
    fn a_file_that_was_replaced_is_read_again_and_its_token_is_in_no_debug() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let mut file = TokenFile::new(path.clone());
        let missing = file.read_again().unwrap_err();
        assert!(missing.starts_with(&path.display().to_string()), "{missing}");
        fs::write(&path, format!("SLURM_JWT={ALICE}\n")).unwrap();
        file.read_again().unwrap();
        assert_eq!(file.secret(), Some(ALICE));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        file.read_again().unwrap();
        assert!(
            file.claims.exposed
                && !file.claims.writable
                && file.claims.user.as_deref() == Some("alice")
        );
        for (file_mode, folder_mode, writable) in [
            (0o600, 0o755, false),
            (0o602, 0o755, true),
            (0o620, 0o755, true),
            (0o600, 0o775, true),
            (0o600, 0o1777, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(file_mode)).unwrap();
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(folder_mode)).unwrap();
            file.read_again().unwrap();
            assert_eq!(file.claims.writable, writable, "{file_mode:o} {folder_mode:o}");
        }
        // Only root can give it away, and root looks at the daemon's own.
        if std::os::unix::fs::chown(&path, Some(31_234), None).is_ok() {
            file.read_again().unwrap();
            assert!(!file.claims.writable);
            assert!(is_open_for(&path.metadata().unwrap(), 1000, 0));
            assert!(!is_open_for(&path.metadata().unwrap(), 31_234, 0));
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
            assert!(!is_open_for(&path.metadata().unwrap(), 1000, 0));
        }
        assert!(!format!("{file:?}").contains("eyJ"));
        assert!(!file.read_again().unwrap(), "the same token");
        let other = folder.path().join("other");
        fs::write(&other, "opaque").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o640)).unwrap();
        fs::rename(&other, &path).unwrap();
        file.read_again().unwrap();
        assert_eq!((file.secret(), &file.claims), (Some("opaque"), &Token::default()));
        for text in ["", "\n", "two words", "a\nb"] {
            fs::write(&path, text).unwrap();
            assert!(file.read_again().is_err(), "{text:?}");
            assert_eq!(file.secret(), None);
        }
    }
}
