//! Lists the tensors of a checkpoint: `cargo run --example list -- model.pt`.
#![allow(clippy::print_stdout, reason = "a program prints")]

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("name a checkpoint")?;
    let checkpoint = statelens::open(path)?;
    println!("{} {}", checkpoint.format().name, checkpoint.format().version);
    for tensor in checkpoint.tensors() {
        println!("{}\t{}\t{:?}\t{}", tensor.key(), tensor.dtype(), tensor.shape(), tensor.nbytes());
    }
    for finding in checkpoint.findings() {
        println!("{:?}: {}", finding.grade, finding.title);
    }
    Ok(())
}
