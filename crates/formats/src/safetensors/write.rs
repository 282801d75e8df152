//! Writes the same bytes as the reference library.
//!
//! Tensors are sorted by dtype, then by name, so that each is aligned. The header is padded with
//! spaces to a multiple of eight. Nested keys are joined with dots. Tied weights are written once,
//! under the first of their names, and recorded as by `save_model`.

mod state;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::sync::Arc;

use state::FlatState;
use statelens_checkpoint::{
    Checkpoint, Checksum, DType, Data, Error, Loss, LossCode, Plan, PlannedFile, Result, Segment,
    Setting, Text, advice, json, order,
};

use super::{DTYPES, HeaderDType, MAX_HEADER, METADATA, scalars};
use crate::shards::Shards;
use crate::{advice, source_damage};

/// How to write safetensors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// How to split the checkpoint into files.
    pub shards: Shards,
}

/// Returns the loss of the metadata of a safetensors file when it is written in another format.
pub(crate) fn metadata_left_out(source: &Checkpoint) -> Option<Loss> {
    let metadata = source.raw_attributes(source.root());
    if source.format.id != "safetensors" || metadata.is_empty() {
        return None;
    }
    Some(Loss {
        code: LossCode::Metadata,
        keys: metadata.iter().map(|(name, _)| format!("__metadata__.{name}")).collect(),
        what: "metadata of the file is left out".into(),
        why: "Only safetensors has a place for it.".into(),
        // `format` says which framework wrote the file; every Hugging Face file has it.
        harmless: metadata.iter().all(|(name, _)| name == "format"),
    })
}

/// Plans the files. See [`crate::plan`] for errors and losses.
///
/// The `__metadata__` of a safetensors source goes into every file, the names of tied weights into
/// the file with the tensor, and plain values into the first file.
pub fn plan(source: Arc<Checkpoint>, options: &WriteOptions, name: &str) -> Result<Plan> {
    let state = FlatState::new(&source)?;
    let sizes: Vec<(Text, u64)> =
        state.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.bytes)).collect();
    let assignment = options.shards.assign(name, &sizes)?;
    let mut files = Vec::with_capacity(assignment.files.len() + 1);
    let mut parts: Vec<Vec<&WrittenTensor>> = vec![Vec::new(); assignment.files.len()];
    for (tensor, file) in state.tensors.iter().zip(&assignment.of) {
        parts[*file].push(tensor);
    }
    let values = scalars::encode(&source, &state.values);
    let mut common = state.metadata;
    if let Some(mark) = source_damage::mark(&source) {
        common.retain(|(key, _)| *key != source_damage::MARK);
        common.push((source_damage::MARK.into(), mark.into()));
    }
    // Loaders that use metadata need to know which framework the tensors are for; transformers 4.36
    // fails without it. A file that has no metadata stays as it is.
    let is_new = source.format.id != "safetensors" || values.is_some();
    if is_new && !common.iter().any(|(key, _)| *key == "format") {
        common.insert(0, ("format".into(), "pt".into()));
    }
    for (index, (file, mut tensors)) in assignment.files.iter().zip(parts).enumerate() {
        let mut metadata = common.clone();
        for tensor in &tensors {
            metadata.extend(tensor.ties.iter().map(|tied| (tied.clone(), tensor.name.clone())));
        }
        if let (0, Some(values)) = (index, &values) {
            metadata.push((scalars::KEY.into(), values.as_str().into()));
        }
        order::by(&mut tensors, |one, other| {
            (other.rank, one.name.as_bytes()).cmp(&(one.rank, other.name.as_bytes()))
        });
        let mut segments = vec![Segment::Bytes(header(&metadata, &tensors)?.into())];
        segments.extend(
            tensors.iter().map(|tensor| Segment::Data(Data::plain(tensor.id, Checksum::None))),
        );
        files.push(PlannedFile { name: file.clone(), segments, head_last: false });
    }
    files.extend(assignment.index(name, &sizes));
    let losses = state.losses;
    Ok(Plan { source, files, losses })
}

/// A tensor to be written.
struct WrittenTensor {
    name: Text,
    id: statelens_checkpoint::TensorId,
    /// The index in [`DTYPES`].
    rank: usize,
    /// The shape in elements of the format.
    shape: Vec<u64>,
    bytes: u64,
    /// Its other names.
    ties: Vec<Text>,
}

/// Returns the index in [`DTYPES`] and the shape in elements of the format; `None` if the format
/// does not have the dtype.
fn stored_as(tensor: &statelens_checkpoint::Tensor) -> Option<(usize, Vec<u64>)> {
    let mut shape = tensor.shape.clone();
    let rank = DTYPES.iter().position(|known| known.dtype == tensor.dtype)?;
    let HeaderDType { packed, .. } = &DTYPES[rank];
    if *packed > 1 {
        match shape.last_mut() {
            Some(last) => *last = last.checked_mul(*packed)?,
            None => shape.push(*packed),
        }
    }
    Some((rank, shape))
}

/// Returns whether the format has the dtype.
pub(crate) fn has(dtype: &DType) -> bool {
    DTYPES.iter().any(|known| known.dtype == *dtype)
}

/// Returns the length of the header followed by the header.
fn header(metadata: &[(Text, Text)], tensors: &[&WrittenTensor]) -> Result<Vec<u8>> {
    let mut text = String::from("{");
    if !metadata.is_empty() {
        text.push_str(&format!("\"{METADATA}\":{{"));
        for (index, (key, value)) in metadata.iter().enumerate() {
            text.push_str(if index > 0 { "," } else { "" });
            quote(key, &mut text)?;
            text.push(':');
            quote(value, &mut text)?;
        }
        text.push('}');
    }
    let mut begin = 0u64;
    for (index, tensor) in tensors.iter().enumerate() {
        text.push_str(if index > 0 || !metadata.is_empty() { "," } else { "" });
        quote(&tensor.name, &mut text)?;
        let end = begin.checked_add(tensor.bytes).ok_or_else(|| {
            Error::unsupported("the file to be written would be larger than 64 bits can count")
        })?;
        let _ = write!(text, ":{{\"dtype\":\"{}\",\"shape\":[", DTYPES[tensor.rank].name);
        for (axis, dim) in tensor.shape.iter().enumerate() {
            let _ = write!(text, "{}{dim}", if axis > 0 { "," } else { "" });
        }
        let _ = write!(text, "],\"data_offsets\":[{begin},{end}]}}");
        begin = end;
    }
    text.push('}');
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    let len = text.len() as u64;
    if len > MAX_HEADER {
        return Err(Error::unsupported(format!(
            "the header would take {len} bytes, and the reference library reads {MAX_HEADER} at most"
        ))
        .advice(advice![
            "Write several files with ",
            Setting::ShardSize,
            ", or leave keys out with ",
            Setting::Exclude,
            "."
        ]));
    }
    let mut bytes = len.to_le_bytes().to_vec();
    bytes.extend(text.into_bytes());
    Ok(bytes)
}

fn quote(text: &Text, out: &mut String) -> Result<()> {
    let text = text.as_str().ok_or_else(|| {
        Error::refused(format!("the name {text} holds half a character, which UTF-8 can't encode"))
            .advice(advice::exclude())
    })?;
    json::quote_utf8(text, out);
    Ok(())
}
