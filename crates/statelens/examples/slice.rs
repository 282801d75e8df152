//! Reads a slice of a tensor as numbers: `cargo run --example slice -- model.pt KEY '0:2, :4'`.
//!
//! Reads only the structure of the file and the bytes of the slice.
#![allow(clippy::print_stdout, reason = "a program prints")]

use statelens::Slice;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, key, slice] = &args[..] else { return Err("name a file, a key and a slice".into()) };
    let checkpoint = statelens::open(path)?;
    let part = checkpoint.tensor(key)?.slice(&slice.parse::<Slice>()?)?;
    let values: Vec<f64> = part.read()?;
    println!("{:?} {values:?}", part.shape());
    Ok(())
}
