//! GPUs in Slurm's texts: GRES (`gpu:a100:4(S:0-1)`) and TRES (`cpu=2,gres/gpu=4`).
//!
//! Pure. Any text gives a count or [`Unparsed`], which the caller counts. In a TRES text `gres/gpu`
//! is the sum of its `gres/gpu:TYPE`s; in a GRES text there is no such sum. For GPUs in use without
//! a type, slurmctld writes `(null)`: `gpu:(null):3(IDX:0-2)`.

use crate::array::count_tasks;
use crate::names::name;
use crate::shares::Shares;
use crate::sums::{add_to, sum_of};

/// A text that names GPUs, but not how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unparsed;

/// One `gpu` in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gpus<'a> {
    /// The type; empty if the text has none.
    kind: &'a [u8],
    count: u64,
    /// Whether it is from a TRES text.
    tres: bool,
}

/// The GPUs in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuCount {
    /// How many.
    pub count: u64,
    /// Whether there may be more: a TRES text without `gres/gpu` has only those types that
    /// AccountingStorageTRES names.
    pub is_least: bool,
}

/// The number of GPUs in a text; `None` if it names none.
///
/// # Errors
/// The text names GPUs without their number.
pub fn gpus(text: &[u8]) -> Result<Option<GpuCount>, Unparsed> {
    let mut sum: Option<GpuCount> = None;
    for element in elements(text) {
        let Some(gpus) = gpu(element)? else { continue };
        if gpus.tres && gpus.kind.is_empty() {
            return Ok(Some(GpuCount { count: gpus.count, is_least: false }));
        }
        let before = sum.map_or(0, |sum| sum.count);
        sum = Some(GpuCount { count: before.saturating_add(gpus.count), is_least: gpus.tres });
    }
    Ok(sum)
}

/// A node's GPUs by type, from its GRES and those in use, and how many of the two texts could not
/// be parsed. A GPU of which a job has a shard or a part by MPS is in use: no job can get it whole.
pub fn shares_by_type(has: &[u8], used: &[u8], usable: bool) -> (Vec<(String, Shares)>, u64) {
    let mut types: Vec<(&[u8], u64, u64)> = Vec::new();
    let mut add = |kind, has, used| match types.iter_mut().find(|(known, ..)| *known == kind) {
        Some((_, sum_has, sum_used)) => {
            add_to(sum_has, has);
            add_to(sum_used, used);
        }
        None => types.push((kind, has, used)),
    };
    let bad_has = gpus_by_type(has, |kind, count| add(kind, count, 0)).is_err();
    let bad_used = gpus_by_type(used, |kind, count| add(kind, 0, count)).is_err();
    elements(used).filter_map(gpus_in_parts).for_each(|(kind, count)| add(kind, 0, count));
    if types.iter().any(|(kind, has, _)| kind.is_empty() && *has > 0) {
        // slurm.conf names no type but gres.conf does: only GPUs in use have the type, and they are
        // not additional.
        let unconfigured = types.iter_mut().filter(|(_, has, _)| *has == 0);
        let used = sum_of(unconfigured.map(|(_, _, used)| std::mem::take(used)));
        if let Some((.., untyped)) = types.iter_mut().find(|(kind, ..)| kind.is_empty()) {
            add_to(untyped, used);
        }
    }
    let some = types.into_iter().filter(|(_, has, used)| *has > 0 || *used > 0);
    let shares =
        some.map(|(kind, has, used)| (name(kind).into_owned(), Shares::new(used, has, usable)));
    (shares.collect(), u64::from(bad_has) + u64::from(bad_used))
}

/// Calls `add` with each type and its count, from a GRES text.
///
/// # Errors
/// The text names GPUs without their number; `add` was called for the others.
fn gpus_by_type<'a>(text: &'a [u8], mut add: impl FnMut(&'a [u8], u64)) -> Result<(), Unparsed> {
    let mut result = Ok(());
    for element in elements(text) {
        match gpu(element) {
            Ok(Some(gpus)) => add(gpus.kind, gpus.count),
            Ok(None) => {}
            Err(error) => result = Err(error),
        }
    }
    result
}

/// slurmctld's text where a type is missing.
const NO_TYPE: &[u8] = b":(null):";

