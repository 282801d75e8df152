use std::collections::{BTreeSet, HashSet};

use statelens_checkpoint::{
    Array, Builder, Checkpoint, DType, Dict, DictKey, Error, FileId, FileSet, Finding, FormatInfo,
    Global, Grade, Layout, Limits, List, Opaque, Progress, Result, Span, Tensor, Text, Value,
    ValueId, order,
};

use super::packed::{Cursor, Head};
use super::pieces;

pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    progress.check(0, 0)?;
    let main = files.main()?;
    let mut reader = FlaxReader {
        file: main,
        cursor: Cursor::new(files.structure(main)?, limits),
        builder: Builder::new(limits),
        limits,
        findings: Vec::new(),
        foreign: BTreeSet::new(),
    };
    let root = reader.tree(progress)?;
    let rest = reader.cursor.left();
    let FlaxReader { builder, mut findings, .. } = reader;
    if rest > 0 {
        findings.push(Finding::new(Grade::Note, format!("{rest} bytes follow the state dict")));
    }
    let format = FormatInfo { id: "flax", name: "Flax msgpack", ..FormatInfo::default() };
    builder.finish(root, format, files, findings)
}

struct FlaxReader<'a> {
    file: FileId,
    cursor: Cursor<'a>,
    builder: Builder,
    limits: &'a Limits,
    findings: Vec<Finding>,
    /// Names of unknown dtypes.
    foreign: BTreeSet<String>,
}

/// A container with items still to be read.
enum OpenContainer {
    Map { left: u64, key: Option<DictKey>, entries: Vec<(DictKey, ValueId)> },
    Array { left: u64, items: Vec<ValueId> },
}

/// An array that is not chunked.
struct PackedArray {
    /// The dtype's name in the file.
    name: String,
    dtype: DType,
    shape: Vec<u64>,
    span: Span,
}

/// The key that marks a chunked array.
const PIECES: &str = "__msgpack_chunked_array__";
/// Maximum lengths in bytes of the name of a dtype, and of an element with an unknown dtype.
const MAX_NAME: u64 = 64;
const MAX_ELEMENT: u64 = 64;
/// The maximum number of findings that are reported individually.
const MAX_FINDINGS: usize = 100;

