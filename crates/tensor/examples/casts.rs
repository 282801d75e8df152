//! Measures how fast each pair of dtypes is cast, with counts: `cargo run --release -p
//! statelens-tensor --example casts [FROM [TO]]`.
//!
//! Prints the pair and the millions of values that one core casts in a second, the slower of two
//! inputs: numbers that resemble weights, and random bits.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Instant;

use statelens_checkpoint::DType;
use statelens_tensor::Cast;

const DTYPES: [&str; 18] = [
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float16",
    "bfloat16",
    "float32",
    "float64",
];

/// Bytes that are cast at once; as in a conversion.
const BLOCK: usize = 64 << 10;

/// Values of an input, the number of passes over it in a measurement, since systems count processor
/// time in ticks of several milliseconds, and the number of measurements of which the fastest counts.
const VALUES: usize = 4 << 20;
const PASSES: usize = 5;
const REPEAT: usize = 3;

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |at: usize, name: &str| names.get(at).is_none_or(|wanted| wanted == name);
    for from in DTYPES.iter().filter(|name| wanted(0, name)) {
        for to in DTYPES.iter().filter(|name| wanted(1, name)) {
            if from == to {
                continue;
            }
            let dtypes = [from, to].map(|name| DType::from_torch_name(name).unwrap());
            let inputs = [weights(&dtypes[0]), bits(&dtypes[0])];
            let rates = inputs.map(|input| rate(&dtypes[0], &dtypes[1], &input));
            println!("{from} {to} {:.0}", rates[0].min(rates[1]));
        }
    }
}

/// Returns millions of values per second of processor time.
fn rate(from: &DType, to: &DType, input: &[u8]) -> f64 {
    let mut cast = Cast::new(from, to).unwrap();
    let mut out = Vec::new();
    let mut pass = || {
        input.chunks(BLOCK).for_each(|block| cast.run(block, &mut out));
    };
    // The first pass makes the table of the pair.
    pass();
    let seconds = (0..REPEAT)
        .map(|_| {
            let start = Instant::now();
            let before = busy();
            (0..PASSES).for_each(|_| pass());
            match (before, busy()) {
                (Some(before), Some(after)) => (after - before) as f64 / 1e9,
                _ => start.elapsed().as_secs_f64(),
            }
        })
        .fold(f64::INFINITY, f64::min);
    let count = PASSES as u64 * input.len() as u64 / from.itemsize();
    count as f64 / 1e6 / seconds
}

/// Returns the processor time of this process in nanoseconds, if the system reports it.
fn busy() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Returns numbers around zero; for integers up to a hundred, for floats up to 0.1.
fn weights(dtype: &DType) -> Vec<u8> {
    let scale = if dtype.is_float() { 0.1 } else { 100.0 };
    let mut seed = Seed(1);
    let doubles: Vec<u8> = (0..VALUES)
        .flat_map(|_| {
            let uniform = (seed.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            (uniform * scale).to_le_bytes()
        })
        .collect();
    let mut out = Vec::new();
    match dtype {
        DType::F64 => doubles,
        _ => {
            Cast::new(&DType::F64, dtype).unwrap().run(&doubles, &mut out);
            out
        }
    }
}

fn bits(dtype: &DType) -> Vec<u8> {
    let mut seed = Seed(2);
    let bytes = VALUES * dtype.itemsize() as usize;
    let mut all: Vec<u8> = (0..bytes / 8).flat_map(|_| seed.next().to_le_bytes()).collect();
    if *dtype == DType::Bool {
        all.iter_mut().for_each(|byte| *byte &= 1);
    }
    all
}

/// Random bits (xorshift64).
struct Seed(u64);

impl Seed {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
