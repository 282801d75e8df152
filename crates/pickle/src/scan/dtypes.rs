//! Whether the description of a dtype holds together. numpy believes what a pickle sets on a dtype:
//! one that says that bytes are objects, or that a field lies outside of its record, makes it follow
//! pointers that the file chose.

use statelens_checkpoint::Global;

use super::{is_harmless, tuple};
use crate::{BuiltObject, Node, NodeId, Pickle};

/// Elements that numpy counts references of, must be given as a list, or are pointers.
const HOLDS_OBJECTS: i64 = 0b111;
/// What numpy says of `object`.
const OBJECT: i64 = 63;

/// Whether the call of `numpy.dtype` and the state that is set on what it makes are such as numpy
/// itself writes.
pub(super) fn is_sound(pickle: &Pickle, object: &BuiltObject<'_>) -> bool {
    examine(pickle, object).is_some()
}

/// What is to know of an element.
struct ElementSize {
    size: i64,
    objects: bool,
}

fn examine(pickle: &Pickle, object: &BuiltObject<'_>) -> Option<()> {
    let plain = object.kwargs.is_none() && object.items.is_empty() && object.entries.is_empty();
    if !plain || object.states.len() > 1 {
        return None;
    }
    let base = element(pickle, object)?;
    let Some(state) = object.states.first() else { return Some(()) };
    let state = tuple(pickle, *state)?;
    let [version, _order, subarray, names, fields, size, _alignment, flags, ..] = state else {
        return None;
    };
    let flags = pickle.int(*flags)?;
    pickle.int(*version)?;
    if *pickle.node(*subarray) == Node::None && *pickle.node(*fields) == Node::None {
        let sound = match base.objects {
            true => flags == OBJECT,
            false => flags & HOLDS_OBJECTS == 0,
        };
        return (sound && *pickle.node(*names) == Node::None).then_some(());
    }
    // Records of objects are left alone: which of them are objects when can't be told from here.
    let size = pickle.int(*size)?;
    if flags & HOLDS_OBJECTS != 0 || base.objects || size < 0 {
        return None;
    }
    if let Node::Tuple(parts) = pickle.node(*subarray) {
        let [of, shape] = *pickle.items(*parts) else { return None };
        let dims = match tuple(pickle, shape) {
            Some(dims) => dims.iter().map(|dim| pickle.int(*dim)).collect::<Option<Vec<_>>>()?,
            None => vec![pickle.int(shape)?],
        };
        let of = inner(pickle, of)?;
        let sound = dims.iter().all(|dim| *dim >= 0)
            && dims.iter().try_fold(of.size, |size, dim| size.checked_mul(*dim)) == Some(size);
        if of.objects || !sound {
            return None;
        }
    } else if *pickle.node(*subarray) != Node::None {
        return None;
    }
    match pickle.node(*fields) {
        Node::None => Some(()),
        Node::Dict(entries) => entries.iter().try_for_each(|(_, field)| {
            let [of, offset, ..] = tuple(pickle, *field)? else { return None };
            let (of, offset) = (inner(pickle, *of)?, pickle.int(*offset)?);
            let end = offset.checked_add(of.size)?;
            (!of.objects && offset >= 0 && end <= size).then_some(())
        }),
        _ => None,
    }
}

/// What a dtype inside another says of itself; it is examined by itself, too.
fn inner(pickle: &Pickle, id: NodeId) -> Option<ElementSize> {
    let object = pickle.object(id)?;
    let global = pickle.global(object.callable)?;
    if !global.is("numpy", "dtype") {
        return None;
    }
    let base = element(pickle, &object)?;
    // What is as long as its state says: text, bytes, records.
    let told = object.states.first().and_then(|state| tuple(pickle, *state)?.get(5).copied());
    let told = told.and_then(|size| pickle.int(size)).filter(|size| *size >= 0);
    // The larger, whichever counts when it is used.
    Some(ElementSize { size: told.unwrap_or(0).max(base.size), ..base })
}

/// The element that `numpy.dtype(…)` is asked for, before its state is set.
fn element(pickle: &Pickle, object: &BuiltObject<'_>) -> Option<ElementSize> {
    let [first, rest @ ..] = tuple(pickle, object.args)? else { return None };
    let flag = |id: &NodeId| matches!(pickle.node(*id), Node::Bool(_) | Node::Int(_));
    if rest.len() > 2 || !rest.iter().all(flag) {
        return None;
    }
    match pickle.node(*first) {
        Node::Global(global) => of_class(global),
        Node::Str(text) => of_text(text.as_str()?),
        Node::Bytes(bytes) => of_text(std::str::from_utf8(bytes).ok()?),
        _ => None,
    }
}

/// A class of elements: numpy's and ml_dtypes' own are at most 32 bytes long.
fn of_class(global: &Global) -> Option<ElementSize> {
    let known = is_harmless(global) && matches!(&*global.module, "numpy" | "ml_dtypes");
    known.then_some(ElementSize { size: 32, objects: false })
}

/// One letter and a length, as numpy writes it: `f4`, `<U12`, `O8`, `M8[ns]`.
fn of_text(text: &str) -> Option<ElementSize> {
    let text = text.strip_prefix(['<', '>', '=', '|']).unwrap_or(text);
    let mut chars = text.chars();
    let kind = chars.next().filter(char::is_ascii_alphabetic)?;
    let rest = chars.as_str();
    let (digits, unit) = match rest.split_once('[') {
        Some((digits, unit)) => (digits, Some(unit.strip_suffix(']')?)),
        None => (rest, None),
    };
    let named = matches!(text, "bool" | "str" | "bytes" | "object" | "int" | "float" | "complex")
        || text.trim_end_matches(|c: char| c.is_ascii_digit()).len() > 1
            && text.chars().all(|c| c.is_ascii_alphanumeric());
    if named {
        // `float32`, `bfloat16`: in bits, at most 32 bytes.
        return Some(ElementSize { size: 32, objects: text.starts_with("object") });
    }
    if unit.is_some_and(|unit| !unit.chars().all(|c| c.is_ascii_alphanumeric())) {
        return None;
    }
    let count: i64 = match digits {
        "" => 32,
        digits if digits.len() < 16 && digits.chars().all(|c| c.is_ascii_digit()) => {
            digits.parse().ok()?
        }
        _ => return None,
    };
    let size = if kind == 'U' { count.checked_mul(4)? } else { count };
    Some(ElementSize { size, objects: kind == 'O' })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_dtypes_are_read() {
        for (text, size, objects) in [
            ("f4", 4, false),
            ("<U12", 48, false),
            ("|O8", 8, true),
            ("O", 32, true),
            ("M8[ns]", 8, false),
            ("bool", 32, false),
            ("bfloat16", 32, false),
        ] {
            let element = of_text(text).unwrap();
            assert_eq!((element.size, element.objects), (size, objects), "{text}");
        }
        for text in ["", "O,i4", "(2,)O", "f4,O", "M8[n,s]", "V8 ", "<", "f99999999999999999999"] {
            assert!(of_text(text).is_none(), "{text}");
        }
    }
}
