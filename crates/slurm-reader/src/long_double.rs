//! C's `long double` as a double, which has less precision and a smaller range. Values beyond it become 0 or infinite.
//!
//! Rust has no such type. bindgen represents it as one 16-byte number, or as a double where C's type is a double.

/// A `long double` in bindgen's form.
pub(crate) trait LongDouble: Copy {
    /// The nearest double.
    fn to_f64(self) -> f64;
}

impl LongDouble for f64 {
    fn to_f64(self) -> f64 {
        self
    }
}

impl LongDouble for u128 {
    fn to_f64(self) -> f64 {
        if cfg!(any(target_arch = "x86_64", target_arch = "x86")) {
            of_x87(self)
        } else if cfg!(any(target_arch = "powerpc64", target_arch = "powerpc")) {
            of_pair(self)
        } else {
            of_binary128(self)
        }
    }
}

const BIAS: i32 = 16_383;

/// Sign, 15 bits of exponent, 64 of mantissa with its leading 1; the rest is padding.
fn of_x87(bits: u128) -> f64 {
    let mantissa = bits & u128::from(u64::MAX);
    let (sign, exponent) = sign_and_exponent(bits >> 64);
    // The leading 1 alone is infinity.
    let is_infinite = mantissa == 1 << 63;
    number(sign, exponent, mantissa, 63, is_infinite)
}

/// Sign, 15 bits of exponent, 112 bits of mantissa without its leading 1.
fn of_binary128(bits: u128) -> f64 {
    let fraction = bits & ((1 << 112) - 1);
    let (sign, exponent) = sign_and_exponent(bits >> 112);
    let mantissa = if exponent == 0 { fraction } else { fraction | 1 << 112 };
    number(sign, exponent, mantissa, 112, fraction == 0)
}

/// The sum of two doubles; the larger one is first in memory.
fn of_pair(bits: u128) -> f64 {
    let [one, other] = [bits >> 64, bits & u128::from(u64::MAX)]
        .map(|half| f64::from_bits(u64::try_from(half).unwrap_or_default()));
    one + other
}

fn sign_and_exponent(bits: u128) -> (f64, i32) {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    (sign, i32::try_from(bits & 0x7fff).unwrap_or_default())
}

fn number(sign: f64, exponent: i32, mantissa: u128, digits: i32, is_infinite: bool) -> f64 {
    if exponent == 0x7fff {
        return if is_infinite { sign * f64::INFINITY } else { f64::NAN };
    }
    #[expect(clippy::cast_precision_loss, reason = "rounded to the nearest")]
    let mantissa = mantissa as f64;
    sign * mantissa * 2_f64.powi(exponent.saturating_sub(BIAS).saturating_sub(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn x87(sign_and_exponent: u128, mantissa: u64) -> u128 {
        // The padding can contain anything.
        0xdead_u128 << 112 | sign_and_exponent << 64 | mantissa as u128
    }

    #[test]
    fn what_x86_has_in_80_bits() {
        for (bits, value) in [
            (x87(0, 0), 0.0),
            (x87(0x3fff, 1 << 63), 1.0),
            (x87(0xbfff, 1 << 63), -1.0),
            (x87(0x3ffd, 0xaaaa_aaaa_aaaa_aaab), 1.0 / 3.0),
            (x87(0x401e, 0xffff_fffe_0000_0000), 4_294_967_294.0),
            (x87(0x7ffe, u64::MAX), f64::INFINITY),
            (x87(0x7fff, 1 << 63), f64::INFINITY),
            (x87(1, 1 << 63), 0.0),
        ] {
            assert_eq!(of_x87(bits), value, "{bits:#x}");
        }
        assert!(of_x87(x87(0x7fff, 3 << 62)).is_nan());
    }

    #[test]
    fn what_others_have_in_128_bits() {
        for (bits, value) in [
            (0, 0.0),
            (0x3fff << 112, 1.0),
            (0xc000 << 112 | 1 << 111, -3.0),
            (0x3ffd << 112 | 0x5555_5555_5555_5555_5555_5555_5555, 1.0 / 3.0),
            (0x7fff << 112, f64::INFINITY),
        ] {
            assert_eq!(of_binary128(bits), value, "{bits:#x}");
        }
        assert!(of_binary128(0x7fff << 112 | 1).is_nan());
        let pair = u128::from(1.5_f64.to_bits()) | u128::from(0.25_f64.to_bits()) << 64;
        assert_eq!(of_pair(pair), 1.75);
    }
}
