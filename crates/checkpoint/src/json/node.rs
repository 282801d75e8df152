//! A value of a document.

use crate::{Int, Text};

/// The index of a value in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id(pub(super) u32);

/// A value. Containers refer to their items by ID.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonNode {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number without point and exponent.
    Int(Int),
    /// Any other number.
    Float(f64),
    /// A string.
    Str(Text),
    /// The items of an array.
    Array(Vec<Id>),
    /// The entries of an object. If a name occurs twice, the last entry counts, as in Python.
    Object(Vec<(Text, Id)>),
}

impl JsonNode {
    /// Returns the string, if it is one.
    pub fn text(&self) -> Option<&Text> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Returns whether it is `true`.
    pub fn is_true(&self) -> bool {
        *self == Self::Bool(true)
    }
}
