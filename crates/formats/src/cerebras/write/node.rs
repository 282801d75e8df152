//! What a state dict is to the Cerebras library: containers in order, and under them leaves with
//! their flat keys.

use statelens_checkpoint::{DictKey, Global, Text, ValueId};

/// Containers and leaves in order.
#[derive(Default)]
pub(super) struct Outline {
    /// A container stands before its children.
    pub(super) nodes: Vec<StructureNode>,
    pub(super) leaves: Vec<FlatLeaf>,
}

/// A place in the structure.
pub(super) enum StructureNode {
    /// The next leaf.
    Leaf,
    /// A container of so many children; `keys` if it is a kind of dict.
    Container { class: ContainerClass, keys: Vec<DictKey>, children: usize },
}

/// The containers that the format knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ContainerClass {
    Dict,
    Ordered,
    /// What makes missing entries.
    Default(Global),
    List,
    Tuple,
    Deque,
    Set,
}

/// A value that is not flattened further.
pub(super) struct FlatLeaf {
    pub(super) key: Text,
    /// Never a link.
    pub(super) id: ValueId,
    /// The leaf that is the same object and comes first.
    pub(super) first: Option<usize>,
}

/// The family that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FormatFamily {
    V04,
    V05,
}
