//! Folding: what repeats, like the layers of a model, is told once. Table, tree, tape and comparison
//! of the page and the summaries of both faces fold by these rules and no others:
//!
//! - Siblings fold when their names differ in a number only, and what is below them is equal by names,
//!   kinds, dtypes and shapes. It doesn't matter where in the file they stand, nor in which order:
//!   `layers.0`, `layers.1`, `layers.10`, `layers.2` … is how most writers sort keys.
//! - Members stand in the order of their numbers. Those of another shape are a fold of their own:
//!   `layers.0–2,4–31` and `layers.3`.
//! - Two subtrees fold; of leaves, like the items of a list, and of names that are more than a number
//!   (`layer_0`), four at least: fewer are read more easily as they are.
//! - The entries of an optimizer's `state` are numbered by parameter, so that their shapes differ as
//!   those of the parameters do: there names, kinds and dtypes are enough.
//! - Everything else stays in the order of the file; a fold stands where the first of its members does.

mod lines;
mod numbers;
#[cfg(test)]
mod tests;
mod trie;

pub use lines::{FoldedKey, lines, values_text};
pub use numbers::{joined, label, pattern};
pub use trie::{ChildRun, Sums, Trie, join, sums};

/// What folding needs to know of a leaf.
pub trait Foldable {
    /// The key, joined with dots.
    fn key(&self) -> &str;
    /// What it is, in one word.
    fn kind(&self) -> &str;
    /// The dtype; empty for what has none.
    fn dtype(&self) -> &str;
    /// The shape; empty for what has none.
    fn shape(&self) -> &[u64];
    /// True for what has a dtype and a shape.
    fn is_tensor(&self) -> bool;
    /// The key of the leaf that it is a link to, if it is one.
    fn link(&self) -> Option<&str>;
    /// How many values it holds.
    fn params(&self) -> u64;
    /// Its logical bytes.
    fn bytes(&self) -> u64;
    /// The value as text, if it is a plain one.
    fn value(&self) -> &str;
}
