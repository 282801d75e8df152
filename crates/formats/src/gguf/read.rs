use std::collections::HashSet;

use statelens_checkpoint::{
    Array, Builder, ByteOrder, Checkpoint, DType, Dict, DictKey, Error, ErrorKind, FileId, FileSet,
    Finding, FormatInfo, Global, Grade, Layout, Limits, List, Opaque, Progress, Result,
    STORED_TYPE, Span, Tensor, Text, Value, ValueId, counted, numel,
};

use super::cursor::Cursor;
use super::rules::{Broken, Rule};
use super::types;
use crate::template;

pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    progress.check(0, 0)?;
    let main = files.main()?;
    let structure = files.structure(main)?;
    let mut cursor = Cursor::new(&structure, limits);
    let version = version(&mut cursor)?;
    let mut reader = GgufReader {
        file: main,
        len: files.len(main),
        builder: Builder::new(limits),
        limits,
        cursor,
        findings: Vec::new(),
        facts: Vec::new(),
        alignment: 32,
        broken: Broken::default(),
    };
    if version == 1 {
        reader.broken.add(Rule::OldVersion, &"".into());
    }
    let tensors = reader.cursor.count()?;
    let at = reader.cursor.at;
    let pairs = reader.cursor.count()?;
    let least = if version == 1 { 9 } else { 13 };
    reader.cursor.room("metadata entries", pairs, least, at)?;
    let counts = |error: Error| {
        match error.kind() {
        ErrorKind::Damaged if error.next_step().is_none() => error.advice(format!(
            "The file counts {pairs} metadata entries and {tensors} tensors. If one of these numbers is wrong, write the file again."
        )),
        _ => error,
    }
    };
    let metadata = reader.metadata(pairs, progress).map_err(counts)?;
    let entries = reader.tensors(tensors, metadata, progress).map_err(counts)?;
    let GgufReader { mut builder, mut findings, facts, broken, .. } = reader;
    findings.extend(broken.findings());
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() }))?;
    let format = FormatInfo {
        id: "gguf",
        name: "GGUF",
        version: version.to_string(),
        facts,
        ..FormatInfo::default()
    };
    builder.finish(root, format, files, findings)
}

/// Reads the version, which also determines the byte order.
fn version(cursor: &mut Cursor<'_>) -> Result<u32> {
    cursor.skip(super::detect::MAGIC.len() as u64)?;
    let number = cursor.u32()?;
    let (version, order) = match (number, number.swap_bytes()) {
        (1..=3, _) => (number, ByteOrder::Little),
        (_, swapped @ 1..=3) => (swapped, ByteOrder::Big),
        _ => {
            return Err(Error::unsupported(format!("GGUF of version {number}"))
                .at(4)
                .expected("version 1, 2 or 3"));
        }
    };
    cursor.order = order;
    cursor.narrow = version == 1;
    Ok(version)
}

struct GgufReader<'a> {
    file: FileId,
    len: u64,
    builder: Builder,
    limits: &'a Limits,
    cursor: Cursor<'a>,
    findings: Vec<Finding>,
    facts: Vec<(String, String)>,
    alignment: u64,
    broken: Broken,
}

/// An array of metadata with items still to be read.
struct OpenArray {
    item_type: u32,
    left: u64,
    items: Vec<ValueId>,
}

/// The maximum nesting of arrays. The specification has no limit, but two levels are the most in
/// use.
const DEEPEST: usize = 16;
/// Metadata shown as facts above the table.
const FACTS: [(&str, &str); 4] = [
    ("general.architecture", "Architecture"),
    ("general.name", "Name"),
    ("general.size_label", "Size"),
    ("general.quantization_version", "Quantisation version"),
];

