//! Leaves, values and elements as typed JSON, as in the `--json` of every command.

use statelens_checkpoint::{Checkpoint, DType, Layout, Leaf, Tensor, Text, Value, ValueId};
use statelens_values::{Json, element_text};

use crate::{dtype_of, kind_of, shape_of, text_of, type_name};

/// Strings longer than this are not repeated by links.
const REPEATED: usize = 4 << 10;
/// Maximum number of bytes of a byte string that are written.
const MAX_BYTES: usize = 1 << 10;

/// Writes the fields of a leaf: `key`, `kind`, `dtype`, `shape`, `elements`, `bytes`, `type`,
/// `value`, `alias_of`, and `pieces` of a tensor that is stored in several; leaves out those that do not apply.
pub fn leaf_json(json: &mut Json, checkpoint: &Checkpoint, leaf: &Leaf) {
    json.name("key").text(&leaf.flat);
    json.name("kind").str(kind_of(checkpoint, leaf));
    if let Some(dtype) = dtype_of(checkpoint, leaf.target) {
        json.name("dtype").str(dtype.name());
        fields_json(json, dtype);
    }
    if let Some(shape) = shape_of(checkpoint, leaf.target) {
        json.name("shape").numbers(shape);
    }
    if let Some((_, tensor)) = checkpoint.tensor_of(leaf.target) {
        json.name("elements").number(tensor.numel().unwrap_or(0));
        json.name("bytes").number(tensor.nbytes().unwrap_or(0));
        layout_json(json, tensor);
        let pieces = crate::pieces(checkpoint, &crate::in_pieces(checkpoint, &leaf.flat, tensor));
        if pieces.len() > 1 {
            json.name("pieces").objects(&pieces, |json, piece| json.fields(piece));
        }
    } else if let Value::Bytes { data, .. } = checkpoint.value(leaf.target) {
        json.name("bytes").number(data.len() as u64);
    }
    if let Some(name) = type_name(checkpoint, leaf.target) {
        json.name("type").str(&name);
    }
    value_json(json, checkpoint, leaf);
    if let Some(target) = &leaf.alias_of {
        json.name("alias_of").text(target);
    }
}

/// Writes the field `fields` of a record: name, dtype, offset and shape of each.
fn fields_json(json: &mut Json, dtype: &DType) {
    let DType::Numpy(numpy) = dtype else { return };
    if numpy.fields.is_empty() {
        return;
    }
    json.name("fields").objects(&numpy.fields, |json, field| {
        json.name("name").str(&field.name);
        json.name("dtype").str(field.dtype.name());
        json.name("offset").number(field.offset);
        if !field.shape.is_empty() {
            json.name("shape").numbers(&field.shape);
        }
    });
}

/// Writes a tensor's values as far as known without reading them: `fill`, the value of all
/// elements, or `missing`, why there are no bytes.
fn layout_json(json: &mut Json, tensor: &Tensor) {
    match &tensor.layout {
        Layout::Fill(element) => element_json(json.name("fill"), &tensor.stored, element),
        Layout::Missing(why) => json.name("missing").text(why),
        _ => {}
    }
}

/// Writes the field `value` of a leaf that is not a tensor. Links do not repeat a long string.
fn value_json(json: &mut Json, checkpoint: &Checkpoint, leaf: &Leaf) {
    if leaf.alias_of.is_some()
        && let Value::Str(text) = checkpoint.value(leaf.target)
        && text.as_bytes().len() > REPEATED
    {
        return;
    }
    plain_json(json, checkpoint, leaf.target);
}

fn plain_json(json: &mut Json, checkpoint: &Checkpoint, id: ValueId) {
    match checkpoint.value(id) {
        Value::Tensor(_) | Value::Array(_) | Value::Sparse(_) | Value::Link(_) => {}
        Value::None => json.name("value").null(),
        Value::Bool(value) => json.name("value").bool(*value),
        Value::Int(value) => match (value.to_i64(), value.to_u64()) {
            (Some(value), _) => json.name("value").literal(&value.to_string()),
            (_, Some(value)) => json.name("value").number(value),
            // Larger than the numbers that JSON parsers can hold.
            _ => json.name("value").str(&text_of(checkpoint, id)),
        },
        Value::Float(value) => json.name("value").float(*value),
        Value::Complex(re, im) => json.name("value").array(|json| {
            json.float(*re);
            json.float(*im);
        }),
        Value::Str(text) => json.name("value").text(text),
        Value::Bytes { data, .. } => {
            let shown = &data[..data.len().min(MAX_BYTES)];
            json.name("value").str(&statelens_checkpoint::hex(shown));
        }
        Value::List(_) | Value::Tuple(_) => json.name("value").array(|_| {}),
        Value::Set(set) if set.items.is_empty() => json.name("value").array(|_| {}),
        Value::Dict(_) => json.name("value").object(|_| {}),
        Value::DType { dtype, .. } => json.name("value").str(dtype.name()),
        Value::Device(name) => json.name("value").text(name),
        // As Python would print it, because JSON can't represent these values.
        Value::Set(_) | Value::Opaque(_) => json.name("text").str(&text_of(checkpoint, id)),
    }
}

/// Writes one element, given as logical bytes: a number, `true` or `false`, or both parts of a
/// complex number. Values that JSON numbers can't represent (`nan`, `inf`, bits, NumPy's strings
/// and records) are strings.
pub fn element_json(json: &mut Json, dtype: &DType, bytes: &[u8]) {
    let part = match dtype {
        DType::Bool => return json.bool(bytes.first().is_some_and(|byte| *byte != 0)),
        DType::C32 => DType::F16,
        DType::BC32 => DType::BF16,
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        dtype => return plain_element(json, dtype, bytes),
    };
    let (re, im) = bytes.split_at(bytes.len() / 2);
    json.array(|json| {
        plain_element(json, &part, re);
        plain_element(json, &part, im);
    });
}

fn plain_element(json: &mut Json, dtype: &DType, bytes: &[u8]) {
    let text = element_text(dtype, bytes);
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e'))
        && text.parse::<f64>().is_ok_and(f64::is_finite);
    if is_number {
        return json.literal(&text);
    }
    // Removes the quotes that Python would print.
    let bare = text.strip_prefix('b').unwrap_or(&text);
    match bare.strip_prefix('\'').and_then(|bare| bare.strip_suffix('\'')) {
        Some(inner) => json.text(&Text::from(inner)),
        None => json.str(&text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_elements_have_native_types() {
        let text = |dtype: DType, bytes: &[u8]| {
            let mut json = Json::new();
            element_json(&mut json, &dtype, bytes);
            json.take()
        };
        assert_eq!(text(DType::Bool, &[1]), "true");
        assert_eq!(text(DType::I8, &[0xfe]), "-2");
        assert_eq!(text(DType::U64, &[255; 8]), u64::MAX.to_string());
        assert_eq!(text(DType::F32, &0.1f32.to_le_bytes()), "0.1");
        assert_eq!(text(DType::F32, &1e-30f32.to_le_bytes()), "1e-30");
        assert_eq!(text(DType::F32, &f32::NAN.to_le_bytes()), "\"nan\"");
        assert_eq!(text(DType::F64, &f64::NEG_INFINITY.to_le_bytes()), "\"-inf\"");
        let complex = [1f32.to_le_bytes(), (-2f32).to_le_bytes()].concat();
        assert_eq!(text(DType::C64, &complex), "[1.0,-2.0]");
        assert_eq!(text(DType::Bits8, &[255]), "\"0xff\"");
    }
}
