//! compressed-tensors: `weight_packed` with `weight_scale`.

use statelens_checkpoint::{
    CodePacking, CodeValues, Codes, DType, Dequantised, Error, Groups, Offset, Result, Tensor,
};

use super::{fp4, group_size, no_settings, rounding, scaled_codes};
use crate::set::{Found, Made, Set, contradicts};

/// Tensors of a module that belong to its quantised weight or to that of its inputs.
pub(super) const HELPERS: [&str; 10] = [
    "weight_scale",
    "weight_scale_inv",
    "weight_global_scale",
    "weight_zero_point",
    "weight_g_idx",
    "weight_shape",
    "input_scale",
    "input_global_scale",
    "input_zero_point",
    "input_scale_inv",
];

pub(super) fn packed<'a>(set: &Set<'a>) -> Option<Found<'a>> {
    let codes = set.get("weight_packed")?;
    let floats = codes.tensor.dtype == DType::U8;
    let made = if floats { floats_made(set) } else { integers_made(set) };
    let is_nvfp4 = set.get("weight_global_scale").is_some()
        || set.get("weight_scale").is_some_and(|scales| scales.tensor.dtype == DType::F8E4M3FN);
    let what = match (floats, is_nvfp4, &made) {
        (true, true, _) => "NVFP4".to_owned(),
        (true, false, _) => "MXFP4".to_owned(),
        (_, _, Ok((bits, _))) => format!("{bits} bits"),
        _ => "packed".to_owned(),
    };
    Some(Found {
        name: set.key("weight"),
        scheme: format!("compressed-tensors, {what}"),
        codes,
        helpers: set.helpers(&HELPERS),
        made: made.map(|(_, made)| made),
    })
}

/// FP4: two codes in a byte. NVFP4 has scales in FP8 and one for these, MXFP4 exponents.
fn floats_made(set: &Set<'_>) -> Result<(u32, Made)> {
    let (codes, scales) = (set.need("weight_packed")?, set.need("weight_scale")?);
    let [rows, bytes] = codes.shape[..] else {
        return Err(contradicts("the codes are", &codes.shape, "two dimensions"));
    };
    let columns = bytes.saturating_mul(2);
    let global = match scales.dtype {
        // The scales of NVFP4, which are divided by another one.
        DType::F8E4M3FN => Some(set.need("weight_global_scale")?),
        _ => set.get("weight_global_scale").map(|scale| scale.tensor),
    };
    let group = if global.is_some() { 16 } else { 32 };
    let each = group_size(columns, last(scales), scales, Some(group))?;
    let shape = [1, rows, columns];
    let mut of = scaled_codes(codes, CodePacking::AlongRow(4), fp4(), shape, scales, each);
    of.scales.exponents = global.is_none();
    of.scales.divisor = global.cloned();
    of.rounding = Some(DType::BF16);
    if of.scales.exponents && scales.stored.itemsize() != 1 {
        return Err(Error::damaged(format!("scales of dtype {}", scales.dtype))
            .expected("scales of one byte, or `weight_global_scale`"));
    }
    Ok((4, Made { of, shape: vec![rows, columns], inferred: Vec::new() }))
}

