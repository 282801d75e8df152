//! Checks that the description of a `numpy.dtype` is consistent. NumPy trusts the state that a
//! pickle sets on a dtype (`arraydescr_setstate`): a state which says that bytes are objects, or
//! that a field is outside of its record, makes it follow pointers from the file.

use super::tuple;
use crate::{BuiltObject, Node, NodeId, Pickle};

/// The flags of `object`, `NPY_OBJECT_DTYPE_FLAGS`.
const OBJECT: i64 = 63;
/// The flags of a record with objects: those of `object` that `NPY_FROM_FIELDS` passes on.
const RECORD_OF_OBJECTS: i64 = 27;
/// `NPY_ITEM_REFCOUNT`, `NPY_LIST_PICKLE` and `NPY_ITEM_IS_POINTER`: only dtypes with objects have
/// them.
const HOLDS_OBJECTS: i64 = 0b111;
/// `NPY_ALIGNED_STRUCT`, which any record may have.
const ALIGNED: i64 = 128;

/// Texts that name an element type are shorter than this.
const TEXT: usize = 100;

/// Returns the number of values in the description of a dtype, which is the cost of checking it.
pub(super) fn len(pickle: &Pickle, object: &BuiltObject<'_>) -> u64 {
    let state = object.states.first().and_then(|state| tuple(pickle, *state)).unwrap_or_default();
    let parts = state.iter().map(|part| match pickle.node(*part) {
        Node::Dict(entries) => entries.len() as u64,
        Node::Tuple(items) => {
            let items = pickle.items(*items);
            let inner = items.iter().map(|item| tuple(pickle, *item).map_or(1, <[_]>::len) as u64);
            // The shape of a sub-array is nested.
            if items.len() == 2 { inner.sum() } else { items.len() as u64 }
        }
        _ => 1,
    });
    parts.fold(1, u64::saturating_add)
}

/// Returns whether the call of `numpy.dtype` and the state that is set on its result are as NumPy
/// itself writes them.
pub(super) fn is_sound(pickle: &Pickle, object: &BuiltObject<'_>) -> bool {
    examine(pickle, object).is_some()
}

impl Pickle {
    /// Returns the elements of a `numpy.dtype`. Returns `None` for other values, and for a dtype
    /// whose call or state is not as NumPy writes it.
    pub fn dtype_elements(&self, dtype: NodeId) -> Option<DTypeElements> {
        let object = self.object(dtype)?;
        if !self.global(object.callable)?.is("numpy", "dtype") {
            return None;
        }
        examine(self, &object)
    }
}

/// The elements of a `numpy.dtype`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DTypeElements {
    /// Bytes per element, at least 0; `None` if the pickle does not say.
    pub size: Option<i64>,
    /// Whether elements are or contain references to objects.
    pub objects: bool,
}

/// The element that a text or a class names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Element {
    /// Bytes per element.
    size: Option<i64>,
    kind: ElementKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementKind {
    /// Numbers, bools and dates: their size is not in the state.
    Number,
    /// Classes of ml_dtypes: their size is in the state as well.
    Custom,
    /// Texts, bytes and raw memory: their size is only in the state.
    Flexible,
    Object,
}

