//! Somebody who may write next to Carbon's files changes names while they are edited.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, mknodat};

use super::*;

#[test]
fn a_folder_that_is_swapped_after_the_look_up_does_not_lead_the_new_text_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["conf", "victim"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("conf/a.conf"), "old").unwrap();
    symlink(at("conf"), at("link")).unwrap();
    let place = ConfLocation::find(&at("link/a.conf")).unwrap();
    let (like, old) = place.read_file().unwrap();
    assert_eq!(
        (old.as_slice(), &place.path),
        (&b"old"[..], &at("conf/a.conf").canonicalize().unwrap())
    );

    fs::rename(at("conf"), at("moved")).unwrap();
    symlink(at("victim"), at("conf")).unwrap();
    Staged::new(&place, "a.conf".into(), b"new", &like).unwrap().commit().unwrap();
    drop(Staged::new(&place, "a.conf".into(), b"never", &like).unwrap());
    assert_eq!(fs::read_dir(at("victim")).unwrap().count(), 0);
    assert_eq!(fs::read(at("moved/a.conf")).unwrap(), b"new");
    assert_eq!(fs::read_dir(at("moved")).unwrap().count(), 1);

    // The file itself became a link.
    fs::write(at("victim/secret"), "secret").unwrap();
    fs::remove_file(at("moved/a.conf")).unwrap();
    symlink(at("victim/secret"), at("moved/a.conf")).unwrap();
    place.read_file().unwrap_err();
}

#[test]
fn a_pipe_is_refused_and_does_not_hang() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("a.conf");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let refused = ConfLocation::find(&pipe).unwrap().read_file().unwrap_err();
    assert_eq!(refused.to_string(), "not a regular file");
}