/// The parts between commas and semicolons, outside parentheses.
fn elements(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut depth = 0_u32;
    text.split(move |&byte| {
        match byte {
            b'(' => depth = depth.saturating_add(1),
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(byte, b',' | b';')
    })
}

/// How many GPUs of a type are in use by their shards or MPS, in an element of a node's GRES in
/// use: `shard:a100:2(IDX:0-1)` names these GPUs, and from 23.11 on `shard:a100:3(1/4,2/4,0/4)` how
/// much of each is in use.
fn gpus_in_parts(element: &[u8]) -> Option<(&[u8], u64)> {
    let (text, parts) = element.split_at_checked(bare(element).len())?;
    let text = text.strip_prefix(b"shard:").or_else(|| text.strip_prefix(b"mps:"))?;
    let kind = text.get(..text.iter().rposition(|&byte| byte == b':')?)?;
    let parts = parts.strip_prefix(b"(")?.strip_suffix(b")")?;
    let count = match parts.strip_prefix(b"IDX:") {
        Some(indexes) => count_tasks(indexes).unwrap_or(0),
        None => sum_of(
            parts.split(|&byte| byte == b',').map(|part| u64::from(!part.starts_with(b"0/"))),
        ),
    };
    Some((if kind == b"(null)" { b"" } else { kind }, count))
}

/// An element up to its first parenthesis, not counting the one of [`NO_TYPE`].
fn bare(element: &[u8]) -> &[u8] {
    let no_type = element.windows(NO_TYPE.len()).position(|part| part == NO_TYPE);
    let from = no_type.map_or(0, |at| at.saturating_add(NO_TYPE.len()));
    let text = element.iter().enumerate().take_while(|(at, byte)| *at < from || **byte != b'(');
    element.get(..text.count()).unwrap_or_default().trim_ascii()
}

/// The GPUs of one element; `None` if it is something else.
fn gpu(element: &[u8]) -> Result<Option<Gpus<'_>>, Unparsed> {
    let element = bare(element);
    let element = match element.strip_prefix(b"gres") {
        Some([b'/' | b':', rest @ ..]) => rest,
        _ => element,
    };
    let Some(rest) = element.strip_prefix(b"gpu") else { return Ok(None) };
    let gpus = match rest {
        [] => Gpus { kind: b"", count: 1, tres: false },
        [b'=', count @ ..] => Gpus { kind: b"", count: number(count).ok_or(Unparsed)?, tres: true },
        [b':'] => return Err(Unparsed),
        [b':', rest @ ..] => {
            let split = rest.iter().rposition(|byte| matches!(byte, b':' | b'='));
            match split.and_then(|at| rest.split_at_checked(at)) {
                Some((kind, [separator, count @ ..])) => {
                    let kind = if kind == b"(null)" { b"" } else { kind };
                    Gpus { kind, count: number(count).ok_or(Unparsed)?, tres: *separator == b'=' }
                }
                _ => match number(rest) {
                    Some(count) => Gpus { kind: b"", count, tres: false },
                    None => Gpus { kind: rest, count: 1, tres: false },
                },
            }
        }
        // Another GRES, such as gpu_something.
        _ => return Ok(None),
    };
    Ok(Some(gpus))
}

/// Digits, possibly with Slurm's suffix for a power of 1,024.
fn number(text: &[u8]) -> Option<u64> {
    let (digits, power) = match text {
        [digits @ .., suffix] if !suffix.is_ascii_digit() => {
            let power = b"kmgtp".iter().position(|known| *known == suffix.to_ascii_lowercase())?;
            (digits, u32::try_from(power).ok()?.checked_add(1)?)
        }
        digits => (digits, 0),
    };
    self::digits(digits)?.checked_mul(1024_u64.checked_pow(power)?)
}