/// Returns the elements of a dtype if its description is consistent.
fn examine(pickle: &Pickle, object: &BuiltObject<'_>) -> Option<DTypeElements> {
    let [first, ..] = tuple(pickle, object.args)? else { return None };
    let element = element(pickle, *first)?;
    let objects = element.kind == ElementKind::Object;
    let state = match object.states[..] {
        [] => return Some(DTypeElements { size: element.size, objects }),
        [state] => tuple(pickle, state)?,
        _ => return None,
    };
    let [version, order, subarray, names, fields, size, alignment, flags, ..] = state else {
        return None;
    };
    let [version, size, alignment, flags] =
        [*version, *size, *alignment, *flags].map(|id| pickle.int(id));
    // Before release 2, NumPy writes its flags as a signed byte.
    let (version, size, alignment, flags) = (version?, size?, alignment?, flags? & 0xff);
    let order = matches!(pickle.str(*order)?, "<" | ">" | "|" | "=");
    let aligned = matches!(alignment, -1 | 1 | 2 | 4 | 8 | 16 | 32);
    let metadata = match &state[8..] {
        [] => version == 3,
        [metadata] => version == 4 && is_metadata(pickle, *metadata),
        _ => false,
    };
    if !(order && aligned && metadata) {
        return None;
    }
    let is_none = |id: NodeId| *pickle.node(id) == Node::None;
    match (is_none(*subarray), is_none(*names), is_none(*fields)) {
        (true, true, true) => {
            let sized = match element.kind {
                ElementKind::Number | ElementKind::Object => size == -1,
                ElementKind::Custom => element.size == Some(size),
                ElementKind::Flexible => {
                    size >= 0 && element.size.is_none_or(|stated| stated == size)
                }
            };
            let flagged = if objects { flags == OBJECT } else { flags & HOLDS_OBJECTS == 0 };
            let size = if size < 0 { element.size } else { Some(size) };
            (sized && flagged).then_some(DTypeElements { size, objects })
        }
        (false, true, true) => {
            let [of, shape] = tuple(pickle, *subarray)? else { return None };
            let of = inner(pickle, *of)?;
            let dims = match tuple(pickle, *shape) {
                Some(dims) => {
                    dims.iter().map(|dim| pickle.int(*dim)).collect::<Option<Vec<_>>>()?
                }
                None => vec![pickle.int(*shape)?],
            };
            let length = dims
                .iter()
                .try_fold(of.size?, |size, dim| (*dim >= 0).then(|| size.checked_mul(*dim))?);
            let flagged = match of.objects {
                true => flags == OBJECT || flags & !ALIGNED == RECORD_OF_OBJECTS,
                false => flags & HOLDS_OBJECTS == 0,
            };
            let sound = is_record(element, size) && length == Some(size) && flagged;
            sound.then_some(DTypeElements { size: Some(size), objects: of.objects })
        }
        (true, false, false) => {
            let objects = fields_hold_objects(pickle, *names, *fields, size)?;
            let flagged = match objects {
                true => flags & !ALIGNED == RECORD_OF_OBJECTS,
                false => flags & HOLDS_OBJECTS == 0,
            };
            let sound = is_record(element, size) && flagged;
            sound.then_some(DTypeElements { size: Some(size), objects })
        }
        _ => None,
    }
}

/// Returns whether the element may form a record or a sub-array of `size` bytes.
fn is_record(element: Element, size: i64) -> bool {
    element.kind == ElementKind::Flexible
        && size >= 0
        && element.size.is_none_or(|stated| stated == size)
}

/// Returns whether there are objects among the fields of a record; `None` if the fields are not
/// consistent: each name must have one, each must lie inside, and objects must not share bytes with
/// others.
fn fields_hold_objects(pickle: &Pickle, names: NodeId, fields: NodeId, size: i64) -> Option<bool> {
    let entries = pickle.dict(fields)?;
    let mut found = Vec::with_capacity(entries.len());
    let mut keys = std::collections::HashSet::new();
    for (key, field) in entries {
        let (of, offset) = match tuple(pickle, *field)? {
            [of, offset] | [of, offset, _] => (*of, pickle.int(*offset)?),
            _ => return None,
        };
        let elements = inner(pickle, of)?;
        let end = offset.checked_add(elements.size?)?;
        if offset < 0 || end > size {
            return None;
        }
        keys.insert(pickle.text(*key)?);
        found.push((offset, end, elements.objects, of));
    }
    let named = tuple(pickle, names)?
        .iter()
        .all(|name| pickle.text(*name).is_some_and(|name| keys.contains(&name)));
    // A field with a title is listed twice.
    found.sort_unstable_by_key(|(offset, end, _, of)| (*offset, *end, *of));
    found.dedup();
    let mut reached = (0, false);
    for (offset, end, objects, _) in &found {
        if *offset < reached.0 && (*objects || reached.1) {
            return None;
        }
        if *end > reached.0 {
            reached = (*end, *objects);
        } else {
            reached.1 |= *objects;
        }
    }
    named.then_some(found.iter().any(|(_, _, objects, _)| *objects))
}

/// Returns the elements of a dtype inside another, as its state describes them. The consistency of
/// that state is checked where the inner dtype is called.
fn inner(pickle: &Pickle, id: NodeId) -> Option<DTypeElements> {
    let object = pickle.object(id)?;
    if !pickle.global(object.callable)?.is("numpy", "dtype") {
        return None;
    }
    let [first, ..] = tuple(pickle, object.args)? else { return None };
    let element = element(pickle, *first)?;
    let field = |index: usize| {
        let state = tuple(pickle, *object.states.first()?)?;
        pickle.int(*state.get(index)?)
    };
    let size = field(5).filter(|size| *size >= 0).or(element.size);
    let objects =
        element.kind == ElementKind::Object || field(7).is_some_and(|flags| flags & 1 == 1);
    Some(DTypeElements { size, objects })
}

/// Returns whether it is the metadata of a dtype: a dict, and for dates `(dict, (unit, count, count,
/// count))`.
fn is_metadata(pickle: &Pickle, id: NodeId) -> bool {
    if matches!(pickle.node(id), Node::Dict(_)) {
        return true;
    }
    let Some([dict, unit]) = tuple(pickle, id) else { return false };
    let dict = matches!(pickle.node(*dict), Node::None | Node::Dict(_));
    let unit = match tuple(pickle, *unit) {
        Some([unit, counts @ ..]) => {
            pickle.spelled(*unit).is_some()
                && counts.len() == 3
                && counts.iter().all(|count| pickle.int(*count).is_some())
        }
        _ => false,
    };
    dict && unit
}

