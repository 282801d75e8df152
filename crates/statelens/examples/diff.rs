//! Compares two checkpoints of any formats: `cargo run --example diff -- a.mdl a.safetensors`.
#![allow(clippy::print_stdout, reason = "a program prints")]

use statelens::parts::checkpoint::Unwatched;
use statelens::parts::compare::diff::Tolerance;
use statelens::{DiffOptions, diff_with};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [left, right] = &args[..] else { return Err("name two checkpoints".into()) };
    let (left, right) = (statelens::open(left)?, statelens::open(right)?);
    let tolerance = Some(Tolerance { relative: 1e-3, absolute: 1e-6 });
    let options = DiffOptions { tolerance, ignore_type: true, ..DiffOptions::default() };
    let diff = diff_with(&left, &right, options, &mut Unwatched)?;
    for difference in &diff.differences {
        println!("{}: {}", difference.key.to_lossy(), difference.text());
    }
    println!("{} keys on both sides, {} differences", diff.keys, diff.differences.len());
    Ok(())
}
