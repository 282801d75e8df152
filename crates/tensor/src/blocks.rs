//! Quantised blocks: a few numbers and their scale, stored together.
//!
//! The arithmetic is that of `gguf.quants.dequantize` of the package gguf 0.19, which follows ggml's
//! reference code (`ggml-quants.c` in <https://github.com/ggml-org/llama.cpp>): 32-bit floats, rounded
//! after each operation.

mod grids;
mod iq;
mod k;
mod small;

use std::borrow::Cow;
use std::ops::Range;

use statelens_checkpoint::{Block, DType, Error, Layout, Result, Tensor};

use crate::cast::{plain, widen_f16};
use crate::widest::widest;

/// Decodes whole blocks to little-endian floats; the slices have the same number of blocks.
type Decode = fn(&[u8], &mut [u8]);

/// Makes the list of types: name, elements in a block, bytes in a block, decoder of a block.
macro_rules! decoders {
    ($(($name:literal, $elements:literal, $bytes:literal, $decode:path),)*) => {
        [$(($name, $elements, $bytes, |stored, out| {
            decode_all::<$elements, $bytes>(stored, out, $decode);
        }),)*]
    };
}

/// Name, elements in a block, bytes in a block, decoder.
const DECODERS: [(&str, u64, u64, Decode); 25] = decoders![
    ("Q4_0", 32, 18, small::q4_0),
    ("Q4_1", 32, 20, small::q4_1),
    ("Q5_0", 32, 22, small::q5_0),
    ("Q5_1", 32, 24, small::q5_1),
    ("Q8_0", 32, 34, small::q8_0),
    ("Q2_K", 256, 84, k::q2),
    ("Q3_K", 256, 110, k::q3),
    ("Q4_K", 256, 144, k::q4),
    ("Q5_K", 256, 176, k::q5),
    ("Q6_K", 256, 210, k::q6),
    ("Q8_K", 256, 292, k::q8),
    ("IQ2_XXS", 256, 66, iq::iq2_xxs),
    ("IQ2_XS", 256, 74, iq::iq2_xs),
    ("IQ3_XXS", 256, 98, iq::iq3_xxs),
    ("IQ1_S", 256, 50, iq::iq1_s),
    ("IQ4_NL", 32, 18, small::iq4_nl),
    ("IQ3_S", 256, 110, iq::iq3_s),
    ("IQ2_S", 256, 82, iq::iq2_s),
    ("IQ4_XS", 256, 136, iq::iq4_xs),
    ("IQ1_M", 256, 56, iq::iq1_m),
    ("TQ1_0", 256, 54, k::tq1),
    ("TQ2_0", 256, 66, k::tq2),
    ("MXFP4", 32, 17, small::mxfp4),
    ("NVFP4", 64, 36, small::nvfp4),
    ("Q1_0", 128, 18, small::q1_0),
];

/// Decodes whole blocks. `decode` must be `#[inline(always)]`, so that it is compiled for each kind of
/// vector instructions.
#[inline(always)]
fn decode_all<const ELEMENTS: usize, const BYTES: usize>(
    stored: &[u8],
    out: &mut [u8],
    decode: impl Fn(&[u8], &mut [f32]),
) {
    widest(
        #[inline(always)]
        || {
            let mut numbers = [0.0; ELEMENTS];
            let blocks = stored.as_chunks::<BYTES>().0;
            for (block, out) in blocks.iter().zip(out.chunks_exact_mut(4 * ELEMENTS)) {
                decode(block, &mut numbers);
                for (out, number) in out.as_chunks_mut().0.iter_mut().zip(&numbers) {
                    *out = number.to_le_bytes();
                }
            }
        },
    );
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    /// Bytes and elements in a block.
    bytes: usize,
    elements: usize,
    decode: Decode,
}

impl Blocks {
    /// Returns the decoder; `None` for a type that can't be decoded here.
    pub(crate) fn new(block: Block) -> Option<Self> {
        let wanted = (block.name, block.elements, block.bytes);
        let row = DECODERS.iter().find(|row| (row.0, row.1, row.2) == wanted)?;
        // The numbers of the table are small.
        Some(Self { bytes: row.2 as usize, elements: row.1 as usize, decode: row.3 })
    }

    /// Decodes whole blocks; clears `out` first.
    pub(crate) fn run(&self, stored: &[u8], out: &mut Vec<u8>) {
        let Self { bytes, elements, decode } = *self;
        out.resize(stored.len() / bytes * elements * 4, 0);
        decode(stored, out);
    }
}

