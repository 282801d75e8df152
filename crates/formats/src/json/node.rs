use statelens_checkpoint::{Int, Text};

/// The index of a value in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id(pub(super) u32);

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum JsonNode {
    Null,
    Bool(bool),
    Int(Int),
    Float(f64),
    Str(Text),
    Array(Vec<Id>),
    /// If a name occurs twice, the last entry counts, as in Python.
    Object(Vec<(Text, Id)>),
}

impl JsonNode {
    pub(crate) fn text(&self) -> Option<&Text> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_true(&self) -> bool {
        *self == Self::Bool(true)
    }
}
