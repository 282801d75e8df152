//! Filters, and the encoders that apply them to each chunk.

use std::cell::RefCell;
use std::sync::Arc;

use flate2::{Compress, Compression, FlushCompress, Status};
use statelens_checkpoint::{Encode, Encoding, Error, Result};

/// A filter pipeline for the chunks of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The registered filter 32004 with the single parameter 0, as written by hdf5plugin.
    Lz4,
    /// Shuffle, then deflate at this level (1 to 9).
    Deflate(u32),
}

pub(super) struct PipelineFilter {
    pub(super) id: u16,
    pub(super) name: &'static str,
    pub(super) parameters: Vec<u32>,
}

/// The size of chunks before encoding: large enough that few are needed, small enough to hold
/// several in memory.
const CHUNK_BYTES: u64 = 1 << 20;

impl Filter {
    pub(super) fn stages(self, itemsize: u32) -> Vec<PipelineFilter> {
        let stage = |id, name, parameters| PipelineFilter { id, name, parameters };
        match self {
            Self::Lz4 => vec![stage(
                32004,
                "HDF5 lz4 filter; see http://www.hdfgroup.org/services/contributions.html",
                vec![0],
            )],
            Self::Deflate(level) => {
                vec![stage(2, "shuffle", vec![itemsize]), stage(1, "deflate", vec![level])]
            }
        }
    }

    /// Returns how an array of `shape` is split into chunks and encoded. `shape` must have at least
    /// one dimension and no zero.
    pub fn encoding(self, shape: &[u64], itemsize: u32) -> Encoding {
        let encoder: Arc<dyn Encode> = match self {
            Self::Lz4 => Arc::new(Lz4),
            Self::Deflate(level) => Arc::new(Deflate { level, itemsize: itemsize as usize }),
        };
        Encoding { chunk: chunk_shape(shape, u64::from(itemsize)), encoder }
    }
}

/// Returns the largest chunk that is contiguous in C order and at most [`CHUNK_BYTES`]. The split
/// dimension is divided evenly to minimise padding.
fn chunk_shape(shape: &[u64], itemsize: u64) -> Vec<u64> {
    let mut chunk = vec![1; shape.len()];
    let mut room = (CHUNK_BYTES / itemsize.max(1)).max(1);
    for (chunk, dim) in chunk.iter_mut().zip(shape).rev() {
        if *dim > room {
            *chunk = dim.div_ceil(dim.div_ceil(room));
            break;
        }
        *chunk = *dim;
        room /= *dim;
    }
    chunk
}

struct Lz4;

/// Size of the chunk and of a block, big-endian, before the blocks.
const LZ4_HEADER: usize = 12;
/// Compressed size, big-endian, before each block.
const LZ4_BLOCK_HEADER: usize = 4;

impl Encode for Lz4 {
    /// Writes one block for the whole chunk; uncompressed if that is not larger.
    fn encode(&self, plain: &[u8], out: &mut Vec<u8>) -> Result<u32> {
        let len = u32::try_from(plain.len())
            .map_err(|_| Error::unsupported("an LZ4 block of 4 GiB or more"))?;
        out.extend_from_slice(&u64::from(len).to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        let header = out.len();
        out.resize(
            header + LZ4_BLOCK_HEADER + lz4_flex::block::get_maximum_output_size(plain.len()),
            0,
        );
        let block = header + LZ4_BLOCK_HEADER;
        let packed = lz4_flex::block::compress_into(plain, &mut out[block..])
            .map_err(|error| Error::unsupported(format!("an LZ4 block that failed: {error}")))?;
        let stored = if packed < plain.len() {
            packed
        } else {
            out[block..block + plain.len()].copy_from_slice(plain);
            plain.len()
        };
        out.truncate(block + stored);
        out[header..block].copy_from_slice(&(stored as u32).to_be_bytes());
        Ok(0)
    }

    fn bound(&self, plain: u64) -> u64 {
        plain.saturating_add((LZ4_HEADER + LZ4_BLOCK_HEADER) as u64)
    }
}

struct Deflate {
    level: u32,
    itemsize: usize,
}

/// The mask for skipping both filters of the pipeline.
const BOTH_SKIPPED: u32 = 0b11;

impl Encode for Deflate {
    /// Writes a zlib stream of the shuffled bytes, or the plain bytes if that is not larger.
    fn encode(&self, plain: &[u8], out: &mut Vec<u8>) -> Result<u32> {
        let start = out.len();
        let shuffled = shuffle(plain, self.itemsize);
        deflate(self.level, &shuffled, out)?;
        if out.len() - start < plain.len() {
            return Ok(0);
        }
        out.truncate(start);
        out.extend_from_slice(plain);
        Ok(BOTH_SKIPPED)
    }

