//! Converts the weights of a checkpoint to safetensors, all layer norms as float32: `cargo run
//! --example convert -- run/checkpoint_1000.mdl model.safetensors`.
//!
//! Memory use does not grow with the size of the checkpoint.
#![allow(clippy::print_stdout, reason = "a program prints")]

use statelens::{DType, Target, convert};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &args[..] else { return Err("name what to read and what to write".into()) };
    let checkpoint = statelens::open(from)?;
    let conversion = convert(&checkpoint, Target::Safetensors)
        .state("model")
        .exclude("__metadata__*")
        .cast("*.ln_*", DType::F32);
    for loss in conversion.plan("model.safetensors")?.losses {
        println!("would be lost: {} {}", loss.what, loss.why);
    }
    let written = conversion.lossy().write(to)?;
    println!("{} bytes in {:?}", written.bytes, written.files);
    Ok(())
}
