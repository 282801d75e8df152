//! Floats of 8 and 16 bits by their definitions.
//!
//! Sources: IEEE 754 for `float16`; the OCP 8-bit floating point specification (OFP8) for `e4m3fn`
//! and `e5m2`; the OCP microscaling formats (MX) specification for `e8m0fnu`; the `fnuz` variants
//! ("finite, NaN only, unsigned zero") as in arXiv:2206.02915; those that torch lacks as in
//! <https://github.com/jax-ml/ml_dtypes>, release 0.6. Numbers that are out of range become the
//! same as in torch: an infinity, or NaN if the format has no infinity; for `e4m3fn` the largest
//! number (2.4 made NaN of it, 2.15 does not).

use statelens_checkpoint::DType;

/// The format of a small float: sign, exponent, mantissa.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Small {
    mantissa: u32,
    bias: i32,
    sign: u16,
    max: u16,
    /// The pattern for larger numbers: an infinity, NaN, or the largest number.
    over: u16,
    nan: u16,
    /// Whether the pattern of minus zero is the only NaN. Such formats have no infinities.
    unsigned_zero: bool,
}

/// The properties of a small float that rounding to it depends on.
pub(super) struct Parts {
    /// Stored bits of the mantissa.
    pub mantissa: u32,
    pub smallest_normal: f64,
    pub max: f64,
    /// If the format saturates: the magnitude above which finite numbers are out of range.
    pub overflow_above: f64,
    /// The pattern for numbers beyond `max`.
    pub over: u16,
    pub nan: u16,
    /// Bits of a NaN's payload that are kept.
    pub payload_mask: u16,
    pub sign_bit: u32,
    pub has_infinity: bool,
    pub has_nan: bool,
    /// Whether the format has no minus zero.
    pub unsigned_zero: bool,
}

const fn float(mantissa: u32, bias: i32, [sign, max, over, nan]: [u16; 4]) -> Small {
    Small { mantissa, bias, sign, max, over, nan, unsigned_zero: nan == sign }
}

const F16: Small = float(10, 15, [0x8000, 0x7bff, 0x7c00, 0x7e00]);
const BF16: Small = float(7, 127, [0x8000, 0x7f7f, 0x7f80, 0x7fc0]);
const E4M3FN: Small = float(3, 7, [0x80, 0x7e, 0x7e, 0x7f]);
const E4M3FNUZ: Small = float(3, 8, [0x80, 0x7f, 0x80, 0x80]);
const E5M2: Small = float(2, 15, [0x80, 0x7b, 0x7c, 0x7f]);
const E5M2FNUZ: Small = float(2, 16, [0x80, 0x7f, 0x80, 0x80]);

const E4M3: Small = float(3, 7, [0x80, 0x77, 0x78, 0x7c]);
const E3M4: Small = float(4, 3, [0x80, 0x6f, 0x70, 0x78]);
const E4M3B11FNUZ: Small = float(3, 11, [0x80, 0x7f, 0x80, 0x80]);
// Formats with neither infinities nor NaN.
const E2M3FN: Small = float(3, 1, [0x20, 0x1f, 0x1f, 0x1f]);
const E3M2FN: Small = float(2, 3, [0x20, 0x1f, 0x1f, 0x1f]);
const E2M1FN: Small = float(1, 1, [0x08, 0x07, 0x07, 0x07]);

/// Returns the bits of a signed integer type that is smaller than a byte.
pub(super) fn bits_of_int(dtype: &DType) -> Option<u32> {
    let DType::Numpy(numpy) = dtype else { return None };
    match numpy.name.as_str() {
        _ if numpy.itemsize != 1 => None,
        "int1" => Some(1),
        "int2" => Some(2),
        "int4" => Some(4),
        _ => None,
    }
}

impl Small {
    pub(super) fn of(dtype: &DType) -> Option<Self> {
        Some(match dtype {
            DType::F16 => F16,
            DType::BF16 => BF16,
            DType::F8E4M3FN => E4M3FN,
            DType::F8E4M3FNUZ => E4M3FNUZ,
            DType::F8E5M2 => E5M2,
            DType::F8E5M2FNUZ => E5M2FNUZ,
            DType::Numpy(numpy) if numpy.itemsize == 1 => match numpy.name.as_str() {
                "float8_e3m4" => E3M4,
                "float8_e4m3" => E4M3,
                "float8_e4m3b11fnuz" => E4M3B11FNUZ,
                "float6_e2m3fn" => E2M3FN,
                "float6_e3m2fn" => E3M2FN,
                "float4_e2m1fn" => E2M1FN,
                _ => return None,
            },
            _ => return None,
        })
    }

