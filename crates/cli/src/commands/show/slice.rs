//! Slices of tensors, written as in Python.

use statelens::parts::tensor::ElementPlaces;
use statelens::{Result, Slice};

/// The slice of a tensor to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownSlice {
    /// The slice as the user wrote it, without brackets.
    pub(super) text: String,
    /// The parsed slice.
    pub(super) slice: Slice,
    /// The elements of the slice.
    pub(super) places: ElementPlaces,
}

impl ShownSlice {
    /// Parses the text between the brackets, for a tensor of this shape.
    pub(super) fn parse(text: &str, shape: &[u64]) -> Result<Self> {
        let slice: Slice = text.parse()?;
        let places = ElementPlaces::new(&slice, shape)?;
        Ok(Self { text: text.trim().to_owned(), slice, places })
    }
}
