//! HQQ: `W_q`, `scale` and `zero` of a layer, with its settings as further tensors. Recognised and
//! refused.

use statelens_checkpoint::Error;

use crate::set::{Found, Set, SetPart};

pub(super) fn find<'a>(set: &Set<'a>) -> Option<Found<'a>> {
    let codes = set.get("w_q").filter(|codes| codes.name.ends_with("W_q"))?;
    let mut helpers: Vec<SetPart<'a>> = set.parts.values().copied().collect();
    helpers.retain(|part| part.id != codes.id && !part.name.ends_with("bias"));
    helpers.sort_by_key(|part| part.id);
    let made = Err(Error::unsupported("how HQQ packs its codes is not known")
        .advice("Load it with hqq, and save `dequantize()` of each layer."));
    Some(Found { name: set.key("weight"), scheme: "HQQ".into(), codes, helpers, made })
}
