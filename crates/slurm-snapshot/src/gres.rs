//! GPUs and shards in Slurm's texts: GRES (`gpu:a100:4(S:0-1)`) and TRES (`cpu=2,gres/gpu=4`).
//!
//! Pure. Any text gives a count or [`Unparsed`], which the caller counts. In a TRES text `gres/gpu`
//! is the sum of its `gres/gpu:TYPE`s; in a GRES text there is no such sum. For GPUs in use without
//! a type, slurmctld up to 25.11 writes `(null)`: `gpu:(null):3(IDX:0-2)`. From 23.02 on a type may
//! end with `:no_consume`. Slurm's functions are `_node_gres_used` and `_build_node_gres_str` in
//! gres.c, read up to 26.11.

use std::collections::BTreeMap;

use crate::names::name;
use crate::shards::Shards;
use crate::shares::Shares;
use crate::sums::{add_to, one_more, sum_of};

/// The error for a text that cannot be understood, such as one that names GPUs but not how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unparsed;

/// The GPUs that one element of a text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gpus<'a> {
    /// The type of these GPUs; empty if the text has none.
    kind: &'a [u8],
    count: u64,
    /// Whether the text is a TRES text.
    tres: bool,
}

/// The number of GPUs that a text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuCount {
    /// The number of GPUs.
    pub count: u64,
    /// Whether there may be more: a TRES text without `gres/gpu` has only those types that
    /// AccountingStorageTRES names.
    pub is_least: bool,
}

/// Returns the number of GPUs in a GRES or TRES text; `None` if it names none.
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

/// GPUs and shards of a node, from its GRES and those in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeGres {
    /// GPUs by type; those without a type have the empty name. A GPU of which a job has a shard or
    /// a part by MPS is in use: no job can get it whole.
    pub gpus: Vec<(String, Shares)>,
    /// Shards by the type of their GPUs.
    pub shards: Vec<(String, Shards)>,
    /// Number of texts that could not be parsed, of the two that a node has.
    pub unparsed: u64,
}

impl NodeGres {
    /// Parses the GRES of a node (`has`) and its GRES in use (`used`). `usable` says whether jobs
    /// may use the node.
    pub fn parse(has: &[u8], used: &[u8], usable: bool) -> Self {
        let mut types: Vec<(&[u8], u64, u64)> = Vec::new();
        let mut add = |kind, has, used| match types.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, sum_has, sum_used)) => {
                add_to(sum_has, has);
                add_to(sum_used, used);
            }
            None => types.push((kind, has, used)),
        };
        let bad_has = gpus_by_type(has, |kind, count| add(kind, count, 0)).is_err();
        let mut whole: Vec<(&[u8], u64)> = Vec::new();
        let bad_used = gpus_by_type(used, |kind, count| {
            add(kind, 0, count);
            whole.push((kind, count));
        })
        .is_err();
        let (parts, bad_parts) = good(elements(used).filter_map(SharedUse::parse));
        let (configured, bad_shards) = good(elements(has).filter_map(configured_shards));
        let unparsed =
            u64::from(bad_has || bad_shards).saturating_add(u64::from(bad_used || bad_parts));
        for part in &parts {
            add(part.kind, 0, part.gpus());
        }
        let shards = shards(&parts, configured, &whole, usable);
        if types.iter().any(|(kind, has, _)| kind.is_empty() && *has > 0) {
            // slurm.conf names no type but gres.conf does: only GPUs in use have the type, and they
            // are not additional.
            let unconfigured = types.iter_mut().filter(|(_, has, _)| *has == 0);
            let used = sum_of(unconfigured.map(|(_, _, used)| std::mem::take(used)));
            if let Some((.., untyped)) = types.iter_mut().find(|(kind, ..)| kind.is_empty()) {
                add_to(untyped, used);
            }
        }
        let some = types.into_iter().filter(|(_, has, used)| *has > 0 || *used > 0);
        let gpus =
            some.map(|(kind, has, used)| (name(kind).into_owned(), Shares::new(used, has, usable)));
        Self { gpus: gpus.collect(), shards, unparsed }
    }

    /// Adds the node's GPUs and shards to the sums by type.
    pub fn add_to(
        &self,
        gpus: &mut BTreeMap<String, Shares>,
        shards: &mut BTreeMap<String, Shards>,
    ) {
        for (kind, of) in &self.gpus {
            gpus.entry(kind.clone()).or_default().add(*of);
        }
        for (kind, of) in &self.shards {
            shards.entry(kind.clone()).or_default().add(*of);
        }
    }
}

