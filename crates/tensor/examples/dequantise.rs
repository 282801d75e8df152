//! Measures how fast quantised weights are decoded by one core: `cargo run --release -p
//! statelens-tensor --example dequantise [SCHEME]`.
//!
//! Prints the scheme and the gigabytes of float32 in a second of processor time. The input is a matrix
//! of 4,096 × 4,096 in memory, with groups of 128.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use statelens_checkpoint::{
    Block, CodePacking, CodeValues, Codes, DType, Dequantised, FileSet, Groups, Layout, Memory,
    Offset, Scales, Span, Tensor, Unwatched,
};
use statelens_tensor::BUDGET;

const SIDE: u64 = 4_096;
const GROUP: u64 = 128;
const GROUPS: u64 = SIDE / GROUP;

/// Measurements, of which the fastest counts.
const REPEAT: usize = 15;

const Q4_K: Block = Block { name: "Q4_K", elements: 256, bytes: 144, words: &[] };
const Q6_K: Block = Block { name: "Q6_K", elements: 256, bytes: 210, words: &[] };
const Q8_0: Block = Block { name: "Q8_0", elements: 32, bytes: 34, words: &[] };

/// A file in memory, to which parts are added.
#[derive(Default)]
struct Parts {
    bytes: Vec<u8>,
    random: u64,
}

impl Parts {
    /// Returns a tensor of random bytes without large exponents.
    fn random(&mut self, dtype: DType, shape: &[u64]) -> Tensor {
        let len = dtype.bytes_of(shape.iter().product()).unwrap();
        let bytes = (0..len).map(|_| {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.random >> 33) as u8 & 0x3b
        });
        let bytes = bytes.collect();
        self.add(dtype, shape, bytes)
    }

    fn add(&mut self, dtype: DType, shape: &[u64], bytes: Vec<u8>) -> Tensor {
        let file = FileSet::single("x", Memory::from(Vec::new())).main().unwrap();
        let (offset, len) = (self.bytes.len() as u64, bytes.len() as u64);
        self.bytes.extend(bytes);
        Tensor::new(dtype, shape.to_vec(), Layout::Span(Span { file, offset, len }))
    }
}

/// Returns codes with a scale for each group of rows or columns, and zero points if `zeros` are given.
fn weight(
    codes: Codes,
    swapped: bool,
    scales: Tensor,
    groups: Groups,
    zeros: Option<(Codes, i32)>,
) -> Tensor {
    let groups = if swapped { [groups, Groups::Every(1)] } else { [Groups::Every(1), groups] };
    let offset = zeros.map(|(zeros, minus)| Offset::Zeros(zeros, CodeValues::Minus(minus)));
    let of = Dequantised {
        codes,
        shape: [1, SIDE, SIDE],
        swapped,
        values: CodeValues::Minus(0),
        scales: Scales { tensor: scales, exponents: false, divisor: None },
        offset: offset.unwrap_or(Offset::None),
        groups,
        factor: None,
        rounding: None,
    };
    Tensor::new(DType::F32, vec![SIDE, SIDE], Layout::Dequantised(Arc::new(of)))
}

fn inputs(parts: &mut Parts) -> Vec<(&'static str, Tensor)> {
    let mut all = Vec::new();
    for (name, block) in [("Q4_K", &Q4_K), ("Q6_K", &Q6_K), ("Q8_0", &Q8_0)] {
        let blocks = parts.random(DType::Blocks(block), &[SIDE, SIDE]);
        all.push((name, Tensor { dtype: DType::F32, ..blocks }));
    }
    let nf4 = Codes {
        tensor: parts.random(DType::U8, &[SIDE, SIDE / 2]),
        packing: CodePacking::HighFirst,
    };
    let absmax = parts.random(DType::F32, &[SIDE, SIDE / 64]);
    let table = parts.random(DType::F32, &[16]);
    let mut nf4 = weight(nf4, false, absmax, Groups::Every(64), None);
    if let Layout::Dequantised(of) = &mut nf4.layout {
        Arc::get_mut(of).unwrap().values = CodeValues::Stored(table);
    }
    all.push(("nf4", nf4));
    let packed = |parts: &mut Parts, shape: [u64; 2], packing| Codes {
        tensor: parts.random(DType::I32, &shape),
        packing,
    };
    let scales = parts.random(DType::F16, &[GROUPS, SIDE]);
    let along = CodePacking::Interleaved;
    let codes = packed(parts, [SIDE, SIDE / 8], along);
    let zeros = packed(parts, [GROUPS, SIDE / 8], along);
    let every = Groups::Every(GROUP);
    all.push(("AWQ", weight(codes, true, scales.clone(), every.clone(), Some((zeros, 0)))));
    let codes = packed(parts, [SIDE / 8, SIDE], CodePacking::AlongColumn(4));
    let zeros = packed(parts, [GROUPS, SIDE / 8], CodePacking::AlongRow(4));
    let list = |parts: &mut Parts, group: fn(u64) -> u64| {
        let list = (0..SIDE).flat_map(|row| (group(row) as i32).to_le_bytes()).collect();
        Groups::Listed(parts.add(DType::I32, &[SIDE], list), GROUPS)
    };
    let in_order = list(parts, |row| row / GROUP);
    let by_activation = list(parts, |row| row * 37 % GROUPS);
    for (name, groups) in
        [("GPTQ", every), ("GPTQ, g_idx", in_order), ("GPTQ, desc_act", by_activation)]
    {
        let zeros = Some((zeros.clone(), -1));
        all.push((name, weight(codes.clone(), true, scales.clone(), groups, zeros)));
    }
    all
}

/// Returns the processor time of this process, or the time of day where it is not known.
fn now(started: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanoseconds = stat.as_deref().and_then(|stat| stat.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or(started.elapsed().as_secs_f64(), |time| time / 1e9)
}

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mut parts = Parts { random: 1, ..Parts::default() };
    let all = inputs(&mut parts);
    let files = FileSet::single("x", Memory::from(parts.bytes));
    let started = Instant::now();
    for (name, tensor) in all.iter().filter(|(name, _)| name.contains(&wanted)) {
        let mut best = f64::MAX;
        for _ in 0..REPEAT {
            let (before, mut len) = (now(started), 0);
            let mut count = |bytes: &[u8]| {
                len += bytes.len() as u64;
                Ok(())
            };
            statelens_tensor::drain(&files, tensor, BUDGET, &mut Unwatched, &mut count).unwrap();
            assert_eq!(len, SIDE * SIDE * 4);
            best = best.min(now(started) - before);
        }
        println!("{name}\t{:.2}", (SIDE * SIDE * 4) as f64 / 1e9 / best);
    }
}
