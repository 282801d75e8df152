//! Measures how fast elements are counted: `cargo run --release -p statelens-stats --example
//! speed`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::Read as _;
use std::time::Instant;

use statelens_checkpoint::DType;
use statelens_stats::Accumulator;

fn main() {
    let file = std::env::args().nth(1).unwrap();
    for name in std::env::args().skip(2) {
        let dtype = DType::from_torch_name(&name).unwrap();
        for _ in 0..3 {
            let mut file = std::fs::File::open(&file).unwrap();
            let mut buffer = vec![0; 1 << 18];
            let start = Instant::now();
            let mut accumulator = Accumulator::new();
            accumulator.begin(&dtype, 0);
            let mut all = 0;
            loop {
                let read = file.read(&mut buffer).unwrap();
                if read == 0 {
                    break;
                }
                all += read;
                accumulator.feed(&buffer[..read]);
            }
            let found = accumulator.finish().statistics();
            let took = start.elapsed().as_secs_f64();
            println!("{name}: {:.2} GB/s, std {:?}", all as f64 / took / 1e9, found.std);
        }
    }
}
