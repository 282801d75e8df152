//! The floating-point numbers in an element of any dtype, and which bit patterns are not finite.

use statelens_checkpoint::{Block, DType};
use statelens_tensor::{Cast, ScaleFormat, block_scales, has_floats, lost_scales, plain};

/// The class of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberClass {
    Finite,
    Nan,
    Infinite,
}

/// The bit patterns of a float format of up to eight bytes that are not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FloatBits {
    /// Size of a number in bytes.
    pub(super) size: usize,
    /// Mask of the exponent bits, which are all set if the number is not finite.
    exponent: u64,
    /// Mask of the mantissa bits; a NaN has at least one set.
    mantissa: u64,
    /// The codes that are NaN, in formats without infinities.
    only: &'static [u64],
}

/// Where the numbers of an element are.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ElementNumbers {
    /// Values that are always finite: integers, strings, dates.
    Without,
    /// The element consists of this number of floats.
    Floats(FloatBits, u64),
    /// The element is a record or has another format, or the unit is a block of elements.
    Unit(NumberUnit),
}

/// A record, or a block of elements, with numbers at known places.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NumberUnit {
    /// Size in bytes.
    pub(super) size: usize,
    /// Number of elements.
    pub(super) elements: u64,
    pub(super) sites: Vec<NumberSite>,
    /// The block whose scales the sites are: all its elements are finite if they are. Without sites,
    /// every block is decoded.
    pub(super) block: Option<&'static Block>,
    /// The scales of the block: that of all codes and its minimum, or those of runs of codes.
    scales: &'static [(usize, ScaleFormat)],
}

/// Numbers of one format that follow each other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NumberSite {
    offset: usize,
    count: usize,
    format: NumberFormat,
}

#[derive(Debug, Clone, PartialEq)]
enum NumberFormat {
    Bits(FloatBits),
    /// An x87 `long double` in this number of bytes.
    Extended(usize),
    /// A float of one byte, by code.
    Codes(Box<[NumberClass; 256]>),
}

/// Records with more fields, or larger ones, are not checked.
const MAX_SITES: usize = 4_096;
const MAX_UNIT: u64 = 1 << 20;

impl FloatBits {
    /// Returns the bit patterns of a dtype and the number of numbers in an element; `None` if it is
    /// not a float.
    pub(super) fn of(dtype: &DType) -> Option<(Self, u64)> {
        let ieee = |size, exponent, mantissa| Self { size, exponent, mantissa, only: &[] };
        let only = |only| Self { size: 1, exponent: 0, mantissa: 0, only };
        let half = ieee(2, 0x7c00, 0x03ff);
        let brain = ieee(2, 0x7f80, 0x007f);
        let single = ieee(4, 0x7f80_0000, 0x007f_ffff);
        let double = ieee(8, 0x7ff0_0000_0000_0000, 0x000f_ffff_ffff_ffff);
        Some(match dtype {
            DType::F16 => (half, 1),
            DType::BF16 => (brain, 1),
            DType::F32 => (single, 1),
            DType::F64 => (double, 1),
            DType::C32 => (half, 2),
            DType::BC32 => (brain, 2),
            DType::C64 => (single, 2),
            DType::C128 => (double, 2),
            DType::F8E5M2 => (ieee(1, 0x7c, 0x03), 1),
            DType::F8E4M3FN => (only(&[0x7f, 0xff]), 1),
            DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => (only(&[0x80]), 1),
            DType::F8E8M0FNU => (only(&[0xff]), 1),
            _ => return None,
        })
    }

    pub(super) fn class(self, bits: u64) -> NumberClass {
        if self.exponent == 0 {
            return match self.only.contains(&bits) {
                true => NumberClass::Nan,
                false => NumberClass::Finite,
            };
        }
        match (bits & self.exponent == self.exponent, bits & self.mantissa) {
            (false, _) => NumberClass::Finite,
            (true, 0) => NumberClass::Infinite,
            (true, _) => NumberClass::Nan,
        }
    }
}