/// Returns the elements that could be parsed, and whether there was one that could not. A bad
/// element hides no other.
fn good<T>(all: impl Iterator<Item = Result<T, Unparsed>>) -> (Vec<T>, bool) {
    let mut is_bad = false;
    let good = all.filter_map(|one| one.inspect_err(|_| is_bad = true).ok()).collect();
    (good, is_bad)
}

/// Returns a node's shards by type. They are made of the shards in use, the shards that the node is
/// configured with, and the number of GPUs of each type that jobs have whole.
fn shards(
    uses: &[SharedUse<'_>],
    mut configured: Vec<(&[u8], u64)>,
    whole: &[(&[u8], u64)],
    usable: bool,
) -> Vec<(String, Shards)> {
    let mut found: Vec<(&[u8], Shards)> = Vec::new();
    for part in uses.iter().filter(|part| part.is_shard) {
        let own = configured.iter().position(|(kind, _)| *kind == part.kind);
        // slurm.conf names no type but gres.conf does.
        let own = own.or_else(|| configured.iter().position(|(kind, _)| kind.is_empty()));
        let configured = own.map_or(0, |at| configured.swap_remove(at).1);
        let of_kind = whole.iter().find(|(kind, _)| *kind == part.kind).map(|(_, gpus)| *gpus);
        let whole = of_kind.or_else(|| whole.iter().all(|(_, gpus)| *gpus == 0).then_some(0));
        found.push((part.kind, part.shards(configured, whole, usable)));
    }
    let unused = configured.into_iter();
    found.extend(unused.map(|(kind, total)| (kind, Shards { allocated: None, idle: None, total })));
    let some = found.into_iter().filter(|(_, shards)| shards.total > 0);
    some.map(|(kind, shards)| (name(kind).into_owned(), shards)).collect()
}

/// Parses an element of a node's GRES as the type and number of shards; `None` if it is something
/// else.
fn configured_shards(element: &[u8]) -> Option<Result<(&[u8], u64), Unparsed>> {
    let text = bare(element).strip_prefix(b"shard:")?;
    let (kind, count) = kind_and_count(text);
    Some(number(count).map(|count| (kind, count)).ok_or(Unparsed))
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

/// The text that slurmctld writes in place of a missing type.
const NO_TYPE: &[u8] = b":(null):";

/// Splits a text at commas and semicolons, except at those in parentheses.
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

/// Shards or MPS of one type of GPU, in an element of a node's GRES in use.
#[derive(Debug)]
struct SharedUse<'a> {
    is_shard: bool,
    kind: &'a [u8],
    count: u64,
    parts: Parts,
}

/// The text in parentheses about the GPUs that jobs share.
#[derive(Debug)]
enum Parts {
    /// There is no such text. Without gres.conf's files, and until the node has registered, nobody
    /// knows which GPUs are shared.
    None,
    /// The form up to 23.02, `shard:a100:2(IDX:0-1)`: the count before it is of GPUs that have
    /// shards in use, not of shards.
    CountsGpus,
    /// The form from 23.11 on, `shard:a100:3(1/4,2/4,0/4)`: how many shards of each GPU are in use.
    /// From 26.05 on `-/4` is a GPU that a job has whole, which `gpu:` counts.
    OfGpus(SharedGpus),
}

/// Sums over the GPUs of a text such as `1/4,2/4,-/4`, in which each GPU has its shards in use and
/// all its shards.
#[derive(Debug, Default)]
struct SharedGpus {
    /// Number of GPUs that have shards in use.
    gpus: u64,
    all: u64,
    /// Number of shards of the GPUs that jobs have whole; `None` if the text names no such GPU.
    of_whole: Option<u64>,
    /// Number of shards of the first GPU, and of each other one unless `is_unequal`.
    each: Option<u64>,
    is_unequal: bool,
}

impl<'a> SharedUse<'a> {
    /// Parses an element of a node's GRES in use; `None` if it is neither shards nor MPS.
    ///
    /// # Errors
    /// The text in parentheses has none of the forms of [`Parts`]: what a newer Slurm writes is not
    /// counted as if it were known.
    fn parse(element: &'a [u8]) -> Option<Result<Self, Unparsed>> {
        let (text, parts) = element.split_at_checked(bare(element).len())?;
        let (is_shard, text) = match text.strip_prefix(b"shard:") {
            Some(text) => (true, text),
            None => (false, text.strip_prefix(b"mps:")?),
        };
        let (kind, count) = kind_and_count(text);
        let parts = match parts {
            b"" => Ok(Parts::None),
            [b'(', b'I', b'D', b'X', b':', .., b')'] => Ok(Parts::CountsGpus),
            [b'(', parts @ .., b')'] => SharedGpus::parse(parts).map(Parts::OfGpus),
            _ => Err(Unparsed),
        };
        let count = number(count).ok_or(Unparsed);
        Some(count.and_then(|count| Ok(Self { is_shard, kind, count, parts: parts? })))
    }

    /// Returns the number of GPUs of which jobs have shards or parts.
    const fn gpus(&self) -> u64 {
        match &self.parts {
            Parts::None => 0,
            Parts::CountsGpus => self.count,
            Parts::OfGpus(of) => of.gpus,
        }
    }

    /// Returns the shards of this type, if this is about shards. `configured` is how many the node
    /// has by its GRES, and `whole` is the number of GPUs of this type that jobs have whole, if it
    /// is known.
    fn shards(&self, configured: u64, whole: Option<u64>, usable: bool) -> Shards {
        let (allocated, all, of_whole) = match &self.parts {
            Parts::None => (Some(self.count), configured, (whole == Some(0)).then_some(0)),
            Parts::CountsGpus => (None, configured, None),
            Parts::OfGpus(of) => (Some(self.count), of.all, of.of_whole(whole)),
        };
        let free = || all.checked_sub(allocated?)?.checked_sub(of_whole?);
        let idle = if usable { free() } else { Some(0) };
        Shards { allocated, idle, total: all.max(allocated.unwrap_or(0)) }
    }
}

impl SharedGpus {
    /// Parses the text `1/4,2/4,-/4`.
    fn parse(text: &[u8]) -> Result<Self, Unparsed> {
        let mut found = Self::default();
        for part in text.split(|&byte| byte == b',') {
            let slash = part.iter().position(|&byte| byte == b'/').ok_or(Unparsed)?;
            let (used, all) = part.split_at_checked(slash).ok_or(Unparsed)?;
            let all = all.strip_prefix(b"/").and_then(digits).ok_or(Unparsed)?;
            if used == b"-" {
                add_to(found.of_whole.get_or_insert(0), all);
            } else if digits(used).ok_or(Unparsed)? > 0 {
                one_more(&mut found.gpus);
            }
            add_to(&mut found.all, all);
            found.is_unequal |= *found.each.get_or_insert(all) != all;
        }
        Ok(found)
    }

    /// Returns the number of shards of the GPUs that jobs have whole. Up to 25.11 such a GPU reads
    /// `0/4`, and only the number of these GPUs, `whole`, is known.
    fn of_whole(&self, whole: Option<u64>) -> Option<u64> {
        let each = self.each.filter(|_| !self.is_unequal);
        match (self.of_whole, whole) {
            (Some(of_whole), _) => Some(of_whole),
            (None, Some(0)) => Some(0),
            (None, whole) => each?.checked_mul(whole?),
        }
    }
}

/// Splits what follows the name of a GRES into the type and the text of the count.
fn kind_and_count(text: &[u8]) -> (&[u8], &[u8]) {
    let colon = text.iter().rposition(|&byte| byte == b':');
    match colon.and_then(|at| text.split_at_checked(at)) {
        Some((kind, [_, count @ ..])) => (self::kind(kind), count),
        _ => (b"", text),
    }
}

/// Returns a type as slurm.conf has it, without `no_consume`; empty if there is none.
fn kind(text: &[u8]) -> &[u8] {
    match text.strip_suffix(b"no_consume") {
        Some([kind @ .., b':']) => kind,
        Some(b"") => b"",
        _ if text == b"(null)" => b"",
        _ => text,
    }
}

/// An element up to its first parenthesis, not counting the one of [`NO_TYPE`].
fn bare(element: &[u8]) -> &[u8] {
    let no_type = element.windows(NO_TYPE.len()).position(|part| part == NO_TYPE);
    let from = no_type.map_or(0, |at| at.saturating_add(NO_TYPE.len()));
    let text = element.iter().enumerate().take_while(|(at, byte)| *at < from || **byte != b'(');
    element.get(..text.count()).unwrap_or_default().trim_ascii()
}

/// Parses one element of a GRES or TRES text; `None` if it is not about GPUs.
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
                    let kind = self::kind(kind);
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

/// Parses digits, possibly with Slurm's suffix for a power of 1,024 (k, m, g, t, p).
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

    /// A text was read as if it were the same in every release: of 26.05, a GPU that a job had
    /// whole counted twice, and shards without a type took no GPU.
    #[test]
    fn a_gpu_in_use_counts_once_whole_or_in_parts_in_the_texts_of_every_release() {
        for (has, used, expected) in [
            // 22.05: the GPUs that have a part in use.
            ("gpu:a:4,shard:a:8", "gpu:a:0(IDX:N/A),shard:a:2(IDX:0-1)", ("a", 2, 2)),
            ("gpu:a:4,shard:8", "gpu:a:1(IDX:3),shard:a:2(IDX:0,2)", ("a", 3, 1)),
            ("gpu:a:4,shard:8", "gpu:a:1(IDX:3),shard:a:0(IDX:N/A)", ("a", 1, 3)),
            ("gpu:a:4,shard:8", "gpu:a:4(IDX:0-3),shard:a:0(IDX:N/A)", ("a", 4, 0)),
            ("gpu:4,shard:8", "gpu:(null):1(IDX:3),shard:(null):2(IDX:0,2)", ("", 3, 1)),
            ("gpu:2,mps:200", "gpu:(null):0(IDX:N/A),mps:(null):1(IDX:1)", ("", 1, 1)),
            ("gpu:a:2,mps:a:200", "gpu:a:1(IDX:1),mps:a:1(IDX:0)", ("a", 2, 0)),
            // 23.11 to 25.11: how much of each GPU is in use.
            ("gpu:a:3,shard:12", "gpu:a:0(IDX:N/A),shard:a:3(1/4,2/4,0/4)", ("a", 2, 1)),
            ("gpu:a:4", "gpu:a:1(IDX:3),shard:a:0(0/4,0/4,0/4,0/4)", ("a", 1, 3)),
            ("gpu:a:4", "gpu:a:1(IDX:3),shard:a:5(4/4,1/4,0/4,0/4)", ("a", 3, 1)),
            ("gpu:a:4", "gpu:a:4(IDX:0-3),shard:a:0(0/4,0/4,0/4,0/4)", ("a", 4, 0)),
            (
                "gpu:3,shard:30",
                "gpu:(null):0(IDX:N/A),shard:(null):10(0/10,10/10,0/10)",
                ("", 1, 2),
            ),
            ("gpu:2", "gpu:(null):1(IDX:0),mps:(null):30(0/100,30/100)", ("", 2, 0)),
            // 26.05: `-` for those that a job has whole, and no type if there is none.
            ("gpu:a:4", "gpu:a:1(IDX:3),shard:a:0(0/4,0/4,0/4,-/4)", ("a", 1, 3)),
            ("gpu:a:4", "gpu:a:4(IDX:0-3),shard:a:0(-/4,-/4,-/4,-/4)", ("a", 4, 0)),
            ("gpu:a:4", "gpu:a:1(IDX:0),shard:a:3(-/4,3/4,0/4,0/4)", ("a", 2, 2)),
            ("gpu:4", "gpu:0(IDX:N/A),shard:3(1/4,2/4,0/4,0/4)", ("", 2, 2)),
            ("gpu:4", "gpu:1(IDX:0),shard:3(-/4,3/4,0/4,0/4)", ("", 2, 2)),
            ("gpu:2", "gpu:1(IDX:0),mps:30(-/100,30/100)", ("", 2, 0)),
            ("gpu:a:no_consume:4(S:0)", "gpu:a:0", ("a", 0, 4)),
            ("gpu:no_consume:4", "gpu:0", ("", 0, 4)),
            // Without gres.conf's files nobody knows which.
            ("gpu:2,shard:8", "gpu:0,shard:3", ("", 0, 2)),
            ("gpu:a:2,shard:a:8", "gpu:a:0,shard:a:0", ("a", 0, 2)),
        ] {
            let node = NodeGres::parse(has.as_bytes(), used.as_bytes(), true);
            let bad = node.unparsed;
            let seen: Vec<_> = node
                .gpus
                .iter()
                .map(|(kind, of)| (kind.as_str(), of.allocated, of.idle, of.total))
                .collect();
            let (kind, allocated, idle) = expected;
            assert_eq!(
                (&seen[..], bad),
                (&[(kind, allocated, idle, allocated + idle)][..], 0),
                "{used}"
            );
        }
    }

    /// The next release may write something else again.
    #[test]
    fn shards_in_a_text_of_no_known_release_are_not_counted_and_that_is_counted() {
        for used in [
            "shard:a:0(0/4,+/4)",
            "shard:a:0(0/4,1)",
            "shard:a:1(IDX:0",
            "shard:a:x(1/4)",
            "shard:a:1[1/4]",
            "mps:1(1/100,50%/100)",
        ] {
            let node = NodeGres::parse(b"gpu:a:2", used.as_bytes(), true);
            let gpus = node.gpus[0].1;
            assert_eq!((gpus.allocated, gpus.total, node.unparsed), (0, 2, 1), "{used}");
        }
    }

    /// With one bad element, GPUs of which jobs had a part read as idle.
    #[test]
    fn a_part_that_cannot_be_parsed_hides_no_other() {
        let has = b"gpu:a:2,shard:a:8,shard:b:x";
        let node = NodeGres::parse(has, b"gpu:a:0,shard:a:3(1/4,2/4),mps:a:x", true);
        assert_eq!((node.gpus[0].1.allocated, node.gpus[0].1.idle, node.unparsed), (2, 0, 2));
        let shards = Shards { allocated: Some(3), idle: Some(5), total: 8 };
        assert_eq!(node.shards, [("a".to_owned(), shards)]);
    }

    /// A site with shards saw GPUs in use, and not whether another shard was to be had.
    #[test]
    fn shards_are_taken_free_or_of_a_gpu_that_a_job_has_whole() {
        let all = |allocated, idle, total| Shards { allocated, idle, total };
        for (has, used, kind, expected) in [
            // 22.05 to 23.02 count GPUs.
            ("gpu:a:4,shard:a:16", "gpu:a:1(IDX:3),shard:a:2(IDX:0,2)", "a", all(None, None, 16)),
            ("gpu:a:4,shard:a:16", "gpu:a:0(IDX:N/A),shard:a:0(IDX:N/A)", "a", all(None, None, 16)),
            // 23.11 to 25.11: what is of a whole GPU reads as if it were free.
            (
                "gpu:a:4,shard:a:16",
                "gpu:a:1(IDX:3),shard:a:5(4/4,1/4,0/4,0/4)",
                "a",
                all(Some(5), Some(7), 16),
            ),
            (
                "gpu:4,shard:16",
                "gpu:(null):4(IDX:0-3),shard:(null):0(0/4,0/4,0/4,0/4)",
                "",
                all(Some(0), Some(0), 16),
            ),
            (
                "gpu:a:2,shard:16",
                "gpu:a:0(IDX:N/A),shard:a:3(3/8,0/8)",
                "a",
                all(Some(3), Some(13), 16),
            ),
            // With other numbers for each GPU it matters which one is whole.
            ("gpu:a:2,shard:12", "gpu:a:1(IDX:0),shard:a:0(0/4,0/8)", "a", all(Some(0), None, 12)),
            // 26.05 says it.
            (
                "gpu:a:2,shard:12",
                "gpu:a:1(IDX:0),shard:a:3(-/4,3/8)",
                "a",
                all(Some(3), Some(5), 12),
            ),
            (
                "gpu:4,shard:16",
                "gpu:1(IDX:0),shard:3(-/4,3/4,0/4,0/4)",
                "",
                all(Some(3), Some(9), 16),
            ),
            (
                "gpu:a:4",
                "gpu:a:4(IDX:0-3),shard:a:0(-/4,-/4,-/4,-/4)",
                "a",
                all(Some(0), Some(0), 16),
            ),
            // A node that has not registered.
            ("gpu:a:4,shard:a:16", "gpu:a:0,shard:a:0", "a", all(Some(0), Some(16), 16)),
            ("gpu:a:4,shard:16", "gpu:a:1,shard:a:3", "a", all(Some(3), None, 16)),
            ("gpu:4,shard:16", "gpu:0,shard:0", "", all(Some(0), Some(16), 16)),
            ("gpu:4,shard:1k", "gpu:0", "", all(None, None, 1024)),
        ] {
            let node = NodeGres::parse(has.as_bytes(), used.as_bytes(), true);
            assert_eq!(
                (&node.shards[..], node.unparsed),
                (&[(kind.to_owned(), expected)][..], 0),
                "{used}"
            );
            let off = NodeGres::parse(has.as_bytes(), used.as_bytes(), false);
            assert_eq!(
                off.shards[0].1,
                Shards { idle: Some(0).filter(|_| used.contains("shard")), ..expected },
                "{used}"
            );
        }
        let mixed = "gpu:a:0(IDX:N/A),gpu:b:1(IDX:2),shard:a:1(1/4,0/4),shard:b:0(0/2)";
        let node = NodeGres::parse(b"gpu:a:2,gpu:b:1,shard:10", mixed.as_bytes(), true);
        let expected = [("a", all(Some(1), Some(7), 8)), ("b", all(Some(0), Some(0), 2))];
        assert_eq!(node.shards, expected.map(|(kind, of)| (kind.to_owned(), of)));
        let none =
            NodeGres::parse(b"gpu:a:2,mps:200,shard:", b"gpu:a:0,mps:a:30(30/100,0/100)", true);
        assert_eq!((&none.shards[..], none.unparsed), (&[][..], 1));
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
            let _ = NodeGres::parse(text.as_bytes(), format!("shard:{text})").as_bytes(), true);
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
