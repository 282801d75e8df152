//! Weights whose codes and scales are fields of an object: torchao 0.18 and optimum-quanto 0.2.

use super::{Module, Modules, PackedTensor, in_a_row, two};

/// The names of fields that hold codes.
pub(super) const CODES: [&str; 3] = ["qdata", "_weight_qdata", "_data"];

/// The names of their other fields.
const OTHERS: [&str; 9] = [
    "scale",
    "zero_point",
    "per_tensor_scale",
    "act_pre_scale",
    "_weight_scale",
    "_weight_zero_point",
    "_weight_per_tensor_scale",
    "_scale",
    "_shift",
];

pub(super) fn is_field(name: &str) -> bool {
    OTHERS.contains(&name)
}

/// Returns the key of the weight that has this field with codes.
pub(super) fn key_of_weight(key: &str) -> &str {
    let fields = ["._data._data", "._data", ".qdata"];
    fields.iter().find_map(|field| key.strip_suffix(field)).unwrap_or(key)
}

/// Returns the position of the codes of a layer, if the key is that of the scale of its inputs or
/// outputs, which quanto writes next to the weight.
pub(super) fn codes_of_layer(key: &str, modules: &Modules<'_>) -> Option<usize> {
    let names = [".input_scale", ".output_scale"];
    let layer = names.iter().find_map(|name| key.strip_suffix(name))?;
    let codes = ["weight._data", "weight._data._data"];
    codes.iter().find_map(|codes| modules.at(&format!("{layer}.{codes}")))
}

impl<'a> Module<'a> {
    /// Detects `X._data` with `X._scale`; `X._data._data` if the codes are packed.
    pub(super) fn quanto(&self, name: &str, modules: &Modules<'a>) -> Option<PackedTensor<'a>> {
        let scales = self.get("_scale")?;
        if let Some(values) = self.get("_data") {
            let block = if scales.params == 1 { "a tensor" } else { "a row" };
            return Some(PackedTensor {
                name: if values.dtype == "int8" { "quanto int8" } else { "quanto fp8" }.into(),
                bits: Some(8),
                block: block.into(),
                values,
                shape: Some(values.shape.to_vec()),
            });
        }
        let values = modules.get(&format!("{name}._data"))?.get("_data")?;
        let [stored, each] = two(values.shape)?;
        let bits = [4, 2].into_iter().find(|bits| scales.params.div_ceil(8 / bits) == stored)?;
        Some(PackedTensor {
            name: "quanto".into(),
            bits: Some(bits),
            block: format!("{each} in a row"),
            values,
            // The real shape is not stored.
            shape: Some(vec![scales.params.checked_mul(each)?]),
        })
    }

    /// Detects `qdata` with `scale`, the attributes of an object in a pickle, and their names in
    /// safetensors.
    pub(super) fn torchao(&self) -> Option<PackedTensor<'a>> {
        let part = |field: &str, flat: &str| self.get(field).or_else(|| self.get(flat));
        let values = part("qdata", "_weight_qdata")?;
        let scales = part("scale", "_weight_scale")?;
        let zeros = part("zero_point", "_weight_zero_point");
        let (last, outer) = values.shape.split_last()?;
        // The scales of an `Int4Tensor` have the groups before the rows, and float zero points.
        let groups_first = scales.shape.len() == values.shape.len()
            && scales.shape.last() == outer.last()
            && zeros.is_some_and(|zeros| zeros.dtype.contains("float"));
        let (kind, bits) = match values.dtype {
            "int8" if groups_first => ("int4", 4),
            "int8" => ("int8", 8),
            "uint8" | "float4_e2m1fn_x2" => ("FP4", 4),
            dtype if dtype.starts_with("float8") => ("FP8", 8),
            _ => return None,
        };
        let inputs = last.checked_mul(8 / bits)?;
        let groups = match (groups_first, scales.shape) {
            (true, [.., groups, _]) | (false, [_, .., groups]) => *groups,
            _ => 1,
        };
        let block = match scales.params {
            1 => "a tensor".to_owned(),
            _ => in_a_row(inputs.checked_div(groups)?, inputs),
        };
        Some(PackedTensor {
            name: format!("torchao {kind}"),
            bits: Some(bits),
            block,
            values,
            shape: Some(outer.iter().copied().chain([inputs]).collect()),
        })
    }
}
