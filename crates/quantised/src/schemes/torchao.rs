//! Tensors of torchao 0.18. In pickles they are an object with `qdata`, `scale` and `zero_point`; in
//! safetensors `X.weight` is `X._weight_qdata`, `X._weight_scale` and `X._weight_zero_point`, with the
//! class in the metadata of the file (`torchao/prototype/safetensors/safetensors_support.py`).
//!
//! The values are `(code - zero point) * scale` (`dequantize_affine` and `_dequantize_affine_float8`
//! in `torchao/quantization/quant_primitives.py`), or the FP4 or FP8 number times the scale of its
//! block (`to_dtype` in `torchao/prototype/mx_formats/mx_tensor.py`, `dequantize` in
//! `nvfp4_tensor.py`). The dtype to which torchao rounds them is not always among the attributes, so
//! they are not rounded.

use std::collections::HashMap;
use std::sync::Arc;

use statelens_checkpoint::json::{Document, JsonNode};
use statelens_checkpoint::{
    Arithmetic, Checkpoint, CodePacking, CodeValues, Codes, Computed, DType, Dict, DictClass,
    DictKey, Error, Layout, Offset, Result, Strided, Tensor, Value, contiguous_strides,
};

use super::{fp4, group_size, scaled, scaled_codes, three};
use crate::set::{Found, Made, Set, SetPart, contradicts};
use crate::settings::Settings;

/// The classes whose codes are bytes: integers, or floats.
const INTEGERS: [&str; 2] = ["Int8Tensor", "IntxUnpackedToInt8Tensor"];
const FLOATS: [&str; 2] = ["Float8Tensor", "MXTensor"];

/// The classes with FP4 codes, two in a byte (if the codes of an `MXTensor` are bytes).
const FOUR_BITS: [&str; 2] = ["MXTensor", "NVFP4Tensor"];

/// Integers of four bits in the order of the weight.
const INT4: &str = "Int4Tensor";

/// The classes whose codes are in the order in which a kernel reads them.
const OF_KERNELS: [&str; 5] = [
    "Int4TilePackedTo4dTensor",
    "Int4PreshuffledTensor",
    "Int4PlainInt32Tensor",
    "Int4OpaqueTensor",
    "IntxOpaqueTensor",
];

/// The fields that hold codes, the first one of newer versions.
const CODES: [&str; 5] = ["qdata", "int_data", "packed_weight", "packed_weights", "quantized_data"];

/// An object of torchao.
struct Object<'a> {
    class: &'a str,
    codes: &'a Tensor,
    scales: Option<&'a Tensor>,
    zeros: Option<&'a Tensor>,
    /// The factor of all scales of an `NVFP4Tensor`.
    factor: Option<&'a Tensor>,
    /// Whether the inputs of the layer are multiplied by a tensor.
    scaled_inputs: bool,
    /// Whether the scales are in the order of GPU tiles.
    swizzled: bool,
}

/// Returns the weight that a dict with these tensors is; `None` if it is not an object of torchao.
pub(crate) fn find<'a>(
    source: &'a Checkpoint,
    dict: &Dict,
    names: &[SetPart<'a>],
    settings: &'a Settings,
) -> Option<Found<'a>> {
    let DictClass::Object(class) = &dict.class else { return None };
    if !class.module.starts_with("torchao.") {
        return None;
    }
    let part = |name: &str| names.iter().find(|part| part.name == name).copied();
    let codes = CODES.iter().find_map(|name| part(name))?;
    let files = &source.files;
    let set = Set { files, settings, attributes: &[], module: "", parts: HashMap::new() };
    let swizzled = dict.entries.iter().any(|(key, id)| {
        matches!(key, DictKey::Str(name) if *name == *"is_swizzled_scales")
            && matches!(source.value(*id), Value::Bool(true))
    });
    let tensor = |name: &str| part(name).map(|part| part.tensor);
    let made = made(
        &set,
        &Object {
            class: &class.name,
            codes: codes.tensor,
            scales: tensor("scale"),
            zeros: tensor("zero_point"),
            factor: tensor("per_tensor_scale"),
            scaled_inputs: tensor("act_pre_scale").is_some(),
            swizzled,
        },
    );
    Some(Found {
        name: codes.name.to_owned(),
        scheme: format!("torchao {}", class.name),
        codes,
        helpers: names.iter().filter(|part| part.id != codes.id).copied().collect(),
        made,
    })
}

