//! The kinds of leaves.

use serde::{Serialize, Serializer};
use statelens_checkpoint::Value;

/// What a leaf is. The order is that of the codes in links and messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LeafKind {
    /// A tensor.
    Tensor,
    /// A NumPy array.
    Array,
    /// A sparse tensor.
    Sparse,
    /// An integer.
    Int,
    /// A floating-point number.
    Float,
    /// A boolean.
    Bool,
    /// A string.
    Str,
    /// Python's `None`.
    None,
    /// A complex number.
    Complex,
    /// A byte string.
    Bytes,
    /// A Python object, described but never instantiated.
    #[default]
    Object,
    /// An empty dict.
    Dict,
    /// An empty list.
    List,
    /// An empty tuple.
    Tuple,
    /// An empty set.
    Set,
    /// A link whose target is not in this checkpoint.
    Link,
}

impl LeafKind {
    /// All kinds; the position is the code.
    pub const ALL: [Self; 16] = [
        Self::Tensor,
        Self::Array,
        Self::Sparse,
        Self::Int,
        Self::Float,
        Self::Bool,
        Self::Str,
        Self::None,
        Self::Complex,
        Self::Bytes,
        Self::Object,
        Self::Dict,
        Self::List,
        Self::Tuple,
        Self::Set,
        Self::Link,
    ];

    /// Returns the kind of a value.
    pub fn of(value: &Value) -> Self {
        Self::named(value.kind()).unwrap_or_default()
    }

    /// Returns the kind with a word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// Returns the word of JSON and of manifests.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tensor => "tensor",
            Self::Array => "ndarray",
            Self::Sparse => "sparse",
            Self::Int => "int",
            Self::Float => "float",
            Self::Bool => "bool",
            Self::Str => "str",
            Self::None => "none",
            Self::Complex => "complex",
            Self::Bytes => "bytes",
            Self::Object => "object",
            Self::Dict => "dict",
            Self::List => "list",
            Self::Tuple => "tuple",
            Self::Set => "set",
            Self::Link => "link",
        }
    }

    /// Returns whether it has a dtype and a shape.
    pub fn has_shape(self) -> bool {
        matches!(self, Self::Tensor | Self::Array | Self::Sparse)
    }
}

impl Serialize for LeafKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_in_their_order_and_have_words() {
        for (at, kind) in LeafKind::ALL.into_iter().enumerate() {
            assert_eq!((kind as usize, LeafKind::named(kind.word())), (at, Some(kind)));
        }
    }
}