/// A number that consists only of digits.
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_of_every_release_and_place() {
        for (text, count) in [
            ("", None),
            ("(null)", None),
            ("N/A", None),
            ("cpu=2,mem=2000M,node=1,billing=2", None),
            ("cpu=2,gres/gpu=4,gres/gpu:a100=4", Some(4)),
            ("gres/gpu:a100=3,gres/gpu:v100=1,gres/gpu=4", Some(4)),
            ("gres/gpu:a100=3,gres/gpu:v100=1", Some(4)),
            ("gpu:2", Some(2)),
            ("gres:gpu:2", Some(2)),
            ("gres:gpu:a100:2", Some(2)),
            ("gres/gpu:2", Some(2)),
            ("gres/gpu:a100:2,gres/shard:8", Some(2)),
            ("gpu", Some(1)),
            ("gpu:a100", Some(1)),
            ("gpu:1g.5gb:7", Some(7)),
            ("gpu:a100:4(S:0-1),gpu:v100:2(IDX:0,1),nic:1", Some(6)),
            ("gpu:a100:0(IDX:N/A)", Some(0)),
            ("gpu:(null):3(IDX:0-2)", Some(3)),
            ("gpu:(null):0(IDX:N/A)", Some(0)),
            ("gpu:(null):2(IDX:0,3),gpu:a100:1(IDX:2),shard:(null):0(0/0)", Some(3)),
            ("craynetwork:4;gpu:3", Some(3)),
            ("gpu:2k", Some(2048)),
            ("gpu_mem:80G", None),
            ("mps:gpu:5", None),
        ] {
            let seen = gpus(text.as_bytes()).map(|gpus| gpus.map(|gpus| gpus.count));
            assert_eq!(seen, Ok(count), "{text}");
        }
    }

    /// slurmctld lists in a TRES text what AccountingStorageTRES names, and the sum only if it
    /// names that too.
    #[test]
    fn types_without_their_sum_may_not_be_all() {
        for (text, is_least) in [
            ("gres/gpu:a100=1", true),
            ("gres/gpu:a100=1,gres/gpu:v100=1", true),
            ("gres/gpu:a100=1,gres/gpu=3", false),
            ("gres/gpu=3", false),
            ("gpu:a100:1,gpu:v100:1", false),
            ("gres/gpu:a100:1", false),
        ] {
            assert_eq!(gpus(text.as_bytes()).unwrap().unwrap().is_least, is_least, "{text}");
        }
    }

    #[test]
    fn a_count_that_is_none_is_an_error_and_never_nothing() {
        for text in [
            "gpu:",
            "gpu:(null)",
            "gpu:(null):",
            "gpu:(null):(IDX:0)",
            "gpu:a100:",
            "gpu:a100:-1",
            "gres/gpu=",
            "gres/gpu=x",
            "gpu:a:b",
            "gpu=99999999999999999999",
            "gpu=16384p",
        ] {
            assert_eq!(gpus(text.as_bytes()), Err(Unparsed), "{text}");
        }
    }

    #[test]
    fn types_are_told_apart_and_a_bad_one_hides_no_other() {
        let mut seen = Vec::new();
        let result = gpus_by_type(b"gpu:a100:4(S:0,1),gpu:x:y,gpu:2", |kind, count| {
            seen.push((kind, count))
        });
        assert_eq!(result, Err(Unparsed));
        assert_eq!(seen, [(&b"a100"[..], 4), (b"", 2)]);
    }

    /// Such GPUs were idle, and a job for as many GPUs waited with the reason Resources.
    #[test]
    fn gpus_of_which_jobs_have_parts_are_not_idle() {
        for (has, used, expected) in [
            ("gpu:a:4,shard:a:8", "gpu:a:0(IDX:N/A),shard:a:2(IDX:0-1)", [("a", 2, 2)]),
            ("gpu:a:4,shard:8", "gpu:a:1(IDX:3),shard:a:2(IDX:0,2)", [("a", 3, 1)]),
            ("gpu:a:4,shard:8", "gpu:a:1(IDX:3),shard:a:0(IDX:N/A)", [("a", 1, 3)]),
            ("gpu:a:3,shard:12", "gpu:a:0(IDX:N/A),shard:a:3(1/4,2/4,0/4)", [("a", 2, 1)]),
            (
                "gpu:3,shard:30",
                "gpu:(null):0(IDX:N/A),shard:(null):10(0/10,10/10,0/10)",
                [("", 1, 2)],
            ),
            ("gpu:2,mps:200", "gpu:(null):0(IDX:N/A),mps:(null):1(IDX:1)", [("", 1, 1)]),
            // Without gres.conf's files nobody knows which.
            ("gpu:2,shard:8", "gpu:0,shard:3", [("", 0, 2)]),
        ] {
            let (seen, bad) = shares_by_type(has.as_bytes(), used.as_bytes(), true);
            let seen: Vec<_> =
                seen.iter().map(|(kind, of)| (kind.as_str(), of.allocated, of.idle)).collect();
            assert_eq!((&seen[..], bad), (&expected[..], 0), "{used}");
        }
    }

    #[test]
    fn gpus_in_use_without_a_type_are_those_that_the_node_has_without_one() {
        for (text, used) in [("gpu:(null):3(IDX:0-2)", 3), ("gpu:(null):0(IDX:N/A)", 0)] {
            let mut seen = Vec::new();
            gpus_by_type(text.as_bytes(), |kind, count| seen.push((kind, count))).unwrap();
            assert_eq!(seen, [(&b""[..], used)], "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_a_count_or_an_error(text in "\\PC*") {
            let _ = gpus(text.as_bytes());
            let _ = gpus_by_type(text.as_bytes(), |_, _| ());
            let _ = shares_by_type(text.as_bytes(), format!("shard:{text})").as_bytes(), true);
        }

        #[test]
        fn texts_of_slurms_own_letters_too(text in "(gres[:/])?(gpu|[a-z]{1,\
            3})([:=/][a-z0-9]{0,4}){0,3}(\\([A-Z:,0-9-]{0,5}\\)?)?[,;]?") {
            let text = text.repeat(3);
            let by_type = gpus_by_type(text.as_bytes(), |_, _| ());
            proptest::prop_assert!(by_type.is_ok() || gpus(text.as_bytes()).is_err() ||
                text.contains('='));
        }
    }
}
