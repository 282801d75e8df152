//! Writes a bundle that `tf.compat.v1.train.Saver` restores and `tf.train.load_checkpoint` reads.
//! With an object graph, `tf.train.Checkpoint` can restore it, too.
//!
//! The layout is that of the V2 Saver: contiguous tensors in the order of their names, and an index
//! with a checksum for each. Therefore the index is written last.

mod graph;
mod index;
mod losses;
mod names;
mod strings;
mod table;
#[cfg(test)]
mod tests;
mod values;

use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use super::dtype::has;
use index::{BundleIndex, ChecksumSource, IndexRow, SegmentRef};
pub(crate) use losses::dtypes as dtypes_left_out;
use names::NamedTensor;
use statelens_checkpoint::{
    Checkpoint, Checksum, Data, Error, Outcomes, Plan, PlannedFile, Result, Segment, TensorId,
    Text, WrittenSegment, order,
};
use values::Body;

use super::members::{data_name, split};
use crate::attributes;
use crate::shards::Shards;

/// How to write a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Whether to name tensors after the objects of the state and write the object graph, which
    /// `tf.train.Checkpoint` needs. Otherwise the names are the flat keys, as with the Saver.
    pub object_graph: bool,
    /// Whether to write the state file, `checkpoint`, which names this as the latest checkpoint of
    /// the folder.
    pub state_file: bool,
    /// How to split the data files. They are always numbered, even with [`Shards::Named`].
    pub shards: Shards,
}

/// Plans the files. `name` is the prefix, with or without `.index`. See [`crate::plan`] for errors
/// and losses.
pub fn plan(source: Arc<Checkpoint>, options: &WriteOptions, name: &str) -> Result<Plan> {
    let prefix = prefix(name)?;
    let (mut items, mut losses) = values::items(&source)?;
    if options.object_graph && graph::count_saves(&mut items) {
        losses.push(losses::COUNTER_ADDED.of(vec![losses::COUNTER.into()]));
    }
    if items.iter().any(|item| item.key.parts.is_empty()) {
        losses.push(losses::NAMED.of(vec![String::new()]));
    }
    losses.extend(attributes::left_out(&source, |_| true));
    let mut named = match options.object_graph {
        true => graph::name(items)?,
        false => names::name(items)?,
    };
    // The order of the Saver, which the table requires.
    order::by(&mut named, |one, other| one.name.cmp(&other.name));
    names::refuse_collisions(&named)?;

    let (count, shards) = assign(&source, &options.shards, prefix, named)?;
    let mut files = Vec::new();
    let mut placing = Placing { known: HashMap::new(), rows: Vec::new() };
    for (shard, named) in (0..).zip(shards) {
        let segments = named.into_iter().fold(Vec::new(), |mut segments, named| {
            placing.place(shard, named, &mut segments);
            segments
        });
        files.push(PlannedFile {
            name: data_name(prefix, shard, count),
            segments,
            head_last: false,
        });
    }
    let mut rows = placing.rows;
    order::by(&mut rows, |one, other| one.name.cmp(&other.name));
    let index = index_file(&source, prefix, &files, BundleIndex { shards: count, rows });
    files.push(index);
    if options.state_file {
        files.push(state_file(prefix));
    }
    Ok(Plan { source, files, losses })
}

fn prefix(name: &str) -> Result<&str> {
    let prefix = name.strip_suffix(".index").unwrap_or(name);
    match prefix.is_empty() || super::members::data_shard(prefix).is_some() {
        false => Ok(prefix),
        true => {
            Err(Error::refused(format!("`{name}` is not a prefix for a TensorFlow checkpoint"))
                .advice("Give the name without `.index` or `.data-…`, e.g. model.ckpt-100."))
        }
    }
}

