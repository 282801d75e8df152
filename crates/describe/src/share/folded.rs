//! The leaves of an outline as lines, with repetitions folded.

use statelens_checkpoint::numbers::joined;

use crate::fold;

use super::{LeafSummary, Outline};

/// A line of a folded list: a leaf, or a key that all members of a fold have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FoldedLine {
    /// The first leaf, with ranges in its key and link where numbers change: `layers.0–31.weight`.
    pub entry: LeafSummary,
    /// The indices of the leaves, in the order of their numbers.
    pub rows: Vec<u32>,
    /// Number of leaves that the line covers.
    pub times: u64,
    /// Number of tensor elements in all of them.
    pub params: u64,
    /// Number of bytes of all of them.
    pub bytes: u64,
    /// Whether all have the same shape.
    pub one_shape: bool,
    /// The minimum and maximum of their standard deviations, if known.
    pub std: Option<(f64, f64)>,
}

/// Returns the folded list of the entries, by the rules of [`crate::fold`].
pub fn lines(outline: &Outline) -> Vec<FoldedLine> {
    let (entries, dot) = (&outline.entries, outline.separator());
    let line = |line: fold::FoldedKey| {
        let members = || line.rows.iter().filter_map(|&row| entries.get(row as usize));
        let mut entry = members().next()?.clone();
        let std = members().filter_map(|entry| Some(entry.statistics?.std.unwrap_or(f64::NAN)));
        let std = std.map(|std| (std, std)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let one_shape = members().all(|other| other.shape == entry.shape);
        let params = members().fold(0u64, |sum, entry| sum.saturating_add(entry.params));
        let bytes = members().fold(0u64, |sum, entry| sum.saturating_add(entry.bytes));
        if line.rows.len() > 1 {
            entry.value = fold::values_text(entries, &line.rows);
            let links = || members().filter_map(|entry| entry.link.as_deref());
            // If they lead to keys of several patterns, only the first is shown.
            let others = || links().next().map(|first| format!("{first} \u{2026}"));
            entry.link = joined(links(), dot).or_else(others);
            entry.statistics = None;
        }
        entry.key = line.key;
        let times = line.rows.len() as u64;
        Some(FoldedLine { entry, rows: line.rows, times, params, bytes, one_shape, std })
    };
    fold::lines(entries, dot).into_iter().filter_map(line).collect()
}
