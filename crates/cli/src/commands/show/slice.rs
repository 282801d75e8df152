//! Slices of tensors, written as in Python.

use statelens_checkpoint::Result;
use statelens_tensor::{ElementPlaces, Slice};

/// What of a tensor is to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownSlice {
    /// How it was written, without brackets.
    pub(super) text: String,
    /// The same.
    pub(super) slice: Slice,
    /// Its elements.
    pub(super) places: ElementPlaces,
}

impl ShownSlice {
    /// Understands what stands between the brackets, for a tensor of this shape.
    pub(super) fn parse(text: &str, shape: &[u64]) -> Result<Self> {
        let slice: Slice = text.parse()?;
        let places = ElementPlaces::new(&slice, shape)?;
        Ok(Self { text: text.trim().to_owned(), slice, places })
    }
}
