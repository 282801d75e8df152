//! Quanto (optimum-quanto 0.2): `X._data` and `X._scale` of a weight `X`. With 2 or 4 bits, the codes
//! are packed in `X._data._data`, and `X._shift` is subtracted.
//!
//! Source: `tensor/grouped.py`, `tensor/packed.py` and `tensor/qbits.py`. The files do not have the
//! shape of a packed weight, only its elements in C order.

use std::sync::Arc;

use statelens_checkpoint::{
    Arithmetic, CodePacking, CodeValues, Codes, Computed, DType, Error, Layout, MAX_FIELDS, Offset,
    Result, Tensor,
};

use super::{scaled, scaled_codes};
use crate::set::{Found, Made, Set, contradicts, quotient};

pub(super) fn find<'a>(set: &Set<'a>) -> Option<Found<'a>> {
    let scales = set.get("_scale")?;
    let helpers = set.helpers(&["_scale", "_shift"]);
    let name = set.module.to_owned();
    if let Some(codes) = set.get("_data._data") {
        let made = packed_made(set, codes.tensor, scales.tensor);
        let bits = made.as_ref().map_or("2 or 4".to_owned(), |(bits, _)| bits.to_string());
        let scheme = format!("quanto, {bits} bits");
        return Some(Found { name, scheme, codes, helpers, made: made.map(|(_, made)| made) });
    }
    let codes = set.get("_data")?;
    let scheme = if codes.tensor.dtype == DType::I8 { "quanto int8" } else { "quanto fp8" };
    let made = scaled::made(set, codes.tensor, scales.tensor, false);
    Some(Found { name, scheme: scheme.into(), codes, helpers, made })
}

/// The weight is a list of groups, a row each. The first rows are in the lowest bits of all bytes,
/// the next rows in the bits above.
fn packed_made(set: &Set<'_>, codes: &Tensor, scales: &Tensor) -> Result<(u32, Made)> {
    let ([stored, row @ ..], Some(groups)) = (&codes.shape[..], scales.numel()) else {
        return Err(contradicts("the codes are", &codes.shape, "two dimensions"));
    };
    let each = row.iter().try_fold(1u64, |all, dim| all.checked_mul(*dim));
    let (Some(each), stored) = (each.filter(|_| !row.is_empty()), *stored) else {
        return Err(contradicts("the codes are", &codes.shape, "two dimensions"));
    };
    let fits = |bits: &u32| groups.div_ceil(u64::from(8 / bits)) == stored;
    let mut fitting = [4u32, 2].into_iter().filter(fits);
    let Some(bits) = fitting.next() else {
        let expected = format!("{groups} groups of 2 or 4 bits, as there are scales");
        return Err(contradicts("the codes are", &codes.shape, expected));
    };
    let mut inferred = Vec::new();
    if fitting.next().is_some() {
        inferred.push(format!("{bits} bits"));
    }
    // Each run of bits is a matrix of `stored` groups.
    let fields = quotient(groups, stored).filter(|fields| *fields <= u64::from(8 / bits));
    let fields = fields.ok_or_else(|| {
        let per_byte = 8 / bits;
        Error::unsupported(format!("{groups} groups, which do not fill bytes of {per_byte} codes"))
    })?;
    let mut widths = [0; MAX_FIELDS];
    widths.iter_mut().take(fields as usize).for_each(|width| *width = bits as u8);
    // The channels of a convolution are not divided into groups.
    let (shape, by_bias) = match row {
        [_] => shape(set, groups, each)?,
        _ => ([&[groups], row].concat(), false),
    };
    if by_bias {
        inferred.push(format!("the shape {shape:?}"));
    }
    let packing = CodePacking::Fields(widths);
    let minus = CodeValues::Minus(0);
    let mut of = scaled_codes(codes, packing, minus, [fields, stored, each], scales, each);
    of.offset = shift(set)?;
    Ok((bits, Made { of, shape, inferred }))
}

/// Returns the numbers that are subtracted: from the codes if they are integers, else from the products.
fn shift(set: &Set<'_>) -> Result<Offset> {
    let shift = set.need("_shift")?;
    if shift.dtype == DType::I8 {
        let codes = Codes { tensor: shift.clone(), packing: CodePacking::Bytes };
        return Ok(Offset::Zeros(codes, CodeValues::As(DType::I8)));
    }
    let of = Tensor { dtype: DType::F32, ..shift.clone() };
    let minus = Computed { of, steps: vec![Arithmetic::Multiply(-1.0)], product: None };
    let layout = Layout::Computed(Arc::new(minus));
    Ok(Offset::Biases(Tensor::new(DType::F32, shift.shape.clone(), layout)))
}

/// Layers whose inputs are the hidden state, and those whose inputs are the intermediate one.
const OF_HIDDEN: [&str; 9] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "qkv_proj",
    "gate_proj",
    "up_proj",
    "gate_up_proj",
    "fc1",
    "lm_head",
];
const OF_INTERMEDIATE: [&str; 2] = ["down_proj", "fc2"];

/// Returns the shape of the weight, and whether only the bias determines it. Its columns follow from
/// the config and the name of the layer; its rows are the elements of the bias.
fn shape(set: &Set<'_>, groups: u64, each: u64) -> Result<(Vec<u64>, bool)> {
    let numel = groups.checked_mul(each).ok_or_else(|| Error::damaged("too many groups"))?;
    let layer = set.module.rsplit('.').nth(1).unwrap_or("");
    let number = |name: &str| {
        let number = |name: &str| set.settings.number(name);
        number(name).or_else(|| number(&format!("text_config.{name}")))
    };
    let rows = set.get("bias").and_then(|bias| bias.tensor.numel());
    let columns = match layer {
        layer if OF_HIDDEN.contains(&layer) => number("hidden_size"),
        layer if OF_INTERMEDIATE.contains(&layer) => number("intermediate_size"),
        "o_proj" => number("head_dim")
            .zip(number("num_attention_heads"))
            .and_then(|(size, heads)| size.checked_mul(heads))
            .or_else(|| number("hidden_size")),
        _ => None,
    };
    let found = match (rows, columns) {
        (_, Some(columns)) => quotient(numel, columns).map(|rows| [rows, columns]),
        (Some(rows), None) => quotient(numel, rows).map(|columns| [rows, columns]),
        (None, None) => {
            return Err(Error::unsupported("the shape of the weight is not stored").advice(
                "Put config.json into the folder, or load it with quanto and save \
                 `weight.dequantize()`.",
            ));
        }
    };
    // Rows have whole groups, and a bias as many elements as there are rows.
    let found = found.filter(|[down, across]| {
        across.is_multiple_of(each) && rows.is_none_or(|rows| rows == *down)
    });
    let [down, across] = found.ok_or_else(|| {
        let expected = match (rows, columns) {
            (Some(rows), Some(columns)) => format!("{rows} rows of {columns}"),
            (_, Some(columns)) => format!("rows of {columns}"),
            (rows, _) => format!("{} rows", rows.unwrap_or(0)),
        };
        Error::damaged(format!("{groups} groups of {each} codes")).expected(expected)
    })?;
    Ok((vec![down, across], columns.is_none()))
}
