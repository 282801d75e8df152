//! The schemes: which tensors make up a weight, and how.
//!
//! The layouts are those of AutoGPTQ and GPTQModel, AutoAWQ, bitsandbytes 0.50, compressed-tensors
//! 0.20, the fp8 of DeepSeek and transformers, the MXFP4 of gpt-oss (transformers 5.23), and MLX
//! 0.32, torchao 0.18 and optimum-quanto 0.2.

mod bitsandbytes;
mod compressed;
mod gptq;
mod hqq;
mod mlx;
mod quanto;
mod scaled;
pub(crate) mod torch;
pub(crate) mod torchao;

use statelens_checkpoint::{
    CodePacking, CodeValues, Codes, DType, Dequantised, Error, Groups, Layout, Offset, Result,
    Scales, Tensor,
};

use crate::set::{Found, Set, contradicts, quotient};

/// Returns whether a dict with a tensor of this name may have quantised weights.
pub(crate) fn is_telling(name: &str) -> bool {
    const NAMES: [&str; 17] = [
        "qweight",
        "weight_packed",
        "absmax",
        "quant_map",
        "SCB",
        "scales",
        "biases",
        "weight_scale",
        "weight_scale_inv",
        "_scale",
        "qdata",
        "_weight_qdata",
        "packed_weight",
        "packed_weights",
        "quantized_data",
        "W_q",
        "B",
    ];
    let name = name.rsplit_once('.').map_or(name, |(_, name)| name);
    const ENDS: [&str; 4] = ["_scales", "_blocks", "_scale_inv", "_scale"];
    NAMES.contains(&name) || ENDS.iter().any(|end| name.ends_with(end))
}

/// Returns whether the elements of a tensor are integers or floats of one byte.
pub(crate) fn is_narrow(tensor: &Tensor) -> bool {
    matches!(
        tensor.dtype,
        DType::I8 | DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ
    )
}

/// Returns the quantised weights of a module.
pub(crate) fn recognise<'a>(set: &Set<'a>) -> Vec<Found<'a>> {
    let one = bitsandbytes::four_bits(set)
        .or_else(|| bitsandbytes::eight_bits(set))
        .or_else(|| gptq::find(set))
        .or_else(|| gptq::marlin(set))
        .or_else(|| quanto::find(set))
        .or_else(|| torchao::flat(set))
        .or_else(|| compressed::packed(set))
        .or_else(|| hqq::find(set))
        .or_else(|| mlx::find(set))
        .or_else(|| scaled::find(set));
    one.into_iter().chain(scaled::blocks(set)).chain(scaled::named(set)).collect()
}

/// Returns the names that scales of activations may have next to a weight of this name: those of
/// the inputs and outputs of its layer, and of the cache of queries, keys and values.
pub(crate) fn of_activations(weight: &str) -> Vec<String> {
    let Some(layer) = weight.strip_suffix(".weight") else { return Vec::new() };
    let (parent, own) = layer.rsplit_once('.').unwrap_or(("", layer));
    let mut names = vec![format!("{layer}.input_scale"), format!("{layer}.output_scale")];
    for letter in ["q", "k", "v"] {
        if own == format!("{letter}_proj") || own == "qkv_proj" {
            for module in [parent, layer] {
                names.extend(["scale", "zero_point"].map(|of| format!("{module}.{letter}_{of}")));
            }
        }
    }
    names
}

/// The values of FP4 E2M1.
const FP4: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

fn fp4() -> CodeValues {
    CodeValues::Table(FP4.into())
}

/// Returns codes times scales, with groups of one row and of `each` columns.
pub(crate) fn scaled_codes(
    tensor: &Tensor,
    packing: CodePacking,
    values: CodeValues,
    shape: [u64; 3],
    scales: &Tensor,
    each: u64,
) -> Dequantised {
    Dequantised {
        codes: Codes { tensor: tensor.clone(), packing },
        shape,
        swapped: false,
        values,
        scales: Scales { tensor: scales.clone(), exponents: false, divisor: None },
        offset: Offset::None,
        groups: [Groups::Every(1), Groups::Every(each.max(1))],
        factor: None,
        rounding: None,
    }
}

/// Returns codes with one group for all, whose scale is 1.
pub(crate) fn unscaled(of: Dequantised) -> Dequantised {
    let [matrices, rows, columns] = of.shape;
    let shape = vec![matrices, 1, 1];
    let ones = Tensor::new(DType::F32, shape, Layout::Fill(1f32.to_le_bytes().into()));
    let groups = [Groups::Every(rows.max(1)), Groups::Every(columns.max(1))];
    let scales = Scales { tensor: ones, exponents: false, divisor: None };
    Dequantised { scales, groups, ..of }
}

/// Returns the dtype to which a library rounds its result, if it is that of the scales.
fn rounding(scales: &Tensor) -> Option<DType> {
    Some(scales.dtype.clone()).filter(|dtype| matches!(dtype, DType::BF16 | DType::F16))
}

/// Returns the size of groups of a row of `columns`, which has `count` of them: the stated one, or
/// that of equal groups.
fn group_size(columns: u64, count: u64, scales: &Tensor, stated: Option<u64>) -> Result<u64> {
    let equal =
        || quotient(columns, count.max(1)).ok_or_else(|| no_settings("how large the groups are"));
    let each = stated.map_or_else(equal, Ok)?.max(1);
    match columns.div_ceil(each) == count {
        true => Ok(each),
        false => Err(contradicts(
            "the scales are",
            &scales.shape,
            format!("{} groups of {each} in a row of {columns}", columns.div_ceil(each)),
        )),
    }
}

/// Returns the error for a fact that neither settings nor shapes determine.
fn no_settings(what: &str) -> Error {
    Error::unsupported(format!("it is not known {what}"))
        .advice("Put config.json into the folder of the weights.")
}

/// Returns the matrices, rows and columns of a shape of at least two dimensions.
fn three(shape: &[u64]) -> Option<[u64; 3]> {
    let [outer @ .., rows, columns] = shape else { return None };
    let matrices = outer.iter().try_fold(1u64, |all, dim| all.checked_mul(*dim))?;
    Some([matrices, *rows, *columns])
}
