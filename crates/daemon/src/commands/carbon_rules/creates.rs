//! MAX_CREATES_PER_MINUTE in carbon.conf: how many series Carbon creates in a minute.
//!
//! Pure: bytes in, bytes out. Only the number is changed, in every section of a carbon-cache. Without the key there is no limit.

/// The file with at least `most` wherever it has a smaller number.
pub(super) fn raised(file: &[u8], most: u32) -> Vec<u8> {
    let mut new = Vec::new();
    let mut is_cache = false;
    for line in file.split_inclusive(|byte| *byte == b'\n') {
        let trimmed = line.trim_ascii();
        if trimmed.starts_with(b"[") {
            is_cache = trimmed.starts_with(b"[cache");
        }
        match smaller(line, most).filter(|_| is_cache) {
            Some(number) => {
                let (before, after) = number;
                new.extend([before, most.to_string().as_bytes(), after].concat());
            }
            None => new.extend_from_slice(line),
        }
    }
    new
}

/// What is before and after the number in a line that limits the series to fewer than `most`.
fn smaller(line: &[u8], most: u32) -> Option<(&[u8], &[u8])> {
    let (key, value) = line.split_at(line.iter().position(|byte| matches!(byte, b'=' | b':'))?);
    let blanks = value.iter().skip(1).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let start = key.len().checked_add(blanks)?.checked_add(1)?;
    let (before, rest) = line.split_at_checked(start)?;
    let number = rest.trim_ascii_end();
    let after = rest.get(number.len()..)?;
    let limit: f64 = std::str::from_utf8(number).ok()?.parse().ok()?;
    let is_it = key.trim_ascii().eq_ignore_ascii_case(b"MAX_CREATES_PER_MINUTE");
    (is_it && limit < f64::from(most)).then_some((before, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cache_that_creates_fewer_is_changed_and_nothing_but_its_number() {
        let file = "# MAX_CREATES_PER_MINUTE = 1\n[cache]\nMAX_CREATES_PER_MINUTE = 50\r\nMAX_UPDATES_PER_SECOND = 500\n\
                    [cache:b]\nmax_creates_per_minute:60\n[cache:c]\nMAX_CREATES_PER_MINUTE = inf\n[cache:d]\n\
                    MAX_CREATES_PER_MINUTE = 2000\n[relay]\nMAX_CREATES_PER_MINUTE = 5\n[cache:e]\nMAX_CREATES_PER_MINUTE = 7";
        let expected = "# MAX_CREATES_PER_MINUTE = 1\n[cache]\nMAX_CREATES_PER_MINUTE = 1000\r\nMAX_UPDATES_PER_SECOND = 500\n\
                        [cache:b]\nmax_creates_per_minute:1000\n[cache:c]\nMAX_CREATES_PER_MINUTE = inf\n[cache:d]\n\
                        MAX_CREATES_PER_MINUTE = 2000\n[relay]\nMAX_CREATES_PER_MINUTE = 5\n[cache:e]\nMAX_CREATES_PER_MINUTE = 1000";
        let text = |file: &[u8]| String::from_utf8_lossy(&raised(file, 1000)).into_owned();
        assert_eq!(text(file.as_bytes()), expected);
        assert_eq!(text(expected.as_bytes()), expected, "and once is enough");
        for odd in
            ["", "[cache]", "[cache]\nMAX_CREATES_PER_MINUTE", "[cache]\nMAX_CREATES_PER_MINUTE =", "=\n:"]
        {
            assert_eq!(text(odd.as_bytes()), odd);
        }
    }
}
