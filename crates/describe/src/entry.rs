//! A leaf of an outline.

use statelens_checkpoint::{Checkpoint, Leaf, Sparse, Value, ValueId};
use statelens_values::SummaryStatistics;

use crate::fold::{Foldable, LeafProperties};
use crate::{LeafKind, dtype_of, shape_of, text_of};

/// A leaf of an outline.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LeafSummary {
    /// The key, joined with dots.
    pub key: String,
    /// The kind, with links followed: `tensor`, `int`, ….
    pub kind: LeafKind,
    /// The dtype of a tensor or array by torch's name; otherwise empty.
    pub dtype: String,
    /// The shape of a tensor or array.
    pub shape: Vec<u64>,
    /// Number of elements of a tensor.
    pub params: u64,
    /// Number of its logical bytes.
    pub bytes: u64,
    /// The value as text, shortened if long; for a tensor, its description without values.
    pub value: String,
    /// The key of the target, if this is a link.
    pub link: Option<String>,
    /// Statistics of a tensor, if they have been computed.
    pub statistics: Option<SummaryStatistics>,
}

impl LeafSummary {
    /// Creates the summary of a leaf.
    pub fn new(checkpoint: &Checkpoint, leaf: &Leaf) -> Self {
        let dtype = dtype_of(checkpoint, leaf.target);
        let (params, bytes) = size_of(checkpoint, leaf.target);
        Self {
            key: leaf.flat.to_lossy().into_owned(),
            kind: LeafKind::of(checkpoint.value(leaf.target)),
            dtype: dtype.map(|dtype| dtype.name().to_owned()).unwrap_or_default(),
            shape: shape_of(checkpoint, leaf.target).map(<[u64]>::to_vec).unwrap_or_default(),
            params,
            bytes,
            // The value only; the target of a link is in `link`.
            value: text_of(checkpoint, leaf.target),
            link: leaf.alias_of.as_ref().map(|key| key.to_lossy().into_owned()),
            statistics: None,
        }
    }

    /// Returns whether it has a dtype and a shape.
    pub fn is_tensor(&self) -> bool {
        self.kind.has_shape()
    }

    /// Returns the dtype, or the kind if there is no dtype.
    pub fn type_word(&self) -> &str {
        if self.dtype.is_empty() { self.kind.word() } else { &self.dtype }
    }
}

impl Foldable for LeafSummary {
    fn properties(&self) -> LeafProperties<'_> {
        LeafProperties {
            key: &self.key,
            kind: self.kind.word(),
            is_tensor: self.is_tensor(),
            dtype: &self.dtype,
            shape: &self.shape,
            link: self.link.as_deref(),
            params: self.params,
            bytes: self.bytes,
            value: &self.value,
        }
    }
}

/// Returns the number of elements and of logical bytes of a leaf.
pub(crate) fn size_of(checkpoint: &Checkpoint, id: ValueId) -> (u64, u64) {
    match checkpoint.value(id) {
        Value::Sparse(sparse) => sparse_size(checkpoint, sparse),
        _ => checkpoint.tensor_of(id).map_or((0, 0), |(_, tensor)| {
            (tensor.numel().unwrap_or(u64::MAX), tensor.nbytes().unwrap_or(u64::MAX))
        }),
    }
}

/// Returns the number of elements and bytes that a sparse tensor stores.
fn sparse_size(checkpoint: &Checkpoint, sparse: &Sparse) -> (u64, u64) {
    let parts =
        sparse.parts.iter().filter_map(|(name, id)| Some((*name, checkpoint.tensor_of(*id)?.1)));
    parts.fold((0, 0), |(params, bytes): (u64, u64), (name, tensor)| {
        let count = if name == "values" { tensor.numel().unwrap_or(0) } else { 0 };
        (params.saturating_add(count), bytes.saturating_add(tensor.nbytes().unwrap_or(0)))
    })
}
