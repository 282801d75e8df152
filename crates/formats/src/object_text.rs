//! Objects as text, for formats that hold no objects.

use statelens_checkpoint::{Checkpoint, Form, Opaque, Text, Value, ValueId, float_repr, numel};
use statelens_pickle::{bytes_repr, complex_repr, path_text, text_repr};

/// What happens to objects.
pub(crate) const BECOMES_TEXT: &str =
    "objects become the text that Python prints for them, or the name of their class";

/// Returns the text that Python prints for an object as far as it is known, else its class.
pub(crate) fn object_text(source: &Checkpoint, opaque: &Opaque) -> Text {
    match &opaque.repr {
        Some(repr) => repr.clone(),
        None => array_text(source, opaque)
            .map_or_else(|| opaque.global.to_string().into(), |text| text.as_str().into()),
    }
}

/// Returns the text of a `pathlib` object, which is not its `repr`.
pub(crate) fn pathlib_text(source: &Checkpoint, opaque: &Opaque) -> Option<Text> {
    let global = &opaque.global;
    if !global.module.starts_with("pathlib") || !global.name.ends_with("Path") {
        return None;
    }
    let part = |id: &ValueId| match source.value(source.resolve(*id)) {
        Value::Str(text) => text.as_str(),
        _ => None,
    };
    let parts: Vec<&str> = opaque.args.iter().map(part).collect::<Option<_>>()?;
    Some(path_text(global.name.contains("Windows"), &parts).into())
}

/// Returns the shape of a NumPy array of plain objects; `None` for any other object.
pub(crate) fn array_shape(source: &Checkpoint, opaque: &Opaque) -> Option<Vec<u64>> {
    if !opaque.global.is("numpy", "ndarray") || opaque.form != Form::Call {
        return None;
    }
    let Value::Tuple(shape) = source.value(source.resolve(*opaque.args.first()?)) else {
        return None;
    };
    let dim = |id: &ValueId| match source.value(source.resolve(*id)) {
        Value::Int(dim) => dim.to_u64(),
        _ => None,
    };
    let shape: Vec<u64> = shape.items.iter().map(dim).collect::<Option<_>>()?;
    (numel(&shape) == Some(opaque.items.len() as u64)).then_some(shape)
}

/// Returns the text of an array of plain objects, with all of its elements.
fn array_text(source: &Checkpoint, opaque: &Opaque) -> Option<String> {
    let shape = array_shape(source, opaque)?;
    let dtype = if opaque.args.len() > 1 { "StringDType()" } else { "object" };
    if opaque.items.is_empty() && shape.len() > 1 {
        let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
        return Some(format!("array([], shape=({}), dtype={dtype})", dims.join(", ")));
    }
    let mut text = String::from("array(");
    // The numbers of elements after which the innermost brackets, those around them, … end.
    let mut rows = Vec::with_capacity(shape.len());
    let mut row = 1u64;
    for dim in shape.iter().rev() {
        row = row.saturating_mul(*dim);
        rows.push(row);
    }
    text.push_str(&"[".repeat(shape.len()));
    for (index, item) in (0u64..).zip(&opaque.items) {
        let ended = rows.iter().filter(|row| index > 0 && index.is_multiple_of(**row)).count();
        if index > 0 {
            text.push_str(&"]".repeat(ended));
            match ended {
                0 => text.push_str(", "),
                _ => {
                    text.push(',');
                    text.push_str(&"\n".repeat(ended));
                    text.push_str(&" ".repeat("array(".len() + shape.len() - ended));
                    text.push_str(&"[".repeat(ended));
                }
            }
        }
        put(source.value(source.resolve(*item)), &mut text);
    }
    text.push_str(&"]".repeat(shape.len()));
    text.push_str(&format!(", dtype={dtype})"));
    Some(text)
}

/// Appends the `repr` of an element.
fn put(value: &Value, text: &mut String) {
    match value {
        Value::Str(value) => text_repr(value, text),
        Value::Bytes { data, .. } => bytes_repr(data, text),
        Value::Int(value) => text.push_str(&value.to_string()),
        Value::Float(value) => text.push_str(&float_repr(*value)),
        Value::Complex(re, im) => text.push_str(&complex_repr(*re, *im)),
        Value::Bool(true) => text.push_str("True"),
        Value::Bool(false) => text.push_str("False"),
        Value::None => text.push_str("None"),
        other => text.push_str(other.kind()),
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{Builder, FileSet, FormatInfo, Global, Limits, Tuple};

    use super::*;

    fn text(shape: &[u64], items: Vec<Value>) -> String {
        let mut builder = Builder::new(&Limits::default());
        let dims = shape.iter().map(|dim| builder.push(Value::Int((*dim).into())).unwrap());
        let items_of_shape: Vec<ValueId> = dims.collect();
        let shape = Value::Tuple(Tuple { items: items_of_shape, ..Tuple::default() });
        let shape = builder.push(shape).unwrap();
        let items = items.into_iter().map(|item| builder.push(item).unwrap()).collect();
        let mut array = Opaque::reference(Global::new("numpy", "ndarray"), None);
        (array.form, array.args, array.items) = (Form::Call, vec![shape], items);
        let root = builder.push(Value::Opaque(Box::new(array.clone()))).unwrap();
        let made =
            builder.finish(root, FormatInfo::default(), FileSet::default(), Vec::new()).unwrap();
        object_text(&made, &array).to_string()
    }

    /// Expected values by `repr` of NumPy 2.4.
    #[test]
    fn prints_arrays_of_objects_as_numpy_does() {
        let str = |text: &str| Value::Str(text.into());
        let bytes = |bytes: &[u8]| Value::Bytes { data: bytes.into(), mutable: false };
        assert_eq!(
            text(&[2], vec![str("a"), str("it's")]),
            r#"array(['a', "it's"], dtype=object)"#
        );
        let mixed = vec![Value::Int(1i64.into()), Value::None, Value::Float(2.5), bytes(b"\xff")];
        assert_eq!(text(&[4], mixed), r"array([1, None, 2.5, b'\xff'], dtype=object)");
        assert_eq!(text(&[], vec![Value::None]), "array(None, dtype=object)");
        assert_eq!(text(&[0], vec![]), "array([], dtype=object)");
        assert_eq!(text(&[0, 3], vec![]), "array([], shape=(0, 3), dtype=object)");
        let letters = || "abcdefgh".chars().map(|c| str(&c.to_string()));
        let two = text(&[2, 2], letters().take(4).collect());
        assert_eq!(two, "array([['a', 'b'],\n       ['c', 'd']], dtype=object)");
        let three = "array([[['a', 'b'],\n        ['c', 'd']],\n\n       [['e', 'f'],\n        \
                     ['g', 'h']]], dtype=object)";
        assert_eq!(text(&[2, 2, 2], letters().collect()), three);
    }
}
