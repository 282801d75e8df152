//! Codes of one byte with scales for tensors, rows, groups or squares; and the MXFP4 of gpt-oss.

use statelens_checkpoint::{CodePacking, CodeValues, DType, Error, Groups, Result, Tensor};

use super::compressed::{HELPERS, with_rows, zeros};
use super::{fp4, group_size, is_narrow, rounding, scaled_codes, three};
use crate::set::{Found, Made, Set, contradicts, quotient};

pub(super) fn find<'a>(set: &Set<'a>) -> Option<Found<'a>> {
    let codes = set.get("weight")?;
    let narrow = is_narrow(codes.tensor);
    let inverse = set.get("weight_scale_inv");
    let dtype = if codes.tensor.dtype == DType::I8 { "int8" } else { "fp8" };
    let Some(scales) = inverse.or_else(|| set.get("weight_scale")) else {
        let name = match set.settings.text("quant_method") {
            Some("fp8") => "weight_scale_inv",
            Some("bitsandbytes") => "SCB",
            _ => "weight_scale",
        };
        let missing = || set.need(name).err();
        let why = (narrow && set.settings.scales_bytes()).then(missing).flatten()?;
        return Some(Found {
            name: codes.name.to_owned(),
            scheme: format!("{dtype} with scales"),
            codes,
            helpers: Vec::new(),
            made: Err(why),
        });
    };
    if !narrow {
        return (codes.tensor.dtype == DType::U8).then(|| Found {
            name: codes.name.to_owned(),
            scheme: "uint8 with scales".into(),
            codes,
            helpers: Vec::new(),
            made: Err(Error::unsupported("the scheme is not known")),
        });
    }
    let made = made(set, codes.tensor, scales.tensor, inverse.is_some());
    Some(Found {
        name: codes.name.to_owned(),
        scheme: format!("{dtype} with scales"),
        codes,
        helpers: set.helpers(&HELPERS),
        made,
    })
}

pub(super) fn made(set: &Set<'_>, codes: &Tensor, scales: &Tensor, inverse: bool) -> Result<Made> {
    let mut inferred = Vec::new();
    let shape = match codes.shape[..] {
        [columns] => Some([1, 1, columns]),
        [rows, ..] if are_of_first(scales, codes) => {
            codes.numel().and_then(|numel| quotient(numel, rows)).map(|each| [1, rows, each])
        }
        _ => three(&codes.shape),
    };
    let Some([matrices, rows, columns]) = shape else {
        return Err(contradicts("the codes are", &codes.shape, "at least one dimension"));
    };
    let values = CodeValues::As(codes.dtype.clone());
    let make = |down: u64, across: u64| {
        let shape = [matrices, rows, columns];
        with_rows(
            scaled_codes(codes, CodePacking::Bytes, values.clone(), shape, scales, across),
            down,
        )
    };
    let per_matrix = scales.numel() == Some(matrices) && matrices > 1;
    let mut of = if scales.numel() == Some(1) && matrices == 1 || per_matrix {
        make(rows, columns)
    } else if scales.numel() == matrices.checked_mul(rows)
        && (scales.shape.last() == Some(&1) || scales.shape.len() < codes.shape.len())
    {
        make(1, columns)
    } else if matrices == 1 && columns > 1 && scales.shape == [1, columns] {
        make(rows, 1)
    } else {
        let Some([_, down, across]) = three(&scales.shape) else {
            return Err(contradicts("the scales are", &scales.shape, format!("{rows} scales")));
        };
        let stated = |at: usize| {
            let own = set.settings.number(&format!("weight_block_size.{at}"));
            let group = || set.settings.of_groups(&format!("block_structure.{at}"));
            own.or_else(|| group()?.parse().ok())
        };
        let fits = |(height, width): &(u64, u64)| {
            *height > 0
                && *width > 0
                && rows.div_ceil(*height) == down
                && columns.div_ceil(*width) == across
        };
        let in_squares = stated(0).zip(stated(1)).filter(fits);
        if down == rows && in_squares.is_none() {
            let stated = set.settings.group_size(columns, across);
            let power = || block_size(columns, across).filter(|_| inverse);
            if let Some(width) = power().filter(|_| stated.is_none()) {
                inferred.push(format!("groups of {width}"));
            }
            make(1, group_size(columns, across, scales, stated.or_else(power))?)
        } else {
            let squares = match set.settings.of_groups("strategy") {
                Some(strategy) => strategy == "block",
                None => codes.dtype != DType::I8,
            };
            let size = |all: u64, blocks: u64, at: usize| match stated(at) {
                Some(size) => Some(size),
                None if squares => block_size(all, blocks),
                None => None,
            };
            let sizes = size(rows, down, 0).zip(size(columns, across, 1));
            let (height, width) = sizes.filter(fits).ok_or_else(|| {
                let expected = match (stated(0), stated(1)) {
                    (Some(height), Some(width)) => format!("squares of {height} × {width}"),
                    _ if squares => "squares of equal size".to_owned(),
                    _ => format!("{rows} rows"),
                };
                contradicts("the scales are", &scales.shape, expected)
            })?;
            if stated(0).is_none() || stated(1).is_none() {
                inferred.push(format!("squares of {height} × {width}"));
            }
            make(height, width)
        }
    };
    of.offset = zeros(set, 8)?;
    // The exponents of MXFP8.
    of.scales.exponents = scales.stored == DType::U8;
    if !inverse {
        of.rounding = rounding(scales);
    }
    Ok(Made { of, shape: codes.shape.clone(), inferred })
}

