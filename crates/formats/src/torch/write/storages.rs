//! Assigns tensors to records. Tensors that share memory share a record.

use std::collections::HashMap;

use statelens_checkpoint::{
    Builder, Checkpoint, DType, Error, FileId, Layout, Result, Span, Strided, Tensor, TensorId,
    contiguous_strides,
};

use statelens_pickle::STORAGE_CLASSES;

use crate::views::{self, same_elements, same_view};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StorageView {
    /// The number in the record's name, `data/<record>`.
    pub(super) record: usize,
    /// Length of that record in bytes.
    pub(super) record_len: u64,
    /// Index of the first element.
    pub(super) offset: u64,
    pub(super) strides: Vec<i64>,
}

/// The records, and the view of each tensor.
pub(super) struct Storages {
    /// For each record, its tensor and its length in bytes.
    pub(super) records: Vec<(TensorId, u64)>,
    /// The views of all requested tensors.
    pub(super) views: HashMap<TensorId, StorageView>,
}

/// Assigns the tensors `used`, given in the order of the pickle, to records. Records are numbered
/// in that order, as in torch. If several views need a storage as a whole, the storage is added to
/// `builder` as a tensor of its own.
pub(super) fn place(
    source: &Checkpoint,
    used: &[TensorId],
    builder: &mut Builder,
) -> Result<Storages> {
    let mut groups: HashMap<u32, Vec<TensorId>> = HashMap::new();
    for id in used {
        if let Some(storage) = source.tensor(*id)?.storage {
            groups.entry(storage).or_default().push(*id);
        }
    }
    let mut storages = Storages { records: Vec::new(), views: HashMap::new() };
    // For tensors of a storage that is not written whole: the first tensor with the same view.
    let mut twins: HashMap<TensorId, TensorId> = HashMap::new();
    for id in used {
        if storages.views.contains_key(id) {
            continue;
        }
        let tensor = source.tensor(*id)?;
        let group = tensor.storage.and_then(|storage| groups.remove(&storage));
        if let Some(group) = group {
            let views = distinct_views(source, &group, &mut twins)?;
            if let Some((storage, start)) = whole(source, &views)? {
                storages.add_whole(source, &group, storage, start, builder)?;
                continue;
            }
        }
        let twin = twins.get(id).and_then(|first| storages.views.get(first)).cloned();
        let view = match twin {
            Some(view) => view,
            None => {
                let record_len = tensor.nbytes().ok_or_else(unplaced)?;
                let strides = contiguous_strides(&tensor.shape).ok_or_else(unplaced)?;
                let record = storages.add(*id, record_len);
                StorageView { record, record_len, offset: 0, strides }
            }
        };
        storages.views.insert(*id, view);
    }
    Ok(storages)
}

impl Storages {
    fn add(&mut self, tensor: TensorId, len: u64) -> usize {
        self.records.push((tensor, len));
        self.records.len() - 1
    }

    /// Adds one record for all views of `group`, which begin at byte `start` of the file or later.
    fn add_whole(
        &mut self,
        source: &Checkpoint,
        group: &[TensorId],
        storage: Tensor,
        start: u64,
        builder: &mut Builder,
    ) -> Result<()> {
        let record_len = storage.nbytes().ok_or_else(unplaced)?;
        let storage = builder.push_tensor(storage)?;
        let record = self.add(storage, record_len);
        for id in group {
            let tensor = source.tensor(*id)?;
            let (run, strides) = footprint(tensor).ok_or_else(unplaced)?;
            let offset = (run.first - start) / tensor.stored.itemsize().max(1);
            self.views.insert(*id, StorageView { record, record_len, offset, strides });
        }
        Ok(())
    }
}

/// Returns the first tensor of each distinct view in a group. `twins` maps the other tensors to
/// these.
fn distinct_views(
    source: &Checkpoint,
    group: &[TensorId],
    twins: &mut HashMap<TensorId, TensorId>,
) -> Result<Vec<TensorId>> {
    let mut alike: HashMap<u64, Vec<TensorId>> = HashMap::new();
    let mut distinct = Vec::new();
    for id in group {
        let tensor = source.tensor(*id)?;
        let candidates = alike.entry(views::fingerprint(tensor)).or_default();
        let twin = candidates
            .iter()
            .find(|other| source.tensor(**other).is_ok_and(|other| same_view(other, tensor)));
        match twin {
            Some(twin) => {
                twins.insert(*id, *twin);
            }
            None => {
                candidates.push(*id);
                distinct.push(*id);
            }
        }
    }
    Ok(distinct)
}

