//! Transforms stored elements to logical ones: byte order, sign, cast.

use statelens_checkpoint::{ByteOrder, DType, Error, Result, Tensor};

use crate::blocks::Blocks;
use crate::cast::Cast;
use crate::pieces::Elements;
use crate::{CastReport, Out};

/// Bytes of stored elements that are processed at once.
const BLOCK: usize = 64 << 10;

/// The operations on each stored element, in this order: byte order, negation, conjugation,
/// decoding of blocks, cast.
#[derive(Debug)]
pub(crate) struct Transform {
    /// Byte ranges of an element that are reversed.
    swap: Vec<(usize, usize)>,
    /// Numbers of an element whose sign changes.
    signs: Vec<Sign>,
    /// The decoder, if elements are blocks and their numbers are needed.
    blocks: Option<Blocks>,
    cast: Option<Cast>,
    itemsize: usize,
    elements: Elements,
    buffers: TransformBuffers,
}

/// A number in an element whose sign changes.
#[derive(Debug, Clone, Copy)]
struct Sign {
    offset: usize,
    size: usize,
    /// Whether it is in two's complement rather than with a sign bit.
    integer: bool,
}

#[derive(Debug, Default)]
struct TransformBuffers {
    stored: Vec<u8>,
    numbers: Vec<u8>,
    cast: Vec<u8>,
}

impl Transform {
    pub(crate) fn new(tensor: &Tensor) -> Result<Self> {
        // A very long string is transformed character by character.
        let itemsize = tensor.stored.unit().unwrap_or_else(|| tensor.stored.itemsize());
        let (blocks, from) = match &tensor.stored {
            stored if *stored == tensor.dtype => (None, stored),
            DType::Blocks(block) => match Blocks::new(**block) {
                Some(blocks) => (Some(blocks), &DType::F32),
                None => {
                    return Err(Error::unsupported(format!(
                        "the values of {} blocks can't be read",
                        tensor.stored
                    )));
                }
            },
            stored => (None, stored),
        };
        let cast = match *from == tensor.dtype {
            true => None,
            false => Some(Cast::new(from, &tensor.dtype)?),
        };
        Ok(Self {
            blocks,
            swap: match tensor.byte_order {
                ByteOrder::Little => Vec::new(),
                ByteOrder::Big => words(&tensor.stored),
            },
            signs: signs(tensor)?,
            cast,
            // The layout's machine has refused elements whose size does not fit in a `usize`.
            itemsize: (itemsize as usize).max(1),
            elements: Elements::new(itemsize),
            buffers: TransformBuffers::default(),
        })
    }

    pub(crate) fn feed(&mut self, piece: &[u8], out: &mut Out<'_>) -> Result<()> {
        if self.is_identity() {
            return out(piece);
        }
        let Self { swap, signs, blocks, cast, itemsize, elements, buffers: work } = self;
        elements.feed(piece, &mut |whole| {
            let block = (BLOCK / *itemsize).max(1) * *itemsize;
            for block in whole.chunks(block) {
                let mut stored = block;
                if !swap.is_empty() || !signs.is_empty() {
                    work.stored.clear();
                    work.stored.extend_from_slice(block);
                    reverse(&mut work.stored, *itemsize, swap);
                    change_signs(&mut work.stored, *itemsize, signs);
                    stored = &work.stored;
                }
                if let Some(blocks) = blocks {
                    blocks.run(stored, &mut work.numbers);
                    stored = &work.numbers;
                }
                match cast {
                    Some(cast) => {
                        cast.run(stored, &mut work.cast);
                        out(&work.cast)?;
                    }
                    None => out(stored)?,
                }
            }
            Ok(())
        })
    }

    /// Fails if the last element is incomplete. Called after all bytes have been fed.
    pub(crate) fn finish(&self) -> Result<()> {
        match self.elements.is_whole() {
            true => Ok(()),
            false => Err(Error::damaged("the last element of a tensor is cut off")),
        }
    }

    pub(crate) fn report(&self) -> CastReport {
        self.cast.as_ref().map_or_else(CastReport::default, |cast| cast.report)
    }

    fn is_identity(&self) -> bool {
        self.swap.is_empty()
            && self.signs.is_empty()
            && self.blocks.is_none()
            && self.cast.is_none()
    }
}

/// Returns the byte ranges of an element that are reversed to change the byte order.
fn words(dtype: &DType) -> Vec<(usize, usize)> {
    let fits = |(offset, size): &(u64, u64)| {
        *size > 1 && offset.checked_add(*size).is_some_and(|end| end <= dtype.itemsize())
    };
    dtype
        .words()
        .into_iter()
        .filter(fits)
        .map(|(offset, size)| (offset as usize, size as usize))
        .collect()
}

fn signs(tensor: &Tensor) -> Result<Vec<Sign>> {
    let dtype = &tensor.stored;
    let size = dtype.word() as usize;
    let complex = dtype.is_complex();
    if !(tensor.negate || tensor.conjugate && complex) {
        return Ok(Vec::new());
    }
    let wide_float = dtype.is_float() && size > 1;
    if !(complex || wide_float || dtype.is_int()) {
        return Err(Error::unsupported(format!("elements of dtype {dtype} can't be negated")));
    }
    let real = Sign { offset: 0, size, integer: dtype.is_int() };
    let imaginary = Sign { offset: size, ..real };
    // If negated and conjugated, only the real part changes.
    Ok(match (tensor.negate, tensor.conjugate, complex) {
        (true, true, true) | (true, _, false) => vec![real],
        (true, false, true) => vec![real, imaginary],
        (false, _, _) => vec![imaginary],
    })
}

fn reverse(bytes: &mut [u8], itemsize: usize, words: &[(usize, usize)]) {
    fn each<const SIZE: usize>(bytes: &mut [u8]) {
        for word in bytes.chunks_exact_mut(SIZE) {
            word.reverse();
        }
    }
    match words {
        [(0, 2)] if itemsize == 2 => each::<2>(bytes),
        [(0, 4)] if itemsize == 4 => each::<4>(bytes),
        [(0, 8)] if itemsize == 8 => each::<8>(bytes),
        words => {
            for item in bytes.chunks_exact_mut(itemsize) {
                for (offset, size) in words {
                    item[*offset..offset + size].reverse();
                }
            }
        }
    }
}

fn change_signs(bytes: &mut [u8], itemsize: usize, signs: &[Sign]) {
    for item in bytes.chunks_exact_mut(itemsize) {
        for sign in signs {
            let number = &mut item[sign.offset..sign.offset + sign.size];
            if sign.integer {
                let mut carry = true;
                for byte in number {
                    (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
                }
            } else {
                number[sign.size - 1] ^= 0x80;
            }
        }
    }
}
