//! Golden files: what the program printed when somebody last checked it.

/// Asserts that the file, named from this crate on, holds what was `made`; `make golden` writes it.
pub(crate) fn golden(file: &str, made: &str) {
    let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some()
        && std::fs::read_to_string(&path).ok().as_deref() != Some(made)
    {
        std::fs::write(&path, made).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap() == made,
        "{file} is old; run `make golden` if this is meant:\n{made}"
    );
}