impl ElementNumbers {
    /// Returns the numbers of a dtype, and whether these are all: some dtypes can't be decoded.
    pub(super) fn of(dtype: &DType) -> (Self, bool) {
        if let Some((bits, count)) = FloatBits::of(dtype) {
            return (Self::Floats(bits, count), true);
        }
        if let DType::Blocks(block) = dtype {
            return match block_scales(block) {
                Some(scales) => (Self::Unit(NumberUnit::of_block(block, scales)), true),
                None if has_floats(dtype) => (Self::Unit(NumberUnit::of_block(block, &[])), true),
                None => (Self::Without, false),
            };
        }
        let Some((sites, all)) = sites(dtype) else { return (Self::Without, false) };
        let size = usize::try_from(dtype.itemsize()).unwrap_or(0);
        match sites.is_empty() || size == 0 {
            true => (Self::Without, all),
            false => {
                (Self::Unit(NumberUnit { size, elements: 1, sites, block: None, scales: &[] }), all)
            }
        }
    }
}

impl NumberUnit {
    fn of_block(block: &'static Block, scales: &'static [(usize, ScaleFormat)]) -> Self {
        let site = |(offset, format): &(usize, ScaleFormat)| {
            let format = match format {
                ScaleFormat::F16 => NumberFormat::of(&DType::F16)?.0,
                ScaleFormat::F32 => NumberFormat::of(&DType::F32)?.0,
                ScaleFormat::E8M0 => {
                    let mut classes = Box::new([NumberClass::Finite; 256]);
                    classes[253..].fill(NumberClass::Infinite);
                    NumberFormat::Codes(classes)
                }
                ScaleFormat::Ue4m3 => NumberFormat::Codes(Box::new([NumberClass::Finite; 256])),
            };
            Some(NumberSite { offset: *offset, count: 1, format })
        };
        let sites = scales.iter().filter_map(site).collect();
        let size = usize::try_from(block.bytes).unwrap_or(usize::MAX);
        Self { size, elements: block.elements, sites, block: Some(block), scales }
    }

    /// Returns whether numbers of a unit may be NaN or infinite.
    pub(super) fn is_suspect(&self, unit: &[u8]) -> bool {
        self.block.is_some() && self.sites.is_empty() || self.count(unit) != (0, 0)
    }

    /// Returns the number of scales of a block that are zero although their codes are not.
    pub(super) fn lost(&self, unit: &[u8]) -> u64 {
        let is_zero = |(at, format): &(usize, ScaleFormat)| {
            format.is_zero(unit.get(*at..).unwrap_or_default())
        };
        match self.block.filter(|_| self.scales.iter().any(is_zero)) {
            Some(block) => lost_scales(block, unit),
            None => 0,
        }
    }

    /// Returns the numbers of NaN and of infinities in the bytes of a unit.
    pub(super) fn count(&self, unit: &[u8]) -> (u64, u64) {
        let (mut nan, mut infinite) = (0, 0);
        for site in &self.sites {
            let bytes = unit.get(site.offset..).unwrap_or_default();
            for number in bytes.chunks_exact(site.format.size()).take(site.count) {
                match site.format.class(number) {
                    NumberClass::Finite => {}
                    NumberClass::Nan => nan += 1,
                    NumberClass::Infinite => infinite += 1,
                }
            }
        }
        (nan, infinite)
    }
}

impl NumberFormat {
    /// Returns the format of a dtype, and the number of numbers in an element.
    fn of(dtype: &DType) -> Option<(Self, usize)> {
        if let Some((bits, count)) = FloatBits::of(dtype) {
            return Some((Self::Bits(bits), usize::try_from(count).ok()?));
        }
        let DType::Numpy(numpy) = dtype else { return None };
        match (numpy.code.as_str(), numpy.itemsize) {
            ("f12", 12) => Some((Self::Extended(12), 1)),
            ("f16", 16) => Some((Self::Extended(16), 1)),
            ("c24", 24) => Some((Self::Extended(12), 2)),
            ("c32", 32) => Some((Self::Extended(16), 2)),
            (_, 1) => {
                plain(dtype)?;
                let codes: Vec<u8> = (0..=255).collect();
                let mut values = Vec::new();
                Cast::new(dtype, &DType::F64).ok()?.run(&codes, &mut values);
                let mut classes = Box::new([NumberClass::Finite; 256]);
                for (class, value) in classes.iter_mut().zip(values.as_chunks().0) {
                    *class = class_of(f64::from_le_bytes(*value));
                }
                Some((Self::Codes(classes), 1))
            }
            _ => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Bits(bits) => bits.size,
            Self::Extended(size) => *size,
            Self::Codes(_) => 1,
        }
    }

