//! The path of a leaf.

use crate::{DictKey, Text};

/// One step of a path.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyPart {
    /// A key of a dict.
    Field(DictKey),
    /// An attribute of an object that was not instantiated.
    Attribute(DictKey),
    /// A position in a list, tuple or set.
    Index(u64),
    /// A text key of a dict with another key that prints alike: `'0'` and `0`.
    Quoted {
        /// The key.
        key: DictKey,
        /// Its text in quotes.
        text: Text,
    },
}

impl KeyPart {
    /// Returns the text of the step in a flat key.
    pub fn text(&self) -> Text {
        match self {
            Self::Field(DictKey::Str(text)) | Self::Attribute(DictKey::Str(text)) => text.clone(),
            Self::Quoted { text, .. } => text.clone(),
            Self::Field(key) | Self::Attribute(key) => key.to_string().into(),
            Self::Index(index) => index.to_string().into(),
        }
    }

    /// Returns the key of the dict that the step leads through; `None` for an index.
    pub fn dict_key(&self) -> Option<&DictKey> {
        match self {
            Self::Field(key) | Self::Attribute(key) | Self::Quoted { key, .. } => Some(key),
            Self::Index(_) => None,
        }
    }
}

/// The path of a leaf from the root of the state dict.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Key {
    /// The steps; empty for the root itself.
    pub parts: Vec<KeyPart>,
}

impl Key {
    /// Returns the parts joined with `.`, as the Cerebras format flattens a state dict. This can't
    /// be reversed: a name with a dot looks like nesting here, and only here.
    pub fn flat(&self) -> Text {
        if let [KeyPart::Field(DictKey::Str(text)) | KeyPart::Attribute(DictKey::Str(text))] =
            &self.parts[..]
        {
            return text.clone();
        }
        let mut bytes = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                bytes.push(b'.');
            }
            bytes.extend_from_slice(part.text().as_bytes());
        }
        // Joining valid texts with dots yields a valid text: a surrogate keeps its bytes.
        Text::from_surrogatepass(&bytes).unwrap_or_else(|_| "".into())
    }
}

/// Returns the key as the user knows it: a variable of TensorFlow's object graph without the suffix
/// that all of them have.
pub fn known_key(key: &str) -> &str {
    key.strip_suffix("/.ATTRIBUTES/VARIABLE_VALUE").filter(|name| !name.is_empty()).unwrap_or(key)
}

/// Returns the separator between the segments of keys: a slash if the format may use it
/// ([`FormatTraits::slash_keys`](crate::FormatTraits::slash_keys)) and the keys do, else a dot.
pub fn separator(slash_keys: bool, keys: &mut dyn Iterator<Item = &str>) -> char {
    let (mut slashes, mut dots) = (0, 0);
    if slash_keys {
        for key in keys {
            slashes += u64::from(key.contains('/'));
            dots += u64::from(key.contains('.'));
        }
    }
    if slashes > 0 && slashes >= dots { '/' } else { '.' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_key_parts_as_python_prints_them() {
        let key = Key {
            parts: vec![
                KeyPart::Field("a.b".into()),
                KeyPart::Index(3),
                KeyPart::Field(DictKey::Bool(true)),
                KeyPart::Field(DictKey::Float(1.5)),
                KeyPart::Field(DictKey::None),
            ],
        };
        assert_eq!(key.flat(), "a.b.3.True.1.5.None");
    }
}