/// The format of a scale in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleFormat {
    /// float16.
    F16,
    /// float32.
    F32,
    /// An exponent of eight bits, without NaN. Products with the three largest may be infinite.
    E8M0,
    /// An unsigned E4M3 for a run of codes of the block. Its code for NaN is decoded as zero.
    Ue4m3,
}

impl ScaleFormat {
    /// Returns whether bytes begin with a scale that is zero.
    pub fn is_zero(self, bytes: &[u8]) -> bool {
        match (self, bytes) {
            (Self::F16, [low, high, ..]) => *low == 0 && high & 0x7f == 0,
            (Self::F32, [a, b, c, high, ..]) => [*a, *b, *c] == [0; 3] && high & 0x7f == 0,
            (Self::Ue4m3, [code, ..]) => matches!(code, 0 | 0x7f),
            _ => false,
        }
    }
}

/// Returns the offsets and formats of the scales in a block: its values are finite if its scales are.
/// `None` if they are not floats in one place.
///
/// The positions are those of the structures in `ggml-common.h`.
pub fn block_scales(block: &Block) -> Option<&'static [(usize, ScaleFormat)]> {
    use ScaleFormat::{E8M0, F16, F32, Ue4m3};
    let scales: &[(usize, ScaleFormat)] = match block.name {
        "Q4_0" | "Q5_0" | "Q8_0" | "IQ2_XXS" | "IQ2_XS" | "IQ2_S" | "IQ3_XXS" | "IQ3_S"
        | "IQ1_S" | "IQ4_NL" | "IQ4_XS" | "Q1_0" => &[(0, F16)],
        "Q4_1" | "Q5_1" | "Q4_K" | "Q5_K" => &[(0, F16), (2, F16)],
        "Q2_K" => &[(80, F16), (82, F16)],
        "Q3_K" => &[(108, F16)],
        "Q6_K" => &[(208, F16)],
        "Q8_K" => &[(0, F32)],
        "TQ1_0" => &[(52, F16)],
        "TQ2_0" => &[(64, F16)],
        "MXFP4" => &[(0, E8M0)],
        "NVFP4" => &[(0, Ue4m3), (1, Ue4m3), (2, Ue4m3), (3, Ue4m3)],
        _ => return None,
    };
    Some(scales)
}

/// Returns the number of scales of a block that are zero although their codes are not, so that the
/// numbers are lost. A minimum does not count. 0 for types whose scale is not a float in one place,
/// and for those without a code for zero: there, a scale of zero is how zeros are stored.
pub fn lost_scales(block: &Block, bytes: &[u8]) -> u64 {
    let Some([(at, format), others @ ..]) = block_scales(block) else { return 0 };
    let has_zero = !block.name.starts_with("IQ") && block.name != "Q1_0";
    let is_zero = |at: usize| format.is_zero(bytes.get(at..).unwrap_or_default());
    // llama.cpp writes some blocks of zeros with codes of zero, whatever they stand for.
    if !has_zero || bytes.iter().all(|byte| *byte == 0) {
        return 0;
    }
    // Whether the block has values with a scale of 1 at `at`, and zeros for its other scales.
    let is_lost = |at: usize, one: &[u8]| {
        let mut scaled = bytes.to_vec();
        let mut set = |at: usize, new: &[u8]| {
            if let Some(place) = scaled.get_mut(at..at + new.len()) {
                place.copy_from_slice(new);
            }
        };
        block_scales(block)
            .into_iter()
            .flatten()
            .for_each(|(at, _)| set(*at, &[0, 0][..one.len().min(2)]));
        set(at, one);
        let values = dequantized_block(block, &scaled);
        is_zero(at) && values.is_some_and(|values| values.iter().any(|value| *value != 0.0))
    };
    match format {
        ScaleFormat::F16 => is_lost(*at, &[0x00, 0x3c]).into(),
        ScaleFormat::F32 => is_lost(*at, &[0x00, 0x00, 0x80, 0x3f]).into(),
        ScaleFormat::E8M0 => 0,
        ScaleFormat::Ue4m3 => {
            let all = others.iter().map(|(at, _)| *at).chain([*at]);
            all.filter(|at| is_lost(*at, &[0x38])).count() as u64
        }
    }
}