impl FlaxReader<'_> {
    fn tree(&mut self, progress: &mut dyn Progress) -> Result<ValueId> {
        let mut open: Vec<OpenContainer> = Vec::new();
        let mut seen = 0u64;
        loop {
            seen += 1;
            if seen.is_multiple_of(1024) {
                progress.check(seen, 0)?;
            }
            Limits::check("nesting of maps", open.len() as u64, self.limits.depth)?;
            let head = self.cursor.head()?;
            let mut done = None;
            match (open.last_mut(), head) {
                (Some(OpenContainer::Map { key: key @ None, .. }), head) => {
                    *key = Some(self.key(head)?)
                }
                (_, Head::Map(left)) => {
                    open.push(OpenContainer::Map { left, key: None, entries: Vec::new() });
                }
                (_, Head::Array(left)) => {
                    open.push(OpenContainer::Array { left, items: Vec::new() })
                }
                (_, head) => done = Some(self.plain(head)?),
            }
            loop {
                if let Some(id) = done.take() {
                    match open.last_mut() {
                        None => return Ok(id),
                        Some(OpenContainer::Map { left, key, entries }) => {
                            if let Some(key) = key.take() {
                                entries.push((key, id));
                            }
                            *left = left.saturating_sub(1);
                        }
                        Some(OpenContainer::Array { left, items }) => {
                            items.push(id);
                            *left = left.saturating_sub(1);
                        }
                    }
                }
                let full = matches!(
                    open.last(),
                    Some(OpenContainer::Map { left: 0, .. } | OpenContainer::Array { left: 0, .. })
                );
                match open.pop() {
                    Some(OpenContainer::Map { entries, .. }) if full => {
                        done = Some(self.map(entries)?)
                    }
                    Some(OpenContainer::Array { items, .. }) if full => {
                        let list = List { items, ..List::default() };
                        done = Some(self.builder.push(Value::List(list))?);
                    }
                    Some(container) => {
                        open.push(container);
                        break;
                    }
                    None => break,
                }
            }
        }
    }

    fn key(&mut self, head: Head) -> Result<DictKey> {
        let at = self.cursor.at;
        Ok(match head {
            Head::Str(len) => match self.text(len)? {
                Ok(text) => DictKey::Str(text),
                Err(bytes) => DictKey::Bytes(bytes.into()),
            },
            Head::Bin(len) => DictKey::Bytes(self.cursor.bytes(len)?.into()),
            Head::Int(int) => DictKey::Int(int.into()),
            Head::Uint(int) => DictKey::Int(int.into()),
            Head::Bool(value) => DictKey::Bool(value),
            Head::Nil => DictKey::None,
            Head::Float(float) => DictKey::Float(float),
            Head::Array(_) | Head::Map(_) | Head::Ext(..) => {
                return Err(Error::unsupported("a map has keys that are not plain values").at(at));
            }
        })
    }

    /// Reads a string, or returns its bytes if it is not valid.
    fn text(&mut self, len: u64) -> Result<Result<Text, Vec<u8>>> {
        let bytes = self.cursor.bytes(len)?;
        Ok(Text::from_surrogatepass(&bytes).map_err(|_| bytes))
    }

    fn plain(&mut self, head: Head) -> Result<ValueId> {
        let value = match head {
            Head::Nil => Value::None,
            Head::Bool(value) => Value::Bool(value),
            Head::Int(int) => Value::Int(int.into()),
            Head::Uint(int) => Value::Int(int.into()),
            Head::Float(float) => Value::Float(float),
            Head::Str(len) => match self.text(len)? {
                Ok(text) => Value::Str(text),
                Err(bytes) => Value::Bytes { data: bytes.into(), mutable: false },
            },
            Head::Bin(len) => Value::Bytes { data: self.cursor.bytes(len)?.into(), mutable: false },
            Head::Ext(kind, len) => return self.extension(kind, len),
            Head::Array(_) | Head::Map(_) => return Err(Error::damaged("a container in a scalar")),
        };
        self.builder.push(value)
    }

    /// Reads an extension. An invalid one is skipped and reported.
    fn extension(&mut self, kind: i8, len: u64) -> Result<ValueId> {
        let start = self.cursor.at;
        self.cursor.skip(len)?;
        let end = self.cursor.at;
        self.cursor.at = start;
        let made = match kind {
            1 | 3 => self.array(end).and_then(|array| self.tensor(array, kind == 3)),
            2 => self.complex(),
            _ => Err(Error::unsupported(format!("an extension of the type {kind} can't be read"))),
        };
        let made = match made {
            Ok(_) if self.cursor.at != end => {
                Err(Error::damaged("an array or number that does not end where it should"))
            }
            made => made,
        };
        self.cursor.at = end;
        match made {
            Ok(id) => Ok(id),
            Err(error) if error.kind() == statelens_checkpoint::ErrorKind::Limit => Err(error),
            Err(error) => {
                let why = error.what();
                let what = format!("an extension of {len} bytes and the type {kind}: {why}");
                self.warn("An extension can't be read", &error.at(start));
                // The text has to be incomplete, so that the bytes are compared instead.
                self.opaque(what + "…", start, len)
            }
        }
    }

    /// Adds an object that is compared by its bytes.
    fn opaque(&mut self, repr: String, offset: u64, len: u64) -> Result<ValueId> {
        let layout = Layout::Span(Span { file: self.file, offset, len });
        let bytes = Tensor::new(DType::U8, vec![len], layout);
        let contents = Some(self.builder.push_tensor(bytes)?);
        let reference = Opaque::reference(Global::new("msgpack", "ExtType"), Some(repr.into()));
        self.builder.push(Value::Opaque(Box::new(Opaque { contents, ..reference })))
    }

    fn warn(&mut self, title: &str, error: &Error) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding::new(Grade::Damage, title).detail(error.to_string()));
        }
    }

    /// Reads `[shape, dtype, bytes]`, which ends at `end`.
    fn array(&mut self, end: u64) -> Result<PackedArray> {
        let wrong =
            || Error::damaged("an array that does not consist of a shape, a dtype and bytes");
        let Head::Array(3) = self.cursor.head()? else { return Err(wrong()) };
        let Head::Array(rank) = self.cursor.head()? else { return Err(wrong()) };
        Limits::check("dimensions of an array", rank, self.limits.rank)?;
        let mut shape = Vec::new();
        for _ in 0..rank {
            shape.push(match self.cursor.head()? {
                Head::Int(int) => u64::try_from(int).map_err(|_| wrong())?,
                Head::Uint(int) => int,
                _ => return Err(wrong()),
            });
        }
        let (Head::Str(len) | Head::Bin(len)) = self.cursor.head()? else { return Err(wrong()) };
        if len > MAX_NAME {
            return Err(wrong());
        }
        let name = String::from_utf8_lossy(&self.cursor.bytes(len)?).into_owned();
        let Head::Bin(len) = self.cursor.head()? else { return Err(wrong()) };
        let span = Span { file: self.file, offset: self.cursor.at, len };
        self.cursor.skip(len)?;
        if self.cursor.at > end {
            return Err(wrong());
        }
        let dtype = match dtype_named(&name) {
            Some(dtype) => dtype,
            None => self.unknown(&name, &shape, len)?,
        };
        Ok(PackedArray { name, dtype, shape, span })
    }

    /// Returns a dtype for elements of an unknown type; only their size is known.
    fn unknown(&mut self, name: &str, shape: &[u64], len: u64) -> Result<DType> {
        let count = shape.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim));
        let whole =
            count.and_then(|count| len.checked_div(count).filter(|size| size * count == len));
        let error = || Error::unsupported(format!("an array of the dtype {name:?} can't be read"));
        let size = whole.filter(|size| (1..=MAX_ELEMENT).contains(size)).ok_or_else(error)?;
        if self.foreign.insert(name.to_owned()) && self.findings.len() < MAX_FINDINGS {
            let title = format!("The dtype {name} is not supported");
            self.findings.push(
                Finding::new(Grade::Warning, title)
                    .detail("Elements of it are shown as bytes, in the file's order."),
            );
        }
        Ok(DType::bytes_named(name, size))
    }

    fn tensor(&mut self, array: PackedArray, scalar: bool) -> Result<ValueId> {
        let PackedArray { name, dtype, shape, span } = array;
        let tensor = Tensor::new(dtype, shape, Layout::Span(span));
        if tensor.nbytes() != Some(span.len) {
            return Err(Error::damaged(format!(
                "an array of shape {:?} and dtype {} has {} bytes",
                tensor.shape, tensor.dtype, span.len
            )));
        }
        self.push(tensor, scalar, name.into())
    }

    /// Adds an array. `name` is the dtype's name in the file.
    fn push(&mut self, tensor: Tensor, scalar: bool, name: Text) -> Result<ValueId> {
        let same = name == tensor.dtype.name();
        let tensor = self.builder.push_tensor(tensor)?;
        let id = self.builder.push(Value::Array(Array { tensor, scalar }))?;
        if !same {
            self.builder.set_raw_attributes(id, vec![("dtype".into(), name)]);
        }
        Ok(id)
    }

    fn complex(&mut self) -> Result<ValueId> {
        let wrong = || Error::damaged("a complex number that does not consist of two numbers");
        let Head::Array(2) = self.cursor.head()? else { return Err(wrong()) };
        let mut part = || match self.cursor.head()? {
            Head::Float(float) => Ok(float),
            Head::Int(int) => Ok(int as f64),
            Head::Uint(int) => Ok(int as f64),
            _ => Err(wrong()),
        };
        let (re, im) = (part()?, part()?);
        self.builder.push(Value::Complex(re, im))
    }

    /// Returns a map, or the chunked array that it represents.
    fn map(&mut self, entries: Vec<(DictKey, ValueId)>) -> Result<ValueId> {
        let marked = entries.iter().any(|(key, id)| {
            *key == DictKey::from(PIECES) && self.builder.value(*id) == Some(&Value::Bool(true))
        });
        if marked {
            match self.in_pieces(&entries) {
                Ok((tensor, name)) => return self.push(tensor, false, name),
                Err(error) => self.warn("An array in pieces can't be assembled", &error),
            }
        }
        self.about_twice(&entries);
        self.builder.push(Value::Dict(Dict { entries, ..Dict::default() }))
    }

    /// Reports keys that occur several times in a map; in Python the last one counts.
    fn about_twice(&mut self, entries: &[(DictKey, ValueId)]) {
        let mut seen = HashSet::with_capacity(entries.len());
        // `0` and `'0'` are two keys in Python.
        let is_text = |key: &DictKey| matches!(key, DictKey::Str(_));
        let again = entries.iter().filter(|(key, _)| !seen.insert((is_text(key), key.to_string())));
        for (key, _) in again {
            if self.findings.len() < MAX_FINDINGS {
                let key = key.to_string();
                self.findings.push(
                    Finding::new(Grade::Damage, format!("A map has two entries named `{key}`"))
                        .detail("The last of them counts when the file is loaded; the others are hidden. All are shown here.")
                        .advice("Find out who wrote the file; do not convert it as it is.")
                        .place(key),
                );
            }
        }
    }

    /// Returns a chunked array, and the dtype's name in the file.
    fn in_pieces(&self, entries: &[(DictKey, ValueId)]) -> Result<(Tensor, Text)> {
        let wrong = || Error::damaged("an array in pieces without its shape or its pieces");
        let items = |name: &str| {
            let entry = entries.iter().find(|(key, _)| *key == DictKey::from(name));
            match self.builder.value(entry?.1) {
                Some(Value::Dict(dict)) => Some(numbered(dict)),
                _ => None,
            }
        };
        let shape: Option<Vec<u64>> = items("shape")
            .ok_or_else(wrong)?
            .iter()
            .map(|id| match self.builder.value(*id) {
                Some(Value::Int(int)) => int.to_u64(),
                _ => None,
            })
            .collect();
        let shape = shape.ok_or_else(wrong)?;
        let mut spans = Vec::new();
        let mut dtype = None;
        for id in items("chunks").ok_or_else(wrong)? {
            let Some(Value::Array(array)) = self.builder.value(id) else { return Err(wrong()) };
            let tensor = self.builder.tensor(array.tensor).ok_or_else(wrong)?;
            let Layout::Span(span) = tensor.layout else { return Err(wrong()) };
            let named = self.builder.raw_attributes(id).first();
            let name = named.map_or_else(|| tensor.dtype.name().into(), |(_, name)| name.clone());
            let this = (tensor.dtype.clone(), name);
            if *dtype.get_or_insert_with(|| this.clone()) != this {
                return Err(Error::damaged("an array in pieces of different dtypes"));
            }
            spans.push(span);
        }
        let (dtype, name) = dtype.ok_or_else(wrong)?;
        let layout = pieces::join(&shape, dtype.itemsize(), &spans).ok_or_else(|| {
            Error::damaged(format!("pieces that do not make up an array of shape {shape:?}"))
        })?;
        Ok((Tensor::new(dtype, shape, layout), name))
    }
}

/// Returns the values of a map that was a list, in order. Its keys are `"0"`, `"1"` etc.
fn numbered(dict: &Dict) -> Vec<ValueId> {
    let mut items: Vec<(u64, ValueId)> = dict
        .entries
        .iter()
        .filter_map(|(key, id)| match key {
            DictKey::Str(text) => Some((text.as_str()?.parse().ok()?, *id)),
            _ => None,
        })
        .collect();
    order::by_key(&mut items, |(number, _)| *number);
    items.into_iter().map(|(_, id)| id).collect()
}

/// Returns the dtype with this name in numpy or `ml_dtypes`.
fn dtype_named(name: &str) -> Option<DType> {
    DType::from_torch_name(name)
        .or_else(|| DType::from_ml_dtypes_name(name))
        .or_else(|| DType::from_numpy_name(name))
}