    pub(super) fn decode(&self, bits: u16) -> f64 {
        let magnitude = bits & (self.sign - 1);
        let negative = bits & self.sign != 0;
        let value = if self.unsigned_zero && bits == self.nan {
            f64::NAN
        } else if magnitude <= self.max {
            let exponent = i32::from(magnitude >> self.mantissa);
            let fraction = i32::from(magnitude) & ((1 << self.mantissa) - 1);
            let implicit = if exponent > 0 { 1 << self.mantissa } else { 0 };
            let unit = exponent.max(1) - self.bias - self.mantissa as i32;
            f64::from(fraction + implicit) * power_of_two(unit)
        } else if magnitude == self.over && self.over != self.nan {
            f64::INFINITY
        } else {
            f64::NAN
        };
        if negative { -value } else { value }
    }

    /// Returns the largest number, the smallest above zero, and the number of significant binary
    /// digits.
    pub(super) fn range(&self) -> (f64, f64, u32) {
        (self.decode(self.max), self.decode(1), self.mantissa + 1)
    }

    /// Returns the properties that casts to the format need.
    pub(super) fn parts(&self) -> Parts {
        let saturates = self.over == self.max;
        Parts {
            mantissa: self.mantissa,
            smallest_normal: power_of_two(1 - self.bias),
            max: self.decode(self.max),
            overflow_above: if saturates { self.saturates_above() } else { 0.0 },
            over: self.over,
            nan: self.nan,
            payload_mask: if self.sign == 0x8000 { (1 << self.mantissa) - 1 } else { 0 },
            sign_bit: self.sign.trailing_zeros(),
            has_infinity: !saturates && self.over != self.nan,
            has_nan: self.nan != self.max,
            unsigned_zero: self.unsigned_zero,
        }
    }

    /// Returns the magnitude above which numbers become the largest although that is not the
    /// nearest.
    fn saturates_above(&self) -> f64 {
        match self.over == self.max {
            true => 1.5 * self.decode(self.max) - 0.5 * self.decode(self.max - 1),
            false => f64::INFINITY,
        }
    }

    /// Returns the nearest pattern, ties to even, by integer arithmetic: the reference for casts.
    #[cfg(test)]
    pub(super) fn encode(&self, value: f64) -> u16 {
        let sign = if value.is_sign_negative() { self.sign } else { 0 };
        let bits = value.to_bits() & (u64::MAX >> 1);
        if value.is_nan() {
            return self.nan | sign;
        }
        if value.is_infinite() {
            return self.over | sign;
        }
        // value = significand * 2^(exponent - 52)
        let field = (bits >> 52) as i32;
        let implicit = if field > 0 { 1 << 52 } else { 0 };
        let significand = bits & ((1 << 52) - 1) | implicit;
        let exponent = field.max(1) - 1023;
        let smallest = 1 - self.bias;
        let at_least = exponent.max(smallest);
        // The last bit of the result has the value 2^(at_least - mantissa).
        let drop = (52 - self.mantissa as i32 + at_least - exponent) as u32;
        let kept = if drop > 54 { 0 } else { round(significand, drop) };
        // A carry out of the mantissa correctly increments the exponent.
        let magnitude = kept + (((at_least - smallest) as u64) << self.mantissa);
        if magnitude > u64::from(self.max) {
            return self.over | sign;
        }
        if magnitude == 0 && self.unsigned_zero {
            return 0;
        }
        magnitude as u16 | sign
    }
}

#[cfg(test)]
/// Returns `value / 2^drop`, rounded to nearest, ties to even; `drop` is 1 to 63.
fn round(value: u64, drop: u32) -> u64 {
    let (kept, rest, middle) = (value >> drop, value & ((1 << drop) - 1), 1 << (drop - 1));
    kept + u64::from(rest > middle || rest == middle && kept & 1 == 1)
}

/// Returns 2^`exponent`; exact for the exponents of small floats, which are normal in doubles.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Decodes one of the two numbers in a byte of `float4_e2m1fn_x2`: the lower four bits of `bits`.
pub fn decode_f4(bits: u8) -> f64 {
    E2M1FN.decode(u16::from(bits & 15))
}

