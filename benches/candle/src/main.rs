//! Prints the seconds that candle takes to read a GGUF file and to decode all of its tensors.

use std::fs::File;
use std::io::BufReader;
use std::time::Instant;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Result};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_default();
    let started = Instant::now();
    let mut file = BufReader::new(File::open(path)?);
    let content = Content::read(&mut file)?;
    for name in content.tensor_infos.keys() {
        let tensor = content.tensor(&mut file, name, &Device::Cpu)?;
        tensor.dequantize(&Device::Cpu)?;
    }
    println!("{}", started.elapsed().as_secs_f64());
    Ok(())
}
