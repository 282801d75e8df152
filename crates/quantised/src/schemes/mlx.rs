//! MLX: words of 32 bits with `scales`, and `biases` in the affine mode.

use statelens_checkpoint::{CodePacking, CodeValues, DType, Offset, Result, Tensor};

use super::no_settings;
use super::{fp4, scaled_codes, three};
use crate::set::{Found, Made, Set, contradicts, quotient};

/// Sizes of groups that MLX can make, the default first.
const GROUPS: [u64; 3] = [64, 32, 128];

pub(super) fn find<'a>(set: &Set<'a>) -> Option<Found<'a>> {
    let codes = set.get("weight").filter(|codes| codes.tensor.dtype == DType::U32)?;
    if set.get("scales").is_none() && set.get("biases").is_none() {
        return None;
    }
    let made = made(set, codes.tensor);
    let scheme = match &made {
        Ok((scheme, _)) => format!("MLX {scheme}"),
        Err(_) => "MLX".to_owned(),
    };
    Some(Found {
        name: codes.name.to_owned(),
        scheme,
        codes,
        helpers: set.helpers(&["scales", "biases"]),
        made: made.map(|(_, made)| made),
    })
}

fn made(set: &Set<'_>, codes: &Tensor) -> Result<(String, Made)> {
    let scales = set.need("scales")?;
    let mut inferred = Vec::new();
    let bad = |expected: &str| contradicts("the scales are", &scales.shape, expected);
    let (Some([matrices, rows, words]), Some([scaled_matrices, scaled_rows, groups])) =
        (three(&codes.shape), three(&scales.shape))
    else {
        return Err(bad("at least two dimensions"));
    };
    if [scaled_matrices, scaled_rows] != [matrices, rows] {
        return Err(bad(&format!("{matrices} × {rows} rows, as the codes have")));
    }
    // The bits of a code times the codes in a group.
    let together = words.checked_mul(32).and_then(|bits| quotient(bits, groups));
    let together = together.ok_or_else(|| bad("groups of equal size in each row"))?;
    let own = |name: &str| {
        let own = set.settings.number(&format!("{}.{name}", set.module));
        own.or_else(|| set.settings.number(name))
    };
    let mode = match (scales.dtype.itemsize(), together) {
        (1, 128) => Some(("mxfp4", 4)),
        (1, 256) => Some(("mxfp8", 8)),
        (1, 64) => Some(("nvfp4", 4)),
        (1, _) => return Err(bad("groups of 16 or 32 codes")),
        _ => None,
    };
    let stated = set.settings.text(&format!("{}.mode", set.module));
    if let (Some((mode, _)), Some(stated)) = (mode, stated.or_else(|| set.settings.text("mode")))
        && mode != stated
    {
        return Err(bad(&format!("groups of the mode {stated}")));
    }
    let (bits, group) = match (mode, own("bits"), own("group_size")) {
        (Some((_, bits)), _, _) => (bits, together / bits),
        (None, Some(bits), Some(group)) => (bits, group),
        (None, Some(bits), None) => (bits, together / bits.max(1)),
        (None, None, Some(group)) => (together / group.max(1), group),
        (None, None, None) => {
            let group = GROUPS.into_iter().find(|group| {
                quotient(together, *group).is_some_and(|bits| [2, 3, 4, 5, 6, 8].contains(&bits))
            });
            let group = group.ok_or_else(|| no_settings("how many bits a code has"))?;
            let bits = together / group;
            inferred.push(format!("{bits} bits in groups of {group}"));
            (bits, group)
        }
    };
    let packing = u32::try_from(bits).ok().filter(|bits| (1..=8).contains(bits));
    let packing = packing.filter(|_| bits.checked_mul(group) == Some(together));
    let packing = CodePacking::AlongRow(
        packing.ok_or_else(|| bad(&format!("groups of {group} codes of {bits} bits")))?,
    );
    let columns = group.checked_mul(groups).ok_or_else(|| bad("a row that can be counted"))?;
    let shape = [matrices, rows, columns];
    let values = match mode {
        None => CodeValues::Minus(0),
        Some(("mxfp8", _)) => CodeValues::As(DType::F8E4M3FN),
        Some(_) => fp4(),
    };
    let mut of = scaled_codes(codes, packing, values, shape, scales, group);
    match mode {
        None => of.offset = Offset::Biases(set.need("biases")?.clone()),
        Some(("nvfp4", _)) => {
            of.scales.tensor.stored = DType::F8E4M3FN;
            of.scales.tensor.dtype = DType::F8E4M3FN;
        }
        Some(_) => of.scales.exponents = true,
    }
    let [outer @ .., _] = &codes.shape[..] else { return Err(bad("at least two dimensions")) };
    let shape = outer.iter().copied().chain([columns]).collect();
    let scheme = match mode {
        Some((mode, _)) => mode.to_owned(),
        None => format!("affine, {bits} bits"),
    };
    Ok((scheme, Made { of, shape, inferred }))
}
