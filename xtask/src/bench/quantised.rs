//! Statistics of quantised weights, compared with gguf's own numpy code and with dense float16.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::values::{in_turns, pinned};
use super::{Bench, ResultTable, measure};
use crate::{project, shell};

/// The inputs that gguf's code decodes.
const BLOCKS: [&str; 3] = ["Q4_K", "Q6_K", "Q8_0"];

/// The inputs in safetensors.
const SETS: [&str; 2] = ["nf4", "awq"];

impl Bench {
    /// Measures on one core and on all of them, from files in the system's cache.
    pub(super) fn quantised(&self, table: &mut ResultTable) -> Result<()> {
        let Some(python) = &self.python else { return Ok(()) };
        let script = |one, what: &str| {
            let mut command = pinned(&python.current, one);
            command.arg(project::root().join("benches/quantised.py")).arg(what);
            command
        };
        let path = |name: &str| self.folder.join(format!("quantised-{name}"));
        let dense = path("f16.safetensors");
        if !dense.exists() {
            shell::run(script(false, "inputs").arg(&self.folder))?;
        }
        for one in [true, false] {
            let cores = if one { "one core" } else { "all cores" };
            let stats = |file: &Path| {
                let mut ours = pinned(&self.statelens, one);
                ours.args(["stats", "--json"]).arg(file);
                ours
            };
            for name in BLOCKS {
                let file = path(&format!("{name}.gguf"));
                let mut theirs = script(one, "dequantize");
                theirs.arg(&file);
                let row = format!("256 MB of float32 as {name}, {cores}");
                table.add(&row, "faster", in_turns(stats(&file), ("gguf, decoding only", theirs))?);
                let other = Some(("dense float16", stats(&dense)));
                table.add(&row, "within twice", measure(stats(&file), other, None)?);
            }
            for name in SETS {
                let file = path(&format!("{name}.safetensors"));
                let row = format!("256 MB of float32 as {name}, {cores}");
                let other = Some(("dense float16", stats(&dense)));
                let result = measure(stats(&file), other, None).context(row.clone())?;
                table.add(&row, "within twice", result);
            }
        }
        Ok(())
    }
}
