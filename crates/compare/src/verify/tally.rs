//! Counts NaN and infinite values of a tensor, and hashes it, as its bytes pass.

use sha2::{Digest as _, Sha256};
use statelens_checkpoint::{DType, Tensor};

/// The numbers of a tensor that are not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NonFinite {
    /// Number of NaN values.
    pub nan: u64,
    /// Number of infinite values of either sign.
    pub inf: u64,
    /// The index in C order of the first element that is not finite; a complex element has two
    /// numbers.
    pub first: Option<u64>,
}

impl NonFinite {
    /// Adds the counts of the elements that follow.
    pub(super) fn merge(&mut self, next: Self) {
        self.nan = self.nan.saturating_add(next.nan);
        self.inf = self.inf.saturating_add(next.inf);
        self.first = self.first.or(next.first);
    }
}

/// Counts and hashes the logical bytes of a tensor, in pieces of any size.
pub(super) struct Tally {
    float_bits: Option<FloatBits>,
    /// Number of numbers in an element.
    numbers: u64,
    /// Number of numbers processed.
    at: u64,
    /// The bytes of a number that has not fully arrived.
    waiting: Vec<u8>,
    found: NonFinite,
    hasher: Option<Sha256>,
}

/// The bit patterns of a float format that are not finite.
#[derive(Debug, Clone, Copy)]
struct FloatBits {
    /// Size of a number in bytes.
    size: usize,
    /// Mask of the exponent bits, which are all set if the number is not finite.
    exponent: u64,
    /// Mask of the mantissa bits; a NaN has at least one set.
    mantissa: u64,
    /// The codes that are NaN, in formats without infinities.
    only: &'static [u64],
}

impl FloatBits {
    /// Returns the bit patterns of a dtype and the number of numbers in an element; `None` if it is
    /// not a float.
    fn of(dtype: &DType) -> Option<(Self, u64)> {
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

    /// Returns 0 for a finite number, 1 for a NaN, 2 for an infinity.
    fn class(self, bits: u64) -> u8 {
        if self.exponent == 0 {
            return u8::from(self.only.contains(&bits));
        }
        match (bits & self.exponent == self.exponent, bits & self.mantissa) {
            (false, _) => 0,
            (true, 0) => 2,
            (true, _) => 1,
        }
    }
}

impl Tally {
    pub(super) fn new(tensor: &Tensor, hash: bool) -> Self {
        let (float_bits, numbers) = FloatBits::of(&tensor.dtype).unzip();
        Self {
            float_bits,
            numbers: numbers.unwrap_or(1),
            at: 0,
            waiting: Vec::new(),
            found: NonFinite::default(),
            hasher: hash.then(Sha256::new),
        }
    }

    /// Starts after the first `bytes` bytes of the tensor.
    pub(super) fn behind(mut self, bytes: u64) -> Self {
        self.at = self.float_bits.map_or(0, |float_bits| bytes / float_bits.size as u64);
        self
    }

    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        let Some(float_bits) = self.float_bits else { return };
        if !self.waiting.is_empty() {
            let missing = (float_bits.size - self.waiting.len()).min(bytes.len());
            let (head, rest) = bytes.split_at(missing);
            self.waiting.extend_from_slice(head);
            bytes = rest;
            if self.waiting.len() < float_bits.size {
                return;
            }
            let whole = std::mem::take(&mut self.waiting);
            self.count(float_bits, &whole);
        }
        let whole = bytes.len() / float_bits.size * float_bits.size;
        self.count(float_bits, &bytes[..whole]);
        self.waiting.extend_from_slice(&bytes[whole..]);
    }

    /// Counts complete numbers.
    fn count(&mut self, float_bits: FloatBits, bytes: &[u8]) {
        match float_bits.size {
            2 => {
                self.each(float_bits, bytes.as_chunks().0, |bytes| u16::from_le_bytes(bytes).into())
            }
            4 => {
                self.each(float_bits, bytes.as_chunks().0, |bytes| u32::from_le_bytes(bytes).into())
            }
            8 => self.each(float_bits, bytes.as_chunks().0, u64::from_le_bytes),
            _ => self.each(float_bits, bytes.as_chunks().0, |[byte]| byte.into()),
        }
    }

    fn each<const N: usize>(
        &mut self,
        float_bits: FloatBits,
        numbers: &[[u8; N]],
        bits: impl Fn([u8; N]) -> u64,
    ) {
        // Nearly all blocks are finite, so each is first checked in one pass.
        for block in numbers.chunks(1024) {
            let odd =
                block.iter().fold(false, |odd, number| odd | (float_bits.class(bits(*number)) > 0));
            if odd {
                for (index, number) in (self.at..).zip(block) {
                    match float_bits.class(bits(*number)) {
                        0 => continue,
                        1 => self.found.nan += 1,
                        _ => self.found.inf += 1,
                    }
                    self.found.first.get_or_insert(index / self.numbers);
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
    use super::*;
    use statelens_checkpoint::Layout;

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
}
