//! Memory in Slurm's texts for TRES: `cpu=2,mem=2.50G,node=1`, as scontrol prints ReqTRES and
//! AllocTRES; also usage as scontrol prints it.
//!
//! Pure. Any text gives MiB or [`Unparsed`], which the caller counts. slurmctld counts memory in
//! MiB and prints it in the largest unit in which it is a multiple of one half.

use crate::gres::{Unparsed, digits};

/// Returns the number of CPUs in a TRES text; `None` if it names none.
pub fn cpus(text: &[u8]) -> Option<u64> {
    text.split(|&byte| byte == b',').find_map(|element| digits(element.strip_prefix(b"cpu=")?))
}

/// Returns the memory in a TRES text, MiB; `None` if it names none.
///
/// # Errors
/// The text names memory, but what follows is not an amount.
pub fn memory(text: &[u8]) -> Result<Option<u64>, Unparsed> {
    let amount = text.split(|&byte| byte == b',').find_map(|element| element.strip_prefix(b"mem="));
    amount.map(|amount| mebibytes(amount).ok_or(Unparsed)).transpose()
}

/// Parses an amount of memory such as `0`, `2000M` or `2.50G`. Returns MiB; `None` if it is no
/// amount.
fn mebibytes(amount: &[u8]) -> Option<u64> {
    let (number, power) = match amount {
        // Zero has no unit, and neither has an amount in Slurm's own unit, MiB.
        [.., b'0'..=b'9'] => (amount, 0),
        [number @ .., unit] => {
            (number, u32::try_from(b"MGTP".iter().position(|known| known == unit)?).ok()?)
        }
        [] => return None,
    };
    let mut parts = number.splitn(2, |&byte| byte == b'.');
    let whole = digits(parts.next()?)?;
    let hundredths = parts.next();
    let hundredths = match hundredths {
        None => 0,
        Some(two @ [_, _]) => digits(two)?,
        Some(_) => return None,
    };
    let unit = 1024_u64.checked_pow(power)?;
    let part = hundredths.checked_mul(unit)? / 100;
    whole.checked_mul(unit)?.checked_add(part)
}

/// Cuts off the fraction of a usage, as Slurm does when it prints it. Usage is a float because it
/// decays.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float is cut to the range of u64"
)]
pub const fn whole(usage: f64) -> u64 {
    usage as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_scontrol_prints() {
        for (text, mebibytes) in [
            ("", None),
            ("cpu=2,node=1,billing=2", None),
            ("bb/mem=4G", None),
            ("cpu=2,mem=0,node=1", Some(0)),
            ("cpu=2,mem=2000M,node=1,billing=2", Some(2000)),
            ("mem=512M", Some(512)),
            ("mem=1G", Some(1024)),
            ("cpu=1,mem=2.50G", Some(2560)),
            ("cpu=1,mem=1023.50G,gres/gpu=1", Some(1_048_064)),
            ("mem=3T", Some(3 << 20)),
            ("mem=2P", Some(2 << 30)),
            ("mem=77", Some(77)),
        ] {
            assert_eq!(memory(text.as_bytes()), Ok(mebibytes), "{text}");
        }
    }

    #[test]
    fn cpus_are_those_of_no_other_tres() {
        let texts = [
            "cpu=31,mem=2000M,billing=32",
            "bb/cpu=4,gres/gpu=1,cpu=8",
            "cpu=,mem=1G",
            "cpu=8k",
            "",
        ];
        assert_eq!(texts.map(|text| cpus(text.as_bytes())), [Some(31), Some(8), None, None, None]);
    }

    #[test]
    fn an_amount_that_is_none_is_an_error_and_never_nothing() {
        for text in [
            "mem=",
            "mem=G",
            "mem=1X",
            "mem=1?",
            "mem=1.5G",
            "mem=1.500G",
            "mem=-1M",
            "mem=.50G",
            "mem=99999999999999999P",
        ] {
            assert_eq!(memory(text.as_bytes()), Err(Unparsed), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_an_amount_or_an_error(text in "\\PC*", amount in "(cpu=1,)?mem=[0-9.]{0,\
            24}[MGTPX?]?(,node=1)?") {
            let _ = memory(text.as_bytes());
            let _ = memory(amount.as_bytes());
        }
    }
}
