//! MAX_CREATES_PER_MINUTE in carbon.conf: how many series Carbon creates in a minute.
//!
//! Pure: bytes in, bytes out. Only the number is changed, in every section of a carbon-cache.
//! Without the key there is no limit.

use anyhow::Result;
use regex::bytes::Regex;

/// Returns the file with `most` as the limit of every carbon-cache whose limit is lower.
pub(super) fn raised(file: &[u8], most: u32) -> Result<Vec<u8>> {
    let limit = Regex::new(r"(?i-u)^(\s*MAX_CREATES_PER_MINUTE\s*[=:]\s*)(\S+)(\s*)$")?;
    let higher = format!("${{1}}{most}${{3}}");
    let mut is_cache = false;
    let line = |line: &[u8]| {
        if line.trim_ascii().starts_with(b"[") {
            is_cache = line.trim_ascii().starts_with(b"[cache");
        }
        let number = limit
            .captures(line)
            .and_then(|found| std::str::from_utf8(&found[2]).ok()?.parse().ok());
        match number {
            Some(number) if is_cache && f64::from(most) > number => {
                limit.replace(line, higher.as_bytes()).into_owned()
            }
            _ => line.to_vec(),
        }
    };
    Ok(file.split_inclusive(|byte| *byte == b'\n').flat_map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cache_that_creates_fewer_is_changed_and_nothing_but_its_number() {
        let file = "# MAX_CREATES_PER_MINUTE = 1\n[cache]\nMAX_CREATES_PER_MINUTE = 50\r\n\
                    MAX_UPDATES_PER_SECOND = 500\n[cache:b]\nmax_creates_per_minute:60\n[cache:c]\n\
                    MAX_CREATES_PER_MINUTE = inf\n[cache:d]\nMAX_CREATES_PER_MINUTE = 2000\n\
                    [relay]\nMAX_CREATES_PER_MINUTE = 5\n[cache:e]\nMAX_CREATES_PER_MINUTE = 7";
        let expected = "# MAX_CREATES_PER_MINUTE = 1\n[cache]\nMAX_CREATES_PER_MINUTE = 1000\r\n\
                        MAX_UPDATES_PER_SECOND = 500\n[cache:b]\nmax_creates_per_minute:1000\n\
                        [cache:c]\nMAX_CREATES_PER_MINUTE = inf\n[cache:d]\nMAX_CREATES_PER_MINUTE \
                        = 2000\n[relay]\nMAX_CREATES_PER_MINUTE = 5\n[cache:e]\n\
                        MAX_CREATES_PER_MINUTE = 1000";
        let text = |file: &[u8]| String::from_utf8_lossy(&raised(file, 1000).unwrap()).into_owned();
        assert_eq!(text(file.as_bytes()), expected);
        assert_eq!(text(expected.as_bytes()), expected, "and once is enough");
        for odd in [
            "",
            "[cache]",
            "[cache]\nMAX_CREATES_PER_MINUTE",
            "[cache]\nMAX_CREATES_PER_MINUTE =",
            "=\n:",
        ] {
            assert_eq!(text(odd.as_bytes()), odd);
        }
    }
}
