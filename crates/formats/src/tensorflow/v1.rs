//! The V1 Saver: one or more tables that include the values.
//!
//! The empty key has a `SavedTensorSliceMeta` with the names, shapes and slices of all tensors.
//! Each other key has a `SavedSlice`, whose `TensorProto` holds numbers in the repeated field of
//! their dtype (`tensorflow/core/util/saved_tensor_slice.proto`,
//! `tensorflow/core/framework/tensor.proto`). Floating-point numbers are stored in plain form and
//! stay in the file; integers are varints, which are decoded when the file is opened.

use std::collections::{BTreeMap, HashMap};

use statelens_checkpoint::{
    ByteOrder, Error, FileSet, Finding, FindingKind, FormatInfo, Layout, Limits, Progress, Result,
    numel,
};

use super::bundle::shape;
use super::dtype;
use super::leaves::{BundleLeaves, Contents};
use super::members::BundleTables;
use super::proto::{FieldValue, Message, varint};
use super::slices::{self, SliceExtents};
use super::table::{Range, SortedTable, TableBlock};

#[derive(Debug, Default)]
struct Meta {
    dtype: u64,
    shape: Vec<u64>,
    slices: Vec<SliceExtents>,
}

enum SliceValues {
    /// The layout of numbers, or the reason why they are not available.
    Numbers(Result<Layout, String>),
    Strings(Vec<Vec<u8>>),
}

