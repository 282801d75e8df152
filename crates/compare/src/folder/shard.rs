//! What one file with weights holds.

use std::collections::HashSet;

use statelens_checkpoint::json::{Document, JsonNode};
use statelens_checkpoint::{
    Checkpoint, Dict, DictKey, Error, ErrorKind, FileId, FileSet, Finding, Grade, Limits, Progress,
    Result, Text, Value, ValueId, grouped, shape_text,
};

use super::Findings;
use super::files::{StandIn, extension, stand_in};
use super::rules::{
    FILE_CODE, FILE_CUT, FILE_DAMAGED, FILE_EMPTY, FILE_HOLES, FILE_POINTER, FILE_TOO_LONG,
    FILE_WEB_PAGE, HEADER_ALIGNMENT, Rule, SHARD_MISSING,
};

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TensorEntry {
    pub(super) key: String,
    /// The name of the dtype as torch has it.
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
    /// Its size in the file in bytes.
    pub(super) bytes: u64,
    /// Whether an earlier tensor has the same storage.
    pub(super) is_alias: bool,
}

/// A file with weights.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) file: String,
    pub(super) tensors: Vec<TensorEntry>,
    /// The entries of `__metadata__`, or numbers and short texts of the file's description.
    pub(super) metadata: Vec<(String, String)>,
    /// The lengths of lists and arrays in the file's description.
    pub(super) lengths: Vec<(String, u64)>,
    /// Whether the file could be read.
    pub(super) is_readable: bool,
}

/// Maximum length in bytes of the header of a safetensors file, as in the library.
const MAX_HEADER: u64 = 100_000_000;

/// Reads the structure of a file. Damage is a finding, and leaves the shard unreadable.
pub(super) fn read(
    files: &FileSet,
    id: FileId,
    limits: &Limits,
    progress: &mut dyn Progress,
    findings: &mut Findings<'_>,
) -> Result<Shard> {
    let file = files.name(id).to_owned();
    let unreadable = Shard { file: file.clone(), ..Shard::default() };
    if let Some(found) = stand_in(files, id)? {
        report_stand_in(found, &file, findings);
        return Ok(unreadable);
    }
    let shard = match extension(&file) {
        "safetensors" => safetensors(files, id, findings),
        _ => opened(files, id, limits, progress, findings),
    };
    readable(shard, &file, findings)
}

/// Reads the structure of a checkpoint of which each file has parts of tensors, as one shard with the
/// name of its main file.
pub(super) fn read_set(
    files: &FileSet,
    main: FileId,
    limits: &Limits,
    progress: &mut dyn Progress,
    findings: &mut Findings<'_>,
) -> Result<Shard> {
    let file = files.name(main).to_owned();
    let shard =
        statelens_formats::open(files.opened_at(main), limits, progress).map(|checkpoint| {
            for finding in &checkpoint.findings {
                report(finding, &file, findings);
            }
            Shard {
                file: file.clone(),
                tensors: tensors(&checkpoint),
                is_readable: true,
                ..Shard::default()
            }
        });
    readable(shard, &file, findings)
}

/// Returns the shard. If it can't be read, reports that, and returns one without tensors.
fn readable(shard: Result<Shard>, file: &str, findings: &mut Findings<'_>) -> Result<Shard> {
    match shard {
        Ok(shard) => Ok(shard),
        Err(error) if matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::Io) => Err(error),
        Err(error) => {
            findings.add(&FILE_DAMAGED, file, format!("{file} can't be read: {}", text_of(&error)));
            if let Some(advice) = error.next_step() {
                findings.fix_last(&FILE_DAMAGED, advice.to_string());
            }
            Ok(Shard { file: file.to_owned(), ..Shard::default() })
        }
    }
}

