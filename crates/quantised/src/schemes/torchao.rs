//! Tensors of torchao 0.18. In pickles they are an object with `qdata`, `scale` and `zero_point`; in
//! safetensors `X.weight` is `X._weight_qdata`, `X._weight_scale` and `X._weight_zero_point`, with the
//! class in the metadata of the file (`torchao/prototype/safetensors/safetensors_support.py`).
//!
//! The values are `(code - zero point) * scale` (`dequantize_affine` and `_dequantize_affine_float8`
//! in `torchao/quantization/quant_primitives.py`). The dtype to which torchao rounds them is not among
//! the attributes, so they are not rounded.

use std::collections::HashMap;

use statelens_checkpoint::json::{Document, JsonNode};
use statelens_checkpoint::{
    CodePacking, CodeValues, Codes, DType, Dict, DictClass, Error, FileSet, Offset, Result, Tensor,
};

use super::scaled;
use crate::set::{Found, Made, Set, SetPart};
use crate::settings::Settings;

/// The classes whose layout is known: codes of one byte.
const KNOWN: [&str; 2] = ["Int8Tensor", "Float8Tensor"];

/// Returns the weight that a dict with these tensors is; `None` if it is not an object of torchao.
pub(crate) fn find<'a>(
    files: &'a FileSet,
    dict: &Dict,
    names: &[SetPart<'a>],
    settings: &'a Settings,
) -> Option<Found<'a>> {
    let DictClass::Object(class) = &dict.class else { return None };
    if !class.module.starts_with("torchao.") {
        return None;
    }
    let part = |name: &str| names.iter().find(|part| part.name == name).copied();
    let codes = part("qdata").or_else(|| part("int_data")).or_else(|| part("packed_weight"))?;
    let set = Set { files, settings, attributes: &[], module: "", parts: HashMap::new() };
    let scales = part("scale").map(|scales| scales.tensor);
    let zeros = part("zero_point").map(|zeros| zeros.tensor);
    let made = made(&set, &class.name, codes.tensor, scales, zeros);
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
    let stated = about.and_then(|(_, text)| class(&text.to_lossy()));
    let likely = match codes.tensor.dtype {
        DType::I8 => KNOWN[0],
        _ => KNOWN[1],
    };
    let class = stated.clone().unwrap_or_else(|| likely.to_owned());
    let part = |name: &str| set.get(name).map(|part| part.tensor);
    let mut made =
        made(set, &class, codes.tensor, part("_weight_scale"), part("_weight_zero_point"));
    if let (Ok(made), None) = (&mut made, stated) {
        made.inferred.push(class.clone());
    }
    let helpers = set.parts.iter().filter(|(name, _)| name.starts_with("_weight_"));
    let mut helpers: Vec<SetPart<'a>> = helpers.map(|(_, part)| *part).collect();
    helpers.retain(|part| part.id != codes.id);
    helpers.sort_by_key(|part| part.id);
    Some(Found { name, scheme: format!("torchao {class}"), codes, helpers, made })
}

/// Returns the class in the JSON about a tensor.
fn class(text: &str) -> Option<String> {
    let document = Document::parse(text.as_bytes()).ok()?;
    match document.field(document.root(), "_type")? {
        JsonNode::Str(name) => Some(name.to_lossy().into_owned()),
        _ => None,
    }
}

fn made(
    set: &Set<'_>,
    class: &str,
    codes: &Tensor,
    scales: Option<&Tensor>,
    zeros: Option<&Tensor>,
) -> Result<Made> {
    if !KNOWN.contains(&class) {
        return Err(Error::unsupported(format!("how {class} places its codes is not known")));
    }
    let scales = scales.ok_or_else(|| {
        Error::damaged("its scale is missing")
            .advice("Without it, the values of the codes are not known.")
    })?;
    let mut made = scaled::made(set, codes, scales, true)?;
    if let Some(zeros) = zeros.filter(|zeros| zeros.stored == DType::I8) {
        let zeros = Codes { tensor: zeros.clone(), packing: CodePacking::Bytes };
        made.of.offset = Offset::Zeros(zeros, CodeValues::As(DType::I8));
    }
    // The shapes of its scales are those of its blocks.
    made.inferred.clear();
    Ok(made)
}