/// Returns the number of data files, and the tensors in each. Tied tensors go where they are
/// stored.
fn assign(
    source: &Checkpoint,
    shards: &Shards,
    prefix: &str,
    named: Vec<NamedTensor>,
) -> Result<(u64, Vec<Vec<NamedTensor>>)> {
    let mut sizes: Vec<(Text, u64)> = Vec::new();
    let mut known: HashMap<TensorId, usize> = HashMap::new();
    let mut places = Vec::with_capacity(named.len());
    for NamedTensor { tensor: item, .. } in &named {
        let next = sizes.len();
        let place = match item.body {
            Body::Tensor(tensor) => *known.entry(tensor).or_insert(next),
            _ => next,
        };
        if place == next {
            sizes.push((item.key.flat(), item.body.len(source)?));
        }
        places.push(place);
    }
    let assignment = shards.assign(prefix, &sizes)?;
    let mut files: Vec<Vec<NamedTensor>> = assignment.files.iter().map(|_| Vec::new()).collect();
    for (named, place) in named.into_iter().zip(places) {
        files[assignment.of[place]].push(named);
    }
    Ok((files.len() as u64, files))
}

/// Assigns tensors to segments of the data files.
struct Placing {
    /// Segments of tensors already assigned: a tensor with several names is stored once.
    known: HashMap<TensorId, SegmentRef>,
    rows: Vec<IndexRow>,
}

impl Placing {
    fn place(
        &mut self,
        shard: u64,
        NamedTensor { name, tensor: item }: NamedTensor,
        segments: &mut Vec<Segment>,
    ) {
        let index = segments.len();
        let segment_ref = |sum| SegmentRef { shard, segment: index, checksum: sum };
        let segment = match item.body {
            Body::Tensor(tensor) => self
                .known
                .entry(tensor)
                .or_insert_with(|| {
                    let data = Data::plain(tensor, Checksum::Crc32c);
                    segments.push(Segment::Data(data));
                    segment_ref(ChecksumSource::Written)
                })
                .clone(),
            Body::Made(bytes, crc) => {
                segments.push(Segment::Bytes(bytes.into()));
                segment_ref(ChecksumSource::Known(crc))
            }
            Body::Strings(strings) => {
                let late = strings.clone();
                let make = move |_: &Outcomes<'_>| Ok(late.encoded()?.0.clone());
                segments.push(Segment::Late { len: None, make: Arc::new(make) });
                segment_ref(ChecksumSource::Strings(strings))
            }
        };
        self.rows.push(IndexRow { name, dtype: item.dtype, shape: item.shape, segment });
    }
}

fn index_file(
    source: &Checkpoint,
    prefix: &str,
    data: &[PlannedFile],
    index: BundleIndex,
) -> PlannedFile {
    // Checksums have a fixed size, so the length of the index does not depend on their values.
    let len = foreseen(source, data).and_then(|outcomes| {
        let outcome = |of: &SegmentRef| outcomes.get(of.shard as usize)?.get(of.segment);
        Some(index.encode(&outcome).ok()?.len() as u64)
    });
    let make = move |outcomes: &Outcomes<'_>| {
        index.encode(&|of: &SegmentRef| outcomes.file(of.shard as usize).get(of.segment))
    };
    PlannedFile {
        name: format!("{prefix}.index"),
        segments: vec![Segment::Late { len, make: Arc::new(make) }],
        head_last: false,
    }
}

/// Returns where the segments of the data files will be, or `None` if that depends on strings that
/// are not read yet.
fn foreseen(source: &Checkpoint, data: &[PlannedFile]) -> Option<Vec<Vec<WrittenSegment>>> {
    let file = |file: &PlannedFile| {
        let mut offset = 0u64;
        let outcome = |segment: &Segment| {
            let len = match segment {
                Segment::Bytes(bytes) => bytes.len() as u64,
                Segment::Data(data) => source.tensor(data.tensor).ok()?.nbytes()?,
                _ => return None,
            };
            let found = WrittenSegment { offset, len, checksum: Some(0), chunks: Vec::new() };
            offset = offset.checked_add(len)?;
            Some(found)
        };
        file.segments.iter().map(outcome).collect()
    };
    data.iter().map(file).collect()
}

/// Plans the state file; see [`super::state`].
fn state_file(prefix: &str) -> PlannedFile {
    let mut quoted = String::from("\"");
    for byte in split(prefix).1.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            other => quoted.push_str(&format!("\\{other:03o}")),
        }
    }
    quoted.push('"');
    let text = format!("model_checkpoint_path: {quoted}\nall_model_checkpoint_paths: {quoted}\n");
    PlannedFile {
        name: "checkpoint".into(),
        segments: vec![Segment::Bytes(text.into_bytes().into())],
        head_last: false,
    }
}