/// Returns the storage of several views as a one-dimensional tensor, and the offset of its first
/// byte. The views must be of the same element type and of one run of a file, and overlap or be so
/// close that the run is not much larger than what they need.
fn whole(source: &Checkpoint, views: &[TensorId]) -> Result<Option<(Tensor, u64)>> {
    let [first, others @ ..] = views else { return Ok(None) };
    if others.is_empty() {
        return Ok(None);
    }
    let model = source.tensor(*first)?;
    let Some((mut run, _)) = footprint(model) else { return Ok(None) };
    let itemsize = model.stored.itemsize().max(1);
    let mut needed = run.len();
    let start = run.first;
    for id in others {
        let tensor = source.tensor(*id)?;
        let Some((range, _)) = footprint(tensor) else { return Ok(None) };
        let aligned = range.first.abs_diff(start) % itemsize == 0;
        if !same_elements(tensor, model) || range.file != run.file || !aligned {
            return Ok(None);
        }
        needed = needed.saturating_add(range.len());
        run.first = run.first.min(range.first);
        run.end = run.end.max(range.end);
    }
    if run.len() == 0 || run.len() > needed.saturating_mul(2) {
        return Ok(None);
    }
    let span = Span { file: run.file, offset: run.first, len: run.len() };
    let storage = Tensor {
        stored: model.stored.clone(),
        byte_order: model.byte_order,
        conjugate: model.conjugate,
        negate: model.negate,
        // Later steps find the views by this number.
        storage: model.storage,
        ..Tensor::new(model.dtype.clone(), vec![run.len() / itemsize], Layout::Span(span))
    };
    Ok(Some((storage, run.first)))
}

/// The range of bytes in a file that a view covers.
struct ByteRun {
    file: FileId,
    /// Offset of the lowest byte.
    first: u64,
    /// Offset after the highest byte.
    end: u64,
}

impl ByteRun {
    fn len(&self) -> u64 {
        self.end - self.first
    }
}

/// Returns the bytes that a view of a plain run of a file covers, and its strides. Returns `None`
/// for any other layout, and for views without elements or with negative strides.
fn footprint(tensor: &Tensor) -> Option<(ByteRun, Vec<i64>)> {
    let itemsize = tensor.stored.itemsize();
    if tensor.numel()? == 0 {
        return None;
    }
    let (base, offset, strides) = match &tensor.layout {
        Layout::Span(span) => (*span, 0, contiguous_strides(&tensor.shape)?),
        Layout::Strided(Strided { storage, offset, strides, .. }) => match &**storage {
            Layout::Span(span) => (*span, *offset, strides.clone()),
            _ => return None,
        },
        _ => return None,
    };
    let mut reach = 0u64;
    for (dim, stride) in tensor.shape.iter().zip(&strides) {
        let stride = u64::try_from(*stride).ok()?;
        reach = reach.checked_add(stride.checked_mul(dim - 1)?)?;
    }
    let first = base.offset.checked_add(offset.checked_mul(itemsize)?)?;
    let end = first.checked_add(reach.checked_add(1)?.checked_mul(itemsize)?)?;
    (end <= base.offset.checked_add(base.len)?)
        .then_some((ByteRun { file: base.file, first, end }, strides))
}

fn unplaced() -> Error {
    Error::damaged("a tensor's size does not fit 64 bits")
}

/// Returns torch's storage class for a dtype. Returns `None` if torch has no class for it; then
/// the tensor itself has the dtype.
pub(super) fn storage_class(dtype: &DType) -> Option<&'static str> {
    STORAGE_CLASSES.iter().find(|(_, known)| known == dtype).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use statelens_checkpoint::{FileSet, FormatInfo, Limits, Packed, Packing, Value};
    use statelens_fixtures::busy;

    use super::*;

    /// Returns views of a deflated storage that begin at different elements or have different
    /// strides.
    fn views(count: u64, strides: bool) -> (Checkpoint, Vec<TensorId>) {
        let mut builder = Builder::new(&Limits::default());
        let span = Span { file: FileId(0), offset: 64, len: 1 << 20 };
        let len = 1 << 30;
        let storage =
            Arc::new(Layout::Packed(Packed { span, packing: Packing::Deflate, skip: 0, len }));
        let ids = (0..count).map(|index| {
            let (offset, stride) = if strides { (0, index as i64) } else { (index, 1) };
            let layout = Layout::Strided(Strided {
                storage: storage.clone(),
                storage_len: len,
                offset,
                strides: vec![stride],
            });
            let tensor = Tensor { storage: Some(0), ..Tensor::new(DType::F32, vec![9], layout) };
            builder.push_tensor(tensor).unwrap()
        });
        let ids: Vec<TensorId> = ids.collect();
        let root = builder.push(Value::None).unwrap();
        let files = FileSet::default();
        (builder.finish(root, FormatInfo::default(), files, Vec::new()).unwrap(), ids)
    }

    #[test]
    fn places_100_000_views_in_bounded_time() {
        for strides in [false, true] {
            let (checkpoint, ids) = views(100_000, strides);
            let start = busy();
            let mut builder = checkpoint.edit();
            let placed = place(&checkpoint, &ids, &mut builder).unwrap();
            assert_eq!(placed.records.len(), ids.len());
            let took = busy() - start;
            assert!(took.as_secs() < 5, "{took:?} of processor time");
        }
    }
}