pub(super) fn report_stand_in(found: StandIn, file: &str, findings: &mut Findings<'_>) {
    let (rule, text): (&'static Rule, _) = match found {
        StandIn::Empty => (&FILE_EMPTY, format!("{file} is empty")),
        StandIn::Pointer => {
            (&FILE_POINTER, format!("{file} is a Git LFS pointer, and not the file itself"))
        }
        StandIn::WebPage => (&FILE_WEB_PAGE, format!("{file} is a web page (HTML)")),
        StandIn::Answer => (&FILE_WEB_PAGE, format!("{file} is a server's error message")),
    };
    findings.add(rule, file, text);
}

/// Returns the text of an error without the name of its file and its advice.
pub(super) fn text_of(error: &Error) -> String {
    match error.offset() {
        Some(offset) => format!("{} (at byte {})", error.what(), grouped(offset)),
        None => error.what().to_owned(),
    }
}

/// Reads the header of a safetensors file: its length, JSON, then data
/// (<https://huggingface.co/docs/safetensors/index#format>).
fn safetensors(files: &FileSet, id: FileId, findings: &mut Findings<'_>) -> Result<Shard> {
    let file = files.name(id).to_owned();
    let len = files.len(id);
    let cut = |findings: &mut Findings<'_>, text: String| {
        findings.add(&FILE_CUT, &file, text);
        Ok(Shard { file: file.clone(), ..Shard::default() })
    };
    if len < 8 {
        return cut(findings, format!("{file} has only {len} bytes"));
    }
    let mut first = [0; 8];
    files.read(id, 0, &mut first)?;
    let header = u64::from_le_bytes(first);
    if header > MAX_HEADER {
        let what =
            "its first 8 bytes give the header more than 100 MB: it is not a safetensors file";
        return Err(Error::damaged(what).at(0));
    }
    let start = 8 + header;
    if start > len {
        let text = format!(
            "{file} ends in its header: {} of {} bytes are there",
            grouped(len),
            grouped(start)
        );
        return cut(findings, text);
    }
    let text = files.read_vec(id, 8, header)?;
    let document = Document::parse(&text)?;
    let JsonNode::Object(entries) = document.node(document.root()) else {
        return Err(Error::damaged("the header is not an object"));
    };
    let (mut tensors, mut spans, mut metadata) = (Vec::new(), Vec::new(), Vec::new());
    for (key, value) in entries {
        if *key == *"__metadata__" {
            for (name, value) in document.entries(*value) {
                let text = document.node(*value).text().map(Text::to_lossy).unwrap_or_default();
                metadata.push((name.to_lossy().into_owned(), text.into_owned()));
            }
            continue;
        }
        let (entry, span) = entry(&document, key, *value)?;
        spans.push((span, tensors.len()));
        tensors.push(entry);
    }
    if start % 8 != 0 {
        let text = format!(
            "The data of {file} begin at byte {}, which is not a multiple of 8",
            grouped(start)
        );
        findings.add(&HEADER_ALIGNMENT, &file, text);
    }
    spans.sort_unstable();
    let mut end = 0;
    for ((from, to), at) in &spans {
        let Some(entry) = tensors.get(*at) else { continue };
        if *from != end
            && !findings.list.iter().any(|one| one.rule == FILE_HOLES.id && one.file == file)
        {
            let word =
                if *from < end { "overlaps another tensor" } else { "leaves a hole before it" };
            let text = format!(
                "`{}` in {file} {word} (at byte {})",
                entry.key,
                grouped(start.saturating_add(*from))
            );
            findings.add_key(&FILE_HOLES, &file, &entry.key, text);
        }
        end = end.max(*to);
    }
    let whole = start.saturating_add(end);
    if whole > len {
        let lost: Vec<&str> = spans
            .iter()
            .filter(|((_, to), _)| start.saturating_add(*to) > len)
            .filter_map(|(_, at)| tensors.get(*at).map(|entry| entry.key.as_str()))
            .collect();
        let text = format!(
            "{file} has {} bytes, and its tensors need {}: `{}` is cut",
            grouped(len),
            grouped(whole),
            lost.first().unwrap_or(&"")
        );
        findings.add_key(&FILE_CUT, &file, lost.first().unwrap_or(&""), text);
    }
    if whole < len {
        let text = format!(
            "{file} has {} bytes after its last tensor, which ends at byte {}",
            grouped(len - whole),
            grouped(whole)
        );
        findings.add(&FILE_TOO_LONG, &file, text);
    }
    Ok(Shard { file, tensors, metadata, lengths: Vec::new(), is_readable: true })
}

