//! Names of tensors in the bundle.

use statelens_checkpoint::{DictKey, Error, Key, KeyPart, Result};

use super::values::LeafTensor;
use crate::advice;

pub(super) struct NamedTensor {
    pub(super) name: Vec<u8>,
    pub(super) tensor: LeafTensor,
}

/// Names tensors as the Saver does: by flat key.
pub(super) fn name(items: Vec<LeafTensor>) -> Result<Vec<NamedTensor>> {
    items.into_iter().map(|item| Ok(NamedTensor { name: flat(&item.key)?, tensor: item })).collect()
}

fn flat(key: &Key) -> Result<Vec<u8>> {
    let name = match &key.parts[..] {
        // A name that is not UTF-8 is unchanged.
        [KeyPart::Field(DictKey::Bytes(bytes))] => bytes.to_vec(),
        // The checkpoint is a single tensor.
        [] => b"value".to_vec(),
        _ => key.flat().as_bytes().to_vec(),
    };
    let bytes = matches!(key.parts[..], [KeyPart::Field(DictKey::Bytes(_))]);
    let why = if name.first().is_none_or(|first| *first == 0) {
        "is empty or begins with a zero byte, which no name in TensorFlow may"
    } else if !bytes && std::str::from_utf8(&name).is_err() {
        "has half a character, and Python could not list the names of the file"
    } else {
        return Ok(name);
    };
    Err(Error::refused(format!("the key `{}` {why}", key.flat()))
        .advice(advice::rename_or_exclude()))
}

/// Fails if two tensors have the same name. `named` is sorted.
pub(super) fn refuse_collisions(named: &[NamedTensor]) -> Result<()> {
    match named.windows(2).find(|pair| pair[0].name == pair[1].name) {
        None => Ok(()),
        Some(pair) => {
            let name = String::from_utf8_lossy(&pair[0].name);
            let [one, other] = [&pair[0], &pair[1]].map(|named| parts(&named.tensor.key));
            let alike = pair[0].tensor.key.flat() == pair[1].tensor.key.flat();
            Err(Error::refused(format!("two values would both be called `{name}`: {one}; {other}"))
                .advice(advice::rename_one(1 + usize::from(alike))))
        }
    }
}

/// Returns a key with visible separators between its steps.
fn parts(key: &Key) -> String {
    let step = |part: &KeyPart| Key { parts: vec![part.clone()] }.flat().to_string();
    let steps: Vec<String> = key.parts.iter().map(step).collect();
    steps.join(" > ")
}