fn element(pickle: &Pickle, id: NodeId) -> Option<Element> {
    match pickle.node(id) {
        Node::Global(global) if global.is("numpy", "record") => {
            Some(Element { size: None, kind: ElementKind::Flexible })
        }
        Node::Global(global) if &*global.module == "ml_dtypes" => {
            let size = match &*global.name {
                "bcomplex32" | "complex32" => 4,
                "bfloat16" => 2,
                _ => 1,
            };
            Some(Element { size: Some(size), kind: ElementKind::Custom })
        }
        Node::Str(text) => of_text(text.as_str()?),
        Node::Bytes(bytes) => {
            of_text(std::str::from_utf8(bytes.get(..TEXT).unwrap_or(bytes)).ok()?)
        }
        _ => None,
    }
}

/// Parses a letter and a length, as NumPy writes them: `f4`, `<U12`, `O8`, `M8[ns]`; or a name.
fn of_text(text: &str) -> Option<Element> {
    if text.len() >= TEXT {
        return None;
    }
    let number = |size| Some(Element { size, kind: ElementKind::Number });
    match text {
        "bool" => return number(Some(1)),
        "object" => return Some(Element { size: None, kind: ElementKind::Object }),
        "str" | "bytes" => return Some(Element { size: Some(0), kind: ElementKind::Flexible }),
        "int" | "float" => return number(Some(8)),
        "complex" => return number(Some(16)),
        _ => {}
    }
    for name in ["float", "int", "uint", "complex"] {
        if let Some(bits @ ("8" | "16" | "32" | "64" | "128" | "256")) = text.strip_prefix(name) {
            return number(bits.parse::<i64>().ok().map(|bits| bits / 8));
        }
    }
    let text = text.strip_prefix(['<', '>', '=', '|']).unwrap_or(text);
    let mut chars = text.chars();
    let kind = chars.next()?;
    let rest = chars.as_str();
    let (digits, unit) = match rest.split_once('[') {
        Some((digits, unit)) => (digits, Some(unit.strip_suffix(']')?)),
        None => (rest, None),
    };
    let is_date = matches!(kind, 'M' | 'm');
    let is_unit = |unit: &str| unit.chars().all(|c| c.is_ascii_alphanumeric());
    if unit.is_some_and(|unit| !is_date || !is_unit(unit)) {
        return None;
    }
    let count: Option<i64> = match digits {
        "" => None,
        digits if digits.len() < 16 && digits.chars().all(|c| c.is_ascii_digit()) => {
            Some(digits.parse().ok()?)
        }
        _ => return None,
    };
    match kind {
        'O' => Some(Element { size: count.or(Some(8)), kind: ElementKind::Object }),
        'S' | 'a' | 'V' => Some(Element { size: count, kind: ElementKind::Flexible }),
        'U' => {
            let size = count.map(|count| count.checked_mul(4));
            Some(Element {
                size: size.map_or(Some(None), |size| size.map(Some))?,
                kind: ElementKind::Flexible,
            })
        }
        // Without a size, NumPy has other types under some of these letters.
        'b' | 'i' | 'u' | 'f' | 'c' => number(Some(count?)),
        'M' | 'm' => number(Some(count.unwrap_or(8))),
        '?' | 'B' => number(Some(1)),
        'h' | 'H' | 'e' => number(Some(2)),
        'I' => number(Some(4)),
        'l' | 'L' | 'q' | 'Q' | 'd' | 'F' => number(Some(8)),
        'g' | 'D' => number(Some(16)),
        'G' => number(Some(32)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_dtype_strings() {
        use ElementKind::{Flexible, Number, Object};
        for (text, size, kind) in [
            ("f4", Some(4), Number),
            ("<U12", Some(48), Flexible),
            ("|O8", Some(8), Object),
            ("O", Some(8), Object),
            ("M8[ns]", Some(8), Number),
            ("m8[25s]", Some(8), Number),
            ("bool", Some(1), Number),
            ("float32", Some(4), Number),
            ("V", None, Flexible),
        ] {
            assert_eq!(of_text(text), Some(Element { size, kind }), "{text}");
        }
        for text in [
            "",
            "O,i4",
            "(2,)O",
            "f4,O",
            "M8[n,s]",
            "f8[ns]",
            "V8 ",
            "<",
            "f99999999999999999999",
            "bfloat16",
            "f",
            "c",
            "T",
            "records",
        ] {
            assert!(of_text(text).is_none(), "{text}");
        }
    }
}