/// Decodes `e8m0fnu`: a power of two, 2^-127 to 2^127, or NaN.
pub(super) fn decode_scale(bits: u8) -> f32 {
    if bits == 0xff { f32::NAN } else { power_of_two(i32::from(bits) - 127) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks every number of the 8-bit formats against the definition in its specification:
    /// exponent bits, mantissa bits, bias, and special patterns.
    #[test]
    fn decodes_8_bit_floats_by_definition() {
        let define = |bits: u8, mantissa: u32, bias: i32| {
            let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
            let exponent = i32::from((bits & 0x7f) >> mantissa);
            let fraction = f64::from(bits & ((1 << mantissa) - 1)) / f64::from(1 << mantissa);
            match exponent {
                0 => sign * 2f64.powi(1 - bias) * fraction,
                _ => sign * 2f64.powi(exponent - bias) * (1.0 + fraction),
            }
        };
        for bits in 0..=255u8 {
            let expected = [
                if bits & 0x7f == 0x7f { f64::NAN } else { define(bits, 3, 7) },
                if bits == 0x80 { f64::NAN } else { define(bits, 3, 8) },
                match bits & 0x7f {
                    0x7c => f64::INFINITY.copysign(define(bits, 2, 15)),
                    0x7d.. => f64::NAN,
                    _ => define(bits, 2, 15),
                },
                if bits == 0x80 { f64::NAN } else { define(bits, 2, 16) },
            ];
            for (small, expected) in [E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ].iter().zip(expected) {
                let found = small.decode(bits.into());
                let same = found.to_bits() == expected.to_bits();
                assert!(same || found.is_nan() && expected.is_nan(), "{small:?} {bits:02x}");
            }
            let scale = decode_scale(bits);
            match bits {
                255 => assert!(scale.is_nan()),
                _ => assert_eq!(f64::from(scale), 2f64.powi(i32::from(bits) - 127)),
            }
        }
        // Extremes that the specifications name.
        assert_eq!(E4M3FN.decode(0x7e), 448.0);
        assert_eq!(E4M3FNUZ.decode(0x7f), 240.0);
        assert_eq!(E5M2.decode(0x7b), 57344.0);
        assert_eq!(E5M2FNUZ.decode(0x7f), 57344.0);
        assert_eq!(E5M2.decode(0x01), 2f64.powi(-16));
        assert_eq!(E4M3FN.decode(0x01), 2f64.powi(-9));
    }

    #[test]
    fn decodes_4_bit_floats_by_definition() {
        // A sign, two bits of exponent with bias 1, one bit of mantissa (OCP microscaling formats).
        let magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (bits, magnitude) in (0..).zip(magnitudes) {
            assert_eq!(decode_f4(bits), magnitude);
            assert_eq!(decode_f4(bits | 8).to_bits(), (-magnitude).to_bits());
            assert_eq!(decode_f4(bits | 0x70), magnitude);
        }
    }

    #[test]
    fn decodes_16_bit_floats_as_another_implementation() {
        for bits in 0..=u16::MAX {
            for (found, expected) in [
                (F16.decode(bits), half::f16::from_bits(bits).to_f64()),
                (BF16.decode(bits), half::bf16::from_bits(bits).to_f64()),
            ] {
                let same = found.to_bits() == expected.to_bits();
                assert!(same || found.is_nan() && expected.is_nan(), "{bits:04x}");
            }
        }
    }

    /// Checks every number, every middle between two, and both sides of it: the result must be the
    /// nearest by plain comparison, and the even one in the middle.
    #[test]
    fn rounds_to_nearest_even() {
        for small in [F16, BF16, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ] {
            for bits in 0..=small.max {
                let value = small.decode(bits);
                assert_eq!(small.encode(value), bits);
                let negative = if bits == 0 && small.unsigned_zero { 0 } else { bits | small.sign };
                assert_eq!(small.encode(-value), negative);
                // Above the largest number, the spacing continues as if there were one more.
                let step = if bits == small.max {
                    value - small.decode(bits - 1)
                } else {
                    small.decode(bits + 1) - value
                };
                let above = if bits == small.max { small.over } else { bits + 1 };
                let middle = value + step / 2.0;
                let even = if bits & 1 == 0 { bits } else { above };
                assert_eq!(small.encode(middle), even, "{small:?} {bits:02x}");
                assert_eq!(small.encode(middle.next_down()), bits, "{small:?} {bits:02x}");
                assert_eq!(small.encode(middle.next_up()), above, "{small:?} {bits:02x}");
            }
            assert_eq!(small.encode(f64::INFINITY), small.over);
            assert_eq!(small.encode(f64::MAX), small.over);
            assert_eq!(small.encode(f64::from_bits(1)), 0);
            assert!(small.decode(small.encode(f64::NAN)).is_nan());
            assert!(small.decode(small.encode(-f64::NAN)).is_nan());
        }
    }
}
