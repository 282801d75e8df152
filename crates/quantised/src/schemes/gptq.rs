//! GPTQ and AWQ: `qweight`, `qzeros`, `scales`, `g_idx`.

use std::sync::Arc;

use statelens_checkpoint::{
    CodePacking, CodeValues, Codes, DType, Dequantised, Error, Groups, Layout, Offset, Result,
    Scales, Strided, Tensor, contiguous_strides,
};

use super::{group_size, no_settings, scaled_codes};
use crate::set::{Found, Made, Set, contradicts, quotient};

pub(super) fn find<'a>(set: &Set<'a>) -> Option<Found<'a>> {
    let codes = set.get("qweight")?;
    let helpers = set.helpers(&["qzeros", "scales", "g_idx"]);
    let outputs = set.get("scales").and_then(|scales| scales.tensor.shape.last().copied());
    let [_, columns] = codes.tensor.shape[..] else {
        let made = Err(contradicts("the codes are", &codes.tensor.shape, "two dimensions"));
        let (name, scheme) = (set.key("weight"), "GPTQ or AWQ".to_owned());
        return (!helpers.is_empty()).then_some(Found { name, scheme, codes, helpers, made });
    };
    let awq = match set.settings.text("quant_method") {
        Some("awq") => true,
        Some("gptq") => false,
        _ => outputs
            .is_some_and(|outputs| outputs != columns && quotient(outputs, 8) == Some(columns)),
    };
    let version = set.settings.text("version").map(str::to_lowercase);
    let made = match (awq, version.as_deref()) {
        (true, Some("gemv")) => gemv_made(set),
        (true, _) => awq_made(set),
        (false, _) => gptq_made(set),
    };
    let bits = made.as_ref().ok().map(|(bits, _)| format!(", {bits} bits")).unwrap_or_default();
    Some(Found {
        name: set.key("weight"),
        scheme: format!("{}{bits}", if awq { "AWQ" } else { "GPTQ" }),
        codes,
        helpers,
        made: made.map(|(_, made)| made),
    })
}

/// The stored zero point is one less than the real one, except in the second version of the format.
fn gptq_made(set: &Set<'_>) -> Result<(u32, Made)> {
    let (codes, scales) = (set.need("qweight")?, set.need("scales")?);
    let zeros = set.need("qzeros")?;
    let mut inferred = Vec::new();
    let ([words, outputs], [groups, scaled]) = (two(&codes.shape)?, two(&scales.shape)?);
    if outputs != scaled {
        return Err(contradicts(
            "the codes are",
            &codes.shape,
            format!("{scaled} columns, as the scales have"),
        ));
    }
    let [zero_groups, zero_words] = two(&zeros.shape)?;
    let by_zeros = zero_words.checked_mul(32).and_then(|bits| quotient(bits, outputs));
    let listed = set.get("g_idx").map(|list| list.tensor);
    // Bits by which as many words hold the inputs as there are.
    let fits = |bits: &u64| {
        let inputs = listed.and_then(|list| list.numel());
        inputs.is_none_or(|inputs| {
            inputs.checked_mul(*bits).map(|all| all.div_ceil(32)) == Some(words)
        })
    };
    let own = by_zeros.filter(|bits| set.settings.differs_by_module() && fits(bits));
    let bits = match (set.settings.number("bits"), own) {
        (Some(bits), own) => own.unwrap_or(bits),
        (None, _) => {
            let inputs = listed.and_then(|list| list.numel());
            let by_list = inputs.and_then(|inputs| quotient(words.checked_mul(32)?, inputs));
            let bits =
                by_zeros.or(by_list).ok_or_else(|| no_settings("how many bits a code has"))?;
            inferred.push(format!("{bits} bits"));
            bits
        }
    };
    let fits = |bits: &u64| (1..=8).contains(bits);
    let bits =
        u32::try_from(bits).ok().filter(|bits| fits(&u64::from(*bits))).ok_or_else(|| {
            Error::unsupported(format!("GPTQ with {bits} bits")).expected("1 to 8 bits")
        })?;
    let inputs = match listed.and_then(|list| list.numel()) {
        Some(inputs) => inputs,
        None => words.checked_mul(32).map_or(0, |all| all / u64::from(bits)),
    };
    let version = match set.settings.text("checkpoint_format") {
        Some("gptq") => 1,
        Some("gptq_v2") => 2,
        Some(other) => return Err(Error::unsupported(format!("GPTQ in the format {other}"))),
        None => {
            let other = set.settings.text("quant_method").is_some_and(|method| method != "gptq");
            if other || !set.settings.is_known() {
                inferred.push("the first version of the format".into());
            }
            1
        }
    };
    if zero_groups != groups {
        return Err(contradicts(
            "the zero points are",
            &zeros.shape,
            format!("{groups} rows, as the scales have"),
        ));
    }
    let rows = match listed {
        Some(list) => Groups::Listed(list.clone(), groups),
        None => {
            if groups > 1 && set.settings.text("desc_act") == Some("true") {
                set.need("g_idx")?;
            }
            let own = set.settings.differs_by_module();
            let stated = set
                .settings
                .number("group_size")
                .filter(|each| groups > 1 && !(own && inputs.div_ceil((*each).max(1)) != groups));
            Groups::Every(group_size(inputs, groups, scales, stated)?)
        }
    };
    let packed = |tensor, packing| Codes { tensor, packing };
    let of = Dequantised {
        codes: packed(codes.clone(), CodePacking::AlongColumn(bits)),
        shape: [1, inputs, outputs],
        swapped: true,
        values: CodeValues::Minus(0),
        scales: Scales { tensor: scales.clone(), exponents: false, divisor: None },
        offset: Offset::Zeros(
            packed(zeros.clone(), CodePacking::AlongRow(bits)),
            CodeValues::Minus(if version == 1 { -1 } else { 0 }),
        ),
        groups: [rows, Groups::Every(1)],
        factor: None,
        rounding: None,
    };
    Ok((bits, Made { of, shape: vec![outputs, inputs], inferred }))
}

