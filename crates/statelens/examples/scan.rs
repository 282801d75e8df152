//! Lists the code that loading a file would run, and fails unless it is known to be harmless:
//! `cargo run --example scan -- model.pt && python train.py`.
#![allow(clippy::print_stdout, reason = "a program prints")]

use statelens::Grade;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("name a file")?;
    let findings = statelens::scan(path)?;
    for finding in &findings {
        println!("{:?}: {}", finding.grade, finding.title);
        if let Some(call) = &finding.call {
            println!("    {}.{}({})", call.module, call.name, call.arguments);
        }
    }
    match findings.iter().any(|finding| finding.grade >= Grade::UnknownCode) {
        true => Err("loading it would run code that is not known to be harmless".into()),
        false => Ok(()),
    }
}
