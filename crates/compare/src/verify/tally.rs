//! Counts NaN and infinite values of a tensor, and hashes it, as its bytes pass.

use sha2::{Digest as _, Sha256};
use statelens_checkpoint::{Result, Tensor};
use statelens_tensor::{Receive, dequantized_block};

use super::numbers::{ElementNumbers, FloatBits, NumberClass, NumberUnit, class_of};

/// The numbers of a tensor that are not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct NonFinite {
    /// Number of NaN values.
    pub nan: u64,
    /// Number of infinite values of either sign.
    pub inf: u64,
    /// The index in C order of the first element that is not finite; a complex element has two
    /// numbers.
    pub first: Option<u64>,
    /// Number of quantised blocks whose scale is zero although their codes are not.
    pub lost: u64,
}

impl NonFinite {
    /// Adds the counts of the elements that follow.
    pub(super) fn merge(&mut self, next: Self) {
        self.nan = self.nan.saturating_add(next.nan);
        self.inf = self.inf.saturating_add(next.inf);
        self.first = self.first.or(next.first);
        self.lost = self.lost.saturating_add(next.lost);
    }
}

/// Counts and hashes the logical bytes of a tensor, in pieces of any size.
pub(super) struct Tally {
    numbers: ElementNumbers,
    /// Number of numbers processed, or of elements for records and blocks.
    at: u64,
    /// The bytes of a number or unit that has not fully arrived.
    waiting: Vec<u8>,
    found: NonFinite,
    hasher: Option<Sha256>,
}

impl Receive for Tally {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self.update(bytes);
        Ok(())
    }
}

impl Tally {
    pub(super) fn new(tensor: &Tensor, hash: bool) -> Self {
        Self {
            numbers: ElementNumbers::of(&tensor.dtype).0,
            at: 0,
            waiting: Vec::new(),
            found: NonFinite::default(),
            hasher: hash.then(Sha256::new),
        }
    }

    /// Starts after the first `bytes` bytes of the tensor.
    pub(super) fn behind(mut self, bytes: u64) -> Self {
        self.at = match &self.numbers {
            ElementNumbers::Without => 0,
            ElementNumbers::Floats(bits, _) => bytes / bits.size as u64,
            ElementNumbers::Unit(unit) => (bytes / unit.size as u64).saturating_mul(unit.elements),
        };
        self
    }