fn awq_made(set: &Set<'_>) -> Result<(u32, Made)> {
    let (codes, scales) = (set.need("qweight")?, set.need("scales")?);
    let zeros = set.need("qzeros")?;
    match (set.settings.number("bits"), set.settings.text("version")) {
        (Some(bits), _) if bits != 4 => {
            return Err(Error::unsupported(format!("AWQ with {bits} bits")).expected("4 bits"));
        }
        (_, Some(version)) if !version.eq_ignore_ascii_case("gemm") => {
            return Err(Error::unsupported(format!("AWQ in the version {version}"))
                .expected("the version gemm or gemv"));
        }
        _ => {}
    }
    let mut inferred = Vec::new();
    if !set.settings.is_known() {
        inferred.push("the version gemm".into());
    }
    let ([inputs, _], [groups, outputs]) = (two(&codes.shape)?, two(&scales.shape)?);
    let stated = set.settings.number("group_size").filter(|_| groups > 1);
    let each = group_size(inputs, groups, scales, stated)?;
    let packed = |tensor| Codes { tensor, packing: CodePacking::Interleaved };
    let of = Dequantised {
        codes: packed(codes.clone()),
        shape: [1, inputs, outputs],
        swapped: true,
        values: CodeValues::Minus(0),
        scales: Scales { tensor: scales.clone(), exponents: false, divisor: None },
        offset: Offset::Zeros(packed(zeros.clone()), CodeValues::Minus(0)),
        groups: [Groups::Every(each), Groups::Every(1)],
        factor: None,
        rounding: None,
    };
    Ok((4, Made { of, shape: vec![outputs, inputs], inferred }))
}

/// The version gemv: codes, zero points and scales follow each other along the rows of the weight, and
/// those of groups are padded (`awq/modules/linear/gemv.py` of AutoAWQ).
fn gemv_made(set: &Set<'_>) -> Result<(u32, Made)> {
    let (codes, scales) = (set.need("qweight")?, set.need("scales")?);
    let zeros = set.need("qzeros")?;
    let ([outputs, words], [scaled, padded]) = (two(&codes.shape)?, two(&scales.shape)?);
    let inputs = words.saturating_mul(8);
    let each = set.settings.number("group_size").filter(|each| *each > 0);
    let each = each.ok_or_else(|| no_settings("how large the groups are"))?;
    let groups = inputs.div_ceil(each);
    if scaled != outputs || padded < groups {
        let expected = format!("{outputs} rows of at least {groups} scales");
        return Err(contradicts("the scales are", &scales.shape, expected));
    }
    let along = CodePacking::AlongRow(4);
    let mut of = scaled_codes(
        codes,
        along,
        CodeValues::Minus(0),
        [1, outputs, inputs],
        &narrowed(scales, groups)?,
        each,
    );
    let zeros = Codes { tensor: narrowed(zeros, groups.div_ceil(8))?, packing: along };
    of.offset = Offset::Zeros(zeros, CodeValues::Minus(0));
    Ok((4, Made { of, shape: vec![outputs, inputs], inferred: Vec::new() }))
}

/// Returns the first columns of a matrix.
fn narrowed(matrix: &Tensor, columns: u64) -> Result<Tensor> {
    let [rows, all] = two(&matrix.shape)?;
    if columns == all {
        return Ok(matrix.clone());
    }
    let len = matrix.numel().and_then(|numel| matrix.stored.bytes_of(numel));
    let strides = contiguous_strides(&matrix.shape).filter(|_| columns < all);
    let (Some(strides), Some(storage_len)) = (strides, len) else {
        return Err(contradicts("a part is", &matrix.shape, format!("{columns} columns")));
    };
    let storage = Arc::new(matrix.layout.clone());
    let layout = Layout::Strided(Strided { storage, storage_len, offset: 0, strides });
    Ok(Tensor { shape: vec![rows, columns], layout, ..matrix.clone() })
}

/// Finds the layout of the Marlin kernels, `B` and `s`, whose codes are in the order of GPU tiles.
pub(super) fn marlin<'a>(set: &Set<'a>) -> Option<Found<'a>> {
    let codes = set.get("b").filter(|codes| codes.name.ends_with('B'))?;
    let scales = set.get("s")?;
    if codes.tensor.dtype != DType::I32 || !scales.tensor.dtype.is_float() {
        return None;
    }
    let made = Err(Error::unsupported("the order of codes for Marlin's kernels is not known")
        .advice("Save it in the format gptq, with GPTQModel."));
    Some(Found {
        name: set.key("weight"),
        scheme: "GPTQ in the format marlin".into(),
        codes,
        helpers: set.helpers(&["s", "workspace"]),
        made,
    })
}

fn two(shape: &[u64]) -> Result<[u64; 2]> {
    let found = <[u64; 2]>::try_from(shape);
    found.map_err(|_| contradicts("a part is", shape, "two dimensions"))
}