impl GgufReader<'_> {
    fn metadata(&mut self, pairs: u64, progress: &mut dyn Progress) -> Result<Option<ValueId>> {
        Limits::check("entries of the metadata", pairs, self.limits.values)?;
        if self.cursor.order == ByteOrder::Big {
            self.facts.push(("Byte order".into(), "big-endian".into()));
        }
        let mut entries = Vec::new();
        let mut names = HashSet::new();
        for done in 0..pairs {
            if done.is_multiple_of(256) {
                progress.check(done, 0)?;
            }
            let start = self.cursor.at;
            let key = self.text()?;
            if !names.insert(key.clone()) {
                return Err(Error::damaged(format!("two entries of the metadata are named {key}"))
                    .at(start));
            }
            let value_type = self.cursor.u32()?;
            let id = self.value(&key, value_type).map_err(|error| error.context(&key))?;
            if let Some(dtype) = number(value_type) {
                let stored = (STORED_TYPE.into(), dtype.name().into());
                self.builder.set_raw_attributes(id, vec![stored]);
            }
            let value = self.builder.value(id);
            if key.is_empty() {
                self.broken.add(Rule::EmptyKey, &key);
            }
            if key == "general.alignment" {
                if value_type != UINT32 {
                    self.broken.add(Rule::AlignmentType, &key);
                }
                self.alignment = match value {
                    Some(Value::Int(int)) => int.to_u64().filter(|size| size.is_power_of_two()),
                    _ => None,
                }
                .ok_or_else(|| {
                    Error::damaged("general.alignment is invalid")
                        .at(start)
                        .expected("a power of two")
                })?;
            }
            if let (Some(name), Some(Value::Str(text))) = (key.as_str(), value)
                && template::is_template(name)
            {
                self.findings.extend(template::finding(name, &text.to_lossy()));
            }
            if let Some((_, label)) = FACTS.iter().find(|(name, _)| key == *name) {
                let text = match value {
                    Some(Value::Str(text)) => text.to_lossy().into_owned(),
                    Some(Value::Int(int)) => int.to_string(),
                    _ => String::new(),
                };
                self.facts.push(((*label).to_owned(), text));
            }
            entries.push((DictKey::Str(key), id));
        }
        match entries.is_empty() {
            true => Ok(None),
            false => Ok(Some(self.builder.push(Value::Dict(Dict { entries, ..Dict::default() }))?)),
        }
    }

    fn text(&mut self) -> Result<Text> {
        let at = self.cursor.at;
        let bytes = self.cursor.text()?;
        Text::from_surrogatepass(&bytes)
            .map_err(|_| Error::damaged("a name that is not UTF-8").at(at))
    }

    /// Reads a metadata value, without recursion.
    fn value(&mut self, key: &Text, mut value_type: u32) -> Result<ValueId> {
        let mut open: Vec<OpenArray> = Vec::new();
        loop {
            let done = match value_type {
                9 => {
                    let item_type = self.cursor.u32()?;
                    if item_type == ARRAY && open.is_empty() {
                        self.broken.add(Rule::NestedArray, key);
                    }
                    let at = self.cursor.at;
                    let left = self.cursor.count()?;
                    match number(item_type) {
                        Some(dtype) => Some(self.numbers(dtype, left)?),
                        None if open.len() == DEEPEST => {
                            return Err(Error::limit(format!(
                                "arrays nest deeper than {DEEPEST} levels"
                            )));
                        }
                        None => {
                            let least = if self.cursor.narrow { 4 } else { 8 };
                            self.cursor.room("items of an array", left, least, at)?;
                            open.push(OpenArray { item_type, left, items: Vec::new() });
                            None
                        }
                    }
                }
                other => Some(self.plain(other)?),
            };
            let mut done = done;
            loop {
                let Some(array) = open.last_mut() else {
                    // Only opening an array leaves `done` empty.
                    return done.ok_or_else(|| Error::damaged("an array that was not opened"));
                };
                if let Some(id) = done.take() {
                    array.items.push(id);
                    array.left = array.left.saturating_sub(1);
                }
                if array.left > 0 {
                    value_type = array.item_type;
                    break;
                }
                let items = std::mem::take(&mut array.items);
                open.pop();
                done = Some(self.builder.push(Value::List(List { items, ..List::default() }))?);
            }
        }
    }

    /// Returns an array of numbers as a tensor with its data in the file.
    fn numbers(&mut self, dtype: DType, count: u64) -> Result<ValueId> {
        let offset = self.cursor.at;
        let len = dtype.bytes_of(count).ok_or_else(|| {
            Error::damaged("an array of the metadata is larger than 64 bits can count").at(offset)
        })?;
        self.cursor.skip(len)?;
        let layout = Layout::Span(Span { file: self.file, offset, len });
        let mut tensor = Tensor::new(dtype, vec![count], layout);
        tensor.byte_order = self.cursor.order;
        let tensor = self.builder.push_tensor(tensor)?;
        self.builder.push(Value::Array(Array { tensor, scalar: false }))
    }

    fn plain(&mut self, value_type: u32) -> Result<ValueId> {
        let cursor = &mut self.cursor;
        let at = cursor.at;
        let int = |value: i64| Value::Int(value.into());
        let value = match value_type {
            0 => int(cursor.u8()?.into()),
            1 => int((cursor.u8()? as i8).into()),
            2 => int(cursor.u16()?.into()),
            3 => int((cursor.u16()? as i16).into()),
            4 => int(cursor.u32()?.into()),
            5 => int((cursor.u32()? as i32).into()),
            6 => Value::Float(f32::from_bits(cursor.u32()?).into()),
            7 => Value::Bool(cursor.u8()? != 0),
            8 => {
                let bytes = cursor.text()?;
                match Text::from_surrogatepass(&bytes) {
                    Ok(text) => Value::Str(text),
                    // A token may be a part of a character.
                    Err(_) => Value::Bytes { data: bytes.into(), mutable: false },
                }
            }
            10 => Value::Int(cursor.u64()?.into()),
            11 => int(cursor.u64()? as i64),
            12 => Value::Float(f64::from_bits(cursor.u64()?)),
            other => {
                return Err(Error::damaged(format!("metadata of the unknown type {other}"))
                    .at(at)
                    .expected("a number from 0 to 12"));
            }
        };
        self.builder.push(value)
    }

    fn tensors(
        &mut self,
        count: u64,
        metadata: Option<ValueId>,
        progress: &mut dyn Progress,
    ) -> Result<Vec<(DictKey, ValueId)>> {
        let described = self.all_described(count, progress)?;
        self.report_byte_order(&described);
        // The tensor data begins at the next multiple of the alignment.
        let start = self.cursor.at.checked_next_multiple_of(self.alignment);
        let start = start.ok_or_else(|| Error::damaged("an invalid alignment"))?;
        let mut names = HashSet::new();
        let mut entries = Vec::with_capacity(described.len() + 1);
        let mut cut = 0u64;
        let mut expected = Some(0u64);
        for tensor in described {
            self.broken.tensor(&tensor.name, tensor.shape.len());
            if expected.is_some_and(|offset| offset != tensor.offset) {
                self.broken.add(Rule::Misplaced, &tensor.name);
                expected = None;
            }
            expected = expected.and_then(|offset| self.behind(offset, &tensor));
            if !names.insert(tensor.name.clone()) {
                return Err(
                    Error::damaged(format!("two tensors are named {}", tensor.name)).at(tensor.at)
                );
            }
            let name = tensor.name.clone();
            let id = self.tensor(tensor, start, &mut cut).map_err(|e| e.context(&name))?;
            entries.push((DictKey::Str(name), id));
        }
        if cut > 0 {
            self.findings.push(
                Finding::new(Grade::Damage, "The file is cut short")
                    .detail(format!("The bytes of {cut} tensors are incomplete."))
                    .advice("Copy or download it again."),
            );
        }
        if let Some(metadata) = metadata {
            let mut name = "metadata".to_owned();
            while names.contains(&Text::from(name.as_str())) {
                name.push('_');
            }
            entries.push((DictKey::from(&*name), metadata));
        }
        Ok(entries)
    }

    /// Reads the descriptions of the tensors. If the count in the header is wrong, reads as many as
    /// there are.
    fn all_described(&mut self, count: u64, progress: &mut dyn Progress) -> Result<Vec<Described>> {
        let mut described: Vec<Described> = Vec::new();
        // The end of the tensors so far, relative to the start of the data.
        let mut end = Some(0);
        for done in 0..count {
            if done.is_multiple_of(256) {
                progress.check(done, count)?;
            }
            let at = self.cursor.at;
            let one = self.described();
            if !one.as_ref().is_ok_and(|one| !one.name.is_empty()) && self.is_end(at, end) {
                self.cursor.at = at;
                self.miscounted(count, done);
                return Ok(described);
            }
            let one = one?;
            Limits::check("tensors of the file", done + 1, self.limits.members)?;
            end = end.and_then(|end| self.behind(end, &one));
            described.push(one);
        }
        // Usually the data follows, which hardly ever looks like another tensor description.
        loop {
            let at = self.cursor.at;
            match self.described() {
                Ok(one)
                    if !one.name.is_empty()
                        && (1..=4).contains(&one.shape.len())
                        && types::dtype(one.ggml_type).is_some()
                        && Some(one.offset) == end =>
                {
                    end = end.and_then(|end| self.behind(end, &one));
                    described.push(one);
                    Limits::check(
                        "tensors of the file",
                        described.len() as u64,
                        self.limits.members,
                    )?;
                }
                _ => {
                    self.cursor.at = at;
                    break;
                }
            }
        }
        if described.len() as u64 > count {
            self.miscounted(count, described.len() as u64);
        }
        Ok(described)
    }

    /// Reports types of a big-endian file for which no program defines the byte order.
    fn report_byte_order(&mut self, described: &[Described]) {
        if self.cursor.order == ByteOrder::Little {
            return;
        }
        let mut types: Vec<&str> = Vec::new();
        let mut first = None;
        for tensor in described {
            if let Some(DType::Blocks(block)) = types::dtype(tensor.ggml_type)
                && !types::is_known_big_endian(block.name)
            {
                first.get_or_insert(&tensor.name);
                if !types.contains(&block.name) {
                    types.push(block.name);
                }
            }
        }
        let Some(first) = first else { return };
        let title = format!("Values of {} may be wrong", types.join(", "));
        self.findings.push(
            Finding::new(Grade::Warning, title)
                .detail("The file is big-endian, and no program defines how it stores these types. Their 16-bit fields are read as big-endian.")
                .place(first.to_lossy())
                .advice("Compare the values with those of a little-endian file of the same model."),
        );
    }

    /// Returns the offset of the tensor after the one at `offset`, relative to the start of the
    /// data.
    fn behind(&self, offset: u64, described: &Described) -> Option<u64> {
        let dtype = types::dtype(described.ggml_type)?;
        let count = described.shape.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim))?;
        offset.checked_add(dtype.bytes_of(count)?)?.checked_next_multiple_of(self.alignment)
    }

    /// Returns whether the file ends after the data of the tensors so far, whose descriptions end
    /// at `at`.
    fn is_end(&self, at: u64, end: Option<u64>) -> bool {
        let start = at.checked_next_multiple_of(self.alignment);
        let (Some(start), Some(end)) = (start, end) else { return false };
        // The padding after the last tensor may be missing.
        let least = end.saturating_sub(self.alignment - 1).max(1);
        (least..=end).contains(&self.len.saturating_sub(start))
    }

    fn miscounted(&mut self, count: u64, there: u64) {
        self.findings.push(
            Finding::new(
                Grade::Warning,
                format!("The file counts {} and describes {there}", counted(count, "tensor")),
            )
            .detail("The number in the header is wrong. All tensors that are described are shown; llama.cpp refuses the file.")
            .advice("Write the file again. Copying or downloading it again does not help.")
            .refused(),
        );
    }

    fn described(&mut self) -> Result<Described> {
        let at = self.cursor.at;
        let name = self.text()?;
        let rank = self.cursor.u32()?;
        let wide = if self.cursor.narrow { 4 } else { 8 };
        self.cursor.room("dimensions of a tensor", rank.into(), wide, at)?;
        Limits::check("dimensions of a tensor", rank.into(), self.limits.rank)
            .map_err(|error| error.at(at))?;
        let mut shape = Vec::new();
        for _ in 0..rank {
            shape.push(self.cursor.count()?);
        }
        // The file has the fastest-varying dimension first.
        shape.reverse();
        let ggml_type = self.cursor.u32()?;
        let offset = self.cursor.u64()?;
        Ok(Described { at, name, shape, ggml_type, offset })
    }

    fn tensor(&mut self, described: Described, start: u64, cut: &mut u64) -> Result<ValueId> {
        let Described { at, shape, ggml_type, offset, .. } = described;
        let Some(dtype) = types::dtype(ggml_type) else {
            let repr = format!("a tensor of shape {shape:?} and of the unknown type {ggml_type}");
            self.broken.add(Rule::Type, &described.name);
            return self.builder.push(unknown(repr));
        };
        let mut tensor = Tensor::new(dtype, shape, Layout::Missing("".into()));
        tensor.byte_order = self.cursor.order;
        if let DType::Blocks(block) = &tensor.dtype
            && !tensor.shape.last().is_some_and(|last| last.is_multiple_of(block.elements))
        {
            return Err(Error::damaged(format!(
                "a tensor of shape {:?} is not a whole number of {} blocks in each row",
                tensor.shape, block.name
            ))
            .at(at));
        }
        // As in ggml, the other dimensions count although one is 0.
        let others: Vec<u64> = tensor.shape.iter().map(|dim| (*dim).max(1)).collect();
        let counts = numel(&others).is_some_and(|count| count <= i64::MAX as u64);
        let len = tensor.nbytes().filter(|_| counts).ok_or_else(|| {
            Error::damaged(format!(
                "a tensor of shape {:?} is larger than 64 bits can count",
                tensor.shape
            ))
            .at(at)
        })?;
        let first = start.checked_add(offset);
        let end = first.and_then(|first| first.checked_add(len));
        tensor.layout = match (first, end) {
            (Some(offset), Some(end)) if end <= self.len => {
                Layout::Span(Span { file: self.file, offset, len })
            }
            _ => {
                *cut += 1;
                let text = format!("the file ends at byte {}, before the tensor does", self.len);
                Layout::Missing(text.as_str().into())
            }
        };
        let tensor = self.builder.push_tensor(tensor)?;
        self.builder.push(Value::Tensor(tensor))
    }
}

/// Type numbers of metadata.
const UINT32: u32 = 4;
const ARRAY: u32 = 9;

/// The description of a tensor in the header, with the dimensions reversed.
struct Described {
    at: u64,
    name: Text,
    shape: Vec<u64>,
    ggml_type: u32,
    offset: u64,
}

/// Returns the dtype of a metadata type whose arrays are plain numbers.
fn number(value_type: u32) -> Option<DType> {
    Some(match value_type {
        0 => DType::U8,
        1 => DType::I8,
        2 => DType::U16,
        3 => DType::I16,
        4 => DType::U32,
        5 => DType::I32,
        6 => DType::F32,
        7 => DType::Bool,
        10 => DType::U64,
        11 => DType::I64,
        12 => DType::F64,
        _ => return None,
    })
}

fn unknown(repr: String) -> Value {
    Value::Opaque(Box::new(Opaque::reference(Global::new("gguf", "Tensor"), Some(repr.into()))))
}