/// Integers of 1 to 8 bits, stored with half their range added.
fn integers_made(set: &Set<'_>) -> Result<(u32, Made)> {
    let (codes, scales) = (set.need("weight_packed")?, set.need("weight_scale")?);
    let mut inferred = Vec::new();
    let [rows, words] = codes.shape[..] else {
        return Err(contradicts("the codes are", &codes.shape, "two dimensions"));
    };
    let stated = set.settings.of_groups("num_bits").and_then(|bits| bits.parse::<u64>().ok());
    let packed = words.saturating_mul(32);
    let columns = match set.get("weight_shape") {
        Some(shape) => {
            let numbers = set.read(&Tensor { dtype: DType::I64, ..shape.tensor.clone() })?;
            let numbers = numbers.as_chunks().0.iter().map(|dim| i64::from_le_bytes(*dim));
            let dims: Vec<i64> = numbers.collect();
            match dims[..] {
                [out, columns] if u64::try_from(out) == Ok(rows) && columns >= 0 => {
                    columns.unsigned_abs()
                }
                _ => {
                    return Err(contradicts(
                        "the codes are",
                        &codes.shape,
                        format!("a weight of shape {dims:?}, as `weight_shape` says"),
                    ));
                }
            }
        }
        None => {
            let bits = stated.filter(|bits| *bits > 0);
            let columns = bits.map(|bits| packed / bits);
            let columns = columns.ok_or_else(|| no_settings("how many bits a code has"))?;
            inferred.push(format!("the shape ({rows}, {columns})"));
            columns
        }
    };
    let fits = |bits: &u64| columns.checked_mul(*bits).map(|all| all.div_ceil(32)) == Some(words);
    let bits = match stated.filter(fits) {
        Some(bits) => bits,
        None => {
            let mut fitting = (1..=8).filter(fits);
            let bits = fitting.next().filter(|_| fitting.next().is_none());
            let bits = bits.ok_or_else(|| {
                contradicts(
                    "the codes are",
                    &codes.shape,
                    format!("{rows} rows of {columns} codes of {} bits", stated.unwrap_or(4)),
                )
            })?;
            if stated.is_none() {
                inferred.push(format!("{bits} bits"));
            }
            bits
        }
    };
    let bits = u32::try_from(bits).ok().filter(|bits| (1..=8).contains(bits));
    let bits = bits.ok_or_else(|| Error::unsupported("codes of more than 8 bits"))?;
    let half = 1i32 << (bits - 1);
    let (down, groups) = match scales.shape[..] {
        [1] | [1, 1] => (rows, 1),
        [count] if count == rows => (1, 1),
        [count, groups] if count == rows => (1, groups),
        _ => {
            return Err(contradicts("the scales are", &scales.shape, format!("{rows} rows")));
        }
    };
    let listed = set.get("weight_g_idx").map(|list| list.tensor);
    let each = match listed {
        Some(_) => 1,
        None => {
            if groups > 1 && set.settings.lists_groups() {
                set.need("weight_g_idx")?;
            }
            group_size(columns, groups, scales, set.settings.group_size(columns, groups))?
        }
    };
    let values = CodeValues::Minus(half);
    let shape = [1, rows, columns];
    let mut of = scaled_codes(codes, CodePacking::AlongRow(bits), values, shape, scales, each);
    if let Some(list) = listed {
        of.groups[1] = Groups::Listed(list.clone(), groups);
    }
    of.offset = zeros(set, bits)?;
    of.rounding = rounding(scales);
    let of = with_rows(of, down);
    Ok((bits, Made { of, shape: vec![rows, columns], inferred }))
}

/// Returns the zero points: packed along the rows of the weight, or a byte each.
pub(super) fn zeros(set: &Set<'_>, bits: u32) -> Result<Offset> {
    if set.get("weight_zero_point").is_none() && !set.settings.asymmetric() {
        return Ok(Offset::None);
    }
    let tensor = set.need("weight_zero_point")?.clone();
    Ok(match &tensor.dtype {
        DType::I32 => {
            let packing = CodePacking::AlongColumn(bits);
            Offset::Zeros(Codes { tensor, packing }, CodeValues::Minus(1 << (bits - 1)))
        }
        dtype if dtype.itemsize() == 1 => {
            let values = CodeValues::As(dtype.clone());
            Offset::Zeros(Codes { tensor, packing: CodePacking::Bytes }, values)
        }
        dtype => {
            return Err(Error::unsupported(format!("zero points of dtype {dtype}")));
        }
    })
}

fn last(scales: &Tensor) -> u64 {
    scales.shape.last().copied().unwrap_or(1)
}

/// Returns the weight with groups of this many rows.
pub(super) fn with_rows(of: Dequantised, each: u64) -> Dequantised {
    let [_, columns] = of.groups;
    Dequantised { groups: [Groups::Every(each.max(1)), columns], ..of }
}
