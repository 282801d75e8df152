//! A model in several folders, as one checkpoint.

use std::sync::Arc;

use statelens_checkpoint::{
    Builder, Checkpoint, Dict, DictKey, FileId, FileSet, FormatInfo, Limits, Memory, Result, Value,
};

/// A checkpoint whose top level has the checkpoint of each folder under the folder's name.
///
/// The first file of each set is the one that `open` opens; files keep their sources, so that
/// tensors of all parts are read as ever.
pub fn together(
    parts: Vec<(String, FileSet)>,
    limits: &Limits,
    open: &mut dyn FnMut(FileSet) -> Result<Checkpoint>,
) -> Result<Checkpoint> {
    let mut builder = Builder::new(limits);
    let mut all = FileSet::default().within(limits);
    let mut entries = Vec::with_capacity(parts.len());
    let mut findings = Vec::new();
    let mut format = FormatInfo::default();
    for (name, files) in parts {
        let main = files.main()?;
        // Behind as many files as there are already: so spans of all have their own.
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
            shifted.push(file.name.clone(), file.source.clone());
            all.push(file.name.clone(), file.source.clone());
        }
        let part = open(shifted.opened_at(FileId(main.0 + before as u32)))?;
        let top = builder.append(&part)?;
        findings.extend(part.findings.iter().cloned());
        format = part.format.clone();
        entries.push((DictKey::from(name.as_str()), top));
    }
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() }))?;
    builder.finish(root, format, all, findings)
}

/// As [`together`], of several files of one set, which keep their ids.
pub fn of_set(
    files: &FileSet,
    parts: &[(String, FileId)],
    limits: &Limits,
    open: &mut dyn FnMut(FileSet) -> Result<Checkpoint>,
) -> Result<Checkpoint> {
    let mut builder = Builder::new(limits);
    let mut entries = Vec::with_capacity(parts.len());
    let mut findings = Vec::new();
    let mut format = FormatInfo::default();
    for (name, main) in parts {
        let part = open(files.opened_at(*main))?;
        entries.push((DictKey::from(name.as_str()), builder.append(&part)?));
        findings.extend(part.findings.iter().cloned());
        format = part.format;
    }
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() }))?;
    builder.finish(root, format, files.clone(), findings)
}