/// Reads an entry of a header: a tensor, and the range of its data.
fn entry(
    document: &Document,
    key: &Text,
    id: statelens_checkpoint::json::Id,
) -> Result<(TensorEntry, (u64, u64))> {
    let key = key.to_lossy().into_owned();
    let bad = |what: &str| Error::damaged(format!("the header entry of `{key}` {what}"));
    let number = |id: statelens_checkpoint::json::Id| match document.node(id) {
        JsonNode::Int(int) => int.to_u64(),
        _ => None,
    };
    let numbers = |name: &str| -> Option<Vec<u64>> {
        let list = document.get(id, name)?;
        document.items(list).iter().map(|id| number(*id)).collect()
    };
    let dtype = document.field(id, "dtype").and_then(JsonNode::text);
    let dtype = dtype.and_then(Text::as_str).ok_or_else(|| bad("has no dtype"))?;
    let shape = numbers("shape").ok_or_else(|| bad("has no shape"))?;
    let offsets = numbers("data_offsets").ok_or_else(|| bad("has no offsets"))?;
    let &[from, to] = offsets.as_slice() else { return Err(bad("has no two offsets")) };
    let bytes = to.checked_sub(from).ok_or_else(|| bad("ends before it begins"))?;
    let bits = bits(dtype);
    let size = shape.iter().try_fold(1u64, |size, dim| size.checked_mul(*dim));
    let needed = size.and_then(|size| size.checked_mul(bits?)).map(|bits| bits.div_ceil(8));
    if bits.is_some() && needed != Some(bytes) {
        return Err(bad(&format!(
            "gives it {} bytes, which is not the size of {dtype} {}",
            grouped(bytes),
            shape_text(&shape)
        )));
    }
    let entry = TensorEntry { key, dtype: torch_name(dtype), shape, bytes, is_alias: false };
    Ok((entry, (from, to)))
}

/// Returns the size of an element in bits; `None` for an unknown dtype.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ"
        | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// Returns torch's name of a dtype of safetensors.
fn torch_name(dtype: &str) -> String {
    match dtype {
        "BF16" => "bfloat16",
        "F16" => "float16",
        "F32" => "float32",
        "F64" => "float64",
        "F8_E4M3" => "float8_e4m3fn",
        "F8_E5M2" => "float8_e5m2",
        "F8_E8M0" => "float8_e8m0fnu",
        "I8" => "int8",
        "I16" => "int16",
        "I32" => "int32",
        "I64" => "int64",
        "U8" => "uint8",
        other => return other.to_lowercase(),
    }
    .to_owned()
}

/// Reads a file of another format with its reader, as a file of its own.
fn opened(
    files: &FileSet,
    id: FileId,
    limits: &Limits,
    progress: &mut dyn Progress,
    findings: &mut Findings<'_>,
) -> Result<Shard> {
    let file = files.name(id).to_owned();
    let mut alone = FileSet::default();
    let Some((_, found)) = files.iter().find(|(known, _)| *known == id) else {
        return Err(Error::io("there is no such file"));
    };
    let mut found = found.clone();
    // Under its own name, the reader would look for the other shards.
    found.name = format!("weights.{}", extension(&file));
    alone.push_file(found);
    let checkpoint = statelens_formats::open(alone, limits, progress)?;
    let description = checkpoint.format.traits.description_key;
    for finding in &checkpoint.findings {
        // A file that describes its set says that the others are missing; the set has its own rules,
        // but not for bytes that are missing.
        if description.is_none() || finding.title.contains("cut short") {
            report(finding, &file, findings);
        }
    }
    let tensors = tensors(&checkpoint);
    let metadata = description.map_or_else(Vec::new, |key| facts(&checkpoint, key, plain_value));
    let lengths = description.map_or_else(Vec::new, |key| facts(&checkpoint, key, length));
    Ok(Shard { file, tensors, metadata, lengths, is_readable: true })
}