/// Finds a tensor in safetensors.
pub(super) fn flat<'a>(set: &Set<'a>) -> Option<Found<'a>> {
    let codes = set.get("_weight_qdata")?;
    let name = set.key("weight");
    let about = set.attributes.iter().find(|(key, _)| *key == *name);
    let stated = about.and_then(|(_, text)| described(&text.to_lossy()));
    let likely = match codes.tensor.dtype {
        DType::I8 => INTEGERS[0],
        _ => FLOATS[0],
    };
    let (class, swizzled) = stated.clone().unwrap_or_else(|| (likely.to_owned(), false));
    let part = |name: &str| set.get(name).map(|part| part.tensor);
    let mut made = made(
        set,
        &Object {
            class: &class,
            codes: codes.tensor,
            scales: part("_weight_scale"),
            zeros: part("_weight_zero_point"),
            factor: part("_weight_per_tensor_scale"),
            scaled_inputs: part("_weight_act_pre_scale").is_some(),
            swizzled,
        },
    );
    if let (Ok(made), None) = (&mut made, stated) {
        made.inferred.push(class.clone());
    }
    let helpers = set.parts.iter().filter(|(name, _)| name.starts_with("_weight_"));
    let mut helpers: Vec<SetPart<'a>> = helpers.map(|(_, part)| *part).collect();
    helpers.retain(|part| part.id != codes.id);
    helpers.sort_by_key(|part| part.id);
    Some(Found { name, scheme: format!("torchao {class}"), codes, helpers, made })
}

/// Returns the class in the JSON about a tensor, and whether its scales are in the order of GPU tiles.
fn described(text: &str) -> Option<(String, bool)> {
    let document = Document::parse(text.as_bytes()).ok()?;
    let JsonNode::Str(class) = document.field(document.root(), "_type")? else { return None };
    let data = document.get(document.root(), "_data");
    let swizzled = data.and_then(|data| document.field(data, "is_swizzled_scales"));
    Some((class.to_lossy().into_owned(), matches!(swizzled, Some(JsonNode::Bool(true)))))
}

fn made(set: &Set<'_>, object: &Object<'_>) -> Result<Made> {
    let Object { class, codes, .. } = *object;
    let bytes = if codes.dtype == DType::I8 { &INTEGERS } else { &FLOATS };
    let is_fp4 = codes.dtype == DType::U8 && FOUR_BITS.contains(&class);
    let advice = "Load it with the library that wrote it, or use the model that was quantised.";
    if OF_KERNELS.contains(&class) {
        let why =
            format!("{class} has its codes in the order of a kernel, which is not documented");
        return Err(Error::unsupported(why).advice(advice));
    }
    if !is_fp4 && class != INT4 && !bytes.contains(&class) {
        let why = format!("how {class} places its codes is not known");
        return Err(Error::unsupported(why).advice(advice));
    }
    if object.scaled_inputs {
        return Err(Error::unsupported("the layer multiplies its inputs by `act_pre_scale`")
            .advice("A weight alone does not give the same results."));
    }
    if object.swizzled {
        return Err(Error::unsupported("the scales are in the order of GPU tiles")
            .advice("Save it with `is_swizzled_scales=False`."));
    }
    let scales = object.scales.ok_or_else(|| {
        Error::damaged("its scale is missing")
            .advice("Without it, the values of the codes are not known.")
    })?;
    let mut made = match (is_fp4, class) {
        (true, _) => fp4_made(set, object, scales)?,
        (false, INT4) => return int4_made(object, scales),
        (false, _) => scaled::made(set, codes, scales, true)?,
    };
    if let Some(zeros) = object.zeros.filter(|zeros| zeros.stored == DType::I8) {
        let zeros = Codes { tensor: zeros.clone(), packing: CodePacking::Bytes };
        made.of.offset = Offset::Zeros(zeros, CodeValues::As(DType::I8));
    }
    // The shapes of its scales are those of its blocks.
    made.inferred.clear();
    Ok(made)
}

