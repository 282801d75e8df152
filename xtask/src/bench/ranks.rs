//! Checkpoints in many files: a set with half a million tensors, and those of many ranks. The inputs
//! are files with holes, which `benches/ranks.py` writes.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{Bench, ResultTable, made, measure};
use crate::{project, shell};

impl Bench {
    pub(super) fn ranks(&self, table: &mut ResultTable) -> Result<()> {
        let Some(python) = &self.python else {
            println!("Without the real libraries there are no checkpoints of ranks; left out");
            return Ok(());
        };
        let script = |what: &str| {
            let mut command = shell::command(&python.current);
            command.arg(project::root().join("benches").join("ranks.py")).arg(what);
            command
        };
        let input = |kind: &str| -> Result<PathBuf> {
            let folder = self.folder.join(format!("ranks-{kind}"));
            made(&folder, |path| shell::run(script(kind).arg(path)))?;
            Ok(folder)
        };
        let kimi = input("kimi")?;
        for command in ["ls", "info", "verify"] {
            let mut headers = script("headers");
            headers.arg(&kimi);
            let other = (command != "verify").then_some(("library", headers));
            let measured = measure(self.reads(command, &kimi), other, None)?;
            let what = format!("{command}, 497,220 tensors in 96 shards");
            table.add(&what, "no slower than the library, under 400 MB", measured);
        }
        let fsdp = input("fsdp")?;
        let measured = measure(self.reads("info", &fsdp), None, None)?;
        table.add("open 64 ranks of 1,000 tensors", "under 1 s", measured);
        let output = self.folder.join("ranks-out.safetensors");
        for (kind, files, name) in [
            ("zero", "*/*optim_states.pt", "ZeRO-3 of 8 ranks"),
            ("dcp", "*.distcp", "DCP of 4 ranks"),
        ] {
            let folder = input(kind)?;
            // `cp` would keep the holes.
            let mut copy = Command::new("sh");
            let line = format!("cat '{}'/{files} > '{}'", folder.display(), output.display());
            copy.args(["-c", &line]);
            let ours = self.convert(&[], &folder, &output);
            let measured = measure(ours, Some(("cp", copy)), Some(&output))?;
            let wanted = "within 1.5 of cp, under 64 MB";
            table.add(&format!("{name} -> .safetensors"), wanted, measured);
        }
        super::remove(&output)
    }
}
