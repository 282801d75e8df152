//! Chunks of tensors: archives of their own, and parts of flattened tensors.

use std::collections::BTreeMap;
use std::sync::Arc;

use statelens_checkpoint::{
    Builder, ByteOrder, Computed, DType, Error, FileId, FileSet, Layout, Locate, ReadAt as _,
    Result, Span, Tensor, Value, numel, order,
};

use super::unfold::{Unfolded, folded};
use crate::joined::{FlatTensor, Piece};
use crate::torch;

/// Returns the pieces of a tensor that Megatron stored flattened: of shape `[X/x, Y/y, x*y]` for
/// `[X, Y]`, a grid of local tensors, each a row of its elements
/// (`megatron/core/dist_checkpointing/strategies/torch.py` of 0.12, `nd_flattened_tensor`).
pub(super) fn unflattened(
    stored: &[u64],
    whole: &[u64],
    dtype: &DType,
    pieces: Vec<Piece>,
) -> Result<Vec<Piece>, String> {
    let unclear = || format!("its shape {whole:?} does not fit the stored shape {stored:?}");
    let Some((flat, grid)) = stored.split_last().filter(|(_, grid)| grid.len() == whole.len())
    else {
        return Err(unclear());
    };
    let local: Option<Vec<u64>> = whole
        .iter()
        .zip(grid)
        .map(|(len, count)| len.checked_div(*count).filter(|part| part * count == *len))
        .collect();
    let local = local.filter(|local| numel(local) == Some(*flat)).ok_or_else(unclear)?;
    let mut cells: BTreeMap<Vec<u64>, Vec<Piece>> = BTreeMap::new();
    for piece in pieces {
        let Some((start, cell)) = piece.at.split_last() else { return Err(unclear()) };
        let fits = piece.shape.len() == stored.len()
            && piece.shape.iter().rev().skip(1).all(|len| *len == 1)
            && cell.iter().zip(grid).all(|(at, count)| at < count)
            && start.checked_add(piece.shape[grid.len()]).is_some_and(|end| end <= *flat);
        if !fits {
            return Err(unclear());
        }
        cells.entry(cell.to_vec()).or_default().push(piece);
    }
    let mut found = Vec::with_capacity(cells.len());
    for (cell, mut pieces) in cells {
        order::by_key(&mut pieces, |piece| piece.at[grid.len()]);
        let (mut joined, mut end, mut file) = (FlatTensor::default(), 0, FileId(0));
        for piece in pieces {
            let (start, len) = (piece.at[grid.len()], piece.shape[grid.len()]);
            if start != end {
                return Err(format!(
                    "its elements {end} to {start} of part {cell:?} are not there"
                ));
            }
            (end, file) = (start + len, piece.file);
            let part = Tensor::new(dtype.clone(), vec![len], piece.layout);
            joined.push(&part, 0, len).then_some(()).ok_or_else(unclear)?;
        }
        let layout = joined.layout(&local, dtype.itemsize());
        let layout =
            layout.ok_or_else(|| format!("part {cell:?} of it has only {end} elements"))?;
        let at = cell.iter().zip(&local).map(|(at, len)| at * len).collect();
        found.push(Piece { at, shape: local.clone(), file, layout });
    }
    Ok(found)
}

/// Finds the elements of a chunk in its archive, a tensor saved on its own.
#[derive(Debug)]
pub(super) struct ChunkElements {
    pub(super) dtype: DType,
    /// Whether the archive is a stream of Zstandard.
    pub(super) zstd: bool,
    /// The stored shape, if it is another one than that of the chunk.
    pub(super) stored: Option<Vec<u64>>,
}

/// Returns whether a file of a rank is a safetensors file (`SerializationFormat.SAFETENSORS` of torch's
/// `FileSystemWriter`).
fn is_safetensors(files: &FileSet, file: FileId) -> bool {
    let head = files.read_vec(file, 0, files.len(file).min(10));
    head.is_ok_and(|head| matches!(head.get(8..), Some([b'{', b'"' | b'}'])))
}

impl Locate for ChunkElements {
    fn locate(&self, files: &FileSet, span: Span, shape: &[u64]) -> Result<Layout> {
        let name = files.name(span.file);
        let mut builder = Builder::new(files.limits());
        let shape = self.stored.as_deref().unwrap_or(shape);
        let part = match self.zstd {
            true => {
                let bytes = numel(shape).and_then(|numel| self.dtype.bytes_of(numel));
                // An archive has some kilobytes in addition to the data.
                let most = bytes.unwrap_or(0).saturating_add(1 << 20);
                let unfolded = Unfolded::read(files, span, most, false)?;
                let inner = Span { file: span.file, offset: 0, len: unfolded.len() };
                torch::read::part(Arc::new(unfolded), inner, 0, &mut builder)
            }
            false => torch::read::part(files.structure(span.file)?, span, 0, &mut builder),
        };
        let (lowered, _) = part.map_err(|error| match is_safetensors(files, span.file) {
            true => Error::unsupported("its tensors are stored as one safetensors file")
                .in_file(name)
                .advice(
                    "torch writes such files and can't load them. Copy the file under a name that \
                     ends in `.safetensors`, and open the copy.",
                ),
            false => error.at(span.offset).in_file(name),
        })?;
        let wrong = |what: String| {
            Err(Error::damaged(format!("a chunk of a tensor {what}")).at(span.offset).in_file(name))
        };
        let tensor = match builder.value(lowered.root) {
            Some(Value::Tensor(id)) => builder.tensor_mut(*id).cloned(),
            _ => None,
        };
        let Some(tensor) = tensor else { return wrong("is not a tensor".into()) };
        if tensor.dtype != self.dtype || tensor.shape != shape {
            return wrong(format!(
                "is {} of shape {:?}, the metadata says {} of shape {shape:?}",
                tensor.dtype, tensor.shape, self.dtype
            ));
        }
        if tensor.quantizer.is_some() {
            return wrong("is quantised".into());
        }
        let layout = match self.zstd {
            true => folded(tensor.layout.clone(), span),
            false => tensor.layout.clone(),
        };
        let is_plain =
            tensor.byte_order == ByteOrder::Little && !tensor.conjugate && !tensor.negate;
        if is_plain {
            return Ok(layout);
        }
        // A lazily negated or conjugated tensor, such as `x.conj()`, is stored as `x`.
        let of = Tensor { layout, ..tensor };
        Ok(Layout::Computed(Arc::new(Computed { of, steps: Vec::new(), product: None })))
    }
}
