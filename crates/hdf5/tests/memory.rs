//! Tests the memory for compressing many chunks: the compressor is created once, not for each of
//! them. Otherwise blocks of 300 kB would come and go among small allocations that stay, and the
//! system's allocator may reuse few of the freed blocks.

use peak_alloc::PeakAlloc;
use statelens_hdf5::write::Filter;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

#[test]
fn memory_of_a_further_chunk_is_bounded() {
    let plain: Vec<u8> =
        (0..16_384u32).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let encoder = Filter::Deflate(4).encoding(&[16_384], 4).encoder;
    let mut out = Vec::new();
    encoder.encode(&plain, &mut out).unwrap();
    out.clear();
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    encoder.encode(&plain, &mut out).unwrap();
    let more = MEMORY.peak_usage() - before;
    // The shuffled bytes, and room for the output.
    assert!(more < 4 * plain.len(), "{more} bytes for a chunk of {}", plain.len());
}
