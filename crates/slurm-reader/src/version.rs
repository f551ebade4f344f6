//! The release of each library: the number in libslurm's soname and in `slurm_api_version()`.
//!
//! A library used with the layout of another release silently gives shifted numbers, so the reader
//! refuses every library except the one it was built for. `SLURM_VERSION_NUMBER` in the headers is
//! a different number and is never compared.

use slurm_snapshot::{LIBRARIES, Release};

/// The release of the headers that this reader was built with.
#[must_use]
pub const fn built_for() -> Release {
    let [_, year, month, _] = slurm_sys::SLURM_VERSION_NUMBER.to_be_bytes();
    Release::new(year, month)
}

/// Compares the loaded library with the headers: `slurm_api_version()` is N << 16.
///
/// # Errors
/// The library is from another release. If the headers are newer than the table of releases, any
/// library newer than that table is accepted.
pub fn check(api_version: u32, built_for: Release) -> Result<(), String> {
    let loaded = (api_version & 0xffff == 0).then_some(api_version >> 16);
    let expected =
        LIBRARIES.iter().find(|(_, release)| *release == built_for).map(|(number, _)| *number);
    let newest = LIBRARIES.last().map(|(number, _)| *number);
    let fits = if expected.is_some() { loaded == expected } else { loaded > newest };
    if fits {
        return Ok(());
    }
    let found = loaded.and_then(Release::of_library);
    let needed = Some(built_for);
    Err(format!(
        "the loaded libslurm is {} (API version {api_version:#x}), but this reader was built for \
         {}: install the reader that was built for it, or build one against its headers",
        describe(loaded, found),
        describe(expected, needed)
    ))
}

fn describe(number: Option<u32>, release: Option<Release>) -> String {
    let library =
        number.map_or_else(|| "libslurm.so".to_owned(), |number| format!("libslurm.so.{number}"));
    match release {
        Some(release) => format!("{library} of Slurm {release}"),
        None => format!("{library} of an unknown Slurm"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaded_library_is_the_one_built_for() {
        assert_eq!(check(crate::calls::api_version(), built_for()), Ok(()));
    }

    #[test]
    fn only_the_library_of_the_release_passes() {
        assert_eq!(check(0x26_0000, Release::new(22, 5)), Ok(()));
        for api_version in [0, 0x25_0000, 0x27_0000, 0x26_0001, 0x16_0508, u32::MAX] {
            assert!(check(api_version, Release::new(22, 5)).is_err(), "{api_version:#x}");
        }
        for (number, release) in LIBRARIES {
            assert_eq!(check(number << 16, *release), Ok(()));
        }
    }

    #[test]
    fn headers_newer_than_the_table_take_a_library_newer_than_the_table() {
        let newest = LIBRARIES.last().unwrap().0;
        let unknown = Release::new(99, 11);
        assert_eq!(check((newest + 1) << 16, unknown), Ok(()));
        assert!(check(newest << 16, unknown).is_err());
        assert!(check(((newest + 1) << 16) + 1, unknown).is_err());
    }

    #[test]
    fn a_refusal_names_both_libraries() {
        let refusal = check(0x2a_0000, Release::new(22, 5)).unwrap_err();
        assert!(refusal.starts_with(
            "the loaded libslurm is libslurm.so.42 of Slurm 24.11 (API version 0x2a0000), but this \
             reader was built for libslurm.so.38 of Slurm 22.05: "
        ));
    }

    #[test]
    fn numbers_and_releases_go_up_together() {
        assert!(LIBRARIES.is_sorted_by(|a, b| a.0 + 1 == b.0 && a.1 < b.1));
    }
}
