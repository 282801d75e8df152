//! Totals of leaves, of a checkpoint or of an outline.

use std::collections::HashMap;

use serde::Serialize;

/// Counts of several tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Count {
    /// Number of tensors.
    pub tensors: u64,
    /// Total number of elements; "parameters" if the tensors are weights.
    pub elements: u64,
    /// Total number of logical bytes.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, elements: u64, bytes: u64) {
        self.tensors += 1;
        // The size of one tensor fits 63 bits, but the sum of millions with false sizes may not.
        self.elements = self.elements.saturating_add(elements);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Counts of one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct StateSummary {
    /// Number of leaves, including links and plain values.
    pub leaves: u64,
    /// Counts of the tensors among them.
    #[serde(flatten)]
    pub tensors: Count,
}

/// Totals of a list of leaves. The fields are those of JSON, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// Number of leaves, including links.
    pub leaves: u64,
    /// Number of leaves that are links to others.
    pub links: u64,
    /// Number of tensors whose bytes are not available; `None` if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<u64>,
    /// Counts of tensors and arrays, without links. Tied tensors count once.
    #[serde(flatten)]
    pub all: Count,
    /// The counts by dtype, in order of first appearance.
    #[serde(skip)]
    pub by_dtype: Vec<(String, Count)>,
    /// The counts by state: the part of the key before the first dot, or before the first slash in
    /// formats that separate names with slashes.
    #[serde(skip)]
    pub by_state: Vec<(String, StateSummary)>,
}

/// [`Totals`] that are being counted.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    totals: Totals,
    states: Names,
    dtypes: Names,
}

impl Counter {
    /// Counts a leaf.
    pub(crate) fn add_leaf(&mut self, state: &str, is_link: bool) {
        self.totals.leaves += 1;
        self.totals.links += u64::from(is_link);
        self.states.of(&mut self.totals.by_state, state).leaves += 1;
    }

    /// Counts a tensor of a leaf of this state.
    pub(crate) fn add_tensor(&mut self, state: &str, dtype: &str, elements: u64, bytes: u64) {
        self.totals.all.add(elements, bytes);
        self.states.of(&mut self.totals.by_state, state).tensors.add(elements, bytes);
        self.dtypes.of(&mut self.totals.by_dtype, dtype).add(elements, bytes);
    }

    pub(crate) fn finish(self) -> Totals {
        self.totals
    }
}

/// The places of names in a list.
#[derive(Debug, Default)]
struct Names {
    places: HashMap<String, usize>,
    /// The place of the last name: adjacent leaves mostly have the same state and dtype.
    last: usize,
}

impl Names {
    /// Returns the entry of a name, which is added if it is not in the list.
    fn of<'a, T: Default>(&mut self, list: &'a mut Vec<(String, T)>, name: &str) -> &'a mut T {
        if list.get(self.last).is_none_or(|(last, _)| last != name) {
            self.last = match self.places.get(name) {
                Some(place) => *place,
                None => {
                    list.push((name.to_owned(), T::default()));
                    self.places.insert(name.to_owned(), list.len() - 1);
                    list.len() - 1
                }
            };
        }
        &mut list[self.last].1
    }
}
