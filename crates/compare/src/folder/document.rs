//! JSON files of a folder.

use statelens_checkpoint::json::{Document, JsonNode};
use statelens_checkpoint::{FileSet, Result};

/// Maximum size in bytes of a config or of an index that is read.
const MAX_LEN: u64 = 256 << 20;

/// A JSON file.
pub(super) struct JsonFile {
    pub(super) file: String,
    document: Document,
}

/// A value in a JSON file.
#[derive(Clone, Copy)]
pub(super) struct JsonValue<'a> {
    document: &'a Document,
    node: &'a JsonNode,
}

impl JsonFile {
    /// Reads a file; `None` if no file has this name. The inner error says why it is not JSON.
    pub(super) fn read(files: &FileSet, name: &str) -> Option<Result<Self>> {
        let (id, _) = files.names().find(|(_, known)| *known == name)?;
        let text = match files.len(id) > MAX_LEN {
            true => Err(statelens_checkpoint::Error::limit("the file is larger than 256 MB")),
            false => files.read_vec(id, 0, files.len(id)),
        };
        Some(text.and_then(|text| {
            let document = Document::parse(&text)?;
            Ok(Self { file: name.to_owned(), document })
        }))
    }

    pub(super) fn root(&self) -> JsonValue<'_> {
        JsonValue { document: &self.document, node: self.document.node(self.document.root()) }
    }
}

impl<'a> JsonValue<'a> {
    pub(super) fn get(self, name: &str) -> Option<Self> {
        let JsonNode::Object(entries) = self.node else { return None };
        let (_, id) = entries.iter().rev().find(|(key, _)| *key == *name)?;
        Some(Self { node: self.document.node(*id), ..self })
    }

    pub(super) fn entries(self) -> impl Iterator<Item = (String, Self)> + 'a {
        let entries = match self.node {
            JsonNode::Object(entries) => entries.as_slice(),
            _ => &[],
        };
        entries.iter().map(move |(key, id)| {
            (key.to_lossy().into_owned(), Self { node: self.document.node(*id), ..self })
        })
    }

    pub(super) fn items(self) -> impl Iterator<Item = Self> + 'a {
        let items = match self.node {
            JsonNode::Array(items) => items.as_slice(),
            _ => &[],
        };
        items.iter().map(move |id| Self { node: self.document.node(*id), ..self })
    }

    pub(super) fn number(self) -> Option<u64> {
        match self.node {
            JsonNode::Int(int) => int.to_u64(),
            // Some writers write sizes as floats.
            JsonNode::Float(float) if float.fract() == 0.0 && (0.0..1e18).contains(float) => {
                Some(*float as u64)
            }
            _ => None,
        }
    }

    /// Returns whether it is a number that is negative or not whole.
    pub(super) fn is_negative(self) -> bool {
        matches!(self.node, JsonNode::Int(_) | JsonNode::Float(_)) && self.number().is_none()
    }

    pub(super) fn text(self) -> Option<&'a str> {
        self.node.text()?.as_str()
    }

    pub(super) fn bool(self) -> Option<bool> {
        match self.node {
            JsonNode::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn is_object(self) -> bool {
        matches!(self.node, JsonNode::Object(_))
    }
}
