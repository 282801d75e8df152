//! The path of a leaf.

use crate::{DictKey, Text};

/// One step of a path.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyPart {
    /// A key of a dict.
    Field(DictKey),
    /// A position in a list, tuple or set.
    Index(u64),
    /// Something inside an object that was not built: `args`, `state`, an attribute.
    Inside(Text),
}

/// The path of a leaf from the root of the state dict.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Key {
    /// The steps; none for the root itself.
    pub parts: Vec<KeyPart>,
}

impl Key {
    /// The parts joined with `.`, as the Cerebras format flattens a state dict. Not a way back:
    /// a name that holds a dot looks like nesting here, and only here.
    pub fn flat(&self) -> Text {
        if let [KeyPart::Field(DictKey::Str(text)) | KeyPart::Inside(text)] = &self.parts[..] {
            return text.clone();
        }
        let mut bytes = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                bytes.push(b'.');
            }
            match part {
                KeyPart::Field(DictKey::Str(text)) | KeyPart::Inside(text) => {
                    bytes.extend_from_slice(text.as_bytes());
                }
                KeyPart::Field(key) => bytes.extend_from_slice(key.to_string().as_bytes()),
                KeyPart::Index(index) => bytes.extend_from_slice(index.to_string().as_bytes()),
            }
        }
        // Joining proper texts with dots can't make improper ones: a surrogate keeps its bytes.
        Text::from_surrogatepass(&bytes).unwrap_or_else(|_| "".into())
    }
}

/// A key as the user knows it: a variable of a graph of TensorFlow's objects without what all of
/// them have behind their names.
pub fn known_key(key: &str) -> &str {
    key.strip_suffix("/.ATTRIBUTES/VARIABLE_VALUE").filter(|name| !name.is_empty()).unwrap_or(key)
}

/// What stands between the segments of keys: a slash where names have it rather than dots, as those
/// of TensorFlow's variables do.
pub fn separator(format: &str, keys: &mut dyn Iterator<Item = &str>) -> char {
    let (mut slashes, mut dots) = (0, 0);
    if format.starts_with("tensorflow") {
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
    fn keys_join_as_python_prints_each_part() {
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
