//! Metric paths that every Carbon accepts unchanged.
//!
//! Carbon checks nothing: `..` leaves its folder, an empty component or a space makes odd files,
//! and a component of more than 255 bytes loses the point. A legal path therefore consists of
//! non-empty components of `[A-Za-z0-9_-]`, each of at most [`MAX_COMPONENT`] bytes, and has at
//! most [`MAX_PATH`] bytes.

use std::borrow::Cow;

/// The longest legal component, bytes.
pub const MAX_COMPONENT: usize = 200;
/// The longest legal path, bytes.
pub const MAX_PATH: usize = 1024;

/// A reason why a path is not legal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// No component, two dots in a row, or a dot at either end.
    #[error("a component is empty")]
    Empty,
    /// A character outside `[A-Za-z0-9_-]`.
    #[error("the character {0:?}, where only letters, digits, `_` and `-` are safe")]
    Character(char),
    /// A component over [`MAX_COMPONENT`] bytes.
    #[error("a component of {0} bytes, over {MAX_COMPONENT}")]
    LongComponent(usize),
    /// A path over [`MAX_PATH`] bytes.
    #[error("{0} bytes, over {MAX_PATH}")]
    Long(usize),
}

/// Checks that `path` is legal.
///
/// # Errors
/// The first problem that was found in `path`.
pub fn check(path: &str) -> Result<(), PathError> {
    if is_short_and_legal(path.as_bytes()) { Ok(()) } else { look_closely(path) }
}

fn look_closely(path: &str) -> Result<(), PathError> {
    if path.len() > MAX_PATH {
        return Err(PathError::Long(path.len()));
    }
    path.split('.').try_for_each(|component| {
        if component.is_empty() {
            return Err(PathError::Empty);
        }
        if !component.bytes().all(|byte| is_safe(byte.into()))
            && let Some(character) = component.chars().find(|&c| !is_safe(c))
        {
            return Err(PathError::Character(character));
        }
        if component.len() > MAX_COMPONENT {
            return Err(PathError::LongComponent(component.len()));
        }
        Ok(())
    })
}

/// The kind of a dot; a byte that is safe in a component has the kind 0.
const DOT: u8 = 1;
const UNSAFE: u8 = 2;
#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
const KINDS: [u8; 256] = {
    let mut kinds = [UNSAFE; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        if is_safe(byte as char) {
            kinds[byte as usize] = 0;
        }
        byte += 1;
    }
    kinds[b'.' as usize] = DOT;
    kinds
};

/// Whether `path` is legal and at most [`MAX_COMPONENT`] bytes long, as almost every one is. There
/// is no branch for each byte: the full check took half of a tick's instructions.
fn is_short_and_legal(path: &[u8]) -> bool {
    let step = |(problems, before), byte: u8| {
        let kind = KINDS.get(usize::from(byte)).copied().unwrap_or(UNSAFE);
        (problems | kind & (before | UNSAFE), kind)
    };
    // Four in a turn of the loop: it takes two thirds of the instructions.
    let (fours, rest) = path.as_chunks();
    // No component may be empty: the start counts as a dot.
    let fours =
        fours.iter().fold((0, DOT), |all, &[a, b, c, d]| step(step(step(step(all, a), b), c), d));
    let (problems, last) = rest.iter().fold(fours, |all, &byte| step(all, byte));
    problems == 0 && last != DOT && path.len() <= MAX_COMPONENT
}

/// Makes one legal component of `name`, so that distinct names stay distinct.
///
/// A name that had to be changed gets `-` and six hexadecimal digits of its hash. So does a legal
/// name that already ends like that, because it could be the component of another name. The result
/// depends only on the name.
#[must_use]
pub fn component(name: &str) -> Cow<'_, str> {
    let legal = !name.is_empty() && name.len() <= MAX_COMPONENT && name.chars().all(is_safe);
    if legal && !ends_like_a_hash(name) { Cow::Borrowed(name) } else { Cow::Owned(marked(name)) }
}

