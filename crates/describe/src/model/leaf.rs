//! The properties of a leaf from which a model is described.

use std::borrow::Cow;

use statelens_checkpoint::{
    Checkpoint, Dict, DictClass, DictKey, FileId, Layout, Leaf, Value, ValueId,
};

use crate::entry::{self, LeafSummary};
use crate::{dtype_of, shape_of, text_of};

/// The start of the keys of metadata, the only leaves whose values matter here.
pub(super) const METADATA: &str = "metadata.";

/// A leaf, borrowed from a checkpoint or from an outline.
#[derive(Debug)]
pub(crate) struct ModelLeaf<'a> {
    pub(super) key: Cow<'a, str>,
    /// Whether it has a dtype and a shape.
    pub(super) is_tensor: bool,
    /// The dtype of a tensor or array; otherwise empty.
    pub(super) dtype: &'a str,
    pub(super) shape: &'a [u64],
    /// Number of elements of a tensor.
    pub(super) params: u64,
    /// Number of its logical bytes.
    pub(super) bytes: u64,
    /// The texts that few leaves have.
    texts: Option<Box<LeafTexts<'a>>>,
    /// The location of its bytes, if known: that of tied tensors is the same.
    pub(super) place: Option<(FileId, u64)>,
}

/// The texts of metadata and of links.
#[derive(Debug)]
struct LeafTexts<'a> {
    value: Cow<'a, str>,
    link: Option<Cow<'a, str>>,
}

impl<'a> LeafTexts<'a> {
    fn new(value: Cow<'a, str>, link: Option<Cow<'a, str>>) -> Option<Box<Self>> {
        (!value.is_empty() || link.is_some()).then(|| Box::new(Self { value, link }))
    }
}

impl<'a> ModelLeaf<'a> {
    /// Returns the value of metadata as text; empty for other leaves.
    pub(super) fn value(&self) -> &str {
        self.texts.as_ref().map_or("", |texts| &texts.value)
    }

    /// Returns the key of the target, if this is a link.
    pub(super) fn link(&self) -> Option<&str> {
        self.texts.as_ref()?.link.as_deref()
    }

    pub(super) fn new(checkpoint: &'a Checkpoint, leaf: &'a Leaf) -> Self {
        let link = leaf.alias_of.as_ref().map(|key| key.to_lossy());
        Self::of(checkpoint, leaf.flat.to_lossy(), leaf.target, link)
    }

    /// Describes a value with this key, which is not a link.
    fn of(
        checkpoint: &'a Checkpoint,
        key: Cow<'a, str>,
        id: ValueId,
        link: Option<Cow<'a, str>>,
    ) -> Self {
        let (params, bytes) = entry::size_of(checkpoint, id);
        let place = checkpoint.tensor_of(id).and_then(|(_, tensor)| match &tensor.layout {
            Layout::Span(span) if span.len > 0 => Some((span.file, span.offset)),
            _ => None,
        });
        let value = match key.starts_with(METADATA) {
            true => text_of(checkpoint, id).into(),
            false => Cow::default(),
        };
        Self {
            key,
            is_tensor: matches!(
                checkpoint.value(id),
                Value::Tensor(_) | Value::Array(_) | Value::Sparse(_)
            ),
            dtype: dtype_of(checkpoint, id).map_or("", |dtype| dtype.name()),
            shape: shape_of(checkpoint, id).unwrap_or_default(),
            params,
            bytes,
            texts: LeafTexts::new(value, link),
            place,
        }
    }
}

impl<'a> From<&'a LeafSummary> for ModelLeaf<'a> {
    fn from(entry: &'a LeafSummary) -> Self {
        Self {
            key: entry.key.as_str().into(),
            is_tensor: entry.is_tensor(),
            dtype: &entry.dtype,
            shape: &entry.shape,
            params: entry.params,
            bytes: entry.bytes,
            texts: LeafTexts::new(
                entry.value.as_str().into(),
                entry.link.as_deref().map(Cow::Borrowed),
            ),
            place: None,
        }
    }
}

/// Returns the leaves of a checkpoint that may belong to a model.
pub(super) fn model_leaves<'a>(
    checkpoint: &'a Checkpoint,
    leaves: &'a [Leaf],
) -> Vec<ModelLeaf<'a>> {
    let leaves = leaves.iter().filter(|leaf| !leaf.outside_state);
    leaves.map(|leaf| ModelLeaf::new(checkpoint, leaf)).collect()
}

/// Returns the same of a checkpoint that is a dict without further containers and links. `None` for
/// others.
pub(super) fn flat_leaves(checkpoint: &Checkpoint) -> Option<Vec<ModelLeaf<'_>>> {
    let Value::Dict(Dict { class: DictClass::Dict | DictClass::Ordered, entries }) =
        checkpoint.value(checkpoint.root())
    else {
        return None;
    };
    if checkpoint.has_outside_state() {
        return None;
    }
    let mut leaves = Vec::with_capacity(entries.len());
    for (key, id) in entries {
        let value = checkpoint.value(*id);
        let DictKey::Str(name) = key else { return None };
        let is_plain = !value.is_container() && !matches!(value, Value::Link(_));
        if !is_plain || checkpoint.stored_key(*id).is_some() {
            return None;
        }
        leaves.push(ModelLeaf::of(checkpoint, name.to_lossy(), *id, None));
    }
    (!leaves.is_empty()).then_some(leaves)
}
