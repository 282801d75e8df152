//! The possible effects of a cast on numbers, derived from the dtypes alone.

use statelens_checkpoint::DType;

use super::small::{Small, bits_of_int};
use super::{component, lanes};

/// How a dtype holds fewer numbers than another one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Narrowing {
    /// The largest magnitude that fits, if there are larger ones.
    pub overflow: Option<f64>,
    /// What happens to larger numbers.
    becomes: &'static str,
    /// Whether negative numbers don't fit.
    pub unsigned: bool,
    /// Numbers closer to zero than this become zero.
    pub underflow: Option<f64>,
    /// The number of binary digits to which all other numbers are rounded.
    pub digits: Option<u32>,
}

#[derive(Clone, Copy)]
struct Range {
    max: f64,
    /// The smallest number above zero.
    tiny: f64,
    digits: u32,
    signed: bool,
    /// What happens to numbers that are too large.
    over: &'static str,
    integer: bool,
}

impl Narrowing {
    /// Returns what a cast from one dtype to another may lose; `None` if it loses nothing, or is
    /// not possible.
    pub fn of(from: &DType, to: &DType) -> Option<Self> {
        let (had, has) = match (component(from), component(to)) {
            (Some(from), Some(to)) => (Range::of(&from)?, Range::of(&to)?),
            (None, None) => (Range::of(from)?, Range::of(to)?),
            _ => return None,
        };
        // Infinities and NaN don't fit either, if the target lacks them.
        let infinities = had.over == INFINITE && has.over != INFINITE;
        let overflows = had.max > has.max || infinities || has.integer && !had.integer;
        let narrowing = Self {
            overflow: overflows.then_some(has.max),
            becomes: if had.integer && has.integer { WRAPS } else { has.over },
            unsigned: had.signed && !has.signed,
            // Half of the smallest is still rounded up to it; casts to integers truncate instead.
            underflow: (had.tiny < has.tiny).then_some(if has.integer {
                has.tiny
            } else {
                has.tiny / 2.0
            }),
            digits: (had.digits > has.digits || had.tiny < has.tiny).then_some(has.digits),
        };
        let loses = overflows || narrowing.unsigned;
        (loses || narrowing.underflow.is_some() || narrowing.digits.is_some()).then_some(narrowing)
    }

    pub fn overflows(&self) -> bool {
        self.overflow.is_some() || self.unsigned
    }

    /// Returns whether finite numbers from `min` to `max` fit.
    pub fn fits(&self, min: f64, max: f64) -> bool {
        self.overflow.is_none_or(|most| min >= -most && max <= most)
            && !(self.unsigned && min < 0.0)
    }

    /// Returns the possible losses, as parts of a sentence.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if let Some(max) = self.overflow {
            parts.push(format!("numbers beyond {} {}", number(max), self.becomes));
        }
        if self.unsigned {
            parts.push("negative numbers lose their sign or do not fit".into());
        }
        if let Some(tiny) = self.underflow {
            parts.push(format!("numbers below {} become 0", number(tiny)));
        }
        if let Some(digits) = self.digits {
            parts.push(format!("others are rounded to {digits} binary digits"));
        }
        parts.join(", ")
    }
}

const LARGEST: &str = "become the largest there is";
const NAN: &str = "become NaN";
const INFINITE: &str = "become infinite";
const WRAPS: &str = "wrap round";

impl Range {
    fn of(dtype: &DType) -> Option<Self> {
        let float = |max, tiny, digits| Self {
            max,
            tiny,
            digits,
            signed: true,
            over: INFINITE,
            integer: false,
        };
        Some(match dtype {
            DType::Blocks(_) | DType::F32 => float(f32::MAX.into(), f32::from_bits(1).into(), 24),
            DType::F64 => float(f64::MAX, f64::from_bits(1), 53),
            DType::F8E8M0FNU => {
                Self { signed: false, over: NAN, ..float(2f64.powi(127), 2f64.powi(-127), 1) }
            }
            DType::Bool => Self::integer(1, false),
            DType::U8 => Self::integer(8, false),
            DType::U16 => Self::integer(16, false),
            DType::U32 => Self::integer(32, false),
            DType::U64 => Self::integer(64, false),
            DType::I8 => Self::integer(7, true),
            DType::I16 => Self::integer(15, true),
            DType::I32 => Self::integer(31, true),
            DType::I64 => Self::integer(63, true),
            dtype => match (bits_of_int(dtype), Small::of(dtype)) {
                (Some(bits), _) => Self::integer(bits - 1, true),
                (None, Some(small)) => {
                    let (max, tiny, digits) = small.range();
                    let over = match small.decode(small.parts().over) {
                        over if over.is_infinite() => INFINITE,
                        over if over.is_nan() => NAN,
                        _ => LARGEST,
                    };
                    Self { over, ..float(max, tiny, digits) }
                }
                (None, None) => return None,
            },
        })
        .filter(|_| lanes::is_number(dtype) || super::readable(dtype) || is_block(dtype))
    }

    /// Returns the range of integers of `digits` binary digits.
    fn integer(digits: u32, signed: bool) -> Self {
        let max = 2f64.powi(digits as i32) - 1.0;
        Self { max, tiny: 1.0, digits, signed, over: LARGEST, integer: true }
    }
}

fn is_block(dtype: &DType) -> bool {
    matches!(dtype, DType::Blocks(_))
}

/// Formats a number for display: `65504`, `3.4e38`.
fn number(number: f64) -> String {
    match (1.0..1e7).contains(&number) {
        true => format!("{number}"),
        false => format!("{number:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_losses_of_each_dtype_pair() {
        let text = |from: DType, to: DType| Narrowing::of(&from, &to).map(|found| found.text());
        assert_eq!(
            text(DType::F32, DType::F16).unwrap(),
            "numbers beyond 65504 become infinite, numbers below 3.0e-8 become 0, others are \
             rounded to 11 binary digits"
        );
        assert_eq!(text(DType::F16, DType::F32), None);
        assert_eq!(text(DType::BF16, DType::F32), None);
        assert_eq!(text(DType::F16, DType::F64), None);
        assert_eq!(text(DType::F32, DType::F32), None);
        assert_eq!(text(DType::C64, DType::F32), None);
        let saturated = text(DType::F32, DType::F8E4M3FN).unwrap();
        assert!(saturated.starts_with("numbers beyond 448 become the largest"), "{saturated}");
        let wraps = text(DType::I64, DType::U8).unwrap();
        assert_eq!(
            wraps,
            "numbers beyond 255 wrap round, negative numbers lose their sign or do not fit, others are rounded to 8 binary digits"
        );
    }
}
