//! Opens a checkpoint that is not a file, through a custom reader. Here it is XORed with a byte, in
//! place of encryption. `cargo run --example read_at -- model.pt`.
#![allow(clippy::print_stdout, reason = "a program prints")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use statelens::{Error, Opener, ReadAt, Result};

#[derive(Debug)]
struct Masked(File, u64);

impl ReadAt for Masked {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let failed = |error| Error::io("reading failed").at(offset).caused_by(error);
        self.0.read_exact_at(buffer, offset).map_err(failed)?;
        buffer.iter_mut().for_each(|byte| *byte ^= 0x5a);
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("name a checkpoint")?;
    let masked = std::env::temp_dir().join(format!("masked-{}", std::process::id()));
    let bytes: Vec<u8> = std::fs::read(path)?.iter().map(|byte| byte ^ 0x5a).collect();
    std::fs::write(&masked, &bytes)?;
    let source = Masked(File::open(&masked)?, bytes.len() as u64);
    let checkpoint = Opener::new().open_source("model", source)?;
    println!("{}: {} tensors", checkpoint.format().name, checkpoint.tensors().count());
    Ok(std::fs::remove_file(masked)?)
}
