//! Tensors of torchao 0.18 in pickles: an object with `qdata`, `scale` and `zero_point`.
//!
//! The values are `(code - zero point) * scale` (`dequantize_affine` and `_dequantize_affine_float8`
//! in `torchao/quantization/quant_primitives.py`). The dtype to which torchao rounds them is not among
//! the attributes, so they are not rounded.

use std::collections::HashMap;

use statelens_checkpoint::{
    CodePacking, CodeValues, Codes, DType, Dict, DictClass, Error, FileSet, Offset,
};

use super::scaled;
use crate::set::{Found, Set, SetPart};
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
    let set = Set { files, settings, module: "", parts: HashMap::new() };
    let made = match (KNOWN.contains(&&*class.name), part("scale")) {
        (false, _) => {
            Err(Error::unsupported(format!("how {} places its codes is not known", class.name)))
        }
        (true, None) => Err(Error::damaged("`scale` is missing")
            .advice("Without it, the values of the codes are not known.")),
        (true, Some(scales)) => {
            scaled::made(&set, codes.tensor, scales.tensor, true).map(|mut made| {
                let zeros = part("zero_point").map(|zeros| zeros.tensor);
                if let Some(zeros) = zeros.filter(|zeros| zeros.stored == DType::I8) {
                    let zeros = Codes { tensor: zeros.clone(), packing: CodePacking::Bytes };
                    made.of.offset = Offset::Zeros(zeros, CodeValues::As(DType::I8));
                }
                // The shapes of its scales are those of its blocks.
                made.inferred.clear();
                made
            })
        }
    };
    Some(Found {
        name: codes.name.to_owned(),
        scheme: format!("torchao {}", class.name),
        codes,
        helpers: names.iter().filter(|part| part.id != codes.id).copied().collect(),
        made,
    })
}
