//! LZ4 (filter 32004): a size, a block size, and blocks in the LZ4 block format.
//!
//! Big-endian: u64 decoded size, u32 decoded size of a block, then for each block its u32 stored
//! size and its bytes. A block that did not shrink is stored unchanged.

use statelens_checkpoint::{Error, Result};

/// Undoes LZ4; an error if the result exceeds `limit` bytes.
pub fn decode(input: &[u8], limit: usize) -> Result<Vec<u8>> {
    let short = || Error::damaged("an lz4 chunk ends too early");
    let (size, rest) = input.split_first_chunk::<8>().ok_or_else(short)?;
    let (block, mut rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let size = usize::try_from(u64::from_be_bytes(*size)).ok().filter(|size| *size <= limit);
    let size = size.ok_or_else(|| {
        Error::damaged("an lz4 chunk claims to hold more than its dataset's chunks")
            .expected(format!("{limit} bytes or less"))
    })?;
    let block = u32::from_be_bytes(*block) as usize;
    if block == 0 && size > 0 {
        return Err(Error::damaged("an lz4 chunk with blocks of 0 bytes"));
    }
    let mut out = vec![0; size];
    for plain in out.chunks_mut(block.max(1)) {
        let (len, tail) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let len = u32::from_be_bytes(*len) as usize;
        let (stored, tail) = tail.split_at_checked(len).ok_or_else(short)?;
        rest = tail;
        if len == plain.len() {
            plain.copy_from_slice(stored);
            continue;
        }
        let got = lz4_flex::block::decompress_into(stored, plain)
            .map_err(|error| Error::damaged(format!("an lz4 block does not decode: {error}")))?;
        if got != plain.len() {
            return Err(Error::damaged(format!("an lz4 block has {got} bytes"))
                .expected(format!("{} bytes", plain.len())));
        }
    }
    Ok(out)
}

/// The largest block of the filter's own encoder.
const BLOCK: usize = 1 << 30;

/// Appends an encoded chunk, in the format of the filter's own encoder: one block, unless the chunk
/// is larger than 1 GiB.
pub fn encode(plain: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let block = plain.len().clamp(1, BLOCK);
    out.extend_from_slice(&(plain.len() as u64).to_be_bytes());
    out.extend_from_slice(&(block as u32).to_be_bytes());
    for piece in plain.chunks(block) {
        let at = out.len();
        out.resize(at + 4 + lz4_flex::block::get_maximum_output_size(piece.len()), 0);
        let len = lz4_flex::block::compress_into(piece, &mut out[at + 4..])
            .map_err(|error| Error::unsupported(format!("lz4 can't encode a chunk: {error}")))?;
        let len = if len < piece.len() {
            len
        } else {
            out[at + 4..at + 4 + piece.len()].copy_from_slice(piece);
            piece.len()
        };
        out[at..at + 4].copy_from_slice(&(len as u32).to_be_bytes());
        out.truncate(at + 4 + len);
    }
    Ok(())
}

/// Returns the most bytes that [`encode`] appends for a chunk of `plain` bytes.
pub fn bound(plain: u64) -> u64 {
    plain.saturating_add(12).saturating_add(4 * plain.div_ceil(BLOCK as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lz4_chunks_round_trip_within_the_bound() {
        let noise: Vec<u8> =
            (0..5000u32).map(|i| (i.wrapping_mul(2654435761) >> 13) as u8).collect();
        for plain in [&noise[..], &[0; 12_500], &noise[..20], &[]] {
            let mut stored = Vec::new();
            encode(plain, &mut stored).unwrap();
            assert!(stored.len() as u64 <= bound(plain.len() as u64));
            assert_eq!(decode(&stored, plain.len()).unwrap(), plain);
            for cut in 0..stored.len() {
                assert!(decode(&stored[..cut], plain.len()).is_err());
            }
        }
    }

    #[test]
    fn decodes_blocks_of_any_size_and_raw_blocks() {
        // 20 bytes in blocks of 8, none compressed: the filter writes this for tiny block sizes.
        let plain: Vec<u8> = (0..20).collect();
        let mut stored = vec![0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 8];
        for piece in plain.chunks(8) {
            stored.extend_from_slice(&(piece.len() as u32).to_be_bytes());
            stored.extend_from_slice(piece);
        }
        assert_eq!(decode(&stored, 20).unwrap(), plain);
        assert!(decode(&stored, 19).is_err());
    }
}
