//! Quantised blocks: a few numbers and their scale, stored together.
//!
//! The arithmetic is that of ggml's reference code (`ggml-quants.c` in
//! <https://github.com/ggml-org/llama.cpp>), in 32-bit floats.

use std::borrow::Cow;
use std::ops::Range;

use half::f16;
use statelens_checkpoint::{Block, DType, Error, Layout, Result, Tensor};

use crate::cast::plain;

type Decode = fn(&[u8], &mut Vec<u8>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    block: Block,
    decode: Decode,
}

impl Blocks {
    /// Returns the decoder; `None` for a type that can't be decoded here.
    pub(crate) fn new(block: Block) -> Option<Self> {
        let decode: Decode = match block.name {
            "Q4_0" => |block, out| nibbles(block, 1, out),
            "Q4_1" => |block, out| nibbles(block, 2, out),
            "Q5_0" => |block, out| five_bits(block, 1, out),
            "Q5_1" => |block, out| five_bits(block, 2, out),
            "Q8_0" => |block, out| {
                let scale = half(block, 0);
                for byte in &block[2..] {
                    put(out, f32::from(i8::from_le_bytes([*byte])) * scale);
                }
            },
            _ => return None,
        };
        Some(Self { block, decode })
    }

    /// Decodes whole blocks; clears `out` first.
    pub(crate) fn run(&self, stored: &[u8], out: &mut Vec<u8>) {
        out.clear();
        // Blocks are small, so their size fits in a `usize`.
        for block in stored.chunks_exact(self.block.bytes as usize) {
            (self.decode)(block, out);
        }
    }
}

/// The format of a scale in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleFormat {
    /// float16.
    F16,
    /// float32.
    F32,
    /// An exponent of eight bits; 255 is NaN (OCP Microscaling Formats 1.0, section 5.4.1).
    E8M0,
}

/// Returns the offsets and formats of the scales in a block, also of blocks that can't be decoded:
/// its values are finite if and only if its scales are. `None` if they are not known.
///
/// The positions are those of the structures in `ggml-common.h`.
pub fn block_scales(block: &Block) -> Option<&'static [(usize, ScaleFormat)]> {
    use ScaleFormat::{E8M0, F16, F32};
    let scales: &[(usize, ScaleFormat)] = match block.name {
        "Q4_0" | "Q5_0" | "Q8_0" | "IQ2_XXS" | "IQ2_XS" | "IQ2_S" | "IQ3_XXS" | "IQ3_S"
        | "IQ1_S" | "IQ4_NL" | "IQ4_XS" => &[(0, F16)],
        "Q4_1" | "Q5_1" | "Q4_K" | "Q5_K" => &[(0, F16), (2, F16)],
        "Q2_K" => &[(80, F16), (82, F16)],
        "Q3_K" => &[(108, F16)],
        "Q6_K" => &[(208, F16)],
        "Q8_K" => &[(0, F32)],
        "TQ1_0" => &[(52, F16)],
        "TQ2_0" => &[(64, F16)],
        "MXFP4" => &[(0, E8M0)],
        _ => return None,
    };
    Some(scales)
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
/// units, the range of units, and the elements to trim off.
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
        Layout::Span(_) | Layout::Packed(_) | Layout::Inline(_) | Layout::Missing(_)
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
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn put(out: &mut Vec<u8>, value: f32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Decodes sixteen bytes of two numbers each; the low halves come first. With one scale, numbers
/// are centred on 8; with two, the second is the minimum.
fn nibbles(block: &[u8], scales: usize, out: &mut Vec<u8>) {
    let scale = half(block, 0);
    let bytes = &block[2 * scales..];
    for shift in [0, 4] {
        for byte in bytes {
            let number = byte >> shift & 15;
            put(
                out,
                match scales {
                    1 => f32::from(i16::from(number) - 8) * scale,
                    _ => f32::from(number) * scale + half(block, 2),
                },
            );
        }
    }
}

/// Like [`nibbles`], with the fifth bits of all 32 numbers in four bytes before them, centred on
/// 16.
fn five_bits(block: &[u8], scales: usize, out: &mut Vec<u8>) {
    let scale = half(block, 0);
    let (high, bytes) = block[2 * scales..].split_at(4);
    for (shift, start) in [(0, 0), (4, 16)] {
        for (index, byte) in bytes.iter().enumerate() {
            let at = start + index;
            let fifth = high[at / 8] >> (at % 8) & 1;
            let number = byte >> shift & 15 | fifth << 4;
            put(
                out,
                match scales {
                    1 => f32::from(i16::from(number) - 16) * scale,
                    _ => f32::from(number) * scale + half(block, 2),
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{FileSet, Memory, Span};

    use super::*;
    use crate::{BUDGET, Gather, Need};

    const Q8_0: Block = Block { name: "Q8_0", elements: 32, bytes: 34, words: &[(0, 2)] };
    const Q2_K: Block = Block { name: "Q2_K", elements: 256, bytes: 84, words: &[] };

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
        let unknown = Tensor::new(DType::Blocks(&Q2_K), vec![256], scalar.layout);
        assert!(dequantized(&unknown).is_none());
        let wanted = Tensor { dtype: DType::F32, ..unknown };
        assert!(Gather::new(&files, &wanted, 0..256, BUDGET).is_err());
    }
}