/// Returns the tensors of the state dict.
fn tensors(checkpoint: &Checkpoint) -> Vec<TensorEntry> {
    let description = checkpoint.format.traits.description_key;
    let (mut tensors, mut storages) = (Vec::new(), HashSet::new());
    for leaf in checkpoint.each_leaf() {
        let is_description =
            |key: &str| leaf.key.parts.first().is_some_and(|part| part.text() == *key);
        if leaf.outside_state || description.is_some_and(is_description) {
            continue;
        }
        let Some((id, tensor)) = checkpoint.tensor_of(leaf.target) else { continue };
        let place = (tensor.storage, tensor.storage.is_none().then_some(id));
        tensors.push(TensorEntry {
            key: leaf.flat.to_lossy().into_owned(),
            dtype: tensor.dtype.to_string(),
            shape: tensor.shape.clone(),
            bytes: tensor.nbytes().unwrap_or(0),
            is_alias: !storages.insert(place),
        });
    }
    tensors
}

/// Reports a finding of a reader.
pub(super) fn report(finding: &Finding, file: &str, findings: &mut Findings<'_>) {
    let rule = match finding.grade {
        Grade::Damage if !finding.missing.is_empty() => &SHARD_MISSING,
        Grade::Danger => &FILE_CODE,
        Grade::Damage => &FILE_DAMAGED,
        _ => return,
    };
    let mut text = format!("{file}: {}", finding.title);
    if finding.missing.iter().any(|name| !finding.title.contains(name.as_str())) {
        text = format!("{text}: {}", statelens_checkpoint::listed(&finding.missing, 5));
    }
    if std::ptr::eq(rule, &FILE_DAMAGED) && !finding.detail.is_empty() {
        text = format!("{text}. {}", finding.detail);
    }
    findings.add(rule, file, text);
    if [&FILE_DAMAGED, &SHARD_MISSING].contains(&rule) && !finding.advice.is_empty() {
        findings.fix_last(rule, finding.advice.to_string());
    }
}

/// Returns what `value` gives for the entries of the dict with this key.
fn facts<T>(
    checkpoint: &Checkpoint,
    key: &str,
    value: impl Fn(&Checkpoint, ValueId) -> Option<T>,
) -> Vec<(String, T)> {
    let entries = |id| match checkpoint.value(id) {
        Value::Dict(Dict { entries, .. }) => entries.as_slice(),
        _ => &[],
    };
    let named = |key: &DictKey| match key {
        DictKey::Str(text) => Some(text.to_lossy().into_owned()),
        _ => None,
    };
    let root = entries(checkpoint.root());
    let metadata = root.iter().find(|(name, _)| named(name).as_deref() == Some(key));
    let metadata = metadata.map_or(&[][..], |(_, id)| entries(*id));
    metadata.iter().filter_map(|(key, id)| Some((named(key)?, value(checkpoint, *id)?))).collect()
}

/// Returns a number or a short text.
fn plain_value(checkpoint: &Checkpoint, id: ValueId) -> Option<String> {
    match checkpoint.value(id) {
        Value::Int(int) => int.to_u64().map(|number| number.to_string()),
        Value::Str(text) if text.as_bytes().len() < 200 => Some(text.to_lossy().into_owned()),
        _ => None,
    }
}

/// Returns the length of a list or an array.
fn length(checkpoint: &Checkpoint, id: ValueId) -> Option<u64> {
    match checkpoint.value(id) {
        Value::List(list) => Some(list.items.len() as u64),
        Value::Array(_) => checkpoint.tensor_of(id)?.1.shape.first().copied(),
        _ => None,
    }
}
