//! Transposes a large matrix: from a span of a file, from LZ4 chunks, and from a deflated stream.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::Path;

use anyhow::Result;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::{Bench, ResultTable, build, cp, made, measure};
use crate::shell;

/// Rows and columns of the float32 matrix, which has 2 GB.
const SIDE: u32 = 22_400;

impl Bench {
    /// Compares with `cp` of the file that holds the matrix.
    pub(super) fn views(&self, table: &mut ResultTable) -> Result<()> {
        let example = ["-p", "statelens-formats", "--example", "transpose"];
        let transpose = build(&example, "examples/transpose")?;
        let path = |name: &str| self.folder.join(name);
        let (span, chunks, stream) = (path("matrix.npy"), path("matrix.mdl"), path("matrix.npz"));
        let (columns, written) = (path("columns.npy"), path("transposed"));
        made(&span, |path| matrix(path, false))?;
        made(&columns, |path| matrix(path, true))?;
        if !chunks.exists() {
            // A lone array has no name, but a dataset needs one.
            let options = ["--compress", "lz4", "--prefix", "matrix"];
            shell::run(&mut self.convert(&options, &span, &chunks))?;
        }
        made(&stream, |path| deflated(&span, path))?;
        for (what, source) in
            [("a span", &span), ("LZ4 chunks", &chunks), ("a deflated stream", &stream)]
        {
            let mut ours = shell::command(&transpose);
            ours.arg(source).arg(&written);
            let name = format!("2 GB transposed, from {what}");
            let measured = measure(ours, Some(cp(&span, &written)), Some(&written))?;
            table.add(&name, "near linear", measured);
        }
        let target = path("columns.safetensors");
        let ours = self.convert(&[], &columns, &target);
        let measured = measure(ours, Some(cp(&columns, &target)), Some(&target))?;
        table.add("2 GB, .npy in Fortran order -> .safetensors", "near linear", measured);
        for written in [written, target] {
            std::fs::remove_file(written)?;
        }
        Ok(())
    }
}

/// Writes a matrix of floats that resemble weights, in numpy's format.
fn matrix(path: &Path, fortran: bool) -> Result<()> {
    let order = if fortran { "True" } else { "False" };
    let mut head =
        format!("{{'descr': '<f4', 'fortran_order': {order}, 'shape': ({SIDE}, {SIDE}), }}");
    while (10 + head.len() + 1) % 64 != 0 {
        head.push(' ');
    }
    head.push('\n');
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&(head.len() as u16).to_le_bytes())?;
    out.write_all(head.as_bytes())?;
    let mut state = 1u64;
    for _ in 0..u64::from(SIDE) * u64::from(SIDE) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = (state >> 40) as f32 / (1 << 24) as f32 - 0.5;
        out.write_all(&(value * 0.04).to_le_bytes())?;
    }
    Ok(out.flush()?)
}

/// Writes the same array like `numpy.savez_compressed`.
fn deflated(array: &Path, path: &Path) -> Result<()> {
    let mut archive = ZipWriter::new(BufWriter::new(File::create(path)?));
    let method = zip::CompressionMethod::Deflated;
    let options = SimpleFileOptions::default().compression_method(method).large_file(true);
    archive.start_file("matrix.npy", options.compression_level(Some(6)))?;
    io::copy(&mut BufReader::with_capacity(1 << 20, File::open(array)?), &mut archive)?;
    archive.finish()?.flush()?;
    Ok(())
}
