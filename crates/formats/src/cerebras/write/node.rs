//! The Cerebras library's view of a state dict: containers in order, and their leaves with flat
//! keys.

use statelens_checkpoint::{DictKey, Global, Text, ValueId};

/// Containers and leaves in order.
#[derive(Default)]
pub(super) struct Outline {
    /// Containers precede their children.
    pub(super) nodes: Vec<StructureNode>,
    pub(super) leaves: Vec<FlatLeaf>,
}

pub(super) enum StructureNode {
    /// The next leaf.
    Leaf,
    /// A container with this number of children; `keys` is used for the kinds of dict.
    Container { class: ContainerClass, keys: Vec<DictKey>, children: usize },
}

/// The container classes that the format supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ContainerClass {
    Dict,
    Ordered,
    /// A defaultdict with its factory.
    Default(Global),
    List,
    Tuple,
    Deque,
    Set,
}

/// A value that is not flattened further.
pub(super) struct FlatLeaf {
    pub(super) key: Text,
    /// The value, with links resolved.
    pub(super) id: ValueId,
    /// The earliest leaf that is the same object, if there is one before this.
    pub(super) first: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FormatFamily {
    V04,
    V05,
}