/// Signed integers, the first code in the low half of a byte. The scales and zero points have the
/// groups before the rows: `code * scale + zero point` (`int4_tensor.py`; `_int4_row_dequantize_zp`
/// in `torchao/prototype/gptq/api.py` moves both by 8).
fn int4_made(object: &Object<'_>, scales: &Tensor) -> Result<Made> {
    let codes = object.codes;
    let zeros = object.zeros.ok_or_else(|| {
        Error::damaged("its zero_point is missing")
            .advice("Without it, the values of the codes are not known.")
    })?;
    let packed = three(&codes.shape).zip(three(&scales.shape));
    let packed = packed.and_then(|([matrices, rows, bytes], of_scales)| {
        Some(([matrices, rows, bytes.checked_mul(2)?], of_scales))
    });
    let Some((shape, [matrices, groups, rows])) = packed else {
        return Err(contradicts("the codes are", &codes.shape, "at least two dimensions"));
    };
    if [matrices, rows] != shape[..2] || zeros.shape != scales.shape {
        let expected = format!("scales and zero points of {} columns", shape[1]);
        return Err(contradicts("the scales are", &scales.shape, expected));
    }
    let each = group_size(shape[2], groups, scales, None)?;
    let signed: Vec<f32> = (0..16i8).map(|code| f32::from(code - (code & 8) * 2)).collect();
    let values = CodeValues::Table(signed.into());
    let scales = transposed(scales)?;
    let mut of = scaled_codes(codes, CodePacking::AlongRow(4), values, shape, &scales, each);
    of.offset = Offset::Biases(transposed(zeros)?);
    let mut dense = codes.shape.clone();
    if let Some(last) = dense.last_mut() {
        *last = shape[2];
    }
    Ok(Made { of, shape: dense, inferred: Vec::new() })
}

/// Returns the tensor with its last two dimensions swapped.
fn transposed(tensor: &Tensor) -> Result<Tensor> {
    let bad = || contradicts("a part is", &tensor.shape, "at least two dimensions");
    let view = match &tensor.layout {
        Layout::Strided(view) => Some(view.clone()),
        layout => {
            let storage_len = tensor.numel().and_then(|numel| tensor.stored.bytes_of(numel));
            storage_len.zip(contiguous_strides(&tensor.shape)).map(|(storage_len, strides)| {
                Strided { storage: Arc::new(layout.clone()), storage_len, offset: 0, strides }
            })
        }
    };
    let (mut view, mut shape) = (view.ok_or_else(bad)?, tensor.shape.clone());
    let last = shape.len().checked_sub(1).filter(|last| *last > 0).ok_or_else(bad)?;
    if view.strides.len() != shape.len() {
        return Err(bad());
    }
    shape.swap(last - 1, last);
    view.strides.swap(last - 1, last);
    Ok(Tensor { shape, layout: Layout::Strided(view), ..tensor.clone() })
}

/// FP4, the first code in the low half of a byte.
fn fp4_made(set: &Set<'_>, object: &Object<'_>, scales: &Tensor) -> Result<Made> {
    let codes = object.codes;
    let packed = three(&codes.shape).and_then(|[matrices, rows, bytes]| {
        Some(([matrices, rows, bytes.checked_mul(2)?], scales.shape.last()?))
    });
    let Some((shape, blocks)) = packed else {
        return Err(contradicts("the codes are", &codes.shape, "at least two dimensions"));
    };
    let each = group_size(shape[2], *blocks, scales, None)?;
    let scales = match object.factor {
        None => scales.clone(),
        Some(factor) if factor.numel() == Some(1) => {
            let factor = set.read(&Tensor { dtype: DType::F32, ..factor.clone() })?;
            let factor = factor.first_chunk().map_or(f32::NAN, |four| f32::from_le_bytes(*four));
            let of = Tensor { dtype: DType::F32, ..scales.clone() };
            let steps = vec![Arithmetic::Multiply(factor.into())];
            let layout = Layout::Computed(Arc::new(Computed { of, steps, product: None }));
            Tensor::new(DType::F32, scales.shape.clone(), layout)
        }
        Some(factor) => {
            return Err(Error::unsupported(format!(
                "factors of scales of shape {:?}",
                factor.shape
            ))
            .expected("one factor"));
        }
    };
    let packing = CodePacking::AlongRow(4);
    let of = scaled_codes(codes, packing, fp4(), shape, &scales, each);
    let mut dense = codes.shape.clone();
    if let Some(last) = dense.last_mut() {
        *last = shape[2];
    }
    Ok(Made { of, shape: dense, inferred: Vec::new() })
}
