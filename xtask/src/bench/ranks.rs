//! Checkpoints in many files: a set with half a million tensors, and those of many ranks. The inputs
//! are files with holes, which `benches/ranks.py` writes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{Bench, ResultTable, made, measure};
use crate::{project, python, shell};

impl Bench {
    pub(super) fn ranks(&self, table: &mut ResultTable) -> Result<()> {
        let Some(python) = &self.python else {
            println!("Without the real libraries there are no checkpoints of ranks; left out");
            return Ok(());
        };
        let script_of = |interpreter: &Path, what: &str| {
            let mut command = shell::command(interpreter);
            command.arg(project::root().join("benches").join("ranks.py")).arg(what);
            command
        };
        let script = |what: &str| script_of(&python.current, what);
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
            let wanted = match command {
                "verify" => "",
                _ => "no slower than the library, under 400 MB",
            };
            table.add(&what, wanted, measured);
        }
        let fsdp = input("fsdp")?;
        let measured = measure(self.reads("info", &fsdp), None, None)?;
        table.add("open 64 ranks of 1,000 tensors", "under 1 s", measured);
        let output = self.folder.join("ranks-out.safetensors");
        let deepspeed = python::ranks(project::root());
        if let Err(error) = &deepspeed {
            println!("DeepSpeed can't be installed here, so it is left out: {error}");
        }
        for (kind, files, name, theirs) in [
            ("zero", "*/*optim_states.pt", "ZeRO-3 of 8 ranks", "zero-to-fp32"),
            ("dcp", "*.distcp", "DCP of 4 ranks", "dcp-to-torch"),
            ("hf", "*.safetensors", "safetensors of 4 ranks", "consolidate"),
        ] {
            let folder = input(kind)?;
            // `cp` would keep the holes.
            let mut copy = Command::new("sh");
            let line = format!("cat '{}'/{files} > '{}'", folder.display(), output.display());
            copy.args(["-c", &line]);
            let interpreter = match theirs {
                "zero-to-fp32" => deepspeed.as_ref().ok(),
                _ => Some(&python.current),
            };
            let library = interpreter.map(|interpreter| {
                let mut library = script_of(interpreter, theirs);
                library.arg(&folder).arg(&output);
                ("library", library)
            });
            let others = [
                (Some(("cp", copy)), "within 1.5 of cp, under 64 MB"),
                (library, "faster, less memory"),
            ];
            for (other, wanted) in others.into_iter().filter(|(other, _)| other.is_some()) {
                let ours = self.convert(&[], &folder, &output);
                let measured = measure(ours, other, Some(&output))?;
                table.add(&format!("{name} -> .safetensors"), wanted, measured);
            }
        }
        super::remove(&output)
    }
}
