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

/// The properties of a leaf that folding uses.
pub trait Foldable {
    /// Returns the key, joined with dots.
    fn key(&self) -> &str;
    /// Returns the kind of leaf, in one word.
    fn kind(&self) -> &str;
    /// Returns the dtype; empty for leaves without one.
    fn dtype(&self) -> &str;
    /// Returns the shape; empty for leaves without one.
    fn shape(&self) -> &[u64];
    /// Returns true for leaves with a dtype and a shape.
    fn is_tensor(&self) -> bool;
    /// Returns the key of the target, if the leaf is a link.
    fn link(&self) -> Option<&str>;
    /// Returns the number of elements.
    fn params(&self) -> u64;
    /// Returns the logical size in bytes.
    fn bytes(&self) -> u64;
    /// Returns a plain value as text.
    fn value(&self) -> &str;
}
