//! Hashes the contents of values that one line of text does not represent completely.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use statelens_checkpoint::{Array, Checkpoint, DictKey, Value, ValueId, visible};

use crate::exact::{class_text, is_ambiguous, record_text};
use crate::text::SHOWN_ARGS;
use crate::{text_of, type_name};

/// Returns whether [`text_of`] and [`type_name`] represent a value that is not a tensor completely.
pub(crate) fn is_text_complete(checkpoint: &Checkpoint, id: ValueId) -> bool {
    let is_short = |id: &ValueId| {
        let value = checkpoint.value(checkpoint.resolve(*id));
        value.children().is_empty() && is_own_text_complete(checkpoint, *id)
    };
    match checkpoint.value(id) {
        Value::Opaque(opaque) => {
            let bare = opaque.items.is_empty() && opaque.entries.is_empty();
            let args = opaque.args.len() <= SHOWN_ARGS && opaque.args.iter().all(is_short);
            let printed = opaque.repr.is_some() || bare && opaque.state.is_none() && args;
            printed && is_own_text_complete(checkpoint, id)
        }
        Value::Set(set) if set.frozen => {
            set.items.len() <= 10
                && set.items.iter().all(is_short)
                && is_own_text_complete(checkpoint, id)
        }
        _ => is_own_text_complete(checkpoint, id),
    }
}

fn is_own_text_complete(checkpoint: &Checkpoint, id: ValueId) -> bool {
    let id = checkpoint.resolve(id);
    match checkpoint.value(id) {
        Value::Int(int) => int.to_i64().is_some(),
        Value::Tensor(_) | Value::Array(_) | Value::Sparse(_) => false,
        _ => !text_of(checkpoint, id).ends_with('…'),
    }
}

/// Returns the Python properties of a tensor that its kind does not imply, as text: its class,
/// torch's `requires_grad`, and a hash of its Python attributes, such as the metadata of NumPy's
/// dtype. Attributes that hold tensors are left out.
pub(crate) fn tensor_class_text(checkpoint: &Checkpoint, id: ValueId) -> Option<String> {
    let (_, tensor) = checkpoint.tensor_of(id)?;
    let mut parts = Vec::new();
    if !matches!(checkpoint.value(id), Value::Array(Array { scalar: true, .. })) {
        parts.extend(type_name(checkpoint, id));
    }
    if tensor.requires_grad {
        parts.push("requires_grad".to_owned());
    }
    if let Some(attributes) = checkpoint.attributes(id)
        && checkpoint.attribute_tensors(id).is_empty()
    {
        let hash = contents_hash(checkpoint, attributes, "");
        parts.push(format!("attributes with SHA-256 {hash}"));
    }
    (!parts.is_empty()).then(|| visible(&parts.join(", ")))
}

/// Returns the SHA-256, in hexadecimal, of a value with everything below it. Tensors are
/// represented by dtype and shape only. A value that occurs again is represented by a reference to
/// its first occurrence. `contents` is the hash of [`Opaque::contents`], which replaces the text.
///
/// [`Opaque::contents`]: statelens_checkpoint::Opaque::contents
pub(crate) fn contents_hash(checkpoint: &Checkpoint, id: ValueId, contents: &str) -> String {
    let mut hash = Sha256::new();
    let mut part = |tag: &str, bytes: &[u8]| {
        hash.update(tag.as_bytes());
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    let mut seen: HashMap<ValueId, u64> = HashMap::new();
    let mut open = vec![id];
    while let Some(id) = open.pop() {
        let id = checkpoint.resolve(id);
        let value = checkpoint.value(id);
        if let Some(first) = seen.get(&id) {
            part("again", &first.to_le_bytes());
            continue;
        }
        seen.insert(id, seen.len() as u64);
        let children = value.children();
        let class = type_name(checkpoint, id).map(|_| class_text(checkpoint, id));
        part(value.kind(), class.unwrap_or_default().as_bytes());
        part("children", &(children.len() as u64).to_le_bytes());
        match value {
            Value::Str(text) => part("text", text.as_bytes()),
            Value::Bytes { data, .. } => part("bytes", data),
            Value::Int(int) => part("int", &int.to_le_bytes()),
            Value::Float(float) => part("float", &float.to_bits().to_le_bytes()),
            Value::Complex(re, im) => {
                part("re", &re.to_bits().to_le_bytes());
                part("im", &im.to_bits().to_le_bytes());
            }
            Value::Device(name) => part("device", name.as_bytes()),
            Value::DType { dtype, .. } => {
                part("dtype", dtype.to_string().as_bytes());
                record_text(dtype, false).iter().for_each(|text| part("fields", text.as_bytes()));
            }
            Value::Dict(dict) => {
                for (key, _) in &dict.entries {
                    let is_open = matches!(key, DictKey::Str(text) if is_ambiguous(text));
                    part(if is_open { "text key" } else { "key" }, key.to_string().as_bytes());
                }
            }
            Value::Opaque(opaque) => {
                match opaque.contents.and_then(|id| checkpoint.tensor(id).ok()) {
                    Some(tensor) => {
                        part("dtype", tensor.dtype.to_string().as_bytes());
                        tensor.shape.iter().for_each(|dim| part("dim", &dim.to_le_bytes()));
                        part("contents", contents.as_bytes());
                    }
                    None => {
                        let repr = opaque.repr.as_ref().map_or(&[][..], |repr| repr.as_bytes());
                        part("repr", repr);
                    }
                }
                let counts = [opaque.args.len(), opaque.items.len(), opaque.entries.len()];
                counts.iter().for_each(|count| part("count", &(*count as u64).to_le_bytes()));
            }
            Value::Tensor(_) | Value::Array(_) => {
                if let Some((_, tensor)) = checkpoint.tensor_of(id) {
                    part("dtype", tensor.dtype.to_string().as_bytes());
                    tensor.shape.iter().for_each(|dim| part("dim", &dim.to_le_bytes()));
                }
            }
            _ => part("text", text_of(checkpoint, id).as_bytes()),
        }
        open.extend(children.into_iter().rev());
    }
    statelens_checkpoint::hex(&hash.finalize())
}
