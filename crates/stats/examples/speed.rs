//! Measures how fast elements are counted, hashed to find equal tensors, and read by rows: `cargo
//! run --release -p statelens-stats --example speed FILE DTYPE…`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::Read as _;
use std::time::Instant;

use statelens_checkpoint::DType;
use statelens_stats::{Accumulator, ByteHash, Rows};

/// Number of elements in a row.
const COLUMNS: u64 = 1_000;

fn main() {
    let file = std::env::args().nth(1).unwrap();
    for name in std::env::args().skip(2) {
        let dtype = DType::from_torch_name(&name).unwrap();
        for _ in 0..3 {
            let mut accumulator = Accumulator::new();
            accumulator.begin(&dtype, 0);
            let counted = rate(&file, |bytes| accumulator.feed(bytes));
            let found = accumulator.finish().statistics();
            let mut hash = ByteHash::default();
            let hashed = rate(&file, |bytes| hash.feed(bytes));
            let mut rows = Rows::without_columns(&dtype, COLUMNS).unwrap();
            let read = rate(&file, |bytes| rows.feed(bytes));
            println!(
                "{name}: counted {counted:.2} GB/s, std {:?}; hashed {hashed:.2} GB/s; by rows \
                 {read:.2} GB/s, {} copies",
                found.std,
                rows.finish().copied_rows
            );
        }
    }
}

/// Reads a file; returns billions of bytes per second of processor time.
fn rate(file: &str, mut feed: impl FnMut(&[u8])) -> f64 {
    let mut file = std::fs::File::open(file).unwrap();
    let mut buffer = vec![0; 1 << 17];
    let (start, before, mut all) = (Instant::now(), busy(), 0);
    loop {
        let read = file.read(&mut buffer).unwrap();
        if read == 0 {
            break;
        }
        all += read;
        feed(&buffer[..read]);
    }
    let seconds = match (before, busy()) {
        (Some(before), Some(after)) => (after - before) as f64 / 1e9,
        _ => start.elapsed().as_secs_f64(),
    };
    all as f64 / seconds / 1e9
}

/// Returns the processor time of this process in nanoseconds, if the system reports it.
fn busy() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
