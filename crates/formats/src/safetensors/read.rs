use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{
    Builder, Checkpoint, Dict, DictKey, FileId, FileSet, Finding, FormatInfo, Grade, Layout,
    Limits, Progress, Result, Span, Tensor, Text, Value, ValueId, try_alloc,
};

use super::header::{Header, TensorInfo};
use super::scalars;

/// Reads a safetensors file.
///
/// The tensors come in the order of the header, followed by what `__metadata__` records: names of
/// tied weights as links, and plain values written by Statelens. Other metadata becomes raw
/// attributes of the root.
pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let file = files.main()?;
    let header = Header::read(&files, file, limits, progress)?;
    let mut builder = Builder::new(limits);
    let mut findings = header.findings;
    let mut entries: Vec<(DictKey, ValueId)> = try_alloc::vec(header.tensors.len() as u64)?;
    // Only metadata can refer to a tensor by name.
    let mut places = header.places;
    if header.metadata.is_empty() {
        places = Default::default();
    }
    // The names that metadata adds to those of the tensors.
    let mut names: HashSet<Text> = HashSet::new();
    let mut is_new = |name: &Text| !places.contains_key(name) && names.insert(name.clone());
    let data = (header.data, header.there);
    for entry in header.tensors {
        let name = entry.name.clone();
        let tensor = builder.push_tensor(tensor(entry, file, data, &mut findings))?;
        let id = builder.push(Value::Tensor(tensor))?;
        entries.push((DictKey::Str(name), id));
    }
    let mut attributes = Vec::new();
    let mut plain = Vec::new();
    for (name, text) in header.metadata {
        // `save_model` records tied weights as the name that was dropped and the one that was kept.
        let target = places.get(&text).and_then(|at| entries.get(*at as usize));
        match target.map(|(_, id)| *id) {
            Some(target) if is_new(&name) => {
                let id = builder.push(Value::Link(target))?;
                entries.push((DictKey::Str(name), id));
            }
            _ if name == scalars::KEY => match scalars::decode(&text) {
                Ok(values) => plain = values,
                Err(error) => {
                    findings.push(
                        Finding::new(
                            Grade::Warning,
                            "The plain values in `__metadata__` can't be read",
                        )
                        .detail(error.to_string()),
                    );
                    attributes.push((name, text));
                }
            },
            _ => attributes.push((name, text)),
        }
    }
    for (name, value) in plain {
        if is_new(&name) {
            let id = builder.push(value)?;
            entries.push((DictKey::Str(name), id));
        }
    }
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() }))?;
    let format = format(header.data, &attributes);
    builder.set_raw_attributes(root, attributes);
    builder.finish(root, format, files, findings)
}

/// Returns the tensors of one file of a set, by name.
pub(crate) fn tensors(
    files: &FileSet,
    file: FileId,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<HashMap<Text, Tensor>> {
    let header = Header::read(files, file, limits, progress)?;
    let mut named = HashMap::new();
    try_alloc::make_room_in_map(&mut named, header.tensors.len())?;
    let data = (header.data, header.there);
    for entry in header.tensors {
        named.insert(entry.name.clone(), tensor(entry, file, data, &mut Vec::new()));
    }
    Ok(named)
}

/// The number of metadata entries shown as facts of the file, and the maximum length of each.
const MAX_FACTS: usize = 16;
const MAX_TEXT: usize = 200;

/// The maximum number of findings that are reported individually.
const MAX_FINDINGS: usize = 100;

fn format(header: u64, attributes: &[(Text, Text)]) -> FormatInfo {
    let mut facts = vec![("header".to_owned(), format!("{header} bytes"))];
    for (name, text) in attributes.iter().take(MAX_FACTS) {
        let text: String = text.to_lossy().chars().take(MAX_TEXT).collect();
        let name: String = name.to_lossy().chars().take(MAX_TEXT).collect();
        facts.push((format!("metadata {name}"), text));
    }
    FormatInfo { id: "safetensors", name: "safetensors", facts, ..FormatInfo::default() }
}

/// Returns a tensor of a file whose data begins at byte `data` and has `there` bytes.
fn tensor(
    entry: TensorInfo,
    file: FileId,
    (data, there): (u64, u64),
    findings: &mut Vec<Finding>,
) -> Tensor {
    let header_dtype = entry.header_dtype;
    let is_there = entry.is_there(there);
    let mut shape = entry.shape;
    let last = shape.last().copied().unwrap_or(1);
    if !last.is_multiple_of(header_dtype.whole) {
        // The whole tensor has a whole number of bytes, as the header validation checked.
        let rows = std::mem::take(&mut shape);
        shape.push(rows.iter().product());
        if findings.len() < MAX_FINDINGS {
            findings.push(
                Finding::new(Grade::Note, format!("{} is shown as one row", entry.name))
                    .detail(format!("Its rows, of shape {rows:?}, are not whole bytes.")),
            );
        }
    }
    if let Some(last) = shape.last_mut() {
        *last /= header_dtype.packed;
    }
    let layout = match is_there {
        true => {
            let len = entry.end - entry.begin;
            Layout::Span(Span { file, offset: data + entry.begin, len })
        }
        false => {
            let end = data.saturating_add(there);
            let why = format!("the file ends at byte {end}, before the tensor does");
            Layout::Missing(why.as_str().into())
        }
    };
    Tensor::new(header_dtype.dtype.clone(), shape, layout)
}
