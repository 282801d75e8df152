//! Drives a state machine by hand: computes the CRC-32 of a tensor, reading its bytes from any
//! source and at most 4 kB at a time. `cargo run --example machine -- model.pt KEY`.
#![allow(clippy::print_stdout, reason = "a program prints")]

use statelens::machines::{Gather, Need};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, key] = &args[..] else { return Err("name a checkpoint and a key".into()) };
    let checkpoint = statelens::open(path)?;
    let (files, tensor) = (&checkpoint.inner().files, checkpoint.tensor(key)?);
    let mut hash = crc32fast::Hasher::new();
    let mut out = |bytes: &[u8]| {
        hash.update(bytes);
        Ok(())
    };
    let mut gather = Gather::new(files, tensor.inner(), 0..tensor.numel(), 1 << 20)?;
    let mut spans = 0;
    loop {
        match gather.need() {
            // The machine says which bytes it needs next; they may be fed in pieces of any size.
            Need::Feed(span) => {
                let bytes = files.read_vec(span.file, span.offset, span.len.min(4096))?;
                gather.feed(&bytes, &mut out)?;
                spans += 1;
            }
            Need::Step => gather.step(files, &mut out)?,
            Need::Done => break,
        }
    }
    println!("{key}: {:08x} in {spans} pieces", hash.finalize());
    Ok(())
}