    /// Only hashes: the numbers that are not finite are counted elsewhere.
    pub(super) fn without_counting(mut self) -> Self {
        self.numbers = ElementNumbers::Without;
        self
    }

    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        let size = match &self.numbers {
            ElementNumbers::Without => return,
            ElementNumbers::Floats(bits, numbers) => bits.size * (*numbers).max(1) as usize,
            ElementNumbers::Unit(unit) => unit.size,
        };
        if !self.waiting.is_empty() {
            let missing = (size - self.waiting.len()).min(bytes.len());
            let (head, rest) = bytes.split_at(missing);
            self.waiting.extend_from_slice(head);
            bytes = rest;
            if self.waiting.len() < size {
                return;
            }
            let whole = std::mem::take(&mut self.waiting);
            self.count(&whole);
        }
        let whole = bytes.len() / size * size;
        self.count(&bytes[..whole]);
        self.waiting.extend_from_slice(&bytes[whole..]);
    }

    /// Counts complete elements or units.
    fn count(&mut self, bytes: &[u8]) {
        let (bits, numbers) = match std::mem::replace(&mut self.numbers, ElementNumbers::Without) {
            ElementNumbers::Floats(bits, numbers) => (bits, numbers),
            other => {
                if let ElementNumbers::Unit(unit) = &other {
                    bytes.chunks_exact(unit.size).for_each(|bytes| self.count_unit(unit, bytes));
                }
                self.numbers = other;
                return;
            }
        };
        self.numbers = ElementNumbers::Floats(bits, numbers);
        match bits.size {
            2 => self
                .each(bits, numbers, bytes.as_chunks().0, |bytes| u16::from_le_bytes(bytes).into()),
            4 => self
                .each(bits, numbers, bytes.as_chunks().0, |bytes| u32::from_le_bytes(bytes).into()),
            8 => self.each(bits, numbers, bytes.as_chunks().0, u64::from_le_bytes),
            _ => self.each(bits, numbers, bytes.as_chunks().0, |[byte]| byte.into()),
        }
    }

    /// Counts the numbers of a record, or the elements of a block.
    fn count_unit(&mut self, unit: &NumberUnit, bytes: &[u8]) {
        let start = self.at;
        self.at = self.at.saturating_add(unit.elements);
        self.found.lost += unit.lost(bytes);
        if !unit.is_suspect(bytes) {
            return;
        }
        let (nan, inf) = unit.count(bytes);
        let found = match unit.block {
            // Counts as one element, even if several of its fields are not finite.
            None => NonFinite {
                nan: u64::from(nan > 0),
                inf: u64::from(nan == 0 && inf > 0),
                first: Some(start),
                lost: 0,
            },
            Some(block) => match dequantized_block(block, bytes) {
                Some(values) => {
                    let mut found = NonFinite::default();
                    for (index, value) in (start..).zip(values) {
                        match class_of(value.into()) {
                            NumberClass::Finite => continue,
                            NumberClass::Nan => found.nan += 1,
                            NumberClass::Infinite => found.inf += 1,
                        }
                        found.first.get_or_insert(index);
                    }
                    found
                }
                // Every block with known scales can be decoded.
                None => return,
            },
        };
        self.found.merge(found);
    }

    fn each<const N: usize>(
        &mut self,
        float_bits: FloatBits,
        per_element: u64,
        numbers: &[[u8; N]],
        bits: impl Fn([u8; N]) -> u64,
    ) {
        let per_element = per_element.max(1);
        // Nearly all blocks are finite, so each is first checked in one pass.
        for block in numbers.chunks(1024) {
            let class = |number: &[u8; N]| float_bits.class(bits(*number));
            let is_odd = |number: &[u8; N]| class(number) != NumberClass::Finite;
            let odd = block.iter().fold(false, |odd, number| odd | is_odd(number));
            if odd {
                let elements = block.chunks(per_element as usize);
                for (index, element) in (self.at / per_element..).zip(elements) {
                    if element.iter().any(|number| class(number) == NumberClass::Nan) {
                        self.found.nan += 1;
                    } else if element.iter().any(is_odd) {
                        self.found.inf += 1;
                    } else {
                        continue;
                    }
                    self.found.first.get_or_insert(index);
                }
            }
            self.at += block.len() as u64;
        }
    }

    /// Returns the counts, and the hash in hexadecimal.
    pub(super) fn finish(self) -> (NonFinite, Option<String>) {
        (self.found, self.hasher.map(|hasher| statelens_checkpoint::hex(&hasher.finalize())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use statelens_checkpoint::{Block, DType, Field, Layout, NumpyType};

    fn count(dtype: DType, bytes: &[u8]) -> (u64, u64, Option<u64>) {
        let tensor = Tensor::new(dtype, vec![], Layout::Fill([].into()));
        let mut whole = Tally::new(&tensor, true);
        whole.update(bytes);
        let whole = whole.finish();
        for size in 1..bytes.len() {
            let mut cut = Tally::new(&tensor, true);
            bytes.chunks(size).for_each(|piece| cut.update(piece));
            assert_eq!(cut.finish(), whole, "in pieces of {size}");
        }
        (whole.0.nan, whole.0.inf, whole.0.first)
    }

    #[test]
    fn finds_non_finite_values_in_every_dtype() {
        let floats = [1.0, f32::NEG_INFINITY, f32::NAN, -0.0, f32::MAX, f32::INFINITY];
        let bytes: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
        assert_eq!(count(DType::F32, &bytes), (1, 2, Some(1)));
        assert_eq!(count(DType::C64, &bytes), (1, 2, Some(0)));
        let parts: Vec<u8> = [f32::NAN; 2].iter().flat_map(|part| part.to_le_bytes()).collect();
        assert_eq!(count(DType::C64, &parts), (1, 0, Some(0)), "one element");
        let bytes: Vec<u8> =
            floats.iter().flat_map(|float| f64::from(*float).to_le_bytes()).collect();
        assert_eq!(count(DType::F64, &bytes), (1, 2, Some(1)));
        assert_eq!(count(DType::C128, &bytes), (1, 2, Some(0)));
        let words = |words: &[u16]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        assert_eq!(
            count(DType::F16, &words(&[0x3c00, 0x7bff, 0x7c00, 0xfe00, 0x03ff])),
            (1, 1, Some(2))
        );
        assert_eq!(count(DType::BF16, &words(&[0x3f80, 0xff80, 0x7fc0, 0x7f7f])), (1, 1, Some(1)));
        assert_eq!(count(DType::F8E5M2, &[0x7b, 0xfc, 0x7d, 0x7f]), (2, 1, Some(1)));
        assert_eq!(count(DType::F8E4M3FN, &[0x7e, 0x7f, 0xff, 0x78]), (2, 0, Some(1)));
        assert_eq!(count(DType::F8E5M2FNUZ, &[0x7f, 0x80, 0x00]), (1, 0, Some(1)));
        assert_eq!(count(DType::F8E8M0FNU, &[0x00, 0xff]), (1, 0, Some(1)));
        assert_eq!(count(DType::I32, &[0xff; 8]), (0, 0, None));
    }

    /// The dtypes that `stats` does not read.
    #[test]
    fn finds_non_finite_values_in_records_and_blocks() {
        let long = |code| DType::from_numpy_code(code).unwrap();
        let extended = |mantissa: u64, exponent: u16, size: usize| {
            let mut bytes = [&mantissa.to_le_bytes()[..], &exponent.to_le_bytes()].concat();
            bytes.resize(size, 0x55);
            bytes
        };
        let numbers = |size| {
            [(1 << 63, 16_383), (1 << 63, 0xffff), (3 << 62, 0x7fff), (u64::MAX, 0x7ffe)]
                .map(|(mantissa, exponent)| extended(mantissa, exponent, size))
                .concat()
        };
        assert_eq!(count(long("f16"), &numbers(16)), (1, 1, Some(1)));
        assert_eq!(count(long("f12"), &numbers(12)), (1, 1, Some(1)));
        assert_eq!(count(long("c32"), &numbers(16)), (1, 1, Some(0)));
        let e4m3 = DType::from_ml_dtypes_name("float8_e4m3").unwrap();
        assert_eq!(count(e4m3, &[0x77, 0x78, 0xf9]), (1, 1, Some(1)));
        let field = |name: &str, offset, dtype, shape: &[u64]| Field {
            name: name.to_owned(),
            title: String::new(),
            offset,
            dtype,
            shape: shape.to_vec(),
        };
        let record = |itemsize, fields| {
            DType::Numpy(Arc::new(NumpyType {
                name: "record".to_owned(),
                code: format!("V{itemsize}"),
                itemsize,
                words: Vec::new(),
                fields,
            }))
        };
        let inner = record(6, vec![field("h", 0, DType::F16, &[]), field("w", 2, DType::F32, &[])]);
        let outer = record(
            18,
            vec![
                field("n", 0, DType::I16, &[]),
                field("pair", 2, inner, &[2]),
                field("tail", 14, DType::F16, &[2]),
            ],
        );
        let nan = f32::NAN.to_le_bytes();
        let half = 0x7c00u16.to_le_bytes();
        let sound = [0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let half_nan = [0x01, 0x7c];
        let mut bad = sound;
        bad[10..14].copy_from_slice(&nan);
        bad[16..18].copy_from_slice(&half);
        // One element, although two of its numbers are not finite.
        assert_eq!(count(outer.clone(), &[sound, bad, sound].concat()), (1, 0, Some(1)));
        bad[16..18].copy_from_slice(&half_nan);
        assert_eq!(count(outer.clone(), &bad), (1, 0, Some(0)));
        assert!(ElementNumbers::of(&outer).1);
        // A record can be of any size, and its fields repeat any number of times.
        let many = record(u64::MAX, vec![field("a", 0, outer.clone(), &[u64::MAX / 32])]);
        assert_eq!(ElementNumbers::of(&many), (ElementNumbers::Without, false));
        let many = record(1 << 20, vec![field("a", 0, outer, &[1 << 15])]);
        assert_eq!(ElementNumbers::of(&many), (ElementNumbers::Without, false));
        let opaque = record(8, vec![field("a", 0, long("V8"), &[])]);
        assert!(!ElementNumbers::of(&opaque).1);
        let blocks = |name, elements, bytes| -> DType {
            DType::Blocks(Box::leak(Box::new(Block { name, elements, bytes, words: &[] })))
        };
        let block = |scale: u16, at: usize, size: usize| {
            let mut block = vec![1; size];
            block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
            block
        };
        let q8 = [block(0x3c00, 0, 34), block(0x7c00, 0, 34), block(0x7e00, 0, 34)].concat();
        assert_eq!(count(blocks("Q8_0", 32, 34), &q8), (32, 32, Some(32)));
        // No code is zero, so each product is infinite.
        let q6 = [block(0x3c00, 208, 210), block(0xfc00, 208, 210)].concat();
        assert_eq!(count(blocks("Q6_K", 256, 210), &q6), (0, 256, Some(256)));
        // The scale is in the highest four bits of four words.
        let spread = [0x10, 0x10, 0xc0, 0x70].map(|high: u8| u16::from(high) << 8);
        let spread = spread.iter().flat_map(|word| word.to_le_bytes());
        let iq1: Vec<u8> = std::iter::repeat_n(0, 48).chain(spread).collect();
        let iq1 = [vec![0; 56], iq1].concat();
        assert_eq!(count(blocks("IQ1_M", 256, 56), &iq1), (256, 0, Some(256)));
        // Products with the largest scales are infinite, those with zero are not.
        let mut mxfp4 = vec![0x07; 17];
        mxfp4[0] = 255;
        assert_eq!(count(blocks("MXFP4", 32, 17), &mxfp4), (0, 16, Some(0)));
        assert_eq!(count(blocks("NVFP4", 64, 36), &[0xff; 36]), (0, 0, None));
        // Two scales are zero; whether their codes are, too, makes the difference.
        let lost = |scale: u8, code: u8| {
            let mut block = [0x38; 36];
            block[2..4].fill(scale);
            block[20..36].fill(code);
            let layout = Layout::Fill([].into());
            let mut tally = Tally::new(&Tensor::new(blocks("NVFP4", 64, 36), vec![], layout), true);
            tally.update(&block);
            tally.finish().0.lost
        };
        // The code 8 is a negative zero.
        let found = [(0, 0x10), (0x7f, 1), (0, 0), (0, 0x80), (1, 1)];
        assert_eq!(found.map(|(scale, code)| lost(scale, code)), [2, 2, 0, 0, 0]);
        let unknown = blocks("Q2_0", 64, 18);
        assert_eq!(ElementNumbers::of(&unknown), (ElementNumbers::Without, false));
    }
}