/// Returns the number of scales in a block, without its minimums.
pub fn scales_in(block: &Block) -> u64 {
    let scales = block_scales(block).unwrap_or_default();
    let of_runs = scales.iter().filter(|(_, format)| *format == ScaleFormat::Ue4m3);
    (of_runs.count() as u64).max(1)
}

/// Decodes one block; `None` if its type can't be decoded here, or `bytes` are not a block.
pub fn dequantized_block(block: &Block, bytes: &[u8]) -> Option<Vec<f32>> {
    let blocks = Blocks::new(*block).filter(|_| bytes.len() as u64 == block.bytes)?;
    let mut out = Vec::new();
    blocks.run(bytes, &mut out);
    Some(out.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect())
}

/// Returns the same tensor with its elements as numbers, for elements that torch doesn't have:
/// blocks as `float32`, others as in [`plain`]. `None` if torch has them, or if they can't be
/// decoded.
pub fn dequantized(tensor: &Tensor) -> Option<Tensor> {
    let dtype = match tensor.dtype {
        DType::Blocks(block) => Blocks::new(*block).map(|_| DType::F32),
        ref dtype => plain(dtype),
    };
    Some(Tensor { dtype: dtype?, ..tensor.clone() })
}

/// Returns whether the elements are floating-point numbers that can be cast: one for each element,
/// also of the types that only `ml_dtypes` has, or in blocks that can be decoded.
pub fn has_floats(dtype: &DType) -> bool {
    match dtype {
        DType::Blocks(block) => Blocks::new(**block).is_some(),
        DType::F4E2M1FNX2 => false,
        dtype => plain(dtype).as_ref().unwrap_or(dtype).is_float(),
    }
}

/// Returns the tensor in a form whose elements can be read individually: itself, or
/// [`dequantized`]; `None` for blocks that can't be decoded.
pub fn numbers(tensor: &Tensor) -> Option<Cow<'_, Tensor>> {
    match (dequantized(tensor), &tensor.dtype) {
        (Some(numbers), _) => Some(Cow::Owned(numbers)),
        (None, DType::Blocks(_)) => None,
        (None, _) => Some(Cow::Borrowed(tensor)),
    }
}

/// Converts the elements `range` of a tensor to units of storage (elements or blocks): the shape in
/// units, the range of units, and the elements to trim off. A view of blocks counts in blocks.
pub(crate) fn units(
    tensor: &Tensor,
    range: Range<u64>,
) -> Result<(Vec<u64>, Range<u64>, Option<Trim>)> {
    let DType::Blocks(block) = tensor.stored else {
        return Ok((tensor.shape.clone(), range, None));
    };
    let mut shape = tensor.shape.clone();
    match shape.last_mut() {
        Some(last) if block.elements > 0 && last.is_multiple_of(block.elements) => {
            *last /= block.elements;
        }
        _ => {
            return Err(Error::damaged(format!(
                "a tensor of shape {:?} is not a whole number of blocks of {}",
                tensor.shape, block.elements
            )));
        }
    }
    if !matches!(
        tensor.layout,
        Layout::Span(_)
            | Layout::Packed(_)
            | Layout::Inline(_)
            | Layout::Missing(_)
            | Layout::Strided(_)
    ) {
        return Err(Error::unsupported("quantised blocks can't be read through a view"));
    }
    let units = range.start / block.elements..range.end.div_ceil(block.elements);
    let before = range.start - units.start * block.elements;
    if tensor.dtype == tensor.stored {
        let whole = before == 0 && range.end.is_multiple_of(block.elements);
        return match whole || range.is_empty() {
            true => Ok((shape, units, None)),
            false => Err(Error::unsupported("a part of a quantised block can't be read")),
        };
    }
    let size = tensor.dtype.itemsize();
    let trim = Trim { skip: before * size, left: (range.end - range.start) * size };
    let units = if range.is_empty() { 0..0 } else { units };
    Ok((shape, units, Some(trim)))
}

/// Cuts the requested bytes out of whole blocks.
#[derive(Debug)]
pub(crate) struct Trim {
    skip: u64,
    left: u64,
}

impl Trim {
    pub(crate) fn cut<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        let skip = self.skip.min(piece.len() as u64);
        self.skip -= skip;
        let take = self.left.min(piece.len() as u64 - skip);
        self.left -= take;
        &piece[skip as usize..(skip + take) as usize]
    }
}

/// Reads a 16-bit float in a block; the offset must be in bounds.
#[inline(always)]
fn half(block: &[u8], at: usize) -> f32 {
    widen_f16(word(block, at))
}

