//! Assigns a dtype to arrays that are stored without one.

use statelens_checkpoint::{Checkpoint, Error, Result, Setting, advice};
use statelens_formats::{is_untyped, update_untyped};

use crate::{CastRule, Pattern};

/// Parses `DTYPE` and `PATTERN=DTYPE`, for dtypes of one or two bytes.
///
/// # Errors
/// The dtype is unknown, or takes more bytes; the pattern is invalid.
pub fn read_as_rule(text: &str) -> Result<CastRule> {
    let rule = CastRule::parse(text)?;
    match rule.dtype.itemsize() {
        1 | 2 => Ok(rule),
        size => Err(Error::refused(format!("{} takes {size} bytes", rule.dtype)).expected(
            "a dtype of one or two bytes, e.g. bfloat16, float16, float8_e4m3fn, float8_e5m2",
        )),
    }
}

/// Gives the arrays without a dtype (`V1`, `V2`) the dtypes of the rules that match them; the last
/// matching rule counts. `None` if all arrays have a dtype.
///
/// # Errors
/// There are such arrays, and a rule matches no array of its size.
pub fn read_as(rules: &[CastRule], checkpoint: &Checkpoint) -> Result<Option<Checkpoint>> {
    if !checkpoint.tensors().iter().any(|tensor| is_untyped(&tensor.dtype)) {
        return Ok(None);
    }
    let mut builder = checkpoint.edit();
    let mut used = vec![false; rules.len()];
    for leaf in checkpoint.each_leaf() {
        let Some((id, tensor)) = checkpoint.tensor_of(leaf.target) else { continue };
        if !is_untyped(&tensor.dtype) {
            continue;
        }
        let key = leaf.flat.to_lossy();
        for (rule, used) in rules.iter().zip(&mut used) {
            let fits = rule.dtype.itemsize() == tensor.dtype.itemsize();
            let matches = |pattern: &Pattern| pattern.matches(&key);
            if fits && rule.pattern.as_ref().is_none_or(matches) {
                *used = true;
                if let Some(tensor) = builder.tensor_mut(id) {
                    (tensor.dtype, tensor.stored) = (rule.dtype.clone(), rule.dtype.clone());
                }
            }
        }
    }
    if let Some((rule, _)) = rules.iter().zip(&used).find(|(_, used)| !**used) {
        return Err(unused(rule));
    }
    let mut read = builder.rebuild(checkpoint)?;
    update_untyped(&mut read);
    Ok(Some(read))
}

fn unused(rule: &CastRule) -> Error {
    let size = if rule.dtype.itemsize() == 1 { "1 byte" } else { "2 bytes" };
    let which = rule
        .pattern
        .as_ref()
        .map_or_else(String::new, |it| format!(" that matches {}", it.as_str()));
    Error::refused(format!("there is no array of elements of {size} without a dtype{which}"))
        .advice(advice!["Such arrays are void8 and void16 in ", Setting::ListKeys, "."])
}
