//! Memory of compressing many chunks: it must not grow with their number.

#![cfg(target_os = "linux")]

use statelens_hdf5::write::Filter;

/// The most memory that this process has had, in kB.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// 2,000 chunks, between which small things are kept, as a conversion keeps the index of what it wrote.
#[test]
fn deflating_many_chunks_takes_no_more_memory_than_a_few() {
    let plain: Vec<u8> =
        (0..16_384u32).flat_map(|at| (at.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
    let encoder = Filter::Deflate(4).encoding(&[16_384], 4).encoder;
    let mut kept = Vec::new();
    let mut encode = || {
        let mut out = Vec::new();
        encoder.encode(&plain, &mut out).unwrap();
        kept.push(out[..40].to_vec());
    };
    (0..10).for_each(|_| encode());
    let before = peak().unwrap();
    (0..2000).for_each(|_| encode());
    let grown = peak().unwrap() - before;
    assert!(grown < 16 << 10, "{grown} kB more after 2,000 chunks");
}