/// `name` with the hash suffix of [`component`], for a legal name that would otherwise be mistaken
/// for something else.
#[must_use]
pub fn marked(name: &str) -> String {
    let kept: String = name
        .chars()
        .map(|c| if is_safe(c) { c } else { '_' })
        .take(MAX_COMPONENT - HASH_SUFFIX)
        .collect();
    let kept = if kept.is_empty() { "_" } else { &kept };
    format!("{kept}-{:06x}", hash(name) & 0x00ff_ffff)
}

/// `text`, shortened to `most` bytes if it is longer: its beginning, `-` and six hexadecimal digits
/// of its hash.
#[must_use]
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let room = most.saturating_sub(HASH_SUFFIX);
    let kept: String = text
        .char_indices()
        .take_while(|(at, c)| at + c.len_utf8() <= room)
        .map(|(_, c)| c)
        .collect();
    Cow::Owned(format!("{kept}-{:06x}", hash(text) & 0x00ff_ffff))
}

/// The length of a hash suffix, `-` and six hexadecimal digits.
const HASH_SUFFIX: usize = 7;

const fn is_safe(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn ends_like_a_hash(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(_, tail)| {
        tail.len() == HASH_SUFFIX - 1
            && tail.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The FNV-1a hash of `name`. Published paths depend on it, so it must not change with a library's
/// version.
fn fnv1a(name: &str) -> u64 {
    let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, hash)
}

fn hash(name: &str) -> u64 {
    let full = fnv1a(name);
    full ^ (full >> 24) ^ (full >> 48)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn carbon_traps_are_refused() {
        for (path, error) in [
            ("", PathError::Empty),
            ("a..b", PathError::Empty),
            ("..", PathError::Empty),
            ("a.b.", PathError::Empty),
            ("a b", PathError::Character(' ')),
            ("a/b", PathError::Character('/')),
            ("a\0", PathError::Character('\0')),
            ("a;tag=1", PathError::Character(';')),
            ("é", PathError::Character('é')),
        ] {
            assert_eq!(check(path), Err(error), "{path:?}");
        }
        assert_eq!(check(&"a".repeat(201)), Err(PathError::LongComponent(201)));
        assert_eq!(check(&["a"; 600].join(".")), Err(PathError::Long(1199)));
        assert_eq!(check("cluster.slurm_sched_stats.gauge-main_last_cycle"), Ok(()));
    }

    #[test]
    fn a_changed_name_never_becomes_somebody_elses() {
        assert_eq!(component("john_doe"), "john_doe");
        let changed = component("john.doe");
        assert!(changed.starts_with("john_doe-"), "{changed}");
        assert_ne!(component("john@doe"), changed);
        // A user whose real name is what another user's name became.
        assert_ne!(component(&changed), changed);
    }

    #[test]
    fn a_marked_name_is_nobody_elses_component() {
        assert_eq!(marked("john.doe"), component("john.doe"));
        assert_ne!(marked("uid_1000"), "uid_1000");
        assert_ne!(component(&marked("uid_1000")), marked("uid_1000"));
    }

    #[test]
    fn published_hashes_never_change() {
        assert_eq!(component("john.doe"), "john_doe-c4d7bb");
        assert_eq!(component(""), "_-be0c53");
    }

    proptest! {
        #[test]
        fn the_short_look_finds_what_the_close_one_finds(path in "([ab][ab._-]{0,9}[é/.]?|[a.]{195,\
            205})") {
            let legal = look_closely(&path).is_ok();
            prop_assert_eq!(is_short_and_legal(path.as_bytes()), legal
                && path.len() <= MAX_COMPONENT);
        }

        #[test]
        fn any_name_becomes_a_legal_component(name in any::<String>()) {
            prop_assert_eq!(check(&component(&name)), Ok(()));
            prop_assert!(!component(&name).contains('.'));
        }

        #[test]
        fn what_is_shortened_has_its_length_and_stays_distinct(a in "[aé.]{0,9}",
            b in "[aé.]{0,9}") {
            prop_assert!(shortened(&a, 9).len() <= 9);
            prop_assert_eq!(a == b, shortened(&a, 9) == shortened(&b, 9));
        }

        #[test]
        fn distinct_names_stay_distinct(a in "[ab.@_-]{0,9}", b in "[ab.@_-]{0,9}") {
            prop_assert_eq!(a == b, component(&a) == component(&b));
        }
    }
}
