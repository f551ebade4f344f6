//! Counts the tasks of an array expression: `1-9:2,20%5`, or a bit mask such as `0x7FE`, as in
//! slurmdbd.
//!
//! Pure. libslurm shortens long expressions so that they end with `...`; these have no count here.
//! If libslurm has a bitmap as well, that has the exact count.

/// Returns the number of tasks; `None` if the text is no expression, or a shortened one.
pub fn count_tasks(expression: &[u8]) -> Option<u64> {
    let ranges = expression.split(|&byte| byte == b'%').next().unwrap_or_default();
    if let Some(mask) = ranges.strip_prefix(b"0x") {
        return tasks_in_mask(mask).filter(|&tasks| tasks > 0);
    }
    ranges
        .split(|&byte| byte == b',')
        .try_fold(0_u64, |sum, range| sum.checked_add(tasks_in_range(range)?))
}

fn tasks_in_mask(mask: &[u8]) -> Option<u64> {
    let digits = mask.iter().map(|&digit| char::from(digit).to_digit(16));
    digits.map(|digit| digit.map(|digit| u64::from(digit.count_ones()))).sum()
}

fn tasks_in_range(range: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(range).ok()?;
    let (range, step) = text.split_once(':').unwrap_or((text, "1"));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let first = number(first)?;
    let last = number(last)?;
    let step = number(step)?;
    u64::from(last.checked_sub(first)?.checked_div(step)?).checked_add(1)
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_steps_and_limits() {
        for (expression, count) in [
            ("7", 1),
            ("1-10", 10),
            ("4-20%3", 17),
            ("1-999:2", 500),
            ("1,5,7-9,20-29:3%2", 9),
            ("0-4294967295", 1 << 32),
            ("0x7FE%2", 10),
            ("0x3ffffffffffffffffffffe", 85),
        ] {
            assert_eq!(count_tasks(expression.as_bytes()), Some(count), "{expression}");
        }
    }

    #[test]
    fn what_is_shortened_or_none_has_no_count() {
        for expression in [
            "",
            "0x",
            "0x0",
            "0xg",
            "1,5,7,...",
            "1,5,6...",
            "9-1",
            "1-9:0",
            "-",
            "1-",
            "a",
            "1-2-3",
            "+1",
            "4294967296",
        ] {
            assert_eq!(count_tasks(expression.as_bytes()), None, "{expression}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_expression_gives_a_count_or_none(text in "[0-9,:%.-]{0,40}", other in "\\PC*") {
            let _ = count_tasks(text.as_bytes());
            let _ = count_tasks(other.as_bytes());
        }
    }
}