    fn bound(&self, plain: u64) -> u64 {
        plain
    }
}

thread_local! {
    /// This thread's compressor, with its level. Its state is reused for all chunks: it takes 300
    /// kB with an alignment of its own, and if such blocks come and go among small ones, the
    /// system's allocator reuses few of them, so that memory would grow with the number of chunks.
    static COMPRESSOR: RefCell<Option<(u32, Compress)>> = const { RefCell::new(None) };
}

/// Room reserved for the next output of the stream.
const DEFLATED_STEP: usize = 32 << 10;

fn deflate(level: u32, plain: &[u8], out: &mut Vec<u8>) -> Result<()> {
    COMPRESSOR.with_borrow_mut(|kept| {
        let stream = match kept {
            Some((of, stream)) if *of == level => {
                stream.reset();
                stream
            }
            _ => &mut kept.insert((level, Compress::new(Compression::new(level), true))).1,
        };
        loop {
            out.reserve(DEFLATED_STEP);
            let done = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
            let rest = plain.get(done..).unwrap_or_default();
            let status = stream.compress_vec(rest, out, FlushCompress::Finish);
            match status.map_err(|error| Error::io(format!("deflating a chunk failed: {error}")))? {
                Status::StreamEnd => return Ok(()),
                Status::Ok | Status::BufError => {}
            }
        }
    })
}

/// Returns the first bytes of all elements, then the second bytes, and so on. A partial element at
/// the end is unchanged.
fn shuffle(plain: &[u8], itemsize: usize) -> Vec<u8> {
    let count = plain.len() / itemsize.max(1);
    let mut out = Vec::with_capacity(plain.len());
    for byte in 0..itemsize {
        out.extend(plain.iter().skip(byte).step_by(itemsize).take(count));
    }
    out.extend_from_slice(&plain[out.len()..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(filter: Filter, itemsize: u32, plain: &[u8]) -> (Vec<u8>, u32) {
        let mut out = b"before".to_vec();
        let encoder = filter.encoding(&[1], itemsize).encoder;
        let mask = encoder.encode(plain, &mut out).unwrap();
        let stored = out.split_off(6);
        assert_eq!(out, b"before");
        assert!(stored.len() as u64 <= encoder.bound(plain.len() as u64));
        (stored, mask)
    }

    /// The chunks that hdf5plugin 4 writes for the same bytes.
    #[test]
    fn lz4_framing_matches_the_registered_filter() {
        let plain: Vec<u8> = (0..20).collect();
        let (stored, _) = encode(Filter::Lz4, 4, &plain);
        let mut expected = vec![0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 20, 0, 0, 0, 20];
        expected.extend(&plain);
        assert_eq!(stored, expected);

        let (stored, mask) = encode(Filter::Lz4, 4, &[0; 12500]);
        assert_eq!(stored[..12], [0, 0, 0, 0, 0, 0, 0x30, 0xd4, 0, 0, 0x30, 0xd4]);
        let block = u32::from_be_bytes(stored[12..16].try_into().unwrap());
        assert_eq!((block as usize, mask), (stored.len() - 16, 0));
        assert_eq!(lz4_flex::block::decompress(&stored[16..], 12500).unwrap(), [0; 12500]);
    }

    #[test]
    fn deflate_is_skipped_if_it_does_not_help() {
        let plain: Vec<u8> = (0..1000u32).flat_map(u32::to_le_bytes).collect();
        let (stored, mask) = encode(Filter::Deflate(5), 4, &plain);
        let mut shuffled = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(&stored[..]), &mut shuffled)
            .unwrap();
        assert_eq!((mask, shuffled.len()), (0, plain.len()));
        for (index, element) in plain.chunks(4).enumerate() {
            for (byte, value) in element.iter().enumerate() {
                assert_eq!(shuffled[byte * 1000 + index], *value);
            }
        }
        let noise = [17, 203, 5];
        assert_eq!(encode(Filter::Deflate(5), 1, &noise), (noise.to_vec(), BOTH_SKIPPED));
    }

    #[test]
    fn chunk_shapes_are_contiguous_and_bounded() {
        for (shape, itemsize, chunk) in [
            (vec![10], 4, vec![10]),
            (vec![300_000], 4, vec![150_000]),
            (vec![1000, 300], 4, vec![500, 300]),
            (vec![3, 300_000], 4, vec![1, 150_000]),
            (vec![5, 7, 300_000], 2, vec![1, 1, 300_000]),
            (vec![2, 600_000], 2, vec![1, 300_000]),
            (vec![1 << 40], 8, vec![1 << 17]),
        ] {
            assert_eq!(chunk_shape(&shape, itemsize), chunk, "{shape:?}");
        }
    }
}
