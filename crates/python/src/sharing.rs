//! Tensors of torch that are views of one storage, which share memory.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use statelens::Value;
use statelens::parts::checkpoint::{
    ByteOrder, Checkpoint, DType, FileId, Layout, Span, Tensor, TensorId, ValueId,
};

/// The storages that several different views use, and the bytes that these cover.
#[derive(Default)]
pub(crate) struct SharedStorages(HashMap<StorageKey, Span>);

/// The id of a storage, and its file.
pub(crate) type StorageKey = (u32, FileId);

/// A view of a storage whose bytes are in a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StorageView {
    /// The storage.
    pub(crate) storage: StorageKey,
    /// The bytes from its first element to its last one.
    covered: Span,
    /// Elements between neighbours, per dimension.
    pub(crate) strides: Vec<i64>,
}

impl SharedStorages {
    /// Finds the storages of several views among the values below `root`.
    pub(crate) fn below(checkpoint: &Checkpoint, root: ValueId) -> Self {
        let mut shared: HashMap<StorageKey, Span> = HashMap::new();
        let mut first: HashMap<StorageKey, StorageView> = HashMap::new();
        for id in tensors_below(checkpoint, root) {
            let Ok(tensor) = checkpoint.tensor(id) else { continue };
            let Some(view) = StorageView::of(tensor) else { continue };
            match first.entry(view.storage) {
                Entry::Vacant(place) => drop(place.insert(view)),
                Entry::Occupied(other) if *other.get() == view => {}
                Entry::Occupied(other) => {
                    let covered = shared.entry(view.storage).or_insert(other.get().covered);
                    *covered = union(*covered, view.covered);
                }
            }
        }
        Self(shared)
    }

    /// Returns the view of a tensor, the bytes of its storage that all views cover, and its first
    /// element in them; `None` if the tensor shares no memory.
    pub(crate) fn view(&self, tensor: &Tensor) -> Option<(StorageView, Span, u64)> {
        if self.0.is_empty() {
            return None;
        }
        let view = StorageView::of(tensor)?;
        let covered = *self.0.get(&view.storage)?;
        let bytes = view.covered.offset.checked_sub(covered.offset)?;
        let item = tensor.dtype.itemsize();
        bytes.is_multiple_of(item).then(|| (view, covered, bytes / item))
    }
}

impl StorageView {
    /// Returns the place of a tensor that is stored as torch has it in memory.
    fn of(tensor: &Tensor) -> Option<Self> {
        let plain = tensor.stored == tensor.dtype
            && tensor.byte_order == ByteOrder::Little
            && !tensor.conjugate
            && !tensor.negate
            && tensor.quantizer.is_none()
            && !matches!(tensor.dtype, DType::Blocks(_));
        let item = tensor.dtype.itemsize();
        if !plain || item == 0 || tensor.shape.contains(&0) {
            return None;
        }
        let (first, strides, file) = match &tensor.layout {
            Layout::Span(span) => (span.offset, contiguous(&tensor.shape)?, span.file),
            Layout::Strided(view) => {
                let Layout::Span(span) = &*view.storage else { return None };
                let first = span.offset.checked_add(view.offset.checked_mul(item)?)?;
                (first, view.strides.clone(), span.file)
            }
            _ => return None,
        };
        let mut last: u64 = 0;
        for (length, stride) in tensor.shape.iter().zip(&strides) {
            let stride = u64::try_from(*stride).ok()?;
            last = last.checked_add(length.checked_sub(1)?.checked_mul(stride)?)?;
        }
        let len = last.checked_add(1)?.checked_mul(item)?;
        first.checked_add(len)?;
        let covered = Span { file, offset: first, len };
        Some(Self { storage: (tensor.storage?, file), covered, strides })
    }
}

/// Returns the strides of a dense tensor.
fn contiguous(shape: &[u64]) -> Option<Vec<i64>> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut step: i64 = 1;
    for length in shape.iter().rev() {
        strides.push(step);
        step = step.checked_mul(i64::try_from(*length).ok()?)?;
    }
    strides.reverse();
    Some(strides)
}

fn union(one: Span, other: Span) -> Span {
    let offset = one.offset.min(other.offset);
    let end = (one.offset + one.len).max(other.offset + other.len);
    Span { file: one.file, offset, len: end - offset }
}

/// Returns the tensors of torch below a value, each once.
fn tensors_below(checkpoint: &Checkpoint, root: ValueId) -> Vec<TensorId> {
    let (mut todo, mut seen) = (vec![root], HashSet::new());
    let mut found = Vec::new();
    while let Some(id) = todo.pop() {
        let id = checkpoint.resolve(id);
        if !seen.insert(id) {
            continue;
        }
        match checkpoint.value(id) {
            Value::Tensor(tensor) => found.push(*tensor),
            value if value.is_container() => todo.extend(value.children()),
            _ => {}
        }
    }
    found
}
