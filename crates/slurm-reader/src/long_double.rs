//! C's `long double` as a double, which has less precision and a smaller range. Values beyond it
//! become 0 or infinite.
//!
//! Rust has no such type. bindgen represents it as one 16-byte number, or as a double where C's
//! type is a double.

#[cfg(any(target_arch = "powerpc", target_arch = "powerpc64"))]
compile_error!("here a long double is a pair of doubles, which this module does not read");

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
        } else {
            of_binary128(self)
        }
    }
}

/// Converts x87's format: sign, 15 bits of exponent, 64 of mantissa with its leading 1; the rest is
/// padding.
fn of_x87(bits: u128) -> f64 {
    number(bits >> 64, bits & u128::from(u64::MAX), 63)
}

/// Converts the 128-bit format: sign, 15 bits of exponent, 112 bits of mantissa without its leading
/// 1, which only a number near 0 lacks.
fn of_binary128(bits: u128) -> f64 {
    number(bits >> 112, bits & ((1 << 112) - 1) | 1 << 112, 112)
}

/// Converts a number from its parts. An infinite number stays infinite, and one that is not a
/// number becomes infinite too.
fn number(sign_and_exponent: u128, mantissa: u128, digits: i32) -> f64 {
    let sign = if sign_and_exponent & 0x8000 == 0 { 1.0 } else { -1.0 };
    #[expect(clippy::cast_precision_loss, reason = "rounded to the nearest")]
    let mantissa = mantissa as f64;
    match i32::try_from(sign_and_exponent & 0x7fff).unwrap_or_default() {
        0x7fff => sign * f64::INFINITY,
        exponent => {
            sign * mantissa * 2_f64.powi(exponent.saturating_sub(16_383).saturating_sub(digits))
        }
    }
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
            (x87(0x7fff, 3 << 62), f64::INFINITY),
            (x87(1, 1 << 63), 0.0),
        ] {
            assert_eq!(of_x87(bits), value, "{bits:#x}");
        }
    }

    #[test]
    fn what_others_have_in_128_bits() {
        for (bits, value) in [
            (0, 0.0),
            (0x3fff << 112, 1.0),
            (0xc000 << 112 | 1 << 111, -3.0),
            (0x3ffd << 112 | 0x5555_5555_5555_5555_5555_5555_5555, 1.0 / 3.0),
            (0x7fff << 112 | 1, f64::INFINITY),
        ] {
            assert_eq!(of_binary128(bits), value, "{bits:#x}");
        }
    }
}