pub(super) fn read(
    files: &FileSet,
    tables: BundleTables,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Contents> {
    let mut findings = tables.findings;
    // Sorted by name, as in the tables.
    let mut tensors: BTreeMap<Vec<u8>, Meta> = BTreeMap::new();
    let mut values: HashMap<(Vec<u8>, SliceExtents), SliceValues> = HashMap::new();
    let mut budget = Budget(limits.structure);
    for id in &tables.ids {
        progress.check(0, 0)?;
        let mut table = SortedTable::open(files, *id, limits)?;
        let mut here: HashMap<Vec<u8>, u64> = HashMap::new();
        table.each(|key, block, value| {
            if key.is_empty() {
                budget.spend(value.end - value.start)?;
                for (name, meta) in metas(&block.bytes(value)?)? {
                    here.insert(name.clone(), meta.dtype);
                    let known = tensors.entry(name).or_default();
                    known.dtype = meta.dtype;
                    known.shape = meta.shape;
                    known.slices.extend(meta.slices);
                }
                return Ok(());
            }
            if let Some((name, slice, tensor)) = saved_slice(block, value, limits)? {
                let Some(dtype) = here.get(&name) else { return Ok(()) };
                let found = read_values(block, tensor, dtype::plain(*dtype), &mut budget)?;
                values.insert((name, slice), found);
            }
            Ok(())
        })?;
        findings.extend(table.findings());
    }
    let mut leaves = BundleLeaves::new(limits);
    let count = tensors.len();
    for (name, meta) in tensors {
        leaf(&mut leaves, &name, &meta, &mut values)?;
    }
    findings.extend(missing_tables(files, &tables.ids));
    let mut facts = vec![
        ("Tables".into(), tables.ids.len().to_string()),
        ("Tensors".into(), count.to_string()),
    ];
    facts.extend(tables.state.iter().flat_map(|state| state.facts()));
    let format = FormatInfo {
        id: "tensorflow-v1",
        name: "TensorFlow V1 checkpoint",
        version: "V1".into(),
        producer: String::new(),
        facts,
        ..FormatInfo::default()
    };
    Ok((leaves, format, findings))
}

/// The memory budget for integers and strings, in bytes.
struct Budget(u64);

impl Budget {
    fn spend(&mut self, bytes: u64) -> Result<()> {
        Limits::check("bytes of values that are read with the structure", bytes, self.0)?;
        self.0 -= bytes;
        Ok(())
    }
}

fn leaf(
    leaves: &mut BundleLeaves,
    name: &[u8],
    meta: &Meta,
    values: &mut HashMap<(Vec<u8>, SliceExtents), SliceValues>,
) -> Result<()> {
    let missing = || "a slice of it is not in the file".to_owned();
    let outside = || format!("a slice of it is outside of shape {:?}", meta.shape);
    if dtype::plain(meta.dtype) == dtype::STRING {
        let mut part = |slice: &SliceExtents| match values.remove(&(name.to_vec(), slice.clone())) {
            Some(SliceValues::Strings(strings)) => {
                Ok((slices::within(slice, &meta.shape).ok_or_else(outside)?, strings))
            }
            _ => Err(missing()),
        };
        let parts: Result<Vec<_>, String> = meta.slices.iter().map(&mut part).collect();
        let found = parts.as_ref().map_err(Clone::clone).and_then(|parts| {
            let borrowed = parts.iter().map(|(extents, strings)| {
                (extents.clone(), strings.iter().map(Vec::as_slice).collect())
            });
            slices::place(&meta.shape, &borrowed.collect::<Vec<_>>())
        });
        return leaves.strings(name, &meta.shape, found);
    }
    let itemsize = dtype::elements(meta.dtype).map_or(1, |dtype| dtype.itemsize());
    let mut part = |slice: &SliceExtents| {
        let extents = slices::within(slice, &meta.shape).ok_or_else(outside)?;
        let lengths: Vec<u64> = extents.iter().map(|(_, len)| *len).collect();
        let needed = numel(&lengths).and_then(|numel| numel.checked_mul(itemsize));
        let layout = match values.remove(&(name.to_vec(), slice.clone())) {
            Some(SliceValues::Numbers(layout)) => layout?,
            Some(SliceValues::Strings(_)) => {
                return Err("strings are where its numbers should be".into());
            }
            None => return Err(missing()),
        };
        let len = match &layout {
            Layout::Span(span) => span.len,
            Layout::Inline(bytes) => bytes.len() as u64,
            _ => 0,
        };
        match needed == Some(len) {
            true => Ok((extents, layout)),
            false => Err(format!("it has {len} bytes, which does not match its shape")),
        }
    };
    let parts: Result<Vec<_>, String> = meta.slices.iter().map(&mut part).collect();
    let layout = parts.and_then(|parts| slices::assemble(&meta.shape, parts));
    leaves.tensor(name, meta.dtype, &meta.shape, layout, ByteOrder::Little)
}

fn missing_tables(files: &FileSet, ids: &[statelens_checkpoint::FileId]) -> Option<Finding> {
    let (prefix, (_, shards)) = super::members::v1_shard(files.name(*ids.first()?))?;
    if ids.len() as u64 >= shards {
        return None;
    }
    let name = |shard: u64| format!("{prefix}-{shard:05}-of-{shards:05}");
    // A name may claim any number of shards; only some of the missing ones are listed.
    let missing: Vec<String> = (0..shards.min(ids.len() as u64 + 1000))
        .map(name)
        .filter(|name| ids.iter().all(|id| files.name(*id) != name))
        .collect();
    let count = shards - ids.len() as u64;
    let title = format!("{count} of {shards} files of this checkpoint are missing");
    Some(
        Finding::new(statelens_checkpoint::Grade::Damage, title)
            .detail("Variables in them are not shown, or have no data.")
            .advice("Put them next to this file, or open them as well.")
            .missing(missing)
            .kind(FindingKind::UnlistedFiles),
    )
}

/// Reads the tensors from the field `meta` of a `SavedTensorSlices` message.
fn metas(bytes: &[u8]) -> Result<Vec<(Vec<u8>, Meta)>> {
    let mut found = Vec::new();
    for field in Message::new(bytes) {
        let (1, FieldValue::Bytes(bytes)) = field? else { continue };
        for field in Message::new(bytes) {
            let (1, FieldValue::Bytes(bytes)) = field? else { continue };
            let (mut name, mut meta) = (Vec::new(), Meta::default());
            for field in Message::new(bytes) {
                match field? {
                    (1, FieldValue::Bytes(text)) => name = text.to_vec(),
                    (2, FieldValue::Bytes(bytes)) => meta.shape = shape(bytes)?,
                    (3, FieldValue::Varint(dtype)) => meta.dtype = dtype,
                    (4, FieldValue::Bytes(bytes)) => meta.slices.push(slices::parse(bytes)?),
                    _ => {}
                }
            }
            found.push((name, meta));
        }
    }
    Ok(found)
}

/// A field of a message in a block that may be left in the file.
enum Raw {
    Number,
    Bytes(Range),
}

/// Reads the next field of the message in `range`, and advances the start of `range` past it.
fn field(block: &TableBlock<'_>, range: &mut Range) -> Result<Option<(u64, Raw)>> {
    if range.start >= range.end {
        return Ok(None);
    }
    let tag = block.varint(&mut range.start, range.end)?;
    let skip = match tag & 7 {
        0 => {
            block.varint(&mut range.start, range.end)?;
            0
        }
        1 => 8,
        2 => block.varint(&mut range.start, range.end)?,
        5 => 4,
        wire => {
            return Err(Error::damaged(format!("a value has a field of wire type {wire}")));
        }
    };
    let start = range.start;
    let end = start.checked_add(skip).filter(|end| *end <= range.end);
    range.start = end.ok_or_else(|| Error::damaged("a value ends within a field"))?;
    let raw = match tag & 7 {
        2 => Raw::Bytes(Range { start, end: range.start }),
        _ => Raw::Number,
    };
    Ok(Some((tag >> 3, raw)))
}

/// Reads the name, the slice and the range of the `TensorProto` from the field `data` of a
/// `SavedTensorSlices` message.
fn saved_slice(
    block: &TableBlock<'_>,
    mut range: Range,
    limits: &Limits,
) -> Result<Option<(Vec<u8>, SliceExtents, Range)>> {
    while let Some((number, raw)) = field(block, &mut range)? {
        let (2, Raw::Bytes(mut data)) = (number, raw) else { continue };
        let (mut name, mut slice, mut tensor) = (Vec::new(), SliceExtents::new(), None);
        while let Some((number, raw)) = field(block, &mut data)? {
            let Raw::Bytes(bytes) = raw else { continue };
            if number == 1 || number == 2 {
                Limits::check("bytes of a name", bytes.end - bytes.start, limits.string)?;
            }
            match number {
                1 => name = block.bytes(bytes)?.into_owned(),
                2 => slice = slices::parse(&block.bytes(bytes)?)?,
                3 => tensor = Some(bytes),
                _ => {}
            }
        }
        return Ok(tensor.map(|tensor| (name, slice, tensor)));
    }
    Ok(None)
}

/// The encoding of numbers in a `TensorProto`.
enum Coding {
    /// As in memory, little-endian.
    Plain,
    /// Varints; the given number of bytes of each is used.
    Varint(usize),
    Strings,
}

/// Returns the number and encoding of the `TensorProto` field for a dtype.
fn coding(number: u64) -> Option<(u64, Coding)> {
    Some(match dtype::name(number)? {
        "float32" => (5, Coding::Plain),
        "float64" => (6, Coding::Plain),
        "int32" | "qint32" => (7, Coding::Varint(4)),
        "int16" | "uint16" | "qint16" | "quint16" => (7, Coding::Varint(2)),
        "int8" | "uint8" | "qint8" | "quint8" => (7, Coding::Varint(1)),
        "string" => (8, Coding::Strings),
        "complex64" => (9, Coding::Plain),
        "int64" => (10, Coding::Varint(8)),
        "bool" => (11, Coding::Varint(1)),
        "complex128" => (12, Coding::Plain),
        "float16" | "bfloat16" => (13, Coding::Varint(2)),
        "uint32" => (16, Coding::Varint(4)),
        "uint64" => (17, Coding::Varint(8)),
        _ => return None,
    })
}

fn read_values(
    block: &TableBlock<'_>,
    mut range: Range,
    number: u64,
    budget: &mut Budget,
) -> Result<SliceValues> {
    let Some((wanted, coding)) = coding(number) else {
        let reason = "the V1 Saver does not write such values".to_owned();
        return Ok(SliceValues::Numbers(Err(reason)));
    };
    let mut runs = Vec::new();
    while let Some((number, raw)) = field(block, &mut range)? {
        if number != wanted {
            continue;
        }
        match raw {
            Raw::Bytes(run) => runs.push(run),
            // TensorFlow packs them.
            Raw::Number => {
                let reason = "its numbers are not packed, which no TensorFlow writes".to_owned();
                return Ok(SliceValues::Numbers(Err(reason)));
            }
        }
    }
    let len = |runs: &[Range]| runs.iter().map(|run| run.end - run.start).sum::<u64>();
    match (coding, &runs[..]) {
        (Coding::Strings, runs) => {
            budget.spend(len(runs) + 32 * runs.len() as u64)?;
            let strings: Result<Vec<Vec<u8>>> =
                runs.iter().map(|run| Ok(block.bytes(*run)?.into_owned())).collect();
            Ok(SliceValues::Strings(strings?))
        }
        (Coding::Plain, [run]) => match block.span(*run) {
            Some(span) => Ok(SliceValues::Numbers(Ok(Layout::Span(span)))),
            None => {
                budget.spend(run.end - run.start)?;
                let bytes = block.bytes(*run)?;
                Ok(SliceValues::Numbers(Ok(Layout::Inline((&*bytes).into()))))
            }
        },
        (Coding::Plain, runs) => {
            budget.spend(len(runs))?;
            let mut bytes = Vec::new();
            for run in runs {
                bytes.extend_from_slice(&block.bytes(*run)?);
            }
            Ok(SliceValues::Numbers(Ok(Layout::Inline(bytes.into()))))
        }
        (Coding::Varint(size), runs) => {
            // Each number takes at least a byte.
            budget.spend(len(runs).saturating_mul(size as u64))?;
            let mut bytes = Vec::new();
            for run in runs {
                let run = block.bytes(*run)?;
                let mut rest = &*run;
                while !rest.is_empty() {
                    bytes.extend_from_slice(&varint(&mut rest)?.to_le_bytes()[..size]);
                }
            }
            Ok(SliceValues::Numbers(Ok(Layout::Inline(bytes.into()))))
        }
    }
}
