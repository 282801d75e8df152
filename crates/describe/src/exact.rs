//! Types that the kind and the flat key of a leaf leave open: of dict keys, of empty containers, of
//! numbers, of the fields of records.

use std::collections::VecDeque;
use std::fmt::Write as _;

use statelens_checkpoint::{
    Checkpoint, DType, Dict, DictClass, DictKey, Field, Leaf, List, ListClass, PythonTypes,
    STORED_TYPE, Text, Value, ValueId, has_enum, shape_text, visible,
};

use crate::type_name;

/// Returns the types that the other fields of a manifest's entry leave open as one line, if there
/// are any: those of dict keys that read like keys of other types, then the type of the value.
/// Formats without Python's types have neither for keys and containers.
pub fn types_text(checkpoint: &Checkpoint, leaf: &Leaf) -> Option<String> {
    let (value, mut types) = (checkpoint.value(leaf.target), Vec::new());
    let python_types = checkpoint.format.traits.python_types;
    if python_types != PythonTypes::None {
        let names = usize::from(python_types == PythonTypes::InsideEntries);
        let parts = leaf.key.parts.iter().skip(names);
        let keys = parts.filter_map(|part| part.dict_key());
        let open = keys.filter(|key| !matches!(key, DictKey::Str(text) if !is_ambiguous(text)));
        types.extend(open.map(|key| format!("{} key", key.kind())));
        let is_empty = value.is_container() && value.children().is_empty();
        if is_empty || matches!(value, Value::Bytes { .. }) {
            types.push(class_text(checkpoint, leaf.target));
        }
    }
    types.extend(match (value, checkpoint.tensor_of(leaf.target)) {
        (Value::DType { dtype, .. }, _) => record_text(dtype, false),
        (_, Some((_, tensor))) => record_text(&tensor.dtype, true),
        _ => None,
    });
    let stored = checkpoint.raw_attributes(leaf.target).iter();
    let is_type = |name: &Text, text: &Text| {
        *name == STORED_TYPE || *name == "(datatype)" && has_enum(&text.to_lossy())
    };
    types.extend(stored.filter(|(name, text)| is_type(name, text)).map(|(_, of)| of.to_string()));
    (!types.is_empty()).then(|| visible(&types.join(", ")))
}

/// Returns the class of a value with its own arguments: `collections.deque(maxlen=3)`.
pub fn class_text(checkpoint: &Checkpoint, id: ValueId) -> String {
    let value = checkpoint.value(checkpoint.resolve(id));
    let name = type_name(checkpoint, id).unwrap_or_else(|| value.kind().to_owned());
    match value {
        Value::List(List { class: ListClass::Deque(Some(len)), .. }) => {
            format!("{name}(maxlen={len})")
        }
        Value::Dict(Dict { class: DictClass::Default(Some(factory)), .. }) => {
            format!("{name}({factory})")
        }
        _ => name,
    }
}

/// Returns whether a key of another type may have this text.
pub(crate) fn is_ambiguous(text: &Text) -> bool {
    let text = text.to_lossy();
    text.parse::<f64>().is_ok()
        || ["True", "False", "None"].contains(&&*text)
        || text.contains(['(', '<', '\''])
        || text.starts_with("b\"")
        || text.starts_with("torch.")
}

/// Describes the fields of a record with their offsets, then those of records in it. If the record
/// is `known`, returns `None` unless a field is a record, or bytes that could be one, or there is
/// padding.
pub(crate) fn record_text(dtype: &DType, known: bool) -> Option<String> {
    let (mut open, mut text, mut is_plain) = (VecDeque::from([dtype]), String::new(), known);
    while let Some(dtype) = open.pop_front() {
        let DType::Numpy(numpy) = dtype else { continue };
        let mut end = 0;
        for Field { name, title, dtype, offset, shape } in &numpy.fields {
            let _ = write!(text, "{name} {dtype} {} at {offset}; ", shape_text(shape));
            if !title.is_empty() {
                let _ = write!(text, "titled {title}; ");
            }
            let inner = matches!(dtype, DType::Numpy(inner) if inner.code.starts_with('V'));
            is_plain &= *offset == end && !inner;
            let count = shape.iter().fold(1u64, |count, dim| count.saturating_mul(*dim));
            end = offset.saturating_add(dtype.itemsize().saturating_mul(count));
            open.push_back(dtype);
        }
        if !numpy.fields.is_empty() {
            is_plain &= end == numpy.itemsize;
            let _ = write!(text, "{} bytes; ", numpy.itemsize);
        }
    }
    (!is_plain && !text.is_empty()).then(|| text.trim_end_matches("; ").to_owned())
}
