//! Quanto (optimum-quanto 0.2): `X._data` and `X._scale` of a weight `X`.

use statelens_checkpoint::{DType, Error};

use super::scaled;
use crate::set::{Found, Set};

pub(super) fn find<'a>(set: &Set<'a>) -> Option<Found<'a>> {
    let scales = set.get("_scale")?;
    let helpers = set.helpers(&["_scale", "_shift"]);
    let name = set.module.to_owned();
    let packed = set.get("_data._data");
    if let Some(codes) = packed {
        // The codes are in groups, and only the model has the shape of the weight.
        let made = Err(Error::unsupported("the shape of the weight is not stored")
            .advice("Load it with quanto, and save `weight.dequantize()`."));
        return Some(Found { name, scheme: "quanto, 2 or 4 bits".into(), codes, helpers, made });
    }
    let codes = set.get("_data")?;
    let scheme = if codes.tensor.dtype == DType::I8 { "quanto int8" } else { "quanto fp8" };
    let made = scaled::made(set, codes.tensor, scales.tensor, false);
    Some(Found { name, scheme: scheme.into(), codes, helpers, made })
}
