//! The search for code in weights: 1 GiB of random float32, compared with reading the file.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Result;

use super::values::pinned;
use super::{Bench, ResultTable, measure};
use crate::shell;

/// Bytes of the input.
const LEN: u64 = 1 << 30;

impl Bench {
    /// Measures on one core and on all of them, from a file in the system's cache.
    pub(super) fn scan(&self, table: &mut ResultTable) -> Result<()> {
        let file = self.folder.join("scan-f32.bin");
        if !file.exists() {
            write_weights(&file)?;
        }
        for (cores, wanted) in [("one core", 2.0), ("all cores", 4.0)] {
            let mut ours = pinned(&self.statelens, cores == "one core");
            ours.args(["scan", "--json"]).arg(&file);
            let mut cat = shell::command("cat");
            cat.arg(&file);
            let measured = measure(ours, Some(("cat", cat)), None)?;
            let rate = LEN as f64 / 1e9 / measured.ours.wall.as_secs_f64();
            let wanted = format!("{wanted} GB/s; measured {rate:.2}");
            table.add(&format!("scan of 1 GiB of float32, {cores}"), &wanted, measured);
        }
        Ok(())
    }
}

/// Writes floats between -1 and 1 without a pattern.
fn write_weights(path: &Path) -> Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..LEN / 4 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        out.write_all(&value.to_le_bytes())?;
    }
    Ok(out.flush()?)
}
