//! Deflate in a zlib wrapper (filter 1), and Zstandard (filter 32015).

use std::io::Read;

use statelens_checkpoint::{Error, Result};

/// Undoes deflate; an error if the result exceeds `limit` bytes.
pub(super) fn decode(input: &[u8], limit: usize) -> Result<Vec<u8>> {
    read(flate2::bufread::ZlibDecoder::new(input), limit, "gzip")
}

/// Undoes Zstandard; an error if the result exceeds `limit` bytes, or does not match its checksum,
/// if there is one.
pub(super) fn decode_zstd(input: &[u8], limit: usize) -> Result<Vec<u8>> {
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(input)
        .map_err(|error| Error::damaged(format!("a zstd chunk does not decode: {error}")))?;
    let out = read(&mut decoder, limit, "zstd")?;
    let frame = decoder.into_frame_decoder();
    match (frame.get_checksum_from_data(), frame.get_calculated_checksum()) {
        (Some(stored), Some(made)) if stored != made => {
            Err(Error::damaged(format!("a zstd chunk has the checksum {made:08x}"))
                .expected(format!("{stored:08x}, as stored in it")))
        }
        _ => Ok(out),
    }
}

fn read(decoder: impl Read, limit: usize, name: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    decoder
        .take(limit as u64 + 1)
        .read_to_end(&mut out)
        .map_err(|error| Error::damaged(format!("a {name} chunk does not decode: {error}")))?;
    if out.len() > limit {
        return Err(Error::damaged(format!("a {name} chunk holds more than its {limit} bytes")));
    }
    Ok(out)
}