#[inline(always)]
fn word(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

#[inline(always)]
fn signed(byte: u8) -> f32 {
    f32::from(i8::from_le_bytes([byte]))
}

#[cfg(test)]
mod tests {
    use half::f16;
    use statelens_checkpoint::{FileSet, Memory, Span};

    use super::*;
    use crate::{BUDGET, Gather, Need};

    const Q8_0: Block = Block { name: "Q8_0", elements: 32, bytes: 34, words: &[(0, 2)] };
    const Q2_0: Block = Block { name: "Q2_0", elements: 64, bytes: 18, words: &[] };

    /// Two rows of two blocks; the n-th element is n times 0.5.
    fn file() -> (FileSet, Tensor) {
        let mut bytes = Vec::new();
        for block in 0..4u8 {
            bytes.extend(f16::from_f32(0.5).to_le_bytes());
            bytes.extend((0..32).map(|at| block * 32 + at));
        }
        let len = bytes.len() as u64;
        let files = FileSet::single("x", Memory::from(bytes));
        let span = Span { file: files.main().unwrap(), offset: 0, len };
        (files, Tensor::new(DType::Blocks(&Q8_0), vec![2, 64], Layout::Span(span)))
    }

    fn gather(files: &FileSet, tensor: &Tensor, range: Range<u64>, piece: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut gather = Gather::new(files, tensor, range, BUDGET)?;
        while let Need::Feed(span) = gather.need() {
            let fed = files.read_vec(span.file, span.offset, span.len.min(piece))?;
            gather.feed(&fed, &mut |out| {
                bytes.extend_from_slice(out);
                Ok(())
            })?;
        }
        assert_eq!(gather.need(), Need::Done);
        Ok(bytes)
    }

    #[test]
    fn decodes_any_range_for_any_piece_size() {
        let (files, tensor) = file();
        let decoded = dequantized(&tensor).unwrap();
        for piece in [1, 3, 34, 35, 1000] {
            for range in [0..128, 0..1, 31..33, 5..100, 127..128, 64..64] {
                let expected: Vec<u8> =
                    range.clone().flat_map(|n| (f32::from(n as u8) * 0.5).to_le_bytes()).collect();
                assert_eq!(gather(&files, &decoded, range, piece).unwrap(), expected);
            }
        }
        let halves = Tensor { dtype: DType::F16, ..decoded };
        let expected = f16::from_f32(3.5).to_le_bytes();
        assert_eq!(gather(&files, &halves, 7..8, 5).unwrap(), expected);
    }

    /// A NaN keeps its sign and payload, whatever the signs of the elements, as in gguf's numpy code.
    #[test]
    fn signs_do_not_change_a_nan() {
        for name in ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"] {
            let (_, elements, bytes, _) = *DECODERS.iter().find(|row| row.0 == name).unwrap();
            let block = Block { name, elements, bytes, words: &[] };
            let mut stored: Vec<u8> = (0..bytes).map(|at| (at * 89 + at / 7) as u8).collect();
            stored[..2].copy_from_slice(&0xfe01u16.to_le_bytes());
            let numbers = dequantized_block(&block, &stored).unwrap();
            assert!(numbers.iter().all(|number| number.to_bits() == 0xffc0_2000), "{name}");
        }
    }

    #[test]
    fn reads_raw_blocks_only_whole() {
        let (files, tensor) = file();
        let raw = files.read_vec(files.main().unwrap(), 0, 4 * 34).unwrap();
        assert_eq!(gather(&files, &tensor, 0..128, 7).unwrap(), raw);
        assert_eq!(gather(&files, &tensor, 32..96, 7).unwrap(), raw[34..102]);
        assert!(gather(&files, &tensor, 1..32, 7).is_err());
        assert_eq!(tensor.nbytes(), Some(4 * 34));
        let odd = Tensor { shape: vec![4, 24], ..tensor.clone() };
        assert!(gather(&files, &odd, 0..96, 7).is_err());
        let scalar = Tensor { shape: vec![], ..tensor };
        assert_eq!(scalar.nbytes(), None);
        let unknown = Tensor::new(DType::Blocks(&Q2_0), vec![256], scalar.layout);
        assert!(dequantized(&unknown).is_none());
        let wanted = Tensor { dtype: DType::F32, ..unknown };
        assert!(Gather::new(&files, &wanted, 0..256, BUDGET).is_err());
    }
}
