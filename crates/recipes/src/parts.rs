//! Combines a model in several folders into one checkpoint.

use std::sync::Arc;

use statelens_checkpoint::{
    Builder, Checkpoint, Dict, DictKey, FileId, FileSet, Finding, FormatInfo, Limits, Memory,
    Result, Value, ValueId,
};

/// Returns a checkpoint with an entry per folder, under the folder's name.
///
/// The first file of each set is the one that `open` opens. Files keep their sources, so that
/// tensors of all parts can be read as usual.
pub fn together(
    parts: Vec<(String, FileSet)>,
    limits: &Limits,
    open: &mut dyn FnMut(FileSet) -> Result<Checkpoint>,
) -> Result<Checkpoint> {
    let mut joined = Joined::new(limits);
    let mut all = FileSet::default().within(limits);
    for (name, files) in parts {
        let main = files.main()?;
        // Preceded by placeholders for the files of earlier parts, so that file ids stay unique.
        let before = all.count();
        let mut shifted = FileSet::default().within(limits);
        if let Some(scratch) = files.scratch() {
            shifted = shifted.with_scratch(scratch.clone());
            all = all.with_scratch(scratch.clone());
        }
        for _ in 0..before {
            shifted.push("", Arc::new(Memory::from(Vec::new())));
        }
        for (_, file) in files.iter() {
            shifted.push_file(file.clone());
            all.push_file(file.clone());
        }
        joined.add(&name, open(shifted.opened_at(FileId(main.0 + before as u32)))?)?;
    }
    joined.finish(all)
}

/// Combines files as [`together`] does, but from one set, whose files keep their ids.
pub fn of_set(
    files: &FileSet,
    parts: &[(String, FileId)],
    limits: &Limits,
    open: &mut dyn FnMut(FileSet) -> Result<Checkpoint>,
) -> Result<Checkpoint> {
    let mut joined = Joined::new(limits);
    for (name, main) in parts {
        joined.add(name, open(files.opened_at(*main))?)?;
    }
    joined.finish(files.clone())
}

/// Checkpoints that become the entries of one.
struct Joined {
    builder: Builder,
    entries: Vec<(DictKey, ValueId)>,
    findings: Vec<Finding>,
    format: FormatInfo,
}

impl Joined {
    fn new(limits: &Limits) -> Self {
        let (entries, findings, format) = (Vec::new(), Vec::new(), FormatInfo::default());
        Self { builder: Builder::new(limits), entries, findings, format }
    }

    fn add(&mut self, name: &str, part: Checkpoint) -> Result<()> {
        self.entries.push((DictKey::from(name), self.builder.append(&part)?));
        self.findings.extend(part.findings);
        if self.entries.len() == 1 {
            self.format = part.format;
        }
        Ok(())
    }

    fn finish(mut self, files: FileSet) -> Result<Checkpoint> {
        let dict = Dict { entries: self.entries, ..Dict::default() };
        let root = self.builder.push(Value::Dict(dict))?;
        self.builder.finish(root, self.format, files, self.findings)
    }
}
