//! Bitshuffle (filter 32008): the first bits of a block's elements, then their second bits, and so
//! on; optionally compresses each block with LZ4 or Zstandard.

use statelens_checkpoint::{Error, Result};

use super::{FilterDescription, deflate};

/// Undoes bitshuffle; an error if the result exceeds `limit` bytes.
///
/// The parameters are: two for the filter's version, the element size, the elements per block (0:
/// as many as fit in 8 KiB) and the compression (0 none, 2 LZ4, 3 Zstandard).
pub(super) fn decode(
    filter: &FilterDescription,
    input: &[u8],
    element: usize,
    limit: usize,
) -> Result<Vec<u8>> {
    let short = || Error::damaged("a bitshuffle chunk ends too early");
    let parameter = |index: usize| filter.client_data.get(index).copied().unwrap_or(0) as usize;
    let size = match parameter(2) {
        0 => element.max(1),
        size => size,
    };
    let compression = parameter(4);
    if compression == 0 {
        if input.len() > limit {
            return Err(Error::damaged("a bitshuffle chunk is longer than its dataset's chunks"));
        }
        let block = block_len(parameter(3), size);
        let mut out = Vec::with_capacity(input.len());
        for piece in blocks(input.len(), block, size) {
            let at = out.len();
            unshuffle(&input[at..at + piece], size, &mut out);
        }
        out.extend_from_slice(&input[out.len()..]);
        return Ok(out);
    }
    let (total, rest) = input.split_first_chunk::<8>().ok_or_else(short)?;
    let (block, mut rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let total = usize::try_from(u64::from_be_bytes(*total)).ok().filter(|total| *total <= limit);
    let total = total.ok_or_else(|| {
        Error::damaged("a bitshuffle chunk claims to hold more than its dataset's chunks")
    })?;
    let block = block_len(u32::from_be_bytes(*block) as usize / size, size);
    let mut out = Vec::with_capacity(total);
    for piece in blocks(total, block, size) {
        let (len, tail) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let (stored, tail) =
            tail.split_at_checked(u32::from_be_bytes(*len) as usize).ok_or_else(short)?;
        rest = tail;
        let plain = match compression {
            2 => {
                let mut plain = vec![0; piece];
                let got =
                    lz4_flex::block::decompress_into(stored, &mut plain).map_err(|error| {
                        Error::damaged(format!("an lz4 block does not decode: {error}"))
                    })?;
                plain.truncate(got);
                plain
            }
            3 => deflate::decode_zstd(stored, piece)?,
            other => {
                return Err(Error::unsupported(format!("bitshuffle with compression {other}")));
            }
        };
        if plain.len() != piece {
            return Err(Error::damaged("a bitshuffle block has the wrong length"));
        }
        unshuffle(&plain, size, &mut out);
    }
    let left = total - out.len();
    out.extend_from_slice(rest.get(..left).ok_or_else(short)?);
    Ok(out)
}

/// Returns the bytes of a block: the given number of elements, or else a multiple of eight that
/// fits in 8 KiB, but at least 128.
fn block_len(elements: usize, size: usize) -> usize {
    let elements = if elements == 0 { ((8192 / size) & !7).max(128) } else { elements };
    elements.max(8).saturating_mul(size)
}

/// Returns the lengths of the blocks: full ones, then one with the remaining multiples of eight
/// elements. Elements after that are stored unchanged.
fn blocks(total: usize, block: usize, size: usize) -> impl Iterator<Item = usize> {
    let whole = total / block;
    let last = (total % block) / (8 * size) * (8 * size);
    std::iter::repeat_n(block, whole).chain((last > 0).then_some(last))
}

/// Appends the elements of one block, a multiple of eight of them.
fn unshuffle(input: &[u8], size: usize, out: &mut Vec<u8>) {
    let at = out.len();
    out.resize(at + input.len(), 0);
    let out = &mut out[at..];
    let row = input.len() / size / 8;
    // Row r holds bit r % 8 of byte r / 8 of every element, eight elements per byte.
    for (index, bytes) in input.chunks_exact(row.max(1)).enumerate() {
        let (byte, bit) = (index / 8, index % 8);
        for (group, bits) in bytes.iter().enumerate() {
            for element in 0..8 {
                out[(group * 8 + element) * size + byte] |= (bits >> element & 1) << bit;
            }
        }
    }
}
