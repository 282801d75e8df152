//! Folding: repeated parts of a state, such as the layers of a model, are shown once. The page's
//! table, tree, tape and comparison and all summaries fold by these rules:
//!
//! - Siblings fold when their names differ only in a number, and their subtrees have equal names,
//!   kinds, dtypes and shapes. Their position and order in the file do not matter: most writers
//!   sort keys as `layers.0`, `layers.1`, `layers.10`, `layers.2` ….
//! - Members are ordered by number. Those with different shapes form a fold of their own:
//!   `layers.0–2,4–31` and `layers.3`.
//! - Two subtrees are enough to fold. Leaves, such as the items of a list, and names that are more
//!   than a number (`layer_0`) fold only from four on, since fewer are easier to read unfolded.
//! - The entries of an optimizer's `state` are numbered by parameter, so their shapes differ as the
//!   parameters' shapes do: for them, equal names, kinds and dtypes are enough.
//! - Everything else stays in file order; a fold is at the position of its first member.

mod lines;
#[cfg(test)]
mod tests;
mod trie;

pub use lines::{FoldedKey, lines, values_text};
pub use trie::{ChildRun, Sums, Trie, join, sums};

/// A leaf that can be folded.
pub trait Foldable {
    /// Returns the properties that folding uses.
    fn properties(&self) -> LeafProperties<'_>;
}

/// The properties of a leaf that folding uses.
#[derive(Debug, Clone, Copy)]
pub struct LeafProperties<'a> {
    /// The key, joined with dots.
    pub key: &'a str,
    /// The kind of leaf, in one word.
    pub kind: &'a str,
    /// The dtype; empty for leaves without one.
    pub dtype: &'a str,
    /// The shape; empty for leaves without one.
    pub shape: &'a [u64],
    /// True for leaves with a dtype and a shape.
    pub is_tensor: bool,
    /// The key of the target, if the leaf is a link.
    pub link: Option<&'a str>,
    /// Number of elements.
    pub params: u64,
    /// Logical size in bytes.
    pub bytes: u64,
    /// A plain value as text.
    pub value: &'a str,
}
