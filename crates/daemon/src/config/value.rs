//! Legal values: each is parsed from its text, or the error says what is wrong.

use std::path::PathBuf;
use std::time::Duration;

use size::Size;

use super::{LogFormat, ReaderChoice};

/// Parses an interval into seconds: whole seconds, because Carbon's slots are no finer, from 1 s to
/// 1 h.
pub(crate) fn interval(text: &str) -> Result<u32, String> {
    let duration = duration(text)?;
    if duration.subsec_nanos() != 0 {
        return Err(format!(
            "{text:?} is not a whole number of seconds; Carbon stores no finer timestamps"
        ));
    }
    u32::try_from(duration.as_secs())
        .ok()
        .filter(|seconds| (1..=3600).contains(seconds))
        .ok_or_else(|| format!("{text:?} is not between 1s and 1h"))
}

/// Parses an interval on a command line into seconds. Here, unlike in the file, a number needs no
/// unit and is seconds.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { interval(&format!("{text}s")) } else { interval(text) }
}

/// Parses a duration as a person writes it, such as `30s` or `12h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    // To humantime it is a month.
    if text.contains('M') {
        return Err(format!("{text:?} would be months; write m for minutes"));
    }
    humantime::parse_duration(text).map_err(|_| {
        format!(
            "{text:?} is not a duration; write a number with its unit, such as \"30s\", \"10m\" or \
                \"12h\""
        )
    })
}

/// Returns a parser of durations from `least` to `most`, both included. They are so far apart that
/// only a wrong unit exceeds them.
pub(super) fn between(
    least: Duration,
    most: Duration,
) -> impl Fn(&str) -> Result<Duration, String> {
    move |text| {
        let found = duration(text)?;
        if (least..=most).contains(&found) {
            return Ok(found);
        }
        let [least, most] = [least, most].map(humantime::format_duration);
        Err(format!("{text:?} is not between {least} and {most}"))
    }
}

pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let size = text.parse::<Size>().ok().and_then(|size| u64::try_from(size.bytes()).ok());
    size.filter(|&size| size >= 1 << 20)
        .ok_or_else(|| format!("{text:?} is not a size of 1MiB or more, such as \"64MiB\""))
}

pub(super) fn rate(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|&rate| rate > 0)
        .ok_or_else(|| format!("{text:?} is not a number of points a second, such as \"5000\""))
}

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(format!("{text:?} is not an absolute path")) }
}

/// Returns a parser that accepts one of a few words and gives the value of that word.
pub(super) fn one_of<T: Copy, const N: usize>(
    words: [(&str, T); N],
) -> impl Fn(&str) -> Result<T, String> {
    move |text| {
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let words = words.map(|(word, _)| format!("{word:?}")).join(" or ");
            format!("{text:?} is not {words}")
        })
    }
}

pub(super) fn reader(text: &str) -> Result<ReaderChoice, String> {
    match text {
        "auto" => Ok(ReaderChoice::Auto),
        "libslurm" => Ok(ReaderChoice::Libslurm),
        "native" => Ok(ReaderChoice::Native),
        _ => path(text).map(ReaderChoice::Program).map_err(|_| {
            format!("{text:?} is neither \"auto\", \"libslurm\", \"native\" nor an absolute path")
        }),
    }
}

pub(super) fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// Accepts a name that can be in a header of HTTP.
pub(super) fn user_name(text: &str) -> Result<String, String> {
    let is_one = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_one { Ok(text.to_owned()) } else { Err(format!("{text:?} is not a user name")) }
}

pub(super) fn destination_name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.to_owned()) }
}

pub(super) fn log_level(text: &str) -> Result<tracing::level_filters::LevelFilter, String> {
    match text {
        "error" | "warn" | "info" | "debug" | "trace" => text.parse().map_err(|_| text.to_owned()),
        _ => Err(format!("{text:?} is not one of error, warn, info, debug, trace")),
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    one_of([("text", LogFormat::Text), ("json", LogFormat::Json)])(text)
}