    fn class(&self, bytes: &[u8]) -> NumberClass {
        match self {
            Self::Bits(bits) => {
                let word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
                bits.class(word)
            }
            Self::Extended(_) => {
                let exponent = bytes.get(8..10).unwrap_or_default();
                let mantissa = bytes.get(..8).unwrap_or_default();
                // The highest bit of the mantissa is the integer part.
                let is_zero = mantissa.iter().take(7).all(|byte| *byte == 0)
                    && mantissa.get(7).is_some_and(|byte| byte & 0x7f == 0);
                match exponent {
                    [0xff, high] if high & 0x7f == 0x7f => match is_zero {
                        true => NumberClass::Infinite,
                        false => NumberClass::Nan,
                    },
                    _ => NumberClass::Finite,
                }
            }
            Self::Codes(classes) => {
                let class = bytes.first().and_then(|code| classes.get(usize::from(*code)));
                class.copied().unwrap_or(NumberClass::Finite)
            }
        }
    }
}

/// Returns the class of a number.
pub(super) fn class_of(value: f64) -> NumberClass {
    match value {
        value if value.is_nan() => NumberClass::Nan,
        value if value.is_infinite() => NumberClass::Infinite,
        _ => NumberClass::Finite,
    }
}

/// Returns the sites of the numbers in an element, and whether these are all. `None` if the element
/// is too large or has too many.
fn sites(dtype: &DType) -> Option<(Vec<NumberSite>, bool)> {
    if dtype.itemsize() > MAX_UNIT {
        // Long strings have no numbers.
        let is_record = matches!(dtype, DType::Numpy(numpy) if !numpy.fields.is_empty());
        return (!is_record && !is_opaque(dtype)).then(|| (Vec::new(), true));
    }
    let (mut sites, mut all) = (Vec::new(), true);
    // Elements, the position of the first, and their number.
    let mut open: Vec<(&DType, u64, u64)> = vec![(dtype, 0, 1)];
    let mut visited = 0;
    while let Some((dtype, offset, count)) = open.pop() {
        visited += 1;
        if visited > MAX_SITES || open.len() > MAX_SITES {
            return None;
        }
        match dtype {
            DType::Numpy(numpy) if !numpy.fields.is_empty() => {
                if count > 1 {
                    let count = usize::try_from(count).ok().filter(|count| *count <= MAX_SITES)?;
                    let at = |index: usize| {
                        Some((
                            dtype,
                            offset.checked_add(numpy.itemsize.checked_mul(index as u64)?)?,
                            1,
                        ))
                    };
                    open.extend((0..count).map(at).collect::<Option<Vec<_>>>()?);
                    continue;
                }
                for field in &numpy.fields {
                    let count =
                        field.shape.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim))?;
                    open.push((&field.dtype, offset.checked_add(field.offset)?, count));
                }
            }
            dtype => match NumberFormat::of(dtype) {
                Some((format, numbers)) => sites.push(NumberSite {
                    offset: usize::try_from(offset).ok()?,
                    count: usize::try_from(count).ok()?.checked_mul(numbers)?,
                    format,
                }),
                None => all &= !is_opaque(dtype),
            },
        }
    }
    Some((sites, all))
}

/// Returns whether elements may be floats in a format that is not known.
fn is_opaque(dtype: &DType) -> bool {
    match dtype {
        DType::Numpy(numpy) => numpy.fields.is_empty() && numpy.code.starts_with(['V', 'f', 'c']),
        DType::Bits1x8 | DType::Bits2x4 | DType::Bits4x2 | DType::Bits8 | DType::Bits16 => true,
        dtype => matches!(dtype, DType::Blocks(_)),
    }
}