/// Returns whether there is a scale for each index of the first dimension, as for the channels of a
/// convolution.
fn are_of_first(scales: &Tensor, codes: &Tensor) -> bool {
    codes.shape.len() > 2
        && scales.shape.len() == codes.shape.len()
        && scales.shape.first() == codes.shape.first()
        && scales.shape.iter().skip(1).all(|dim| *dim == 1)
}

/// Returns the size, a power of two, of which `blocks` cover `all`.
fn block_size(all: u64, blocks: u64) -> Option<u64> {
    if blocks == 1 {
        return Some(all);
    }
    let power = all.checked_div(blocks)?.max(1).checked_next_power_of_two()?;
    (all.div_ceil(power) == blocks).then_some(power)
}

/// Finds float8 tensors that are not named `weight`, such as stacked experts, with
/// `NAME_scale_inv` or `NAME_scale` (`FP8Experts` of transformers 5).
pub(super) fn named<'a>(set: &Set<'a>) -> Vec<Found<'a>> {
    let mut all: Vec<Found<'a>> = Vec::new();
    for (name, codes) in set.parts.iter().filter(|(name, _)| *name != "weight") {
        let narrow = matches!(codes.tensor.dtype, DType::F8E4M3FN | DType::F8E5M2);
        let names = [format!("{name}_scale_inv"), format!("{name}_scale")];
        let found = names.iter().find_map(|name| set.get(name));
        let Some(scales) = found.filter(|scales| narrow && scales.tensor.dtype.is_float()) else {
            continue;
        };
        all.push(Found {
            name: codes.name.to_owned(),
            scheme: "fp8 with scales".into(),
            codes: *codes,
            helpers: vec![scales],
            made: made(set, codes.tensor, scales.tensor, true),
        });
    }
    all.sort_by_key(|one| one.codes.id);
    all
}

/// Finds the experts of gpt-oss: `NAME_blocks` and `NAME_scales`, whose last two dimensions are
/// swapped in the weight.
pub(super) fn blocks<'a>(set: &Set<'a>) -> Vec<Found<'a>> {
    let mut all: Vec<Found<'a>> = Vec::new();
    for (name, codes) in &set.parts {
        let Some(base) = name.strip_suffix("_blocks") else { continue };
        let scales = format!("{base}_scales");
        let is_whole = codes.tensor.shape.len() == 4 || set.get(&scales).is_some();
        if codes.tensor.dtype != DType::U8 || !is_whole {
            continue;
        }
        let made = || -> Result<Made> {
            let scales = set.need(&scales)?;
            let [matrices, rows, groups, bytes] = codes.tensor.shape[..] else {
                return Err(contradicts("the codes are", &codes.tensor.shape, "four dimensions"));
            };
            if bytes != 16 {
                let expected = "16 bytes in the last dimension, for 32 codes";
                return Err(contradicts("the codes are", &codes.tensor.shape, expected));
            }
            if scales.shape != [matrices, rows, groups] {
                return Err(contradicts(
                    "the scales are",
                    &scales.shape,
                    format!("{:?}, one for each 32 codes", [matrices, rows, groups]),
                ));
            }
            let columns = groups.saturating_mul(32);
            let shape = [matrices, rows, columns];
            let packing = CodePacking::AlongRow(4);
            let mut of = scaled_codes(codes.tensor, packing, fp4(), shape, scales, 32);
            of.scales.exponents = true;
            of.swapped = true;
            of.rounding = Some(DType::BF16);
            debug_assert_eq!(of.groups[0], Groups::Every(1));
            Ok(Made { of, shape: vec![matrices, columns, rows], inferred: Vec::new() })
        };
        all.push(Found {
            name: codes.name.strip_suffix("_blocks").unwrap_or(codes.name).to_owned(),
            scheme: "MXFP4".into(),
            codes: *codes,
            helpers: set.helpers(&[&scales]),
            made: made(),
        });
    }
    all.sort_by_key(|one| one.codes.id);
    all
}
